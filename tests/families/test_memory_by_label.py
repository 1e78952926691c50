"""What holds names that a peer chose tells NumPy no address, whichever way it came."""

import ctypes
import pickle
import subprocess
import sys

import numpy as np
import pytest
from families_attack import through

from safeser import pickles
from safeser.pickles.shims import labels

pd = pytest.importorskip("pandas")
xr = pytest.importorskip("xarray")
Bunch = pytest.importorskip("sklearn.utils").Bunch

NAME = "__array_interface__"
PROFILE = pickles.Profile.named("data", "numpy", "pandas", "sklearn")
_SECRET = ctypes.create_string_buffer(b"secret!!")
INTERFACE = {
    "data": (ctypes.addressof(_SECRET), False),
    "shape": (8,),
    "typestr": "|u1",
    "version": 3,
}

HOLDERS = {
    "series": pd.Series([INTERFACE, 1], index=[NAME, "b"], dtype=object),
    "categories": pd.Series([INTERFACE], index=pd.CategoricalIndex([NAME])),
    "objects": pd.Series([INTERFACE], index=pd.Index([NAME], dtype=object)),
    "row": pd.DataFrame({NAME: [INTERFACE], "b": [1]}, dtype=object),
    "bunch": Bunch(**{NAME: INTERFACE}),
    "labelled": xr.DataArray([1.5], attrs={NAME: INTERFACE}),
    "dataset": xr.Dataset(attrs={NAME: INTERFACE}),
    "coordinate": xr.Dataset(coords={NAME: 1}),
}


def _told(value):
    """Return what NumPy reads where it is told that *value* lies."""
    for part in (value, *([value.iloc[0]] if isinstance(value, pd.DataFrame) else [])):
        for name in labels.MEMORY:
            assert not hasattr(part, name)
        if isinstance(part, xr.Dataset):
            with pytest.raises(TypeError, match="cannot directly convert"):
                np.asarray(part)
            continue
        made = np.asarray(part)
        assert made.dtype != np.uint8
        assert made.tobytes() != _SECRET.raw


@pytest.mark.parametrize("name", HOLDERS)
def test_by_family_dask(name):
    _told(through(HOLDERS[name]))


@pytest.mark.parametrize("name", ["series", "categories", "objects", "row", "bunch"])
def test_by_pickle(name):
    _told(pickles.loads(pickle.dumps(HOLDERS[name]), profile=PROFILE))


def test_labels_go_on_to_be_attributes():
    assert through(pd.Series([1, 2], index=["a", "b"])).b == 2
    assert through(pd.DataFrame({"a": [1]})).a.tolist() == [1]
    assert Bunch(a=1).a == 1
    assert xr.DataArray([1], attrs={"unit": "m"}).unit == "m"
    with pytest.raises(AttributeError):
        _ = pd.Series([1]).b


def test_hiding_twice_is_hiding_once():
    hidden = Bunch.__getattr__
    labels.hide_memory(Bunch)
    assert Bunch.__getattr__ is hidden


_ALONE = """
import numpy, pandas
from safeser.pickles.shims.labels import hide_memory_in_frames
series = pandas.Series([{"data": (1, False), "shape": (8,), "typestr": "|u1"}], ["NAME"])
assert type(series.NAME) is dict  # which NumPy would read address 1 by
hide_memory_in_frames()
assert numpy.asarray(series).dtype == object
"""


def test_where_nothing_else_was_loaded():
    subprocess.run([sys.executable, "-c", _ALONE.replace("NAME", NAME)], check=True)


def test_where_there_is_no_pandas(monkeypatch):
    monkeypatch.setattr(labels.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(labels, "hide_memory", None)
    labels.hide_memory_in_frames()

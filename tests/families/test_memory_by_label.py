"""What holds names that a peer chose tells NumPy no address, whichever way it came."""

import ctypes
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from dask.base import is_dask_collection
from scipy import optimize
from sklearn.utils import Bunch

import safeser.types.pandas as bounds
from safeser import families, pickles
from safeser.errors import PayloadError
from safeser.types.numpy import ASKED, MEMORY
from tests.samples.typed import FAMILIES, GRANT, through

NAME = "__array_interface__"
PROFILE = pickles.Profile.named("data", "numpy", "pandas", "sklearn")
_SECRET = ctypes.create_string_buffer(b"secret!!")
INTERFACE = {
    "data": (ctypes.addressof(_SECRET), False), "shape": (8,), "typestr": "|u1", "version": 3,
}  # fmt: skip

LABELLED = {
    "series": pd.Series([INTERFACE, 1], index=[NAME, "b"], dtype=object),
    "categories": pd.Series([INTERFACE], index=pd.CategoricalIndex([NAME])),
    "objects": pd.Series([INTERFACE], index=pd.Index([NAME], dtype=object)),
    "row": pd.DataFrame({NAME: [INTERFACE], "b": [1]}, dtype=object),
    "levels": pd.Series([INTERFACE], index=pd.MultiIndex.from_tuples([("a", NAME)])),
    "alone": pd.Index(["a", NAME]),
    "missing": pd.Index([NAME, None], dtype="string[python]"),
    "arrow": pd.Index(pd.array(["a", NAME], dtype=pd.ArrowDtype(pa.string()))),
    "long": pd.Index(pd.array([NAME], dtype=pd.ArrowDtype(pa.large_string()))),
    "coded": pd.Index(
        pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array([NAME]).dictionary_encode()]))
    ),
}

HOLDERS = {
    "bunch": Bunch(**{NAME: INTERFACE}), "labelled": xr.DataArray([1.5], attrs={NAME: INTERFACE}),
    "dataset": xr.Dataset(attrs={NAME: INTERFACE}), "coordinate": xr.Dataset(coords={NAME: 1}),
}  # fmt: skip


def _told(value):
    """Return what NumPy reads where it is told that *value* lies."""
    for name in MEMORY:
        assert not hasattr(value, name)
    if isinstance(value, xr.Dataset):
        with pytest.raises(TypeError, match="cannot directly convert"):
            np.asarray(value)
        return
    made = np.asarray(value)
    assert made.dtype != np.uint8
    assert made.tobytes() != _SECRET.raw


def _unchecked(monkeypatch):
    """Have a sender that does not look at what labels are called."""
    stock = bounds.check_labels
    monkeypatch.setattr(bounds, "check_labels", lambda index: None)
    return lambda: monkeypatch.setattr(bounds, "check_labels", stock)


@pytest.mark.parametrize("name", LABELLED)
def test_labels_are_refused_where_they_are_sent_and_where_they_arrive(name, monkeypatch):
    with pytest.raises(PayloadError, match="a label is a name"):
        families.serialize(LABELLED[name], FAMILIES)
    with pytest.raises(PayloadError) as caught:
        pickles.loads(pickle.dumps(LABELLED[name]), profile=PROFILE)
    assert caught.value.rule == "value.label"
    checks = _unchecked(monkeypatch)
    header, frames = families.serialize(LABELLED[name], FAMILIES)
    checks()
    frames = [bytes(frame) for frame in frames]
    families.check(header, frames)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT)
    assert caught.value.rule == "value.label"


@pytest.mark.parametrize("name", sorted(ASKED))
def test_each_of_these_names_is_refused(name):
    for index in (pd.Index([name]), pd.Index(["a", name], dtype=object)):
        with pytest.raises(PayloadError):
            bounds.check_labels(index)


def test_other_labels_are_not():
    for dtype in (object, "str", "string[python]", "string[pyarrow]", "category"):
        bounds.check_labels(pd.Index(["a", "__array__", None], dtype=dtype))
    for index in (pd.RangeIndex(5), pd.Index([1.5]), pd.date_range("2020", periods=2)):
        bounds.check_labels(index)
    bounds.check_labels(pd.Index(pd.array([1], dtype=pd.ArrowDtype(pa.int64()))))


@pytest.mark.parametrize("name", HOLDERS)
def test_by_family_dask(name):
    _told(through(HOLDERS[name]))


@pytest.mark.parametrize("kind", [Bunch, optimize.OptimizeResult])
def test_a_key_is_no_answer_to_a_notebook_or_to_dask(kind):
    # With such an answer, text of a peer's would run in the notebook that shows the value.
    found = through(kind(**dict.fromkeys(ASKED, 1)))
    assert len(found) == len(ASKED)
    assert not any(hasattr(found, name) for name in ASKED)
    assert not is_dask_collection(found)


def test_by_pickle():
    _told(pickles.loads(pickle.dumps(HOLDERS["bunch"]), profile=PROFILE))

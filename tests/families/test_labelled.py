"""xarray's arrays and datasets: identical on the other side, or refused by name."""

import contextlib

import numpy as np
import pytest
from families_attack import FAMILIES, GRANT, LIMITS, mutate_all, through

from safeser import families
from safeser.errors import PayloadError, SafeserError
from safeser.values import Grant

pd = pytest.importorskip("pandas")
xr = pytest.importorskip("xarray")


def dataset():
    return xr.Dataset(
        {
            "a": (("x", "y"), np.arange(6.0).reshape(2, 3), {"units": "m"}),
            "s": 5,
            "words": ("y", np.array(["q", "r", "s"])),
        },
        coords={
            "x": [10, 20],
            "y": ("y", list("abc"), {"long_name": "letters"}),
            "lab": ("x", [1.5, 2.5]),
            "when": ("y", pd.date_range("2020", periods=3)),
        },
        attrs={"q": 1, "made": np.float32(2)},
    )


def _mapped():
    made = dataset()
    made["x"].encoding["dtype"] = "int16"
    made["a"].encoding.update(scale_factor=0.1, _FillValue=np.nan)
    made.encoding["source"] = "memory"
    return made


DATASETS = {
    "plain": dataset(),
    "empty": xr.Dataset(),
    "stacked": dataset().stack(z=("x", "y")),
    "encoded": _mapped(),
    "times": xr.Dataset(
        {"v": ("t", np.arange(4))}, coords={"t": pd.date_range("2020", periods=4, freq="h")}
    ),
    "unindexed": dataset().drop_indexes("x"),
    "numbered": xr.Dataset({"v": ((1, "y"), np.zeros((2, 2)))}),
    "two-indexes": xr.Dataset(coords={"m": ("x", [1, 2])}).set_xindex("m"),
}


def exact(a, b):
    """Assert what identical() leaves out: types, encoding, indexes, order."""
    xr.testing.assert_identical(a, b)
    assert type(a) is type(b)
    assert a.encoding == b.encoding or repr(a.encoding) == repr(b.encoding)
    if isinstance(a, xr.Variable):
        assert type(a._data) is type(b._data)
        assert a.dtype == b.dtype
        return
    assert list(a.coords) == list(b.coords)
    assert [type(i) for i in a.xindexes.values()] == [type(i) for i in b.xindexes.values()]
    assert list(a.xindexes) == list(b.xindexes)
    for name, index in a.indexes.items():
        assert type(index) is type(b.indexes[name])
        assert index.identical(b.indexes[name])
    if isinstance(a, xr.Dataset):
        assert list(a.data_vars) == list(b.data_vars)
    for name in a.coords if isinstance(a, xr.DataArray) else a.variables:
        exact(a[name].variable, b[name].variable)


@pytest.mark.parametrize("name", DATASETS)
def test_datasets(name):
    made = DATASETS[name]
    exact(made, through(made, frozen=False))
    exact(made, through(made))
    for array in made.variables:
        exact(made[array], through(made[array], frozen=False))
        exact(made[array].variable, through(made[array].variable, frozen=False))


def test_arrays_without_coordinates():
    for made in (
        xr.DataArray(np.zeros((2, 3))),
        xr.DataArray(5, name="five"),
        xr.DataArray(np.arange(3), dims="x", name=("a", 1), attrs={"k": [1, 2]}),
        xr.DataArray(np.array([None, "a"], object), dims="x"),
    ):
        exact(made, through(made, frozen=False))


def test_a_shared_index_is_one_object():
    got = through(dataset().stack(z=("x", "y")))
    assert got.xindexes["x"] is got.xindexes["y"] is got.xindexes["z"]
    assert got.sel(z=(10, "b"))["a"].item() == 1.0


def test_large_arrays_are_not_copied():
    made = dataset()
    header, frames = families.serialize(made, FAMILIES)
    values = made["a"].values.view("u1")
    assert any(np.shares_memory(values, np.frombuffer(f, "u1")) for f in frames if len(f))
    buffers = [bytearray(frame) for frame in frames]
    got = families.deserialize(header, buffers, GRANT)["a"].values.view("u1")
    assert any(np.shares_memory(got, np.frombuffer(b, "u1")) for b in buffers if len(b))


class Lazy(xr.backends.BackendArray):
    """What an opened file holds until somebody asks for the values."""

    dtype, shape = np.dtype("f8"), (2,)

    def __getitem__(self, key):
        raise AssertionError("serializing reads nothing")


def _lazy():
    data = xr.core.indexing.LazilyIndexedArray(Lazy())
    return xr.Dataset({"a": ("x", data)})


def test_what_is_not_in_memory_is_refused_by_name():
    chunked = pytest.importorskip("dask.array").ones(4, chunks=2)
    for made in (xr.Dataset({"a": ("x", chunked)}), _lazy()):
        with pytest.raises(PayloadError, match=r"\.load\(\)") as caught:
            families.serialize(made, FAMILIES)
        assert "['a']" in caught.value.where


def test_other_indexes_are_refused_by_name():
    interval = xr.Dataset(coords={"x": [1, 2]})
    index = xr.indexes.RangeIndex.arange(0, 1, 0.5, dim="r")
    made = interval.assign_coords(xr.Coordinates.from_xindex(index))
    with pytest.raises(PayloadError, match="only indexes that pandas holds"):
        families.serialize(made, FAMILIES)
    categories = xr.Dataset({"c": ("x", pd.Categorical(["a", "b", "a"]))})
    with pytest.raises(PayloadError, match="extension array"):
        families.serialize(categories, FAMILIES)
    noted = dataset()
    noted.attrs["f"] = print
    with pytest.raises(PayloadError, match="builtin_function") as caught:
        families.serialize(noted, FAMILIES)
    assert ".attrs" in caught.value.where


def forged(value, position, part, families_=FAMILIES):
    header, frames = families.serialize(value, FAMILIES)
    sizes, start = header["frame-lengths"], 0
    start = sum(sizes[:position])
    inner, own = families.serialize(part, families_)
    header["sub-headers"][position] = inner
    frames[start : start + sizes[position]] = own
    sizes[position] = len(own)
    return header, frames


VARIABLE = xr.Variable(("x",), np.arange(2))
INDEX = dataset().xindexes["x"]


@pytest.mark.parametrize(
    ("value", "position", "part"),
    [
        (VARIABLE, 0, ("x", "y")),
        (VARIABLE, 0, ("x", "x")),
        (VARIABLE, 0, ([],)),
        (VARIABLE, 0, "x"),
        (VARIABLE, 1, [1]),
        (VARIABLE, 3, [1]),
        (xr.Variable(("x", "y"), np.zeros((2, 2))), 0, ("x", "x")),
        (dataset()["x"].variable, 3, np.arange(2)),
        (INDEX, 0, np.arange(2)),
        (INDEX, 1, []),
        (INDEX, 3, {}),
        (dataset().stack(z=("x", "y")).xindexes["z"], 3, {"x": np.dtype("i8")}),
        (dataset().stack(z=("x", "y")).xindexes["z"], 3, {"x": 1, "y": 2}),
        (dataset(), 0, {"a": 1}),
        (dataset(), 0, {"x": VARIABLE}),
        (dataset(), 0, {"b": xr.Variable(("x",), np.arange(3))}),
        (dataset(), 1, {"x": VARIABLE}),
        (dataset(), 2, [1]),
        (dataset(), 2, [(1, 2)]),
        (dataset(), 2, [(INDEX, {})]),
        (dataset(), 2, [(INDEX, {"x": ({}, 1)})]),
        (dataset(), 3, ["x"]),
        (dataset(), 3, ["x", "y", "lab", "lab"]),
        (dataset(), 5, [1]),
        (dataset()["a"], 0, xr.Variable(("x", "y"), np.zeros((3, 3)))),
        (dataset()["a"], 0, xr.Variable((), np.array(1))),
        (dataset()["a"], 0, 5),
        (dataset()["a"], 3, []),
    ],
)
def test_forged_parts(value, position, part):
    header, frames = forged(value, position, part)
    with pytest.raises(SafeserError) as caught:
        families.deserialize(header, frames, GRANT, limits=LIMITS)
    assert caught.value.rule.startswith(("families.", "value."))


@pytest.mark.parametrize(
    ("value", "position", "part"),
    [
        (dataset()["x"].variable, 4, np.dtype("U100000000")),
        (INDEX, 2, np.dtype("U100000000")),
        (
            dataset().stack(z=("x", "y")).xindexes["z"],
            3,
            dict.fromkeys("xy", np.dtype("V99999999")),
        ),
    ],
)
def test_indexes_whose_values_would_fill_the_memory(value, position, part):
    header, frames = forged(value, position, part)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT, limits=LIMITS)
    assert caught.value.rule == "value.dtype"


PICKLED = Grant("test", ("dask", "msgpack", "pickle"), profiles=("data", "numpy"))


@pytest.mark.parametrize(
    ("value", "position", "wrong", "right"),
    [
        (VARIABLE, 0, ["x"], ("x",)),
        (VARIABLE, 1, [1], {"a": 1}),
        (VARIABLE, 2, None, {}),
        (VARIABLE, 3, [1, 2], np.arange(2)),
        (INDEX, 0, [10, 20], None),
        (INDEX, 2, "i8", np.dtype("i8")),
        (INDEX, 3, [], None),
        (dataset(), 0, [1], {}),
        (dataset(), 2, (), None),
        (dataset(), 3, (), None),
        (dataset(), 4, [], {}),
        (dataset()["a"], 0, [1], None),
    ],
)
def test_what_a_granted_pickle_holds_is_checked_as_well(value, position, wrong, right):
    for part, fine in ((wrong, False), (right, True)):
        if fine and right is None:
            continue
        header, frames = forged(value, position, part, ("pickle",))
        if fine:
            families.deserialize(header, frames, PICKLED)
            continue
        with pytest.raises(PayloadError) as caught:
            families.deserialize(header, frames, PICKLED)
        assert caught.value.rule in ("families.build", "families.child-type")


@pytest.mark.parametrize(
    ("meta", "parts"),
    [
        ({"kind": "Mine", "data": "array"}, 4),
        ({"kind": "Variable", "data": "lazy"}, 4),
        ({"kind": 5, "data": "array"}, 4),
        ({"kind": "Variable", "data": "index"}, 4),
        ({"kind": "Variable"}, 4),
    ],
)
def test_forged_kinds(meta, parts):
    header, frames = families.serialize(VARIABLE, FAMILIES)
    header["sub-header"] = meta
    with pytest.raises(PayloadError):
        families.check(header, frames)
    assert len(header["sub-headers"]) == parts


def test_an_index_in_the_middle_of_being_renamed():
    made = dataset().stack(z=("x", "y"))
    index = made.xindexes["z"]
    index.index = index.index.set_names(["x", "other"])
    with pytest.raises((PayloadError, KeyError)):
        families.serialize(made, FAMILIES)


def use(made):
    repr(made)
    for name in ("copy", "sum", "to_dict", "load"):
        with contextlib.suppress(AttributeError, TypeError, ValueError, KeyError, OverflowError):
            getattr(made, name)()


@pytest.mark.parametrize(("made", "every"), [(VARIABLE, 2), (INDEX, 9)])
def test_mutated(made, every):
    # Larger ones are mutated by verification.malformed.
    assert mutate_all(made, use, every=every)[0] > 20

"""xarray's objects whose parts do not fit, and those that no sender sends."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from pandas.core.indexes import base

from tests.pickles.forging import Called
from tests.samples.typed import hostile, payload, replaced, sent, sent_as, swapped
from tests.samples.values.labelled import EXTENSIONS, dataset

VARIABLE = xr.Variable(("x",), np.arange(2))
INDEX = dataset().xindexes["x"]
HELD = dataset()["x"].variable._data
CATEGORIES = xr.Variable("x", pd.Categorical(["a", "b", "a"]))
TEXT = xr.Variable("x", pd.array(["a", "b"], "string"))
LEVELS = xr.Dataset(coords={"t": EXTENSIONS[0], "w": [1, 2]}).stack(z=("t", "w"))

PARTS = {
    "families.build": [
        (VARIABLE, 0, ("x", "y")), (VARIABLE, 0, ("x", "x")), (VARIABLE, 0, ([],)),
        (xr.Variable(("x", "y"), np.zeros((2, 2))), 0, ("x", "x")), (INDEX, 1, []), (INDEX, 3, {}),
        (dataset().stack(z=("x", "y")).xindexes["z"], 3, {"x": np.dtype("i8")}),
        (dataset().stack(z=("x", "y")).xindexes["z"], 3, {"x": 1, "y": 2}),
        (dataset(), 0, {"a": 1}), (dataset(), 0, {"x": VARIABLE}),
        (dataset(), 0, {"b": xr.Variable(("x",), np.arange(3))}), (dataset(), 1, {"x": VARIABLE}),
        (dataset(), 2, [1]), (dataset(), 2, [(1, 2)]), (dataset(), 2, [(INDEX, {})]),
        (dataset(), 2, [(INDEX, {"x": ({}, 1)})]), (dataset(), 3, ["x"]),
        (dataset(), 3, ["x", "y", "lab", "lab"]),
        (dataset()["a"], 0, xr.Variable(("x", "y"), np.zeros((3, 3)))),
        (dataset()["a"], 0, xr.Variable((), np.array(1))), (dataset()["a"], 3, []),
        (HELD, 1, 5), (HELD, 1, pd.Index([1])),
        (dataset().stack(z=("x", "y"))["x"].variable._data, 2, pd.array([1, 2], "Int64")),
        (CATEGORIES, 0, ("x", "y")), (CATEGORIES, 0, ()), (TEXT, 0, ("x", "y")),
        # What xarray keeps as it is, or converts, it does not take as an extension array.
        (CATEGORIES, 3, TEXT._data), (CATEGORIES, 3, pd.arrays.NumpyExtensionArray(np.arange(3))),
        (CATEGORIES, 3, pd.date_range("2020", periods=3).array),
        (dataset(), 0, {"b": CATEGORIES}), (dataset(), 1, {"x": CATEGORIES, "lab": CATEGORIES}),
        (HELD, 1, pd.CategoricalDtype(["a"])), (HELD, 1, pd.Int64Dtype()),
        *((LEVELS.xindexes["z"], 3, {"t": kind, "w": np.dtype("i8")}) for kind in (
            "category", pd.CategoricalDtype(["u", "x"]), pd.Int64Dtype(), pd.StringDtype())),
        (LEVELS.drop_indexes(["z", "t", "w"])["t"].variable, 4, pd.Int64Dtype()),
    ],
    "families.child-type": [
        (VARIABLE, 0, "x"), (VARIABLE, 1, [1]), (VARIABLE, 3, [1]),
        (dataset()["x"].variable, 3, np.arange(2)), (INDEX, 0, np.arange(2)), (dataset(), 5, [1]),
        (dataset()["a"], 0, 5), (HELD, 0, np.arange(2)),
        (CATEGORIES, 3, np.arange(3)), (CATEGORIES, 3, CATEGORIES._data), (CATEGORIES, 3, "aba"),
        (CATEGORIES, 3, pd.CategoricalIndex(["a"])), (CATEGORIES._data, 0, CATEGORIES._data),
        (VARIABLE, 3, CATEGORIES.data), (TEXT, 3, pd.Series(["a"])),
    ],
}  # fmt: skip


DAYS = {"kind": "DatetimeNoLeap", "calendar": "noleap", "has_year_zero": True, "name": None}


def calendar(**changes):
    """Return the payload of an index of moments of a calendar that are written as a table."""
    table = {"data": np.array([[2001, 2, 28, 0, 0, 0, 0]]), **DAYS, **changes}
    return sent_as("xarray:CFTimeIndex", Called(base._new_Index, xr.CFTimeIndex, table))


CALENDARS = {
    "families.arguments": [
        calendar(data=np.array([[2001, 2, 29, 0, 0, 0, 0]])),
        calendar(data=np.ones((2, 6), int)),
        calendar(data=np.ones(7, int)),
        calendar(data=np.ones((2, 7))),
        calendar(kind="num2date"),
        calendar(calendar=5),
        calendar(calendar="x"),
        calendar(has_year_zero=2),
        calendar(data=np.full((1, 7), 1 << 40)),
    ],
    "families.state": [calendar(tzinfo=None)],
}


CODES = {"families.codes": [(CATEGORIES, 3, b"\x05\0\0"), (CATEGORIES, 3, b"\xfe\0\0")]}


LARGE = {
    "value.dtype": [
        (dataset()["x"].variable, 4, np.dtype("U100000000")),
        (INDEX, 2, np.dtype("U100000000")),
        (HELD, 1, np.dtype("U100000000")),
        (
            dataset().stack(z=("x", "y")).xindexes["z"],
            3,
            dict.fromkeys("xy", np.dtype("V99999999")),
        ),
    ],
}


def kind(meta, children):
    header, frames = sent({2: HELD, 4: VARIABLE, 5: CATEGORIES}[children])
    return {**header, "sub-header": meta}, frames


KINDS = {
    "families.header": [
        ({"kind": "Mine", "data": "array"}, 4), ({"kind": "Variable", "data": "lazy"}, 4),
        ({"kind": 5, "data": "array"}, 4), ({"kind": "Variable"}, 4),
        *(({"data": held}, 2) for held in ("array", "levels", 5, ["index"])), ({}, 2),
        ({"data": "bare"}, 2), ({"data": "extension"}, 2),
    ],
    "families.child-count": [({"kind": "Variable", "data": "index"}, 4)],
    "families.child-type": [
        ({"kind": "Variable", "data": "extension"}, 4), ({"kind": "Variable", "data": "bare"}, 4),
        ({"kind": "IndexVariable", "data": "extension"}, 5),
    ],
}  # fmt: skip


class Lazy(xr.backends.BackendArray):
    """What an opened file holds until somebody asks for the values."""

    dtype, shape = np.dtype("f8"), (2,)

    def __getitem__(self, key):
        raise AssertionError("serializing reads nothing")


def refused():
    """Yield what no sender sends, with the word that its refusal says."""
    for data in (da.ones(4, chunks=2), xr.core.indexing.LazilyIndexedArray(Lazy())):
        yield xr.Dataset({"a": ("x", data)}), ".load()"
    index = xr.indexes.RangeIndex.arange(0, 1, 0.5, dim="r")
    other = xr.Dataset(coords={"x": [1, 2]}).assign_coords(xr.Coordinates.from_xindex(index))
    yield other, "only indexes that pandas holds"
    item = xr.core.extension_array.PandasExtensionArray(EXTENSIONS[0][..., 0])
    yield xr.Variable((), item, fastpath=True), "Keep its dimension"
    noted = dataset()
    noted.attrs["f"] = print
    yield noted, ".attrs"


UNSENT = [*refused()]
HOSTILE = [
    *hostile(replaced, PARTS), *hostile(replaced, LARGE), *hostile(kind, KINDS),
    *hostile(payload, CALENDARS), *hostile(swapped, CODES),
]  # fmt: skip

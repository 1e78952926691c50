"""xarray's objects whose parts do not fit, and those that no sender sends."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from pandas.core.indexes import base

from tests.pickles.forging import Called
from tests.samples.typed import hostile, payload, replaced, sent, sent_as
from tests.samples.values.labelled import dataset

VARIABLE = xr.Variable(("x",), np.arange(2))
INDEX = dataset().xindexes["x"]
HELD = dataset()["x"].variable._data

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
    ],
    "families.child-type": [
        (VARIABLE, 0, "x"), (VARIABLE, 1, [1]), (VARIABLE, 3, [1]),
        (dataset()["x"].variable, 3, np.arange(2)), (INDEX, 0, np.arange(2)), (dataset(), 5, [1]),
        (dataset()["a"], 0, 5), (HELD, 0, np.arange(2)),
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
    header, frames = sent(VARIABLE if children == 4 else HELD)
    return {**header, "sub-header": meta}, frames


KINDS = {
    "families.header": [
        ({"kind": "Mine", "data": "array"}, 4), ({"kind": "Variable", "data": "lazy"}, 4),
        ({"kind": 5, "data": "array"}, 4), ({"kind": "Variable"}, 4),
        *(({"data": held}, 2) for held in ("array", "levels", 5, ["index"])), ({}, 2),
    ],
    "families.child-count": [({"kind": "Variable", "data": "index"}, 4)],
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
    yield xr.Dataset({"c": ("x", pd.Categorical(["a", "b", "a"]))}), "extension array"
    noted = dataset()
    noted.attrs["f"] = print
    yield noted, ".attrs"


UNSENT = [*refused()]
HOSTILE = [
    *hostile(replaced, PARTS), *hostile(replaced, LARGE), *hostile(kind, KINDS),
    *hostile(payload, CALENDARS),
]  # fmt: skip

"""pandas objects that a stock cluster takes apart, and arrays that claim to be such."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from safeser.dask.guarded.apart import put_together, taking_apart
from safeser.errors import PayloadError

DAYS = pd.date_range("2026-01-01", periods=3, freq="D")
PLACES = pd.Categorical(["a", "b", "a"], ["b", "a"], ordered=True)

FRAMES = {
    "numbers": pd.DataFrame({t: np.array([0, 1, 2]).astype(t) for t in ("i1", "u8", "f4", "c16")}),
    "flags": pd.Series([True, False], name="flag"),
    "text": pd.DataFrame({"str": ["a", None, "ü"], "NA": pd.array(["a", None, ""], "string")}),
    "nullable": pd.DataFrame({t: pd.array([1, None], t) for t in ("Int8", "Float64", "boolean")}),
    "times": pd.DataFrame(
        {"day": DAYS, "zone": DAYS.tz_localize("Europe/Zurich"), "d": DAYS - DAYS[0]}
    ),
    "periods": pd.Series(pd.period_range("2026-01", periods=3, freq="M")),
    "intervals": pd.Series(pd.interval_range(0, 3)),
    "categories": pd.Series(PLACES, index=DAYS),
    "objects": pd.Series([1, "x", None, 2.5, float("inf"), (1, [2])], dtype=object, name=("a", 1)),
    "levels": pd.DataFrame(
        np.arange(8).reshape(4, 2),
        pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["k", "n"]),
        pd.MultiIndex.from_tuples([("x", 1), ("y", 2)]),
    ),
    "grouped": pd.DataFrame({"k": PLACES, "n": [1, 2, 3]}).groupby("k", observed=True).agg(["sum"]),
    "empty": pd.DataFrame({"a": []}),
    "no columns": pd.DataFrame(index=range(3)),
    "same names": pd.DataFrame([[1, 2.5]], columns=["a", "a"]),
}


def same(one, other):
    kinds = {pd.DataFrame: pd.testing.assert_frame_equal, pd.Series: pd.testing.assert_series_equal}
    assert type(one) is type(other)
    kinds.get(type(one), pd.testing.assert_index_equal)(one, other)


@pytest.mark.parametrize("name", FRAMES)
def test_it_comes_back_as_it_was(name):
    arrays = taking_apart()(FRAMES[name])
    assert all(type(array) is np.ndarray and not array.dtype.hasobject for array in arrays)
    same(put_together(arrays), FRAMES[name])


def test_indexes_and_values_around_frames():
    for index in (DAYS, pd.RangeIndex(2, 9, 3, name="r"), pd.CategoricalIndex(PLACES)):
        same(put_together(taking_apart()(index)), index)
    value = {"a": [np.int64(3), (FRAMES["flags"],)], 2: np.arange(2), "f": 1.5}
    found = put_together(taking_apart()(value))
    assert type(found["a"][0]) is np.int64
    same(found["a"][1][0], FRAMES["flags"])
    assert found[2].tolist() == [0, 1]
    assert found["f"] == 1.5


@pytest.mark.parametrize(
    "value",
    [object(), pd.Series([object()]), pd.Series(pd.arrays.SparseArray([1])), {"a": {1}}, b"x"],
    ids=["object", "object inside", "sparse", "set", "bytes"],
)
def test_what_it_cannot_take_apart(value):
    assert taking_apart()(value) is None


def test_the_function_travels_by_value():
    # The cluster has no safeser; there, it is made of what the pickle holds.
    program = (
        "import sys; sys.modules['safeser'] = None\n"
        "import pickle, pandas; take = pickle.load(sys.stdin.buffer)\n"
        "print(len(take(pandas.DataFrame({'a': [1]}))))"
    )
    sent = cloudpickle.dumps(taking_apart())
    with pytest.raises(Exception):  # noqa: B017 - pickle raises different classes
        pickle.dumps(taking_apart())
    ended = subprocess.run(
        [sys.executable, "-c", program], input=sent, capture_output=True, check=True
    )
    assert ended.stdout.strip() == b"4"


def told(said, *arrays):
    return [np.frombuffer(json.dumps(said).encode(), "u1"), *arrays]


def range_of(*numbers):
    return {"kind": "range", "names": [None], "range": numbers}


def index_of(column):
    return {"kind": "index", "names": [None], "of": column, "freq": None}


def nested(levels):
    return {"kind": "list", "of": [nested(levels - 1)] if levels else []}


SHORT = {"index": range_of(0, 9, 1), "columns": range_of(0, 1, 1)}
CODED = {"kind": "category", "of": range_of(0, 2, 1), "codes": 1, "ordered": False}
LEVEL = {"names": [None], "of": [range_of(0, 2, 1)], "codes": [1]}
TEXT = {"kind": "text", "at": [1, 2], "missing": "NA"}


@pytest.mark.parametrize(
    "arrays",
    [
        [],
        None,
        [np.array([1, 2])],
        told({"kind": "array", "at": 5}),
        told({"kind": "array", "at": "x"}),
        told({"kind": "array", "at": 1}, [object()]),
        told({"kind": "eval"}),
        told({}),
        told(nested(60)),
        told({"kind": "frame", "of": [{"kind": "array", "at": 1}], **SHORT}, np.arange(3)),
        told(index_of({"kind": "zone", "at": 1, "zone": "../../x"}), np.zeros(1, "M8[ns]")),
        told(index_of(TEXT), np.array([9]), np.frombuffer(b"ab", "u1")),
        told(index_of(TEXT), np.array([1]), np.frombuffer(b"ab", "u1")),
        told({"kind": "levels", **LEVEL}, np.array([7])),
        told(index_of(CODED), np.array([7])),
        told(index_of({"kind": "eval"})),
    ],
)
def test_what_does_not_fit_is_refused(arrays):
    with pytest.raises(PayloadError) as caught:
        put_together(arrays)
    assert caught.value.rule == "stock.apart"

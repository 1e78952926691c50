"""Frames that other ways of sending them alter, their columns and their indexes."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa

D = decimal.Decimal
N = 4
DAYS = pd.date_range("2020-01-01", periods=N)
TABLE = {}


def frame(name, *args, **kwargs):
    TABLE[name] = pd.DataFrame(*args, **kwargs)


def column(name, values, **kwargs):
    TABLE[name] = pd.DataFrame({"first": range(len(values)), name: pd.Series(values, **kwargs)})


def objects(name, values):
    held = np.empty(len(values), object)
    held[:] = [None] * len(values)
    for position, value in enumerate(values):
        held[position] = value
    column(name, held)


def index(name, labels, **kwargs):
    TABLE[name] = pd.DataFrame({"x": range(len(labels))}, index=labels, **kwargs)


for unit in ("s", "ms", "us", "ns"):
    column(f"dates in {unit}", np.array(["2020-01-01", "NaT", "1970-01-02"], f"M8[{unit}]"))
    column(f"durations in {unit}", np.array([1, "NaT", -5], f"m8[{unit}]"))
    column(f"zoned dates in {unit}", DAYS.tz_localize("Europe/Berlin").as_unit(unit))
for zone in ("UTC", "+03:30", dt.timezone(dt.timedelta(hours=1), "here")):
    column(f"dates in zone {zone}", DAYS.tz_localize(zone))
for code in ("?", "i1", "u2", "i4", "u8", "f2", "f4", "c8", "c16", "g", "q", ">i4", ">f8"):
    column(f"numbers {code}", np.arange(N).astype(code))
column("negative zero and nan", np.array([-0.0, np.nan, np.inf, 5e-324]))

objects("decimals", [D("1.10"), D("2"), D("NaN"), D("1E+5"), None])
objects("missing apart", [None, np.nan, pd.NA, pd.NaT, float("-inf")])
objects("numbers apart", [1, 1.0, True, np.int64(1), np.float32(1), 1 << 70])
objects("text and bytes", ["a", b"a", "", "\0", "\ud800", "é"])
objects("lists", [[1, 2], [], [[3]], None])
objects("tuples", [(1, "a"), (), ((),), (None,)])
objects("dicts", [{"a": 1}, {}, {"b": {"c": [1]}}, None])
objects("sets", [{1}, set(), frozenset({2}), None])
objects("days", [dt.date(2020, 1, 1), None, dt.datetime(2020, 1, 1), dt.time(1)])
objects("moments", [pd.Timestamp("2020"), pd.Timedelta("1s"), pd.Period("2020"), pd.NaT])
objects("uuids", [uuid.UUID(int=5), None])
objects("intervals of objects", [pd.Interval(0, 1), pd.Interval(0, 1, "both")])
objects("arrays", [np.arange(3), np.zeros(0), None])
objects("frames in frames", [pd.DataFrame({"a": [1]}), pd.Series([1], name="s")])
objects("many days", [dt.date(2020, 1, n) for n in range(1, 9)])
objects("days and gaps", [dt.date(2020, 1, 1), None, pd.NaT, pd.NA, np.nan, None] * 3)
objects("numbers and gaps", [1, None, pd.NA, 2.5, "x"] * 3)
objects("gaps alone", [None, pd.NA, pd.NaT] * 4)

for storage in ("python", "pyarrow"):
    for missing in (pd.NA, np.nan):
        dtype = pd.StringDtype(storage, na_value=missing)
        column(f"text {storage} {missing}", pd.array(["a", None, "", "é\0"], dtype=dtype))
column("long text", ["x" * 3000, "y"])
column("chunked text", pd.concat([pd.Series(["a" * 400, None]), pd.Series(["b" * 400] * 9)]))
column("sliced text", pd.Series([f"{n:060}" if n % 3 else None for n in range(99)])[11:50])
for name in ("Int8", "Int64", "UInt16", "Float32", "Float64", "boolean"):
    column(f"nullable {name}", pd.array([1, None, 0, 1], dtype=name))

column("categories", pd.Categorical(list("abca"), categories=list("zabc"), ordered=True))
column("categories of objects", pd.Categorical([(1, 2), (3,), (1, 2), None]))
column("categories of intervals", pd.cut([1, 5, 9], [0, 3, 6, 10]))
column("categories of dates", pd.Categorical(DAYS))
column("categories of decimals", pd.Categorical([D("1.0"), D("2.00")]))
column("categories unused", pd.Categorical([None, None], categories=[3, 1]))
column("categories named", pd.Categorical(["a"], categories=pd.Index(["a"], name="n")))
column("intervals", pd.interval_range(0, N, closed="both"))
column("intervals of dates", pd.interval_range(pd.Timestamp("2020", tz="UTC"), periods=N))
column("intervals missing", pd.arrays.IntervalArray.from_tuples([(0, 1), np.nan]))
column("periods", pd.period_range("2020-01", periods=N, freq="2M"))
column("periods missing", pd.PeriodIndex(["2020Q1", "NaT"], freq="Q-FEB"))
column("sparse floats", pd.arrays.SparseArray([np.nan, 1.5, np.nan]))
column("sparse blocks", pd.arrays.SparseArray([1, 1, 5, 1], fill_value=1, kind="block"))
column("sparse flags", pd.arrays.SparseArray([False, True]))

for label, values in {
    "freq of hours": pd.date_range("2020", periods=N, freq="2h"),
    "freq backwards": pd.date_range("2020", periods=N, freq="-3min"),
    "freq of weeks": pd.date_range("2020", periods=N, freq="W-WED"),
    "freq of month ends": pd.date_range("2020", periods=N, freq="ME"),
    "freq of a zone": pd.date_range("2020-10-24", periods=N, freq="D", tz="Europe/Berlin"),
    "freq with an offset": pd.date_range("2020", periods=N, freq=pd.DateOffset(months=1, days=3)),
    "freq of holidays": pd.bdate_range(
        "2020", periods=N, freq=pd.offsets.CustomBusinessDay(holidays=["2020-01-03"])
    ),
    "no freq": pd.DatetimeIndex(["2020", "NaT"], name="n"),
    "periods as index": pd.period_range("2020", periods=N, freq="D", name=("p", 1)),
    "range": pd.RangeIndex(10, -2, -3, name=0),
    "numbers as index": pd.Index([3, 1, 3], dtype="u1"),
    "missing as index": pd.Index([None, np.nan, "a"], dtype=object),
    "tuples as index": pd.Index([(1, 2), "a"], dtype=object, tupleize_cols=False),
    "nullable as index": pd.Index([1, None], dtype="Int64"),
    "categories as index": pd.CategoricalIndex(list("aba"), categories=list("cab"), name="k"),
    "intervals as index": pd.interval_range(0.5, periods=3, name="i"),
    "unused levels": pd.MultiIndex.from_product([range(9), list("ab")])[3:5],
    "levels missing": pd.MultiIndex.from_arrays([DAYS, [1.5, None, 2, 3]], names=[("a",), 1.5]),
    "levels sorted": pd.MultiIndex.from_tuples([(1, "a"), (1, "b")]).sortlevel()[0],
    "levels of categories": pd.MultiIndex.from_arrays([pd.Categorical(["a", "b"]), [1, 2]]),
}.items():
    index(label, values)

frame("duplicate columns", [[1, "a", 2.5]], columns=["x", "y", "x"])
frame("columns of levels", [[1, 2.5]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]))
frame("columns of dates", [[1, 2, 3, 4]], columns=DAYS)
frame("columns of all kinds", [[1, 2, 3]], columns=pd.Index([1, "a", None], dtype=object))
frame("columns of a range", np.zeros((2, 3)), columns=pd.RangeIndex(3, 0, -1))
frame("nothing")
frame("no columns", index=range(3))
frame(
    "no rows", {"a": pd.array([], "Int64"), "b": np.zeros(0, "f4"), "c": pd.Series([], dtype="O")}
)
frame("blocks apart", {f"c{n}": [n, 1.5][n % 2] * np.ones(3, "if"[n % 2]) for n in range(6)})
TABLE["blocks in pieces"] = pd.concat([TABLE["blocks apart"], TABLE["blocks apart"]], axis=1)
TABLE["turned"] = pd.DataFrame(np.arange(12.0).reshape(3, 4)).T
TABLE["strided"] = pd.DataFrame(np.arange(24.0).reshape(6, 4)).iloc[::2, ::3]
TABLE["one label each"] = pd.DataFrame({"a": [1, 2]}).set_flags(allows_duplicate_labels=False)
TABLE["attributes"] = pd.DataFrame({"a": [1]})
TABLE["attributes"].attrs = {"unit": {"m": (1, [D("1.0")])}, 5: None}
TABLE["read-only"] = pd.DataFrame(np.frombuffer(b"\0" * 32).reshape(2, 2), copy=False)

for kind, values in (
    (pa.int64(), [1, None]),
    (pa.decimal128(9, 3), [D("1.500"), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None]),
    (pa.list_(pa.int8()), [[1, None], None]),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, None]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "a"]),
    (pa.bool_(), [True, None]),
    (pa.binary(), [b"a", None]),
    (pa.null(), [None, None]),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None]),
):
    array = pa.chunked_array([pa.array(values, kind), pa.array(values, kind)])
    column(f"arrow {kind}", pd.arrays.ArrowExtensionArray(array))


def others() -> Iterator[object]:
    """Yield each frame, a part of it, it turned, and its index and last column alone."""
    for sent in TABLE.values():
        yield from (sent, sent.iloc[1:], sent.index)
        with np.errstate(invalid="ignore"):
            yield sent.T
        if len(sent.columns):
            yield from (sent.iloc[:, -1], sent.iloc[:, -1].array)

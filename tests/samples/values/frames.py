"""pandas frames, series, indexes, arrays and scalars."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa


def _columns() -> dict[str, object]:
    return {
        "ints": np.arange(3),
        "flags": [True, False, True],
        "objects": pd.Series(["a" * 2000, 1, None], dtype=object),
        "short": pd.Series(["a", None, "b"], dtype=object),
        "gaps": pd.Series([1, pd.NA, None] * 3, dtype=object),
        "repeats": pd.Series(["a", None] * 150, dtype=object),
        "dates": pd.to_datetime(["2020", None, "2021"]),
        "zoned": pd.date_range("2020-03-28", periods=3, tz="Europe/Berlin"),
        "nullable": pd.array([1, None, 3], dtype="Int16"),
        "truth": pd.array([True, None, False], dtype="boolean"),
        "python-text": pd.array(["a", None, "b"], dtype=pd.StringDtype("python")),
        "arrow-text": pd.array(["a" * 900, None, "é" * 900], dtype=pd.StringDtype("pyarrow")),
        "arrow-short": pd.array(["a", None, "b"], dtype=pd.StringDtype("pyarrow")),
        "categories": pd.Categorical(["a", None, "b"], categories=["b", "a", "z"]),
        "cut": pd.cut([1, 5, 9], [0, 3, 6, 10]),
        "periods": pd.period_range("2020", periods=3, freq="2M"),
        "intervals": pd.interval_range(0, 3),
        "moments": pd.interval_range(pd.Timestamp("2020"), periods=3),
        "sparse": pd.arrays.SparseArray([0, 7, 0]),
        "sparse-blocks": pd.arrays.SparseArray([1.5, 2.5, 0], kind="block"),
    }


def examples() -> dict[str, object]:
    columns = _columns()
    made: dict[str, object] = {
        f"series-{name}": pd.Series(values, name=name) for name, values in columns.items()
    }
    made |= {f"array-{name}": pd.Series(columns[name]).array for name in ("cut", "sparse", "zoned")}
    two = pd.MultiIndex.from_product([[1, 2], ["a", "b"]], names=["x", None])
    frame = pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=["a", "b"])
    frame.insert(1, "c", np.arange(3))
    frame.attrs["unit"] = "m"
    unique = pd.DataFrame({"a": [1]}, index=pd.Index([(1, 2)], tupleize_cols=False))
    made |= {
        "frame": frame,
        "wide": pd.DataFrame(np.ones((2, 3), "f4")),
        "mixed": pd.DataFrame({"a": [1, 2], "t": ["x", "y"], "b": [True, False], "d": [1, 3]}),
        "pieces": frame[["c", "a", "b"]],
        "unique": unique.set_flags(allows_duplicate_labels=False),
        "dated": pd.DataFrame({"x": [1, 2]}, index=pd.date_range("2020", periods=2, freq="h")),
        "levels": pd.DataFrame([[1, 2, 3, 4]], columns=two),
        "range": pd.RangeIndex(2, 9, 3, name="r"),
        "two": two,
        "business": pd.bdate_range("2020", periods=4),
        "durations": pd.timedelta_range(0, periods=3, freq="90s"),
        "dtypes": frame.assign(t="x", z=pd.Categorical(["a", "b", "a"])).dtypes,
        "period-dtype": pd.PeriodDtype("Q-NOV"),
        "month": pd.DateOffset(months=1, days=2),
        "hours": pd.offsets.BusinessHour(start="08:00"),
        "holidays": pd.offsets.CustomBusinessDay(holidays=["2020-01-01"]),
        "years": pd.offsets.FY5253Quarter(weekday=4, variation="last"),
        "timestamp": pd.Timestamp("2020-10-25 00:30", tz="UTC").tz_convert("Europe/Berlin"),
        "timedelta": pd.Timedelta("1h"),
        "period": pd.Period("2020", "Q-FEB"),
        "interval": pd.Interval(1, 2.5),
        "missing": [pd.NA, pd.NaT],
    }
    lists = pa.chunked_array([pa.array([[1, None], None])])
    made["arrow"] = pd.DataFrame({"l": pd.arrays.ArrowExtensionArray(lists)})
    return made


SCALARS = [
    pd.Timestamp("2020-10-25 02:30:00.000000001", tz=None),
    pd.Timestamp(1603585800, unit="s", tz="UTC").tz_convert("Europe/Berlin"),
    pd.Timestamp(1603589400, unit="s", tz="UTC").tz_convert("Europe/Berlin"),
    pd.Timestamp("2020", tz="+03:00"), pd.Timedelta(5, unit="ns"), pd.Interval(1, 2.5, "both"),
    pd.Interval(pd.Timestamp("2020"), pd.Timestamp("2021")),
]  # fmt: skip
OFFSETS = [
    pd.offsets.Hour(3), pd.offsets.Week(weekday=2),
    pd.offsets.BusinessHour(start="08:00", end="12:00"),
    pd.offsets.CustomBusinessDay(holidays=["2020-01-02", "2020-05-01"], weekmask="Mon Tue"),
    pd.offsets.FY5253Quarter(weekday=4, variation="last", startingMonth=1, qtr_with_extra_week=1),
    pd.offsets.Easter(-2), pd.offsets.BusinessDay(2, offset=pd.Timedelta("1h").to_pytimedelta()),
    pd.DateOffset(2, normalize=True), pd.DateOffset(months=1, days=-2, hour=3),
]  # fmt: skip
DTYPES = [
    *(pd.Int8Dtype(), pd.UInt64Dtype(), pd.Float32Dtype(), pd.BooleanDtype()),
    *(pd.StringDtype("python"), pd.StringDtype("pyarrow")), pd.Series(["a"], dtype="string").dtype,
    pd.CategoricalDtype(["b", "a"], ordered=True),
    pd.CategoricalDtype(pd.date_range("2026", periods=3)), pd.DatetimeTZDtype("ns", "UTC"),
    pd.DatetimeTZDtype("s", dt.timezone(dt.timedelta(hours=1))), pd.PeriodDtype("Q-NOV"),
    pd.IntervalDtype("int64", "left"), pd.IntervalDtype(pd.DatetimeTZDtype("ns", "UTC"), "both"),
    *(pd.SparseDtype("float64"), pd.SparseDtype("int64", 7)),
    *(pd.ArrowDtype(pa.int8()), pd.ArrowDtype(pa.list_(pa.timestamp("us", "UTC")))),
    *(pd.CategoricalDtype(), pd.CategoricalDtype(["a"], None), pd.IntervalDtype()),
    *(pd.IntervalDtype("float32"), pd.SparseDtype(object, "a")),
    pd.arrays.NumpyExtensionArray(np.arange(2)).dtype,
]  # fmt: skip

INDEXES = [
    *(pd.Index([1.5]), pd.Index([True, False]), pd.Index([1, 2], dtype="i2"), pd.RangeIndex(0)),
    *(pd.DatetimeIndex([]), pd.MultiIndex.from_tuples([(1, "a"), (1, "b")], sortorder=0)),
    pd.Index([1, "a", 1, None] * 100, dtype=object),
]


def others() -> Iterator[object]:
    """Yield more honest values."""
    yield from (*SCALARS, *OFFSETS, *DTYPES, *INDEXES)
    yield pd.Series(np.arange(4), name=(1, "a"))
    yield pd.DataFrame({"a": [1]}, index=pd.Index([5], name=("t", 1)))
    yield pd.Series([1]).set_flags(allows_duplicate_labels=False)
    texts = np.array(["one", "two", None, "two \0"] * 100, object)
    yield pd.DataFrame({"a": texts, "b": texts[::-1]}, dtype=object)
    # pandas 2 told texts apart as C does, and so every "a\0" came back as "a".
    for missing in (None, float("nan"), "b"):
        for kind in (pd.Series, pd.Index):
            yield kind(["a", "a\0", "a\0b", missing] * 100, dtype=object)
    for series in ([*texts, 1.0], ["x"] * 9000, [f"{n}" for n in range(9000)]):
        yield pd.Series(series, dtype=object)
    yield from (pd.date_range("2020", periods=2).array, pd.array(pd.date_range("2020", periods=3)))
    yield pd.concat([pd.Series(pd.cut([1, 5], [0, 3, 6]), name=n) for n in range(40)], axis=1)
    yield pd.MultiIndex.from_arrays([["a", "b"]] * 40)

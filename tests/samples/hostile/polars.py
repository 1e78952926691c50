"""polars' frames that polars would not have written, and those that no sender sends."""

from __future__ import annotations

from functools import reduce

import polars as pl
import pyarrow as pa

from safeser.families import plain
from tests.samples.typed import encoded, hostile, payload, ruled, sent, typed

FAR = pl.Series([2**31 - 1, None], dtype=pl.Int32).cast(pl.Date)
LATE = pl.Series([2**62], dtype=pl.Int64)
#: Which polars panics at, and no handler of exceptions stops that.
LONG = pl.Series([-(2**63)], dtype=pl.Int64).cast(pl.Duration("ms"))
REFUSED = {
    "objects": (pl.Series([object()], dtype=pl.Object), "'Object' is not kept"),
    "large integers": (pl.Series([1 << 100], dtype=pl.Int128), "'Int128' is not kept"),
    "empty arrays": (pl.Series([[]], dtype=pl.Array(pl.Int64, 0)), "is not kept"),
    "own categories": (
        pl.Series(["a"], dtype=pl.Categorical(pl.Categories("own"))),
        "named categories",
    ),
    "far dates": (FAR, "dates outside of the years 1 to 9999"),
    "long durations": (LONG, "of more than a billion days"),
    "long durations in lists": (LONG.implode(), "of more than a billion days"),
    "far times": (LATE.cast(pl.Datetime("us")), "dates outside of the years 1 to 9999"),
    "zoned times": (LATE.cast(pl.Datetime("ms", "UTC")), "dates outside of the years 1 to 9999"),
    "dates in lists": (FAR.implode(), "dates outside of the years 1 to 9999"),
    "dates in structures": (pl.DataFrame({"x": FAR}).to_struct("s"), "dates outside"),
    "dates in arrays": (FAR.reshape((1, 2)), "dates outside of the years 1 to 9999"),
}


def frame(described, table, kind="DataFrame"):
    """Return the payload of a peer who says that *table* holds columns as *described*."""
    return typed(f"polars:{kind}", sent(table), frames=[plain.encode(described)])


def of(kind, values=()):
    return pa.table({"x": pa.array(values, kind)})


def coded(*words, index=None, ordered=False, metadata=None):
    codes = pa.array(range(len(words)), index or pa.uint32())
    values = pa.array(words, pa.string_view())
    array = pa.DictionaryArray.from_arrays(codes, values, ordered=ordered)
    return pa.table([array], pa.schema([pa.field("x", array.type, metadata=metadata)]))


def ranked(*words):
    return coded(*words, index=pa.uint8(), ordered=True)


FORGED = {
    "families.child-type": {
        # polars panics at the first, and cannot know the others' classes
        "wide decimals": ([["x", "Int64"]], of(pa.decimal256(50, 2))),
        "intervals": ([["x", "Int64"]], of(pa.month_day_nano_interval())),
        "other numbers": ([["x", "Int64"]], of(pa.int32())),
        "other text": ([["x", "String"]], of(pa.large_string())),
        "another name": ([["y", "Int64"]], of(pa.int64())),
        "a column too many": ([["x", "Int64"], ["y", "Int64"]], of(pa.int64())),
        "metadata": ([["x", "Categorical"]], coded("a", metadata={"_PL_CATEGORICAL2": "9"})),
        "wrong index": ([["x", "Categorical"]], coded("a", index=pa.int32())),
    },
    "families.arrow": {
        "unknown type": ([["x", "Object"]], of(pa.int64())),
        "unknown parts": ([["x", ["Series", "Int64"]]], of(pa.int64())),
        "no parts": ([["x", ["List"]]], of(pa.large_list(pa.int64()))),
        "empty": ([["x", []]], of(pa.int64())), "none": ([["x", None]], of(pa.int64())),
        "pair": (["x"], of(pa.int64())), "name": ([[5, "Int64"]], of(pa.int64())),
        "unit": ([["x", ["Duration", "s"]]], of(pa.duration("s"))),
        "zone by number": ([["x", ["Datetime", "us", 5]]], of(pa.timestamp("us", "UTC"))),
        "precision": ([["x", ["Decimal", 1 << 80, 2]]], of(pa.decimal128(5, 2))),
        "scale": ([["x", ["Decimal", 5, -2]]], of(pa.decimal128(5, 2))),
        "size": ([["x", ["Array", 1 << 80, "Int8"]]], of(pa.list_(pa.int8(), 2))),
        "no size": ([["x", ["Array", 0, "Int8"]]], of(pa.list_(pa.int8(), 0))),
        "enum of numbers": ([["x", ["Enum", [1]]]], ranked("a")),
        "enum twice": ([["x", ["Enum", ["a", "a"]]]], ranked("a")),
        "deep": ([["x", reduce(lambda inner, _: ["List", inner], range(40), "Int8")]], ranked("a")),
    },
    "families.header": {"number": (5, of(pa.int64()))},
    "families.build": {
        "zone": ([["x", ["Datetime", "us", "No/Where"]]], of(pa.timestamp("us", "No/Where"))),
        "enum of others": ([["x", ["Enum", ["a"]]]], ranked("b")),
    },
    "families.content": {
        "far dates": (
            [["x", "Date"]],
            pa.table({"x": pa.array([2**31 - 1], pa.int32()).view("date32")}),
        ),
        "long durations": (
            [["x", ["Duration", "ms"]]],
            pa.table({"x": pa.array([-(2**63)]).view(pa.duration("ms"))}),
        ),
        "early times": (
            [["x", ["Datetime", "ms", None]]],
            pa.table({"x": pa.array([-(2**60)]).view(pa.timestamp("ms"))}),
        ),
    },
}  # fmt: skip


NUMBER = encoded(5)
COLUMN = [["x", "Int64"]]
TWICE = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
PARTS = [[f"f{number}", "Date"] for number in range(600)]
KIND = pa.struct([(name, pa.date32()) for name, _ in PARTS])
#: A word stands for an empty chunk, and polars takes each apart.
CHUNKS = pa.table({"x": pa.chunked_array([pa.nulls(0, KIND)] * 2000, KIND)})

UNSENT = [
    *((part, said) for series, said in REFUSED.values() for part in (series, series.to_frame())),
    (pl.DataFrame({"a": [1]}).lazy(), "collect"),
    (pl.DataFrame(height=3), "rows without any column"),
]
HOSTILE = [
    *hostile(frame, FORGED),
    *ruled(
        frame,
        [
            ([["x", "Int64"]] * 2, TWICE, "families.header"),
            ([["x", "Int64"], ["y", "Int64"]], of(pa.int64()), "Series", "families.header"),
            ([["x", ["Struct", PARTS]]], CHUNKS, "families.memory"),
        ],
    ),
    *ruled(
        payload,
        [
            (
                *typed("polars:Series", encoded(5), frames=[plain.encode(COLUMN)]),
                "families.child-type",
            ),
            (*typed("polars:LazyFrame", frames=[b""]), "families.type"),
        ],
    ),
]

"""Arrow's arrays of every form, tables, scalars, types and schemas."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa


def _arrays() -> dict[str, object]:

    number, text = pa.int64(), pa.string()
    codes, places = pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32())
    parts = [pa.array([1, 3, 4]), pa.array(["a", "b", "c"])]
    moment = datetime.datetime(2026, 1, 2, 3, 4)
    pairs = [[("a", 1)], None, [], [("b", 2), ("c", None)]]
    storage = pa.array([[*range(6)], [*range(6)]], pa.list_(number, 6))
    tensor = pa.fixed_shape_tensor(number, [2, 3], dim_names=["a", "b"], permutation=[1, 0])
    return {
        "null": pa.nulls(3),
        "flags": pa.array([True, None, False] * 5)[3:],
        "ints": pa.array([1, None, 3], pa.int16()),
        "floats": pa.array([1.5, None]),
        "decimals": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(5, 2)),
        "wide-decimals": pa.array([decimal.Decimal("1.25")], pa.decimal256(50, 2)),
        "short-decimals": pa.array([decimal.Decimal("1.25")], pa.decimal32(5, 2)),
        "times": pa.array([datetime.time(12, 0, 1), None], pa.time32("s")),
        "dates": pa.array([moment.date()], pa.date64()),
        "zoned": pa.array([moment, None], pa.timestamp("us", "Europe/Paris")),
        "intervals": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
        "fixed": pa.array([b"abcd", None], pa.binary(4)),
        "text": pa.array(["\u00e9", None, "", "abc"]),
        "long-text": pa.array(["\u00e9" * 3000, None, "", "abc"], pa.large_string()),
        "views": pa.array(["a" * 30, None, "b", "c" * 40], pa.string_view()),
        "long-views": pa.array([b"a" * 5000, b"b"], pa.binary_view()),
        "list": pa.array([[1], None, [], [2, 3]], pa.list_(number)),
        "large-list": pa.array([["a"], None, []], pa.large_list(text)),
        "fixed-list": pa.array([[1, 2, 3], None], pa.list_(number, 3)),
        "list-view": pa.array([[1], None, [2, 3]], pa.list_view(number)),
        "large-list-view": pa.array([[1], [], [2, 3]], pa.large_list_view(number)),
        "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": None}]),
        "no-fields": pa.array([{}, {}], pa.struct([])),
        "map": pa.array(pairs, pa.map_(text, number)),
        "dense": pa.UnionArray.from_dense(codes, places, parts),
        "sparse": pa.UnionArray.from_sparse(codes, parts),
        "dictionary": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "inner-dictionary": pa.array([["a"], None], pa.list_(pa.dictionary(pa.int8(), text))),
        "runs": pa.RunEndEncodedArray.from_arrays(
            pa.array([2, 3, 9], pa.int32()), ["a", None, "b"]
        ),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"1" * 16], pa.binary(16))),
        "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None])),
        "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8())),
        "opaque": pa.ExtensionArray.from_storage(pa.opaque(number, "a", "b"), pa.array([1])),
        "tensor": pa.ExtensionArray.from_storage(tensor, storage),
        "deep": pa.array([[{"x": [decimal.Decimal(1)]}, None], None]),
    }


def examples() -> dict[str, object]:
    made = _arrays()
    chosen = ("views", "list-view", "struct", "dictionary", "runs", "map", "dense", "tensor")
    made |= {f"sliced-{name}": made[name][1:] for name in chosen if len(made[name]) > 1}
    made |= {f"scalar-{name}": made[name][0] for name in (*chosen, "text", "ints", "uuid")}
    made |= {
        f"type-{name}": made[name].type for name in ("map", "dense", "runs", "tensor", "opaque")
    }
    field = pa.field("a", pa.list_(pa.int8()), nullable=False, metadata={b"k": b"\xff" * 9})
    coded = pa.chunked_array([made["dictionary"], made["dictionary"][1:]])
    columns = {name: made[name][:2] for name in ("text", "ints", "list", "views", "zoned")}
    return made | {
        "field": field,
        "schema": pa.schema([field, pa.field("b", made["map"].type)], metadata={"x": "y"}),
        "metadata": pa.KeyValueMetadata([("a", "1"), ("a", "2")]),
        "buffer": pa.py_buffer(b"abc" * 2000),
        "chunks": coded,
        "no-chunks": pa.chunked_array([], pa.int8()),
        "table": pa.table(columns, metadata={"k": "v"}),
        "chunked-table": pa.table({"c": coded, "d": pa.chunked_array([[1, 2, 3], [4, 5, 6, 7]])}),
        "batch": pa.record_batch(columns),
        "large": pa.table({"x": [*range(600)], "t": ["x" * 10] * 600}),
    }


def others() -> Iterator[object]:
    """Yield more honest values: slices, joins, chunks and scalars of each array."""
    for name, array in _arrays().items():
        many = pa.concat_arrays([array] * 40)
        parts = [array[:0], array[1:], pa.nulls(3, array.type), many[9:23], many[17:18], many[3:]]
        chunks = pa.chunked_array([array, *parts])
        yield from (*parts, chunks, pa.table({"a": chunks, "b": chunks}, metadata={"k": b"\xff"}))
        yield from array
        if not pa.types.is_union(array.type) and "runs" not in name:
            yield pa.scalar(None, array.type)
    kinds = list(_kinds())
    yield from kinds
    yield pa.schema([pa.field("", kind) for kind in kinds], metadata={"": ""})
    yield pa.schema([])
    yield pa.table({})
    frame = pd.DataFrame({"a": [1, 2], "c": pd.Categorical(["x", "y"]), "s": ["x", None]})
    yield pa.Table.from_pandas(frame)
    yield pa.RunEndEncodedArray.from_arrays(pa.array([1 << 20], pa.int32()), pa.array([1]))
    # What is behind a missing date may be anything.
    days, null = np.array([86_400_000, 1], "i8"), pa.py_buffer(b"\x01")
    yield pa.Array.from_buffers(pa.date64(), 2, [null, pa.py_buffer(days)])
    for coded in _coded():
        yield from (coded, coded[1:], pa.chunked_array([coded, coded]))
    yield pa.table({f"column {n}": pa.array([n, None]) for n in range(5000)})


def _kinds() -> Iterator[pa.DataType]:
    """Yield types of which a careless reader loses a part."""
    key = pa.field("K", pa.string(), nullable=False, metadata={"a": "b"})
    yield pa.map_(key, pa.field("V", pa.int8(), nullable=False), keys_sorted=True)
    yield pa.map_(pa.string(), pa.int8(), keys_sorted=False)
    yield pa.list_(pa.field("element", pa.int8(), metadata={"x": b"\x00" * 9000}))
    yield pa.dictionary(pa.uint16(), pa.large_string(), ordered=True)
    yield pa.sparse_union([pa.field("a", pa.int8()), pa.field("a", pa.null())], [7, 3])
    yield pa.fixed_shape_tensor(pa.int8(), [2, 0])
    yield pa.timestamp("ns", "+05:30")
    yield pa.timestamp("s", "America/Argentina/Buenos_Aires")
    yield from (pa.decimal256(76, 0), pa.duration("ms"), pa.binary(0))


def _coded() -> Iterator[pa.Array]:
    """Yield dictionaries inside of other types, and one of nothing but nulls."""
    words = pa.array(["a", "b", None, "a"]).dictionary_encode()
    lists = pa.ListArray.from_arrays([0, 2, 4], words)
    yield pa.ExtensionArray.from_storage(pa.opaque(lists.type, "x", "y"), lists)
    yield pa.DictionaryArray.from_arrays(pa.array([3, 0], pa.int8()), words)
    yield pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 5, 9], pa.int16()), words)
    yield pa.StructArray.from_arrays([words], ["w"])
    inner = pa.array([["a"], None], pa.list_(pa.string()))
    yield pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), inner)
    yield pa.nulls(3).dictionary_encode()

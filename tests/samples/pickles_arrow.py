"""Arrow's objects in pickles: what Arrow asserts, allocates or follows, by the rule that refuses.

Many of these end the process when plain pickle loads them, or when the result is first used.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tests.pickles.forging import Called

RESTORE = pa.lib._restore_array
NUMBER, TEXT = pa.int64(), pa.string()
LIST, MAP = pa.list_(NUMBER), pa.map_(TEXT, NUMBER)
TRIPLE, STRUCT = pa.list_(NUMBER, 3), pa.struct([("a", NUMBER)])
DENSE = pa.dense_union([pa.field("a", NUMBER), pa.field("b", TEXT)])
DICTIONARY = pa.dictionary(pa.int8(), TEXT)
RUNS = pa.run_end_encoded(pa.int32(), NUMBER)


def raw(values, code):
    return pa.py_buffer(np.array(values, code).tobytes())


def numbers(count):
    return (NUMBER, count, 0, 0, [None, raw([7] * count, "i8")], [], None)


def texts(*words):
    ends = np.cumsum([0, *map(len, words)])
    buffers = [None, raw(ends, "i4"), pa.py_buffer("".join(words).encode())]
    return (TEXT, len(words), 0, 0, buffers, [], None)


def nested(kind, length, buffers, *children, offset=0, dictionary=None):
    return (kind, length, 0, offset, buffers, [*children], dictionary)


def pairs(keys, *, bitmap=None, offset=0, length=2):
    kind = pa.struct([MAP.key_field, MAP.item_field])
    return (kind, length, 0, offset, [bitmap], [keys, numbers(2)], None)


ENDS = raw([0, 1, 2], "i4")
MASKED = (TEXT, 2, 0, 0, [pa.py_buffer(b"\1"), *texts("a", "b")[4][1:]], [], None)
VIEWS = raw([30, 0x61616161, 9, 0, 1, 0x61, 0, 0], "i4")
EMPTY = [None, raw([1], "i8")]
MANY = [pa.field(str(number), NUMBER) for number in range(101)]
WIDE, TABLE, BATCH = pa.lib.list_, pa.lib._reconstruct_table, pa.lib._reconstruct_record_batch
CODED = pa.lib.DictionaryScalar._reconstruct
COLUMN, SCHEMA = pa.chunked_array([[1, 2]]), pa.schema([("a", NUMBER)])


def restored(*parts):
    return Called(RESTORE, parts)


def nest(*parts, **more):
    return Called(RESTORE, nested(*parts, **more))


def counted(nulls):
    """Return an array of one null that says it has others."""
    restore, (parts,) = pa.array([1, None, 3]).__reduce__()
    return Called(restore, (*parts[:2], nulls, *parts[3:]))


def doubled():
    """Return fifty structures of twice the one before: printing the outermost never ends."""
    kind = NUMBER
    for _ in range(50):
        field = Called(pa.field, "a", kind, True, None)
        kind = Called(pa.struct, [field, field])
    return kind


# fmt: off
HOSTILE = {
    "pickle.arguments": {
        "no schema": Called(TABLE, [COLUMN], None),
        "buffer of text": Called(pa.py_buffer, "abc"),
        "pairs of text": Called(pa.KeyValueMetadata, [("a", "b")]),
        "schema of types": Called(pa.schema, [NUMBER], None),
        "list as metadata": Called(pa.field, "a", NUMBER, True, [b"a"]),
        "text as metadata": Called(pa.field, "a", NUMBER, True, {"a": "b"}),
        "nullable by number": Called(pa.field, "a", NUMBER, 1, None),
        "ordered by number": Called(pa.dictionary, pa.int8(), TEXT, 1),
        "structure of types": Called(pa.struct, [NUMBER]),
        "boolean precision": Called(pa.decimal64, True, 0),
        "a list": Called(RESTORE, [*numbers(1)]),
        "empty of no array": restored(LIST, 0, 0, 0, [None, None], [None], None),
        "empty of a number": restored(LIST, 0, 0, 0, [None, 7], [numbers(0)], None),
        "length of text": restored(NUMBER, "1", 0, 0, EMPTY, [], None),
        "long": restored(NUMBER, 1 << 60, 0, 0, EMPTY, [], None),
        "far": restored(NUMBER, 1, 0, 1 << 60, EMPTY, [], None),
        "short bitmap": restored(NUMBER, 9, 0, 0, [pa.py_buffer(b"\1"), raw([1] * 9, "i8")], [],
            None),
        "too few buffers": restored(NUMBER, 1, 0, 0, [None], [], None),
        "buffers of bytes": restored(NUMBER, 1, 0, 0, [None, b"12345678"], [], None),
        "empty of a short array": restored(LIST, 0, 0, 0, [None, None], [(NUMBER, 1 << 60,
            *numbers(0)[2:])], None),
        "child past its end": nest(LIST, 2, [None, ENDS], numbers(1)),
        "backwards": nest(LIST, 2, [None, raw([0, 2, 1], "i4")], numbers(2)),
        "children in a tuple": restored(LIST, 1, 0, 0, [None, ENDS], (numbers(2),), None),
        "code of no part": nest(DENSE, 1, [None, raw([2], "i1"), raw([0], "i4")], numbers(1),
            texts("a")),
        "code of no part before the offset": nest(DENSE, 1, [None, raw([2, 0], "i1"), raw([0, 0],
            "i4")], numbers(1), texts("a"), offset=1),
        "negative code": nest(DENSE, 1, [None, raw([-1], "i1"), raw([0], "i4")], numbers(1),
            texts("a")),
        "place past the end": nest(DENSE, 1, [None, raw([0], "i1"), raw([5], "i4")], numbers(1),
            texts("a")),
        "index past the end": nest(DICTIONARY, 1, [None, raw([1], "i1")], dictionary=texts("a")),
        "index past the end before the offset": nest(DICTIONARY, 1, [None, raw([9, 0], "i1")],
            dictionary=texts("a"), offset=1),
        "no dictionary": nest(DICTIONARY, 1, [None, raw([0], "i1")]),
        "runs that end early": nest(RUNS, 9, [None], (pa.int32(), 1, 0, 0, [None, raw([3], "i4")],
            [], None), numbers(1)),
        "text that is none": restored(TEXT, 1, 0, 0, [None, raw([0, 1], "i4"),
            pa.py_buffer(b"\xff")], [], None),
        "view past its buffer": restored(pa.string_view(), 1, 0, 0, [None, raw([30, 0x61616161, 0,
            9], "i4"), pa.py_buffer(b"a" * 30)], [], None),
        "view of a null into nowhere": restored(pa.string_view(), 2, 1, 0, [pa.py_buffer(b"\2"),
            VIEWS, pa.py_buffer(b"a" * 30)], [], None),
        "list view past its end": nest(pa.list_view(NUMBER), 1, [None, raw([1], "i4"), raw([2],
            "i4")], numbers(2)),
        "list view of a null into nowhere": nest(pa.list_view(NUMBER), 1, [raw([0], "i1"), raw([9],
            "i4"), raw([2], "i4")], numbers(2)),
        "digits": restored(pa.decimal128(2, 1), 1, 0, 0, [None, pa.py_buffer((10**9).to_bytes(16,
            "little"))], [], None),
        "an hour of 99": restored(pa.time32("s"), 1, 0, 0, [None, raw([99 * 3600], "i4")], [],
            None),
        "no alias": Called(pa.lib.type_for_alias, 5),
        "zone of bytes": Called(pa.timestamp, "s", b"UTC"),
        "structure of a tuple": Called(pa.struct, (MANY[0],)),
        "field of bytes": Called(pa.field, b"a", NUMBER, True, None),
        "scalar of another type": Called(pa.scalar, "a", NUMBER),
        "scalar past the end": Called(CODED, DICTIONARY, True, pa.scalar(5, pa.int8()),
            pa.array(["a"])),
        "None nulls": counted(None),
    },
    "pickle.global": {
        "foreign buffer": Called(pa.foreign_buffer, 1 << 40, 8),
    },
    "pickle.max-bytes": {
        "a megabyte of text, named sixteen bytes at a time": restored(pa.string_view(), 2000, 0, 0,
            [None, raw([1 << 20, 0x61616161, 0, 0] * 2000, "i4"), pa.py_buffer(b"a" * (1 << 20))],
            [], None),
    },
    "pickle.max-depth": {
        "types that double": doubled(),
    },
    "pickle.max-memory": {
        "many nulls": restored(pa.null(), 1 << 60, 0, 0, [None], [], None),
        "many empty structures": nest(pa.struct([]), 1 << 60, [None]),
        "runs for ever": nest(pa.run_end_encoded(NUMBER, NUMBER), 1 << 50, [None], (NUMBER, 1, 0, 0,
            [None, raw([1 << 50], "i8")], [], None), numbers(1)),
        "a thousand numbers, named again and again": nest(pa.list_view(NUMBER), 5000, [None,
            raw([0] * 5000, "i4"), raw([1000] * 5000, "i4")], numbers(1000)),
    },
    "value.arrow": {
        "column of a list": Called(TABLE, [[1]], SCHEMA),
        "negative length": restored(NUMBER, -1, 0, 0, EMPTY, [], None),
        "negative offset": restored(NUMBER, 1, 0, -1, EMPTY, [], None),
        "endless": restored(NUMBER, 1 << 61, 0, 0, EMPTY, [], None),
        "no buffer": restored(NUMBER, 1, 0, 0, [None, None], [], None),
        "too many buffers": restored(NUMBER, 1, 0, 0, [None, raw([1], "i8"), None], [], None),
        "masked nulls": restored(pa.null(), 1, 0, 0, [pa.py_buffer(b"\0")], [], None),
        "no child": nest(LIST, 1, [None, ENDS]),
        "two children": nest(LIST, 1, [None, ENDS], numbers(2), numbers(2)),
        "child of another type": nest(LIST, 1, [None, ENDS], texts("a")),
        "structure too long": nest(STRUCT, 5, [None], numbers(2)),
        "triples too long": nest(TRIPLE, 2, [None], numbers(5)),
        "triples after their end": nest(TRIPLE, 2, [None], numbers(6), offset=127),
        "sparse too long": nest(pa.sparse_union([pa.field("a", NUMBER)]), 3, [None, raw([0] * 3,
            "i1")], numbers(2)),
        "map without keys": nest(MAP, 1, [None, ENDS], pairs(MASKED)),
        "map without pairs": nest(MAP, 1, [None, ENDS], pairs(texts("a", "b"), bitmap=raw(1,
            "i1"))),
        "map with moved pairs": nest(MAP, 1, [None, raw([0, 1], "i4")], pairs(texts("a", "b"),
            offset=1, length=1)),
        "map of numbers": nest(MAP, 1, [None, ENDS], numbers(2)),
        "masked union": nest(DENSE, 1, [raw([1], "i1"), raw([0], "i1"), raw([0], "i4")], numbers(1),
            texts("a")),
        "dictionary of numbers": nest(DICTIONARY, 1, [None, raw([0], "i1")], dictionary=numbers(1)),
        "dictionary of none": nest(NUMBER, 1, [None, raw([0], "i8")], dictionary=numbers(1)),
        "runs of another type": nest(RUNS, 1, [None], numbers(1), numbers(1)),
        "chunk of a list": Called(pa.chunked_array, [[1]], NUMBER),
        "chunk of another type": Called(pa.chunked_array, [pa.array(["a"])], NUMBER),
        "column too many": Called(TABLE, [COLUMN, COLUMN], SCHEMA),
        "column of another type": Called(TABLE, [pa.chunked_array([["a"]])], SCHEMA),
        "short column": Called(TABLE, [COLUMN, pa.chunked_array([[1]])], pa.schema([("a", NUMBER),
            ("b", NUMBER)])),
        "batch of chunks": Called(BATCH, [COLUMN], SCHEMA),
        "scalar of an array": Called(pa.scalar, np.zeros(3), LIST),
        "scalar of fields of one name": Called(pa.scalar, {"a": 1},
            pa.struct([("a", pa.int64()), ("a", pa.int64())])),
        "scalar of numbers": Called(CODED, NUMBER, True, pa.scalar(1), pa.array([1])),
        "scalar of a list": Called(CODED, DICTIONARY, True, pa.scalar(0, pa.int8()), ["a"]),
        "scalar into nothing but nulls": Called(CODED, pa.dictionary(pa.int8(), pa.null()), True,
            pa.scalar(0, pa.int8()), pa.nulls(1)),
        "scalar that contradicts itself": Called(CODED, DICTIONARY, False, pa.scalar(0, pa.int8()),
            pa.array(["a"])),
        "0 nulls": counted(0),
        "2 nulls": counted(2),
    },
    "value.arrow-type": {
        "scalar without a type": Called(pa.scalar, 1, "int64"),
        "untyped chunks": Called(pa.chunked_array, [pa.array([1])], None),
        "field of text": Called(pa.field, "a", "int64", True, None),
        "negative tensor": Called(pa.fixed_shape_tensor, NUMBER, [-1], None, None),
        "list of text": Called(WIDE, "int64"),
        "empty of an array of no type": restored(LIST, 0, 0, 0, [None, None], [(7,
            *numbers(0)[1:])], None),
        "no type": restored("int64", 1, 0, 0, EMPTY, [], None),
        "scale": Called(pa.decimal128, 5, 1000),
        "negative scale": Called(pa.decimal128, 5, -1),
        "alias": Called(pa.lib.type_for_alias, "decimal"),
        "unit": Called(pa.timestamp, "D", None),
        "negative width": Called(pa.lib.binary, -1),
        "wide bytes": Called(pa.lib.binary, 1 << 30),
        "very wide list": Called(WIDE, Called(WIDE, NUMBER, 1 << 20), 1 << 20),
        "sized large list": Called(pa.lib.large_list, NUMBER, 3),
        "map of text": Called(pa.map_, "int64", NUMBER),
        "negative code": Called(pa.lib.union, MANY[:1], "dense", [-1]),
        "code of 128": Called(pa.lib.union, MANY[:1], "dense", [128]),
        "same codes": Called(pa.lib.union, MANY[:2], "dense", [5, 5]),
        "mode": Called(pa.lib.union, MANY[:1], "other", [5]),
        "dictionary by text": Called(pa.dictionary, TEXT, TEXT, False),
        "runs by text": Called(pa.lib.run_end_encoded, TEXT, TEXT),
        "long name": Called(pa.lib.opaque, NUMBER, "a" * 100_000, "b"),
        "tensor of text": Called(pa.fixed_shape_tensor, TEXT, [2], None, None),
        "huge tensor": Called(pa.fixed_shape_tensor, NUMBER, [1 << 20, 1 << 20], None, None),
        "names of a tensor": Called(pa.fixed_shape_tensor, NUMBER, [2], ["a", "b"], None),
        "turned tensor": Called(pa.fixed_shape_tensor, NUMBER, [2, 2], None, [0, 5]),
        "twice turned tensor": Called(pa.fixed_shape_tensor, NUMBER, [2, 2], None, [0, 0]),
        "a null of a wide type": Called(pa.scalar, None, Called(WIDE, NUMBER, 1 << 24)),
        "nulls of a wide type": Called(pa.scalar, [[None] * 100], Called(WIDE, Called(WIDE, NUMBER,
            1 << 24))),
    },
    "value.time-zone": {
        "absolute zone": Called(pa.timestamp, "s", "/etc/passwd"),
        "zone above": Called(pa.timestamp, "s", "../../etc/passwd"),
    },
}

#: What the helpers make by default, and older forms.
OLDER = [
    restored(*numbers(3)), nest(MAP, 2, [None, ENDS], pairs(texts("a", "b"))), counted(1),
    nest(RUNS, 0, [None]), counted(-1), nest(LIST, 2, [None, ENDS], numbers(2)),
    nest(DENSE, 1, [None, raw([1], "i1"), raw([0], "i4")], numbers(1), texts("a")),
    nest(DICTIONARY, 1, [None, raw([9, 0], "i1")], dictionary=texts(*"abcdefghij")),
]
# fmt: on

"""Arrow's values that no honest sender writes; the reader refuses them before Arrow sees any."""

from __future__ import annotations

import struct

from safeser.families import plain
from tests.samples.typed import encoded, hostile, payload, ruled, typed


class Bytes(bytes):
    """A buffer among the words of a forged description: its size stands there, and it behind."""


def raw(code, *numbers):
    return Bytes(struct.pack(f"<{len(numbers)}{code}", *numbers))


def forged(kind, *words, frames=(), extra=b""):
    """Return the payload of an object of *kind* that says *words*."""
    said, pool = [], b""
    for word in words:
        if isinstance(word, Bytes):
            said.append(len(word))
            pool += bytes(word) + bytes(-len(word) % 8)
        else:
            said.append(word)
    return typed(f"pyarrow:{kind}", frames=[*frames, plain.encode([said, pool + extra])])


def array(*words):
    return forged("Array", *words)


def data_type(*words):
    return forged("DataType", *words)


def array_of(*words):
    return forged("Array", *words, 0)


def schema_of(*words):
    return forged("Schema", 1, "a", True, None, *words, None)


FIELD = ("item", True, None)
ENDS, ONES = raw("i", 0, 1, 2), raw("q", 7, 8)
NUMBERS = (2, 0, 2, -1, ONES)
TEXTS = (2, 0, 3, -1, ENDS, Bytes(b"ab"))
PAIRS = (2, 0, 1, -1, *TEXTS, *NUMBERS)
MAP = ("map", False, "key", False, None, "string", "value", True, None, "int64")
STRUCT = ("struct", 1, "a", True, None, "int64")
DENSE = ("union", "dense", 2, 0, 1, "a", True, None, "int64", "b", True, None, "string")
SPARSE = ("union", "sparse", 1, 0, "a", True, None, "int64")
DICTIONARY = ("dictionary", False, "int8", "string")
RUNS = ("runs", "int32", "int64")
VIEW = raw("i", 30, 0x61616161, 0, 0)
HOLLOW = ("dictionary", False, "int8", "null")

INVALID = {
    "families.arrow": {
        # sizes and places
        "negative length": ("int64", -1, 0, 2, -1, ONES),
        "length by flag": ("int64", True, 0, 2, -1, ONES),
        "long": ("int64", 1 << 60, 0, 2, -1, ONES), "one too many": ("int64", 3, 0, 2, -1, ONES),
        "negative offset": ("int64", 2, -1, 2, -1, ONES),
        "offset": ("int64", 1, 8, 2, -1, raw("q", *range(9))),
        "offset past its end": ("int64", 2, 1, 2, -1, ONES),
        "negative buffer": ("int64", 2, 0, 2, -1, -2),
        "buffer elsewhere": ("int64", 2, 0, 2, -1, 16),
        "large buffer elsewhere": ("int64", 2, 0, 2, -1, 1 << 20),
        "huge buffer": ("int64", 2, 0, 2, -1, 1 << 62), "too few buffers": ("int64", 2, 0, 1, -1),
        "buffers without end": ("int64", 2, 0, 1 << 40, -1, ONES),
        "short bitmap": ("int8", 9, 0, 2, raw("B", 255), Bytes(b"a" * 9)),
        "word too many": ("int64", *NUMBERS, 0), "no words": (), "type alone": ("int64",),
        # offsets
        "backwards": ("string", 2, 0, 3, -1, raw("i", 0, 2, 1), Bytes(b"ab")),
        "before the beginning": ("string", 2, 0, 3, -1, raw("i", -1, 1, 2), Bytes(b"ab")),
        "past the end": ("string", 2, 0, 3, -1, raw("i", 0, 1, 3), Bytes(b"ab")),
        "far past the end": ("large_string", 1, 0, 3, -1, raw("q", 0, 1 << 62), Bytes(b"ab")),
        "short offsets": ("string", 3, 0, 3, -1, ENDS, Bytes(b"ab")),
        "not UTF-8": ("string", 1, 0, 3, -1, raw("i", 0, 2), Bytes(b"\xff\xfe")),
        "not UTF-8 before the slice": ("string", 1, 1, 3, -1, ENDS, Bytes(b"\xffb")),
        "half a character": ("string", 2, 0, 3, -1, ENDS, Bytes("\u00e9".encode())),
        "list past its child": ("list_", *FIELD, "int64", 2, 0, 2, -1, raw("i", 0, 1, 3), *NUMBERS),
        "list backwards": ("large_list", *FIELD, "int64", 2, 0, 2, -1, raw("q", 0, 2, 1), *NUMBERS),
        # views
        "view past its text": ("string_view", 1, 0, 3, -1, VIEW, Bytes(b"a" * 29)),
        "view of no text": ("string_view", 1, 0, 2, -1, VIEW),
        "view of negative size": ("binary_view", 1, 0, 2, -1, raw("i", -1, 0, 0, 0)),
        "view that begins otherwise": ("binary_view", 1, 0, 3, -1, VIEW, Bytes(b"b" * 30)),
        "short view with more": ("binary_view", 1, 0, 2, -1, raw("i", 1, 0x61616161, 0, 0)),
        "view of a null": (
            *("string_view", 2, 0, 3, raw("B", 2)),
            *(raw("i", 30, 0x61616161, 9, 0, 1, 0x61, 0, 0), Bytes(b"a" * 30)),
        ),
        "list view past its child": (
            *("list_view", *FIELD, "int64"),
            *(1, 0, 3, -1, raw("i", 1), raw("i", 2), *NUMBERS),
        ),
        "list view of a null": (
            *("list_view", *FIELD, "int64"),
            *(1, 0, 3, raw("B", 0), raw("i", 9), raw("i", 2), *NUMBERS),
        ),
        "map of too few pairs": (*MAP, 2, 0, 2, -1, raw("i", 0, 2, 3), *PAIRS),
        "code of no part": (*DENSE, 1, 0, 3, -1, raw("b", 2), raw("i", 0), *NUMBERS, *TEXTS),
        "negative code": (*DENSE, 1, 0, 3, -1, raw("b", -1), raw("i", 0), *NUMBERS, *TEXTS),
        "place past the end": (*DENSE, 1, 0, 3, -1, raw("b", 0), raw("i", 5), *NUMBERS, *TEXTS),
        "negative place": (*DENSE, 1, 0, 3, -1, raw("b", 0), raw("i", -1), *NUMBERS, *TEXTS),
        "index past the end": (*DICTIONARY, 1, 0, 2, -1, raw("b", 2), None, *TEXTS),
        "negative index": (*DICTIONARY, 1, 0, 2, -1, raw("b", -2), None, *TEXTS),
        "dictionary of nobody": (*DICTIONARY, 1, 0, 2, -1, raw("b", 0), 0),
        "negative dictionary": (*DICTIONARY, 1, 0, 2, -1, raw("b", 0), -1),
        "dictionary by flag": (*DICTIONARY, 1, 0, 2, -1, raw("b", 0), False),
        "runs that end early": (*RUNS, 9, 0, 1, -1, 2, 0, 2, -1, raw("i", 1, 3), *NUMBERS),
        "runs backwards": (*RUNS, 3, 0, 1, -1, 2, 0, 2, -1, raw("i", 3, 1), *NUMBERS),
        "empty run": (*RUNS, 3, 0, 1, -1, 2, 0, 2, -1, raw("i", 0, 3), *NUMBERS),
        "more runs than values": (*(*RUNS, 3, 0, 1, -1, 3, 0, 2, -1, raw("i", 1, 2, 3)), *NUMBERS),
        # values
        "digits": ("decimal128", 2, 1, 1, 0, 2, -1, raw("q", 10**9, 0)),
        "an hour of 99": ("time32[s]", 1, 0, 2, -1, raw("i", 99 * 3600)),
        "part of a day": ("date64[ms]", 1, 0, 2, -1, raw("q", 1)),
    },
    "value.arrow": {
        "endless": ("int64", 1 << 63, 0, 2, -1, ONES), "no buffer": ("int64", 2, 0, 2, -1, -1),
        "too many buffers": ("int64", 2, 0, 3, -1, ONES, -1),
        "masked nulls": ("null", 1, 0, 1, raw("B", 0)),
        "no text": ("string", 2, 0, 3, -1, ENDS, -1),
        # parts
        "short child": (*STRUCT, 3, 0, 1, -1, *NUMBERS),
        "short triples": ("fixed_list", 3, *FIELD, "int64", 1, 0, 1, -1, *NUMBERS),
        "map without keys": (
            *(*MAP, 1, 0, 2, -1, ENDS, 2, 0, 1, -1),
            *(2, 0, 3, raw("B", 1), ENDS, Bytes(b"ab"), *NUMBERS),
        ),
        "map without pairs": (*MAP, 1, 0, 2, -1, ENDS, 2, 0, 1, raw("B", 1), *TEXTS, *NUMBERS),
        "map with moved pairs": (
            *(*MAP, 1, 0, 2, -1, raw("i", 0, 1), 1, 1, 1, -1),
            *(*TEXTS, *NUMBERS),
        ),
        "masked union": (
            *(*DENSE, 1, 0, 3, raw("B", 1), raw("b", 0), raw("i", 0)),
            *(*NUMBERS, *TEXTS),
        ),
        "short sparse": (*SPARSE, 3, 0, 2, -1, raw("b", 0, 0, 0), *NUMBERS),
    },
    "families.max-memory": {
        # nothing stands for the elements
        "nulls": ("null", 1 << 50, 0, 1, -1), "empty structures": ("struct", 0, 1 << 50, 0, 1, -1),
        "empty lists": ("fixed_list", 0, *FIELD, "int8", 1 << 50, 0, 1, -1, 0),
        "empty bytes": ("fixed", 0, 1 << 50, 0, 2, -1, 0),
        "runs for ever": (
            *("runs", "int64", "int64", 1 << 50, 0, 1, -1, 1, 0, 2, -1, raw("q", 1 << 50)),
            *(1, 0, 2, -1, raw("q", 1)),
        ),
    },
    "value.arrow-type": {
        "huge lists": ("fixed_list", 1 << 30, *FIELD, "int64", 1, 0, 1, -1, *NUMBERS),
        "wide lists in wide lists": (
            *("fixed_list", 1 << 14, *FIELD, "fixed_list", 1 << 14, *FIELD, "int64"),
            0,
        ),
    },
}  # fmt: skip


WRONG_TYPES = {
    "value.arrow-type": {
        "no alias": ("decimal",), "pickle": ("cos\nsystem\n",), "python": ("os:system",),
        "unit": ("timestamp", "D", None), "scale": ("decimal128", 5, 1000),
        "negative scale": ("decimal128", 5, -1), "precision": ("decimal32", 10, 0),
        "width": ("fixed", 1 << 31), "negative width": ("fixed", -1),
        "codes": ("union", "dense", 2, 0, 0, *DENSE[5:]),
        "code of 128": ("union", "sparse", 1, 128, *SPARSE[4:]),
        "mode": ("union", "other", 1, 0, *SPARSE[4:]),
        "dictionary by text": ("dictionary", False, "string", "string"),
        "runs by text": ("runs", "string", "string"),
        "tensor of text": ("tensor", 1, 2, None, None, "string"),
        "huge tensor": ("tensor", 2, 1 << 20, 1 << 20, None, None, "int8"),
        "turned tensor": ("tensor", 2, 2, 2, None, 2, 0, 5, "int8"),
        "names of a tensor": ("tensor", 1, 2, 2, "a", "b", None, "int8"),
        "extension": ("test.mine", "int8"),
        "long name": ("struct", 1, "a" * 100_000, True, None, "int8"),
    },
    "families.arrow": {
        "number": (5,), "bytes": (b"int64",), "none": (None,),
        "keys that may be missing": (*MAP[:3], True, *MAP[4:]),
        "ordered by text": ("map", "yes", *MAP[2:]), "json of numbers": ("json", "int64"),
        "fields without end": ("struct", 1 << 40, "a", True, None, "int8"),
        "negative fields": ("struct", -1), "name of bytes": ("struct", 1, b"a", True, None, "int8"),
        "name of surrogates": ("struct", 1, "\ud800", True, None, "int8"),
        "metadata without end": ("struct", 1, "a", True, 1 << 40, "int8"),
        "metadata that is missing": ("struct", 1, "a", True, 1, -1, -1, "int8"),
        "deep": (*("list_", *FIELD) * 40, "int8"), "very deep": (*("list_", *FIELD) * 5000, "int8"),
    },
    "value.time-zone": {
        "zone with a NUL": ("timestamp", "s", "UTC\0/etc/passwd"),
        "zone elsewhere": ("timestamp", "s", "../../etc/passwd"),
        "long zone": ("timestamp", "s", "A" * 70_000),
    },
}  # fmt: skip


TOGETHER = {
    "families.arrow": {
        "chunk without end": ("ChunkedArray", "int64", 1 << 40, *NUMBERS),
        "chunk too many": ("ChunkedArray", "int64", 3, *NUMBERS, *NUMBERS),
        "column too few": ("Table", 1, "a", True, None, "int64", None),
        "column too many": ("Table", 0, None, *NUMBERS),
        "dictionary of another column": (
            *(
                "Table",
                2,
                "a",
                True,
                None,
                *DICTIONARY,
                "b",
                True,
                None,
                *DICTIONARY[:3],
                "int64",
                None,
            ),
            *(1, 1, 0, 2, -1, raw("b", 0), None, *TEXTS, 1, 1, 0, 2, -1, raw("b", 0), 0),
        ),
        "scalar of two": ("Scalar", "int64", *NUMBERS), "scalar of none": ("Scalar", "int64", 0),
        "coded scalar of none": ("Scalar", *DICTIONARY, 0, None, *TEXTS),
        "no buffer": ("Buffer", -1), "no pairs": ("KeyValueMetadata", None),
        "pairs of text": ("KeyValueMetadata", 1, "a", "b"),
        "field without a type": ("Field", "a", True, None),
    },
    "value.arrow": {
        "short column": (
            *("Table", 2, "a", True, None, "int64", "b", True, None, "int64", None),
            *(1, *NUMBERS, 1, 1, 0, 2, -1, raw("q", 1)),
        ),
        "short column of a batch": (
            *("RecordBatch", 2, "a", True, None, "int64", "b", True, None, "int64", None),
            *(*NUMBERS, 1, 0, 2, -1, raw("q", 1)),
        ),
    },
}  # fmt: skip


CODES = (2, 0, 2, -1, raw("b", 0, 1))
PADDED = forged("Array", "int64", *NUMBERS)
LARGE = bytes(range(256)) * 32
DOUBLES = ("double", 1024, 0, 2, -1, len(LARGE))
TWICE = ("ChunkedArray", "double", 2, *DOUBLES[1:], *DOUBLES[1:])
SHORTS = ("ChunkedArray", "int8", 2, 5001, 0, 2, -1, 5001, 5000, 0, 2, -1, 5000)
WIDE = ("struct", 3000, *[word for _ in range(3000) for word in ("a", True, None, "int8")])
WITHIN = (1, 0, 2, -1, raw("i", 0, 0), 0)


def framed(frames, *words, extra=b""):
    return forged(*words, frames=frames, extra=extra)


#: Frames are taken in turn, and to the last; one for two arrays would be two in one memory.
FRAMES = [
    ([], "Array", *DOUBLES, "families.arrow"),
    ([LARGE, LARGE], "Array", *DOUBLES, "families.arrow"),
    ([LARGE[:-8]], "Array", *DOUBLES, "families.arrow"),
    ([LARGE[:800]], "Array", *DOUBLES, "families.arrow"),
    ([LARGE], *TWICE, "families.arrow"),
    ([bytes(5001), bytes(5000)], *SHORTS, "families.arrow"),
    # Ten bytes may stand for the same megabyte again and again, if views name it.
    ([b"a" * (1 << 20)], "Array", "string_view", 200, 0, 3, -1,
     raw("i", *[1 << 20, 0x61616161, 0, 0] * 200), 1 << 20, "families.max-bytes"),
    # Each empty array of 3,000 parts was made and walked anew: twenty seconds for 14 kB.
    ([], "ChunkedArray", "list_", *FIELD, *WIDE, 2000, *WITHIN * 2000, "families.max-memory"),
    ([], "ChunkedArray", "dictionary", False, "int8", *WIDE, 2000, 0, None, 0, *(0, 0) * 1999,
     "families.max-memory"),
    # Arrow looks for the bitmap of a dictionary's values, where values of type null have none.
    ([], "Array", *HOLLOW, *CODES, None, 2, 0, 1, -1, "value.arrow"),
    ([], "Array", "struct", 1, "a", True, None, *HOLLOW, 2, 0, 1, -1, *CODES, 2, 0, 1, -1,
     "value.arrow"),
]  # fmt: skip
#: The last frame describes, and the header says nothing.
LAST = [None, [], [[], b"", 1], [b"", []], {"a": 1}, [(), b""], [["int64"], "text"]]
MISPLACED = [
    *((typed("pyarrow:Array", frames=[plain.encode(wrong)]), "families.arrow") for wrong in LAST),
    (typed("pyarrow:Array", frames=PADDED[1], x=1), "families.header"),
    (typed("pyarrow:Array", encoded(1), frames=PADDED[1]), "families.child-count"),
    (typed("pyarrow:Array"), "families.arrow"),
    (forged("Array", *DOUBLES, frames=[LARGE], extra=b"12345678"), "families.arrow"),
]

HOSTILE = [
    *hostile(array, INVALID),
    *(row for form in (data_type, array_of, schema_of) for row in hostile(form, WRONG_TYPES)),
    *hostile(forged, TOGETHER),
    *ruled(framed, FRAMES),
    *ruled(payload, [(*made, rule) for made, rule in MISPLACED]),
]

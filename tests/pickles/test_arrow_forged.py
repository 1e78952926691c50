"""Forged Arrow pickles are refused before Arrow asserts, allocates or follows anything.

Many of these end the process when plain pickle loads them, or when the result is first used.
"""

from __future__ import annotations

import pickle
import random
import tracemalloc

import pytest

from safeser.errors import PayloadError, SafeserError
from safeser.pickles import loads
from safeser.values import Limits
from tests.pickles.forging import PROFILE, Called, opened

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

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

FORGED = {
    # sizes
    "negative length": (NUMBER, -1, 0, 0, [None, raw([1], "i8")], [], None),
    "negative offset": (NUMBER, 1, 0, -1, [None, raw([1], "i8")], [], None),
    "endless": (NUMBER, 1 << 61, 0, 0, [None, raw([1], "i8")], [], None),
    "long": (NUMBER, 1 << 60, 0, 0, [None, raw([1], "i8")], [], None),
    "far": (NUMBER, 1, 0, 1 << 60, [None, raw([1], "i8")], [], None),
    "length of text": (NUMBER, "1", 0, 0, [None, raw([1], "i8")], [], None),
    "short bitmap": (NUMBER, 9, 0, 0, [pa.py_buffer(b"\1"), raw([1] * 9, "i8")], [], None),
    "no buffer": (NUMBER, 1, 0, 0, [None, None], [], None),
    "no offsets": (TEXT, 1, 0, 0, [None, None, None], [], None),
    "too few buffers": (NUMBER, 1, 0, 0, [None], [], None),
    "too many buffers": (NUMBER, 1, 0, 0, [None, raw([1], "i8"), None], [], None),
    "buffers of bytes": (NUMBER, 1, 0, 0, [None, b"12345678"], [], None),
    # Of an empty array, too, the parts are some: Arrow's own reader would not take these.
    "empty of a number": (LIST, 0, 0, 0, [None, 7], [numbers(0)], None),
    "empty of no array": (LIST, 0, 0, 0, [None, None], [None], None),
    "empty of an array of no type": (LIST, 0, 0, 0, [None, None], [(7, *numbers(0)[1:])], None),
    "empty of a short array": (
        LIST,
        0,
        0,
        0,
        [None, None],
        [(NUMBER, 1 << 60, *numbers(0)[2:])],
        None,
    ),
    "many nulls": (pa.null(), 1 << 60, 0, 0, [None], [], None),
    "many empty structures": nested(pa.struct([]), 1 << 60, [None]),
    "many empty lists": nested(pa.list_(NUMBER, 0), 1 << 60, [None], numbers(0)),
    "many empty bytes": (pa.binary(0), 1 << 60, 0, 0, [None, None], [], None),
    "masked nulls": (pa.null(), 1, 0, 0, [pa.py_buffer(b"\0")], [], None),
    # children
    "no child": nested(LIST, 1, [None, ENDS]),
    "two children": nested(LIST, 1, [None, ENDS], numbers(2), numbers(2)),
    "child of another type": nested(LIST, 1, [None, ENDS], texts("a")),
    "child past its end": nested(LIST, 2, [None, ENDS], numbers(1)),
    "backwards": nested(LIST, 2, [None, raw([0, 2, 1], "i4")], numbers(2)),
    "structure too long": nested(STRUCT, 5, [None], numbers(2)),
    "triples too long": nested(TRIPLE, 2, [None], numbers(5)),
    "triples after their end": nested(TRIPLE, 2, [None], numbers(6), offset=127),
    "sparse too long": nested(
        pa.sparse_union([pa.field("a", NUMBER)]), 3, [None, raw([0] * 3, "i1")], numbers(2)
    ),
    "children in a tuple": (LIST, 1, 0, 0, [None, ENDS], (numbers(2),), None),
    # maps assert
    "map without keys": nested(MAP, 1, [None, ENDS], pairs(MASKED)),
    "map without pairs": nested(MAP, 1, [None, ENDS], pairs(texts("a", "b"), bitmap=raw(1, "i1"))),
    "map with moved pairs": nested(
        MAP, 1, [None, raw([0, 1], "i4")], pairs(texts("a", "b"), offset=1, length=1)
    ),
    "map of numbers": nested(MAP, 1, [None, ENDS], numbers(2)),
    # unions and dictionaries index
    "code of no part": nested(
        DENSE, 1, [None, raw([2], "i1"), raw([0], "i4")], numbers(1), texts("a")
    ),
    "code of no part before the offset": nested(
        DENSE, 1, [None, raw([2, 0], "i1"), raw([0, 0], "i4")], numbers(1), texts("a"), offset=1
    ),
    "negative code": nested(
        DENSE, 1, [None, raw([-1], "i1"), raw([0], "i4")], numbers(1), texts("a")
    ),
    "place past the end": nested(
        DENSE, 1, [None, raw([0], "i1"), raw([5], "i4")], numbers(1), texts("a")
    ),
    "masked union": nested(
        DENSE, 1, [raw([1], "i1"), raw([0], "i1"), raw([0], "i4")], numbers(1), texts("a")
    ),
    "index past the end": nested(DICTIONARY, 1, [None, raw([1], "i1")], dictionary=texts("a")),
    "negative index": nested(DICTIONARY, 1, [None, raw([-2], "i1")], dictionary=texts("a")),
    "index past the end before the offset": nested(
        DICTIONARY, 1, [None, raw([9, 0], "i1")], dictionary=texts("a"), offset=1
    ),
    "no dictionary": nested(DICTIONARY, 1, [None, raw([0], "i1")]),
    "dictionary of numbers": nested(DICTIONARY, 1, [None, raw([0], "i1")], dictionary=numbers(1)),
    "dictionary of none": nested(NUMBER, 1, [None, raw([0], "i8")], dictionary=numbers(1)),
    # runs
    "runs that end early": nested(
        RUNS, 9, [None], (pa.int32(), 1, 0, 0, [None, raw([3], "i4")], [], None), numbers(1)
    ),
    "runs for ever": nested(
        pa.run_end_encoded(NUMBER, NUMBER),
        1 << 50,
        [None],
        (NUMBER, 1, 0, 0, [None, raw([1 << 50], "i8")], [], None),
        numbers(1),
    ),
    "runs of another type": nested(RUNS, 1, [None], numbers(1), numbers(1)),
    # text and views
    "text that is none": (
        TEXT,
        1,
        0,
        0,
        [None, raw([0, 1], "i4"), pa.py_buffer(b"\xff")],
        [],
        None,
    ),
    "view past its buffer": (
        *(pa.string_view(), 1, 0, 0),
        *([None, raw([30, 0x61616161, 0, 9], "i4"), pa.py_buffer(b"a" * 30)], [], None),
    ),
    "view of a null into nowhere": (
        *(pa.string_view(), 2, 1, 0),
        *([pa.py_buffer(b"\2"), VIEWS, pa.py_buffer(b"a" * 30)], [], None),
    ),
    "list view past its end": nested(
        pa.list_view(NUMBER), 1, [None, raw([1], "i4"), raw([2], "i4")], numbers(2)
    ),
    "list view of a null into nowhere": nested(
        pa.list_view(NUMBER), 1, [raw([0], "i1"), raw([9], "i4"), raw([2], "i4")], numbers(2)
    ),
    # values
    "digits": (
        *(pa.decimal128(2, 1), 1, 0, 0),
        *([None, pa.py_buffer((10**9).to_bytes(16, "little"))], [], None),
    ),
    "an hour of 99": (pa.time32("s"), 1, 0, 0, [None, raw([99 * 3600], "i4")], [], None),
    # form
    "no type": ("int64", 1, 0, 0, [None, raw([1], "i8")], [], None),
    "six parts": numbers(1)[:6],
    "a list": [*numbers(1)],
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_arrays_are_refused(name):
    with pytest.raises(PayloadError):
        opened(Called(RESTORE, FORGED[name]))


def test_the_recipes_make_arrays():
    assert opened(Called(RESTORE, numbers(3))).to_pylist() == [7, 7, 7]
    assert opened(Called(RESTORE, nested(MAP, 2, [None, ENDS], pairs(texts("a", "b"))))).to_pylist()
    assert opened(Called(RESTORE, nested(RUNS, 0, [None]))).to_pylist() == []
    union = nested(DENSE, 1, [None, raw([1], "i1"), raw([0], "i4")], numbers(1), texts("a"))
    assert opened(Called(RESTORE, union)).to_pylist() == ["a"]
    coded = nested(DICTIONARY, 1, [None, raw([9, 0], "i1")], dictionary=texts(*"abcdefghij"))
    assert opened(Called(RESTORE, coded)).to_pylist() == ["j"]


def test_offsets_of_empty_arrays_are_not_kept():
    # Arrow validates none of them, and joins of such arrays read from there.
    state = nested(LIST, 0, [None, raw([0x7FFFFFFF], "i4")], numbers(1))
    got = opened(Called(RESTORE, state))
    assert got.equals(pa.array([], LIST))
    assert pa.chunked_array([got, got]).combine_chunks().flatten().to_pylist() == []


MANY = [pa.field(str(number), NUMBER) for number in range(101)]
WIDE = pa.lib.list_

TYPES = {
    "scale": (pa.decimal128, 5, 1000),
    "negative scale": (pa.decimal128, 5, -1),
    "precision": (pa.decimal256, 77, 0),
    "no precision": (pa.decimal32, 0, 0),
    "boolean precision": (pa.decimal64, True, 0),
    "alias": (pa.lib.type_for_alias, "decimal"),
    "no alias": (pa.lib.type_for_alias, 5),
    "unit": (pa.timestamp, "D", None),
    "zone above": (pa.timestamp, "s", "../../etc/passwd"),
    "absolute zone": (pa.timestamp, "s", "/etc/passwd"),
    "long zone": (pa.timestamp, "s", "A" * 1000),
    "zone of bytes": (pa.timestamp, "s", b"UTC"),
    "negative width": (pa.lib.binary, -1),
    "wide bytes": (pa.lib.binary, 1 << 30),
    "wide list": (WIDE, NUMBER, (1 << 31) - 1),
    "very wide list": (WIDE, Called(WIDE, NUMBER, 1 << 20), 1 << 20),
    "sized large list": (pa.lib.large_list, NUMBER, 3),
    "list of text": (WIDE, "int64"),
    "map of text": (pa.map_, "int64", NUMBER),
    "structure of types": (pa.struct, [NUMBER]),
    "structure of a tuple": (pa.struct, (MANY[0],)),
    "negative code": (pa.lib.union, MANY[:1], "dense", [-1]),
    "code of 128": (pa.lib.union, MANY[:1], "dense", [128]),
    "same codes": (pa.lib.union, MANY[:2], "dense", [5, 5]),
    "too few codes": (pa.lib.union, MANY[:2], "dense", [5]),
    "mode": (pa.lib.union, MANY[:1], "other", [5]),
    "dictionary by text": (pa.dictionary, TEXT, TEXT, False),
    "ordered by number": (pa.dictionary, pa.int8(), TEXT, 1),
    "runs by text": (pa.lib.run_end_encoded, TEXT, TEXT),
    "json of numbers": (pa.json_, NUMBER),
    "long name": (pa.lib.opaque, NUMBER, "a" * 100_000, "b"),
    "tensor of text": (pa.fixed_shape_tensor, TEXT, [2], None, None),
    "huge tensor": (pa.fixed_shape_tensor, NUMBER, [1 << 20, 1 << 20], None, None),
    "negative tensor": (pa.fixed_shape_tensor, NUMBER, [-1], None, None),
    "names of a tensor": (pa.fixed_shape_tensor, NUMBER, [2], ["a", "b"], None),
    "turned tensor": (pa.fixed_shape_tensor, NUMBER, [2, 2], None, [0, 5]),
    "twice turned tensor": (pa.fixed_shape_tensor, NUMBER, [2, 2], None, [0, 0]),
    "field of text": (pa.field, "a", "int64", True, None),
    "field of bytes": (pa.field, b"a", NUMBER, True, None),
    "nullable by number": (pa.field, "a", NUMBER, 1, None),
    "text as metadata": (pa.field, "a", NUMBER, True, {"a": "b"}),
    "list as metadata": (pa.field, "a", NUMBER, True, [b"a"]),
    "schema of types": (pa.schema, [NUMBER], None),
    "pairs of text": (pa.KeyValueMetadata, [("a", "b")]),
    "buffer of text": (pa.py_buffer, "abc"),
    "foreign buffer": (pa.foreign_buffer, 1 << 40, 8),
}


@pytest.mark.parametrize("name", TYPES)
def test_forged_types_are_refused(name):
    with pytest.raises(SafeserError):
        opened(Called(*TYPES[name]))


def test_types_that_double_are_refused():
    # Fifty structures of twice the one before: printing the outermost never ends.
    kind = NUMBER
    for _ in range(50):
        field = Called(pa.field, "a", kind, True, None)
        kind = Called(pa.struct, [field, field])
    with pytest.raises(PayloadError):
        opened(kind)


def test_a_null_of_a_wide_type_is_not_made():
    wide = Called(WIDE, NUMBER, 1 << 24)
    tracemalloc.start()
    try:
        for value in (None, [[None] * 100]):
            kind = wide if value is None else Called(WIDE, wide)
            with pytest.raises(PayloadError):
                opened(Called(pa.scalar, value, kind))
    finally:
        tracemalloc.stop()


COLUMN = pa.chunked_array([[1, 2]])
SCHEMA = pa.schema([("a", NUMBER)])
TOGETHER = {
    "chunk of a list": (pa.chunked_array, [[1]], NUMBER),
    "chunk of another type": (pa.chunked_array, [pa.array(["a"])], NUMBER),
    "untyped chunks": (pa.chunked_array, [pa.array([1])], None),
    "column too many": (pa.lib._reconstruct_table, [COLUMN, COLUMN], SCHEMA),
    "column of another type": (pa.lib._reconstruct_table, [pa.chunked_array([["a"]])], SCHEMA),
    "column of a list": (pa.lib._reconstruct_table, [[1]], SCHEMA),
    "no schema": (pa.lib._reconstruct_table, [COLUMN], None),
    "short column": (
        *(pa.lib._reconstruct_table, [COLUMN, pa.chunked_array([[1]])]),
        pa.schema([("a", NUMBER), ("b", NUMBER)]),
    ),
    "batch of chunks": (pa.lib._reconstruct_record_batch, [COLUMN], SCHEMA),
    "scalar of a type": (pa.scalar, NUMBER, NUMBER),
    "scalar without a type": (pa.scalar, 1, "int64"),
    "scalar of another type": (pa.scalar, "a", NUMBER),
    "scalar of an array": (pa.scalar, np.zeros(3), LIST),
    "scalar of numbers": (
        *(pa.lib.DictionaryScalar._reconstruct, NUMBER, True),
        *(pa.scalar(1), pa.array([1])),
    ),
    "scalar past the end": (
        *(pa.lib.DictionaryScalar._reconstruct, DICTIONARY, True),
        *(pa.scalar(5, pa.int8()), pa.array(["a"])),
    ),
    "scalar of a list": (
        *(pa.lib.DictionaryScalar._reconstruct, DICTIONARY, True),
        *(pa.scalar(0, pa.int8()), ["a"]),
    ),
    "scalar that contradicts itself": (
        *(pa.lib.DictionaryScalar._reconstruct, DICTIONARY, False),
        *(pa.scalar(0, pa.int8()), pa.array(["a"])),
    ),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_forged_tables_and_scalars_are_refused(name):
    with pytest.raises(PayloadError):
        opened(Called(*TOGETHER[name]))


def test_the_same_buffer_again_and_again_is_charged():
    shared = raw([0] * 100_000, "i8")
    kind, (count, *_), _ = NUMBER, (100_000,), None
    state = (kind, count, 0, 0, [None, shared], [], None)
    again = pickle.dumps([Called(RESTORE, (*state,)) for _ in range(50)])
    with pytest.raises(PayloadError, match="more elements than allowed"):
        loads(again, profile=PROFILE, limits=Limits(max_refs=1000, max_sharing=99))


def test_views_of_the_same_text_are_charged():
    # A megabyte of text, named sixteen bytes at a time: no more than it would take written out.
    views = raw([1 << 20, 0x61616161, 0, 0] * 2000, "i4")
    buffers = [None, views, pa.py_buffer(b"a" * (1 << 20))]
    with pytest.raises(PayloadError, match="more bytes than allowed"):
        opened(Called(RESTORE, (pa.string_view(), 2000, 0, 0, buffers, [], None)))
    lists = [None, raw([0] * 5000, "i4"), raw([1000] * 5000, "i4")]
    with pytest.raises(PayloadError, match="more elements than allowed"):
        opened(Called(RESTORE, nested(pa.list_view(NUMBER), 5000, lists, numbers(1000))))


def test_what_arrow_reads_does_not_change_later():
    memory = bytearray(np.array([0, 1, 2], "i4").tobytes())
    state = (TEXT, 2, 0, 0, [None, pa.py_buffer(memory), pa.py_buffer(b"ab")], [], None)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(Called(RESTORE, state), 5, buffer_callback=buffers.append)
    given = [bytearray(buffer.raw()) for buffer in buffers]
    got = loads(data, buffers=given, profile=PROFILE)
    for buffer in given:
        buffer[:] = b"\x7f" * len(buffer)
    assert got.to_pylist() == ["a", "b"]


def disturbed(chance, state):
    """Return *state* with one of its parts turned into something else."""
    kind, length, nulls, offset, buffers, children, dictionary = state
    buffers, children = list(buffers), list(children)
    part = chance.randrange(6)
    if part == 0:
        length = chance.choice([0, 1, 2, 5, 64, 1 << 31, 1 << 60])
    elif part == 1:
        offset = chance.choice([0, 1, 2, 5, 64, 1 << 31, 1 << 60])
    elif part in (2, 3):
        at = chance.randrange(len(buffers))
        size = 16 if buffers[at] is None else buffers[at].size
        buffers[at] = pa.py_buffer(chance.randbytes(chance.choice([size, size // 2, size + 8])))
    elif children:
        at = chance.randrange(len(children))
        children[at] = disturbed(chance, children[at])
    elif dictionary is not None:
        dictionary = disturbed(chance, dictionary)
    return kind, length, nulls, offset, buffers, children, dictionary


SOUND = [
    numbers(5),
    texts("a", "bc", ""),
    nested(LIST, 2, [None, ENDS], numbers(2)),
    nested(MAP, 2, [None, ENDS], pairs(texts("a", "b"))),
    nested(TRIPLE, 2, [None], numbers(6)),
    nested(STRUCT, 2, [pa.py_buffer(b"\2")], numbers(2)),
    nested(DICTIONARY, 2, [None, raw([0, 1], "i1")], dictionary=texts("a", "b")),
    nested(DENSE, 2, [None, raw([1, 0], "i1"), raw([0, 0], "i4")], numbers(1), texts("a")),
    (pa.string_view(), 2, 0, 0, [pa.py_buffer(b"\3"), VIEWS, pa.py_buffer(b"a" * 40)], [], None),
    nested(pa.list_view(NUMBER), 1, [None, raw([1], "i4"), raw([1], "i4")], numbers(2)),
]


@pytest.mark.parametrize("seed", range(10))
def test_any_state_gives_a_sound_array_or_a_refusal(seed):
    chance = random.Random(seed)
    accepted = 0
    for _ in range(200):
        state = disturbed(chance, chance.choice(SOUND))
        try:
            got = opened(Called(RESTORE, state))
        except SafeserError:
            continue
        accepted += 1
        got.validate(full=True)
        assert got.nbytes >= 0
        assert repr(got)
        if len(got) < 100:
            assert len(pa.concat_arrays([got, got]).to_pylist()) == 2 * len(got)
    assert accepted


def test_the_number_of_nulls_is_counted():
    """C believes the sent number: it prints an array without a bitmap as invalid, or fails."""
    array = pa.array([1, None, 3])
    restore, (parts,) = array.__reduce__()
    for nulls in (-1, 1):
        counted = (*parts[:2], nulls, *parts[3:])
        assert opened(Called(restore, counted)).equals(array)
    for nulls in (0, 2, -2, 1 << 40, True, 1.0, None):
        with pytest.raises(PayloadError):
            opened(Called(restore, (*parts[:2], nulls, *parts[3:])))

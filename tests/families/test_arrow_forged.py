"""Arrow's values that no honest sender writes are refused before Arrow believes any of them."""

import struct

import pytest
from families_attack import GRANT, LIMITS

from safeser import families
from safeser.errors import PayloadError
from safeser.families import plain
from safeser.values import Limits

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")


class Bytes(bytes):
    """A buffer among the words of a forged description: its size stands there, and it behind."""


def raw(code, *numbers):
    return Bytes(struct.pack(f"<{len(numbers)}{code}", *numbers))


def forged(kind, *words, frames=(), extra=b""):
    """Return header and frames of an object of *kind* that says *words*."""
    said, pool = [], b""
    for word in words:
        if isinstance(word, Bytes):
            said.append(len(word))
            pool += bytes(word) + bytes(-len(word) % 8)
        else:
            said.append(word)
    header = {"serializer": "dask", "type": f"pyarrow:{kind}", "sub-header": {}}
    return header, [*frames, plain.encode([said, pool + extra])]


def opened(kind, *words, limits=LIMITS, **more):
    header, frames = forged(kind, *words, **more)
    return families.deserialize(header, frames, GRANT, limits=limits)


def refused(kind, *words, **more):
    with pytest.raises(PayloadError) as caught:
        opened(kind, *words, **more)
    assert caught.value.rule.startswith(("families.", "value.")), caught.value
    assert len(str(caught.value)) < 300
    return caught.value


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


def test_the_recipes_make_arrays():
    assert opened("Array", "int64", *NUMBERS).to_pylist() == [7, 8]
    assert opened("Array", "string", *TEXTS).to_pylist() == ["a", "b"]
    assert opened("Array", "list_", *FIELD, "int64", 2, 0, 2, -1, ENDS, *NUMBERS).to_pylist()
    pairs = opened("Array", *MAP, 2, 0, 2, -1, ENDS, *PAIRS)
    assert pairs.to_pylist() == [[("a", 7)], [("b", 8)]]
    assert opened("Array", *STRUCT, 2, 0, 1, -1, *NUMBERS).to_pylist() == [{"a": 7}, {"a": 8}]
    dense = (2, 0, 3, -1, raw("b", 1, 0), raw("i", 0, 1))
    assert opened("Array", *DENSE, *dense, *NUMBERS, *TEXTS).to_pylist() == ["a", 8]
    assert opened("Array", *SPARSE, 2, 0, 2, -1, raw("b", 0, 0), *NUMBERS).to_pylist() == [7, 8]
    coded = (2, 0, 2, -1, raw("b", 1, 0), None, *TEXTS)
    assert opened("Array", *DICTIONARY, *coded).to_pylist() == ["b", "a"]
    runs = (3, 0, 1, -1, 2, 0, 2, -1, raw("i", 1, 3), *NUMBERS)
    assert opened("Array", *RUNS, *runs).to_pylist() == [7, 8, 8]
    view = opened("Array", "string_view", 1, 0, 3, -1, VIEW, Bytes(b"a" * 30))
    assert view.to_pylist() == ["a" * 30]


INVALID = {
    # sizes and places
    "negative length": ("int64", -1, 0, 2, -1, ONES),
    "length by flag": ("int64", True, 0, 2, -1, ONES),
    "long": ("int64", 1 << 60, 0, 2, -1, ONES),
    "endless": ("int64", 1 << 63, 0, 2, -1, ONES),
    "one too many": ("int64", 3, 0, 2, -1, ONES),
    "negative offset": ("int64", 2, -1, 2, -1, ONES),
    "offset": ("int64", 1, 8, 2, -1, raw("q", *range(9))),
    "offset past its end": ("int64", 2, 1, 2, -1, ONES),
    "no buffer": ("int64", 2, 0, 2, -1, -1),
    "negative buffer": ("int64", 2, 0, 2, -1, -2),
    "buffer elsewhere": ("int64", 2, 0, 2, -1, 16),
    "large buffer elsewhere": ("int64", 2, 0, 2, -1, 1 << 20),
    "huge buffer": ("int64", 2, 0, 2, -1, 1 << 62),
    "too few buffers": ("int64", 2, 0, 1, -1),
    "too many buffers": ("int64", 2, 0, 3, -1, ONES, -1),
    "buffers without end": ("int64", 2, 0, 1 << 40, -1, ONES),
    "short bitmap": ("int8", 9, 0, 2, raw("B", 255), Bytes(b"a" * 9)),
    "word too many": ("int64", *NUMBERS, 0),
    "no words": (),
    "type alone": ("int64",),
    # nothing stands for the elements
    "nulls": ("null", 1 << 50, 0, 1, -1),
    "masked nulls": ("null", 1, 0, 1, raw("B", 0)),
    "empty structures": ("struct", 0, 1 << 50, 0, 1, -1),
    "empty lists": ("fixed_list", 0, *FIELD, "int8", 1 << 50, 0, 1, -1, 0),
    "empty bytes": ("fixed", 0, 1 << 50, 0, 2, -1, 0),
    # offsets
    "backwards": ("string", 2, 0, 3, -1, raw("i", 0, 2, 1), Bytes(b"ab")),
    "before the beginning": ("string", 2, 0, 3, -1, raw("i", -1, 1, 2), Bytes(b"ab")),
    "past the end": ("string", 2, 0, 3, -1, raw("i", 0, 1, 3), Bytes(b"ab")),
    "far past the end": ("large_string", 1, 0, 3, -1, raw("q", 0, 1 << 62), Bytes(b"ab")),
    "short offsets": ("string", 3, 0, 3, -1, ENDS, Bytes(b"ab")),
    "no text": ("string", 2, 0, 3, -1, ENDS, -1),
    "not UTF-8": ("string", 1, 0, 3, -1, raw("i", 0, 2), Bytes(b"\xff\xfe")),
    "not UTF-8 before the slice": ("string", 1, 1, 3, -1, ENDS, Bytes(b"\xffb")),
    "half a character": ("string", 2, 0, 3, -1, ENDS, Bytes("\u00e9".encode())),
    "list past its child": ("list_", *FIELD, "int64", 2, 0, 2, -1, raw("i", 0, 1, 3), *NUMBERS),
    "list backwards": ("large_list", *FIELD, "int64", 2, 0, 2, -1, raw("q", 0, 2, 1), *NUMBERS),
    # views
    "view past its text": ("string_view", 1, 0, 3, -1, VIEW, Bytes(b"a" * 29)),
    "view of no text": ("string_view", 1, 0, 2, -1, VIEW),
    "view of another text": (
        *("string_view", 1, 0, 3, -1, raw("i", 30, 0x61616161, 1, 0)),
        Bytes(b"a" * 30),
    ),
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
    "list view backwards": (
        *("large_list_view", *FIELD, "int64"),
        *(1, 0, 3, -1, raw("q", -1), raw("q", 1), *NUMBERS),
    ),
    # parts
    "short child": (*STRUCT, 3, 0, 1, -1, *NUMBERS),
    "short triples": ("fixed_list", 3, *FIELD, "int64", 1, 0, 1, -1, *NUMBERS),
    "huge lists": ("fixed_list", 1 << 30, *FIELD, "int64", 1, 0, 1, -1, *NUMBERS),
    "wide lists in wide lists": (
        *("fixed_list", 1 << 14, *FIELD, "fixed_list", 1 << 14, *FIELD, "int64"),
        0,
    ),
    "map without keys": (
        *(*MAP, 1, 0, 2, -1, ENDS, 2, 0, 1, -1),
        *(2, 0, 3, raw("B", 1), ENDS, Bytes(b"ab"), *NUMBERS),
    ),
    "map without pairs": (*MAP, 1, 0, 2, -1, ENDS, 2, 0, 1, raw("B", 1), *TEXTS, *NUMBERS),
    "map with moved pairs": (
        *(*MAP, 1, 0, 2, -1, raw("i", 0, 1), 1, 1, 1, -1),
        *(*TEXTS, *NUMBERS),
    ),
    "map of too few pairs": (*MAP, 2, 0, 2, -1, raw("i", 0, 2, 3), *PAIRS),
    "masked union": (
        *(*DENSE, 1, 0, 3, raw("B", 1), raw("b", 0), raw("i", 0)),
        *(*NUMBERS, *TEXTS),
    ),
    "code of no part": (*DENSE, 1, 0, 3, -1, raw("b", 2), raw("i", 0), *NUMBERS, *TEXTS),
    "negative code": (*DENSE, 1, 0, 3, -1, raw("b", -1), raw("i", 0), *NUMBERS, *TEXTS),
    "place past the end": (*DENSE, 1, 0, 3, -1, raw("b", 0), raw("i", 5), *NUMBERS, *TEXTS),
    "negative place": (*DENSE, 1, 0, 3, -1, raw("b", 0), raw("i", -1), *NUMBERS, *TEXTS),
    "short sparse": (*SPARSE, 3, 0, 2, -1, raw("b", 0, 0, 0), *NUMBERS),
    "index past the end": (*DICTIONARY, 1, 0, 2, -1, raw("b", 2), None, *TEXTS),
    "negative index": (*DICTIONARY, 1, 0, 2, -1, raw("b", -2), None, *TEXTS),
    "dictionary of nobody": (*DICTIONARY, 1, 0, 2, -1, raw("b", 0), 0),
    "negative dictionary": (*DICTIONARY, 1, 0, 2, -1, raw("b", 0), -1),
    "dictionary by flag": (*DICTIONARY, 1, 0, 2, -1, raw("b", 0), False),
    "runs that end early": (*RUNS, 9, 0, 1, -1, 2, 0, 2, -1, raw("i", 1, 3), *NUMBERS),
    "runs backwards": (*RUNS, 3, 0, 1, -1, 2, 0, 2, -1, raw("i", 3, 1), *NUMBERS),
    "empty run": (*RUNS, 3, 0, 1, -1, 2, 0, 2, -1, raw("i", 0, 3), *NUMBERS),
    "more runs than values": (
        *(*RUNS, 3, 0, 1, -1, 3, 0, 2, -1, raw("i", 1, 2, 3)),
        *NUMBERS,
    ),
    "runs for ever": (
        *("runs", "int64", "int64", 1 << 50, 0, 1, -1, 1, 0, 2, -1, raw("q", 1 << 50)),
        *(1, 0, 2, -1, raw("q", 1)),
    ),
    # values
    "digits": ("decimal128", 2, 1, 1, 0, 2, -1, raw("q", 10**9, 0)),
    "an hour of 99": ("time32[s]", 1, 0, 2, -1, raw("i", 99 * 3600)),
    "part of a day": ("date64[ms]", 1, 0, 2, -1, raw("q", 1)),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_arrays_are_refused(name):
    refused("Array", *INVALID[name])


WRONG_TYPES = {
    "no alias": ("decimal",),
    "pickle": ("cos\nsystem\n",),
    "python": ("os:system",),
    "number": (5,),
    "bytes": (b"int64",),
    "none": (None,),
    "unit": ("timestamp", "D", None),
    "zone with a NUL": ("timestamp", "s", "UTC\0/etc/passwd"),
    "zone elsewhere": ("timestamp", "s", "../../etc/passwd"),
    "long zone": ("timestamp", "s", "A" * 70_000),
    "scale": ("decimal128", 5, 1000),
    "negative scale": ("decimal128", 5, -1),
    "precision": ("decimal32", 10, 0),
    "width": ("fixed", 1 << 31),
    "negative width": ("fixed", -1),
    "keys that may be missing": (*MAP[:3], True, *MAP[4:]),
    "ordered by text": ("map", "yes", *MAP[2:]),
    "codes": ("union", "dense", 2, 0, 0, *DENSE[5:]),
    "code of 128": ("union", "sparse", 1, 128, *SPARSE[4:]),
    "mode": ("union", "other", 1, 0, *SPARSE[4:]),
    "dictionary by text": ("dictionary", False, "string", "string"),
    "runs by text": ("runs", "string", "string"),
    "json of numbers": ("json", "int64"),
    "tensor of text": ("tensor", 1, 2, None, None, "string"),
    "huge tensor": ("tensor", 2, 1 << 20, 1 << 20, None, None, "int8"),
    "turned tensor": ("tensor", 2, 2, 2, None, 2, 0, 5, "int8"),
    "names of a tensor": ("tensor", 1, 2, 2, "a", "b", None, "int8"),
    "extension": ("test.mine", "int8"),
    "fields without end": ("struct", 1 << 40, "a", True, None, "int8"),
    "negative fields": ("struct", -1),
    "name of bytes": ("struct", 1, b"a", True, None, "int8"),
    "name of surrogates": ("struct", 1, "\ud800", True, None, "int8"),
    "long name": ("struct", 1, "a" * 100_000, True, None, "int8"),
    "metadata without end": ("struct", 1, "a", True, 1 << 40, "int8"),
    "metadata that is missing": ("struct", 1, "a", True, 1, -1, -1, "int8"),
    "deep": (*("list_", *FIELD) * 40, "int8"),
    "very deep": (*("list_", *FIELD) * 5000, "int8"),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_invalid_types_are_refused(name):
    refused("DataType", *WRONG_TYPES[name])
    refused("Array", *WRONG_TYPES[name], 0)
    refused("Schema", 1, "a", True, None, *WRONG_TYPES[name], None)


TOGETHER = {
    "chunk without end": ("ChunkedArray", "int64", 1 << 40, *NUMBERS),
    "chunk too many": ("ChunkedArray", "int64", 3, *NUMBERS, *NUMBERS),
    "column too few": ("Table", 1, "a", True, None, "int64", None),
    "column too many": ("Table", 0, None, *NUMBERS),
    "short column": (
        *("Table", 2, "a", True, None, "int64", "b", True, None, "int64", None),
        *(1, *NUMBERS, 1, 1, 0, 2, -1, raw("q", 1)),
    ),
    "short column of a batch": (
        *("RecordBatch", 2, "a", True, None, "int64", "b", True, None, "int64", None),
        *(*NUMBERS, 1, 0, 2, -1, raw("q", 1)),
    ),
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
    "scalar of two": ("Scalar", "int64", *NUMBERS),
    "scalar of none": ("Scalar", "int64", 0),
    "coded scalar of none": ("Scalar", *DICTIONARY, 0, None, *TEXTS),
    "no buffer": ("Buffer", -1),
    "no pairs": ("KeyValueMetadata", None),
    "pairs of text": ("KeyValueMetadata", 1, "a", "b"),
    "field without a type": ("Field", "a", True, None),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_invalid_tables_and_scalars_are_refused(name):
    refused(*TOGETHER[name])


def test_frames_are_taken_in_turn_and_to_the_last():
    large = np.arange(1024.0).tobytes()
    words = ("double", 1024, 0, 2, -1, len(large))
    assert opened("Array", *words, frames=[large]).to_pylist()[-1] == 1023
    refused("Array", *words)
    refused("Array", *words, frames=[large, large])
    refused("Array", *words, frames=[large[:-8]])
    refused("Array", *words, frames=[large[:800]])
    refused("Array", *words, frames=[large], extra=b"12345678")
    # One frame for two arrays would be two arrays in one memory.
    twice = ("ChunkedArray", "double", 2, *words[1:], *words[1:])
    refused(*twice, frames=[large])
    assert len(opened(*twice, frames=[large, large])) == 2048
    odd, even = bytes(5001), bytes(5000)
    texts = ("ChunkedArray", "int8", 2, 5001, 0, 2, -1, 5001, 5000, 0, 2, -1, 5000)
    assert len(opened(*texts, frames=[even, odd])) == 10_001
    refused(*texts, frames=[odd, even])


def test_the_last_frame_describes_and_the_header_says_nothing():
    header, frames = forged("Array", "int64", *NUMBERS)
    for wrong in (None, [], [[], b"", 1], [b"", []], {"a": 1}, [(), b""], [["int64"], "text"]):
        with pytest.raises(PayloadError):
            families.deserialize(header, [plain.encode(wrong)], GRANT)
    for changed in ({"sub-header": {"x": 1}}, {"sub-headers": [], "frame-lengths": []}):
        if "sub-header" in changed:
            with pytest.raises(PayloadError):
                families.deserialize({**header, **changed}, frames, GRANT)
    child = {"sub-headers": [{"serializer": "msgpack"}], "frame-lengths": [1]}
    with pytest.raises(PayloadError):
        families.deserialize({**header, **child}, [*frames, plain.encode(1)], GRANT)
    with pytest.raises(PayloadError):
        families.deserialize(header, [], GRANT)


def test_limits_bound_what_is_built():
    wide = Limits(max_array=1 << 12, max_refs=1000)
    large = bytes(1 << 13)
    refused("Array", "int8", 1 << 13, 0, 2, -1, 1 << 13, frames=[large], limits=wide)
    many = [word for at in range(400) for word in (f"f{at}", True, None, "int8")]
    refused("Schema", 400, *many, None, limits=wide)
    refused("Array", "null", 100_000, 0, 1, -1, limits=wide)
    # Ten bytes may stand for the same megabyte again and again, if views name it.
    views = raw("i", *[1 << 20, 0x61616161, 0, 0] * 200)
    more = Limits(max_refs=100_000)
    text = b"a" * (1 << 20)
    words = ("string_view", 200, 0, 3, -1, views, 1 << 20)
    refused("Array", *words, frames=[text], limits=more)


FIELDS = [word for _ in range(3000) for word in ("a", True, None, "int8")]
WIDE = ("struct", 3000, *FIELDS)


def test_a_word_does_not_stand_for_thousands_of_parts():
    """Twenty seconds for 14 kB: each empty array of 3,000 parts was made and walked anew."""
    empty = opened("ChunkedArray", *WIDE, 2000, *[0] * 2000, limits=Limits())
    assert (empty.num_chunks, len(empty)) == (2000, 0)
    within = (1, 0, 2, -1, raw("i", 0, 0), 0)
    lists = ("ChunkedArray", "list_", *FIELD, *WIDE, 2000)
    refused(*lists, *within * 2000, limits=Limits())
    assert opened(*lists[:-1], 20, *within * 20, limits=Limits()).to_pylist() == [[]] * 20
    coded = ("ChunkedArray", "dictionary", False, "int8", *WIDE, 2000, 0, None, 0)
    refused(*coded, *(0, 0) * 1999, limits=Limits())


def test_what_is_read_cannot_be_changed():
    table = pa.table({"a": ["text"] * 3000})
    header, frames = families.serialize(table, ("dask", "msgpack"))
    got = families.deserialize(header, [bytearray(frame) for frame in frames], GRANT)
    for buffer in got["a"].chunk(0).buffers()[1:]:
        with pytest.raises((ValueError, TypeError, BufferError)):
            np.frombuffer(buffer, "u1")[0] = 255

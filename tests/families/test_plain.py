"""Plain values: exact types through msgpack, and bytes that must give one error or a value."""

import collections
import contextlib
import struct
import tracemalloc
import types

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser import families
from safeser.errors import PayloadError, SafeserError
from safeser.families import plain
from safeser.gate.values import Limits
from tests.refusal import refusal

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(1 << 200), 1 << 200)
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
)
keys = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner), max_leaves=4
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.sets(keys)
        | st.frozensets(keys)
        | st.dictionaries(keys, inner)
    ),
    max_leaves=20,
)


def same(a, b):
    """Equality that tells True from 1, and tuples from lists, at every depth."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, a.items(), b.items()))
    if isinstance(a, (set, frozenset)):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    return a == b and repr(a) == repr(b)


@pytest.mark.slow
@given(values)
def test_round_trip_keeps_every_type(value):
    assert same(plain.decode(plain.encode(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        *(sign * (1 << bits) + off for bits in (5, 7, 8, 31, 32, 63, 64, 65) for sign in (1, -1)
          for off in (-1, 0, 1)),
        "x" * 31, "x" * 32, "x" * 255, "x" * 256, "x" * 65536, "\ud800", b"x" * 65536,
        list(range(15)), list(range(16)), tuple(range(65536)), {i: i for i in range(70000)},
        set(range(50)), frozenset(map(str, range(50))), {n / 2 for n in range(50)},
        {n / 2: n for n in range(50)}, {str(n): [n] for n in range(50)}, [[1] * 20] * 20,
        {1: 1, "1": 2, b"1": 3, (1, 2): 4, None: 5}, {True: 1}, float("inf"), -0.0, [[]], ((),), {},
    ],
)  # fmt: skip
def test_edges(value):
    assert same(plain.decode(plain.encode(value)), value)


def test_nan_keeps_its_bits():
    (odd,) = struct.unpack(">d", bytes.fromhex("7ff8000000000123"))
    assert struct.pack(">d", plain.decode(plain.encode(odd))) == struct.pack(">d", odd)


@pytest.mark.parametrize("code", ["ca3fc00000", "cc05", "cd0005", "ce00000005", "d0fb", "d1fffb"])
def test_other_widths_of_numbers_are_read(code):
    assert plain.decode(bytes.fromhex(code)) in (5, -5, 1.5)


class Text(str):
    pass


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ([1, {"a": object()}], "[1]['a']"), (Text("x"), ""), ({Text("x"): 1}, "[a Text]"),
        (bytearray(b"x"), ""), ({1 << 70: object()}, "[a int]"),
        ({"a\n" + "b" * 60: object()}, "['a?" + "b" * 38 + "...']"),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_named(value, where):
    with pytest.raises(plain.Unencodable) as caught:
        plain.encode(value)
    assert caught.value.where == where


def test_encoding_is_bounded():
    deep: list = []
    deep.append(deep)
    with pytest.raises(plain.Unencodable, match="deep"):
        plain.encode(deep)
    with pytest.raises(plain.Unencodable, match="more memory"):
        plain.encode([1, 2, 3, 4], limits=Limits(max_memory=48 + 4 * 48 - 1))
    with pytest.raises(plain.Unencodable, match="too large"):
        plain.encode([b"12345"], largest=4)


@given(st.binary())
def test_any_bytes_give_a_value_or_one_error(data):
    with contextlib.suppress(SafeserError):
        repr(plain.decode(data))


@pytest.mark.slow
@given(values, st.data())
def test_changed_bytes_give_a_value_or_one_error(value, data):
    good = bytearray(plain.encode(value))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(SafeserError):
        repr(plain.decode(good))


def outcome(data):
    try:
        value, left = plain.decode_counted(data, limits=Limits(), room=1 << 27)
    except PayloadError:
        return None
    return left, list(walked(value))


def walked(value):
    """Yield what tells *value* from others: types and texts of all that it holds, in order."""
    yield type(value)
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        for inner in value:
            yield from walked(inner)
            if isinstance(value, dict):
                yield from walked(value[inner])
    else:
        yield repr(value)


HOSTILE = [
    b"\xc7\x00\x01", b"\xc7\x00\x02", b"\xc8\x00\x00\x03", b"\xd6\xff", b"\xc7\x0c\xff", b"\xc1",
    b"\xdd\x00\x00\x00\x02", b"\xdf\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff", b"\x91", b"\xc3",
    b"\xa1\xff", b"\x81\x90",
]  # fmt: skip


@pytest.mark.slow
@given(values, st.data())
def test_what_is_read_at_once_is_read_by_parts(value, data):
    good = plain.encode(value)
    at = data.draw(st.integers(0, len(good)))
    cut = data.draw(st.integers(0, 4))
    bad = good[:at] + data.draw(st.sampled_from([b"", *HOSTILE])) + good[at + cut :]
    with pytest.MonkeyPatch.context() as patch:
        for each in (good, bad):
            at_once = outcome(each)
            patch.setattr(plain, "_PIECE", 40)
            assert outcome(each) == at_once
            patch.undo()


@given(values)
def test_msgpack_reads_the_same(value):
    """Not marks, larger integers and surrogates, of which msgpack knows nothing."""

    def as_msgpack(inner):
        if type(inner) is dict:
            return [(as_msgpack(key), as_msgpack(item)) for key, item in inner.items()]
        mark = {tuple: [(1, b"")], set: [(2, b"")], frozenset: [(3, b"")], list: []}.get(
            type(inner)
        )
        if mark is not None:
            return [*mark, *map(as_msgpack, inner)]
        return inner

    def extended(code, body):
        if code == 4:
            return int.from_bytes(body, "big", signed=True)
        return body.decode("utf-8", "surrogatepass") if code == 5 else (code, body)

    read = msgpack.unpackb(
        plain.encode(value), ext_hook=extended, object_pairs_hook=list, strict_map_key=False
    )
    assert list(walked(read)) == list(walked(as_msgpack(value)))


@given(values)
def test_every_prefix_and_trailing_byte_is_refused(value):
    good = plain.encode(value)
    for size in range(min(len(good), 64)):
        with pytest.raises(PayloadError):
            plain.decode(good[:size])
    with pytest.raises(PayloadError, match="follow"):
        plain.decode(good + b"\xc0")


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "families.truncated"), (b"\xc1", "families.msgpack"), (b"\xa1\xff", "families.utf8"),
        (b"\xc7\x01\x05\xff", "families.utf8"),
        (b"\xc7\x01\x04\x05", "families.msgpack"),  # a small integer as a large one
        (b"\xc7\x00\x01", "families.extension"),  # the mark of a tuple, outside of an array
        (b"\x92\xc7\x00\x09\x01", "families.extension"),
        (b"\x92\x01\xc7\x00\x01", "families.extension"),
        (b"\xd6\xff\x00\x00\x00\x00", "families.extension"),  # msgpack's own timestamp
        (b"\xc7\x04\xff\x00\x00\x00\x00", "families.extension"),
        *((before + b"\xd7\xff" + bytes(8), "families.extension")
          for before in (b"\x91", b"\x92\xc7\x00\x03", b"\x81\x01", b"\x91\x81\xa0")),
        (b"\x81\xd7\xff" + bytes(8) + b"\x01", "families.extension"),
        (b"\x81\xc7\x00\x01\x01", "families.extension"),
        (b"\x81\xa0\xc7\x00\x02", "families.extension"),
        (b"\x92\xc7\x00\x02\xc7\x00\x02", "families.extension"),
        (b"\x82\x01\x01\x01\x02", "families.duplicate-key"),
        (b"\x82\x01\x01\xc3\x02", "families.duplicate-key"),  # 1 and True are one key
        (b"\x93\xc7\x00\x02\x01\x01", "families.duplicate-key"), (b"\x81\x90\x01", "families.key"),
        (b"\x92\xc7\x00\x02\x90", "families.key"), (b"\xdd\xff\xff\xff\xff", "families.count"),
        (b"\xdf\xff\xff\xff\xff" + b"\x01" * 100, "families.count"),
        (b"\xdb\xff\xff\xff\xff", "families.truncated"),
        (b"\xc9\xff\xff\xff\xff\x04", "families.extension"),  # a length that msgpack takes for 0
        (b"\x91\xc9\xff\xff\xff\xff", "families.extension"),
        (plain.encode({((1 << 61) - 1) * (1 << 70) * n: None for n in range(1, 200)}),
         "families.hash-flood"),
    ],
)  # fmt: skip
def test_malformed(data, rule):
    with pytest.raises(PayloadError) as caught:
        plain.decode(data)
    assert caught.value.rule == rule


def test_limits():
    for data, limits, rule in (
        (b"\x91" * 150 + b"\xc0", Limits(), "families.depth"),
        (b"\x91" * 100_000, Limits(max_depth=10**6), "families.depth"),
        (
            b"\xdd\x00\x00\x00\x0a" + b"\xc0" * 10,
            Limits(max_memory=48 + 10 * 48 - 1),
            "families.memory",
        ),
        (b"\xc4\x05" + b"x" * 5, Limits(max_array=6), "families.too-large"),
    ):
        with pytest.raises(PayloadError) as caught:
            plain.decode(data, limits=limits)
        assert caught.value.rule == rule


def test_a_small_frame_of_huge_counts_takes_no_memory():
    # Each array claims as many elements as bytes are left: a parser that believes them reserves
    # eight bytes for each, at every depth.
    size = 1 << 20
    data = b"".join(b"\xdd" + (size - 5 * (n + 1)).to_bytes(4, "big") for n in range(90))
    data += b"\xc0" * (size - len(data))
    tracemalloc.start()
    with pytest.raises(PayloadError):
        plain.decode(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 21


UNITS = {
    "empty lists": b"\x90", "empty dicts": b"\x80", "empty sets": b"\x91\xc7\x00\x02",
    "lists of one": b"\x91\xc0", "chains of lists": b"\x91" * 90 + b"\xc0",
    "dicts of one": b"\x81\x00\xc0", "chains of dicts": b"\x81\x00" * 90 + b"\xc0",
    "dicts that grew": plain.encode(dict.fromkeys(range(683))), "nones": b"\xc0",
    "tuples": b"\x92\xc7\x00\x01\xc0", "sets": plain.encode({*range(5)}),
    "sets that grew": plain.encode({*range(77)}), "floats": plain.encode(1.5),
    "integers": b"\xe0", "long integers": plain.encode(1 << 62),
    "large integers": plain.encode(1 << 64), "wide texts": plain.encode("\u0101b"),
    "bytes": plain.encode(b"ab"), "texts": plain.encode("ab"),
    "wider texts": plain.encode("a" * 50 + "\U0001f600"), "surrogates": plain.encode("\ud800"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNITS)
def test_values_take_no_more_memory_than_they_count_and_a_little_for_each_byte(name):
    count = 30_000 // len(UNITS[name])
    data, room = b"\xdd" + count.to_bytes(4, "big") + UNITS[name] * count, 1 << 30
    tracemalloc.start()
    value, left = plain.decode_counted(data, limits=Limits(), room=room)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    wide = 2 if "wide" in name else 1
    assert held <= wide * (room - left) + 8 * len(data)
    assert peak <= 2 * (room - left + 8 * len(data))
    assert room - left <= 144 * len(data)
    # The writer counts what it wrote as the reader did.
    assert plain.encode_counted(value, limits=Limits(), room=room)[1] == left
    # What has just that much is read; with a byte less it is refused.
    again = plain.decode_counted(data, limits=Limits(), room=room - left)
    assert again[1] == 0
    assert same(list(again[0]), list(value))
    with pytest.raises(PayloadError, match="more memory"):
        plain.decode_counted(data, limits=Limits(), room=room - left - 1)


RUNS = [None, True, 1, -(1 << 63), (1 << 64) - 1, 1.5, "x", "y" * 70_000] * 3


@pytest.mark.parametrize(
    "odd", [[], {}, (), b"", 1 << 70, "\ud800", [1], "z", frozenset({2})], ids=repr
)
@pytest.mark.parametrize("at", [0, 12, 24])
def test_runs_of_scalars(odd, at):
    run = [*RUNS[:at], odd, *RUNS[at:]]
    for value in (run, tuple(run), [run, run], dict(enumerate(run))):
        assert same(plain.decode(plain.encode(value)), value)
    data = plain.encode(run)
    for wrong in (data[:-1], data + b"\xc0"):
        with pytest.raises(PayloadError):
            plain.decode(wrong)


@pytest.mark.parametrize("item", [b"\xc7\x00\x05", b"\xc7\x00\x01", b"\xd4\xff\x00", b"\xc1"])
def test_runs_hide_nothing(item):
    with pytest.raises(PayloadError):
        plain.decode(b"\xdc\x00\x14" + b"\x01" * 19 + item)
    with pytest.raises(PayloadError) as caught:
        plain.decode(b"\xdc\x00\x15\xc7\x00\x02" + b"\x01" * 20)
    assert caught.value.rule == "families.duplicate-key"


# -- cycles and what is too large --------------------------------------------------------------


def cycle(kind):
    inner = {"list": [], "dict": {}, "deque": collections.deque(), "space": types.SimpleNamespace()}
    made = inner[kind]
    if kind == "list":
        made.append([made])
    elif kind == "dict":
        made["k"] = (1, made)
    elif kind == "deque":
        made.append([made])
    else:
        made.me = [made]
    return made


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        ("list", ["[0][0]"]), ("dict", ["['k'][1]"]), ("deque", ["[0][0]"]),
        ("space", [".me[0]", ".me[0].me"]),
    ],
)  # fmt: skip
def test_cycles_are_refused_with_their_path(kind, paths):
    for value, before in ((cycle(kind), ""), ({"x": (0, cycle(kind))}, "['x'][1]")):
        with pytest.raises(SafeserError, match="holds itself") as caught:
            families.serialize(value, ("dask", "msgpack"))
        assert caught.value.where.startswith(before)
        assert len(caught.value.where) <= len(before) + 20
        if kind != "deque":
            assert caught.value.where[len(before) :] in paths + [p + p for p in paths]


def test_what_is_shared_may_not_grow_without_end():
    value = [1]
    for _ in range(60):
        value = [value, value]
    limits = Limits(max_memory=10_000 << 7)
    with pytest.raises(SafeserError, match="more memory") as caught:
        families.serialize(value, ("dask", "msgpack"), limits=limits)
    assert len(caught.value.where) < 100
    value = [1j]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(SafeserError, match="more memory"):
        families.serialize(value, ("dask", "msgpack"), limits=limits)


def test_integers_have_a_longest():
    limits = Limits(max_int=100)
    longest = 1 << 790
    frame = plain.encode([longest, -longest], limits=limits)
    assert plain.decode(frame, limits=limits) == [longest, -longest]
    with pytest.raises(plain.Unencodable, match="max_int"):
        plain.encode(1 << 800, limits=limits)
    with pytest.raises(PayloadError) as caught:
        plain.decode(plain.encode(1 << 800), limits=limits)
    assert caught.value.rule == "families.integer"


def _nested_large(levels: int) -> bytes:
    """Return a value of 150 kB in which each container is just larger than what is read at once."""
    data = b"\xdd" + (132_000).to_bytes(4, "big") + b"\xc0" * 132_000
    for _ in range(levels):
        data = b"\xdc" + (190).to_bytes(2, "big") + b"\xc0" * 94 + data + b"\xc0" * 95
    return data


def test_large_containers_in_each_other_are_not_passed_over_for_each() -> None:
    assert plain.decode(_nested_large(4))[94][94][94][94] == [None] * 132_000
    with refusal(PayloadError, "families.depth", match="for its size"):
        plain.decode(_nested_large(97))


@pytest.mark.parametrize("large", [[], ["x" * 200_000], [[1] * 140_000], [{"a": [2] * 140_000}]])
def test_small_and_large_items_come_back_in_their_order(large) -> None:
    value = [*range(300), *large, "between", *large, *range(5_000), *([[7] * 900] * 300), *large]
    assert plain.decode(msgpack.packb(value)) == value

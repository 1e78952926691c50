"""The codec reads structure and nothing else: any frames give a message or a SafeserError."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.dask.wire import codec, reader
from safeser.dask.wire.codec import Encoder, PayloadRow, Reference, parse, substitute
from safeser.dask.wire.reader import EXT_EAGER, EXT_SET, UNSURE, Reader, read_plain
from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits
from tests.refusal import refusal

LIMITS = Limits()


def encode(message, *, listed=False):
    encoder = Encoder()
    for element in message if listed else [message]:
        encoder.add(element, lambda leaf: (leaf, leaf.author == "eager"))
    return encoder.frames(listed=listed)


def row(*frames, author=None, failed=False):
    return PayloadRow({"serializer": "msgpack"}, frames, author, failed)


def test_a_message_comes_back_with_tuples_for_lists():
    message = {"op": "x", "keys": [("a", 1), "b"], "n": None, "s": {"a", ("b", 1)}}
    parsed = parse(encode(message), LIMITS)
    assert parsed.body == {**message, "keys": (("a", 1), "b")}
    assert parsed.rows == ()
    assert parse(encode([{"op": "a"}], listed=True), LIMITS).body == ({"op": "a"},)


def test_payloads_are_references_with_rows():
    frames = encode({"op": "x", "data": {"k": row(b"1", b"2"), "l": row(author="eager")}})
    parsed = parse(frames, LIMITS)
    assert parsed.body["data"]["k"] == Reference(0, False)
    assert parsed.body["data"]["l"] == Reference(1, True)
    assert [len(r.frames) for r in parsed.rows] == [2, 0]
    assert parsed.rows[0].author is None
    assert parsed.rows[1].author == "eager"
    assert substitute(parsed.body, {0: "A", 1: "B"})["data"] == {"k": "A", "l": "B"}


def test_a_refused_element_leaves_nothing_behind():
    encoder = Encoder()

    def strict(leaf):
        if type(leaf) is object:
            raise PayloadError("no")
        return leaf, False

    encoder.add({"op": "a", "x": row(b"1")}, strict)
    with pytest.raises(PayloadError):
        encoder.add({"op": "b", "x": row(b"2"), "y": object()}, strict)
    encoder.add({"op": "c", "x": row(b"3")}, strict)
    parsed = parse(encoder.frames(listed=True), LIMITS)
    assert [element["op"] for element in parsed.body] == ["a", "c"]
    assert [bytes(r.frames[0]) for r in parsed.rows] == [b"1", b"3"]


@pytest.mark.parametrize("marker", ["__Pickled__", "__Serialized__", "__Enum__", "__Set__"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda d: d,
        lambda d: [d],
        lambda d: {"deep": [{"er": d}]},
        lambda d: msgpack.ExtType(3, msgpack.packb([d])),
    ],
)
def test_markers_of_dasks_own_decoder_are_refused_anywhere(marker, wrap):
    body = msgpack.packb(wrap({marker: 1, "name": "system"}))
    with pytest.raises(PayloadError) as caught:
        parse([body], LIMITS)
    in_a_set = type(wrap({})) is msgpack.ExtType  # which holds no dictionary at all
    assert in_a_set or caught.value.rule == f"marker.{marker.strip('_').lower()}"


def packed(value):
    return msgpack.packb(value)


def ext(index, code=1):
    return msgpack.ExtType(code, index.to_bytes(4, "big"))


GOOD_ROW = [{"serializer": "msgpack"}, 1, None, False]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\xc1"],
        [packed(1) + b"\x00"],
        [packed([1])[:-1] + b"\xdd\xff\xff\xff\xff"],
        [packed(ext(0))],
        [packed(ext(1)), packed([GOOD_ROW]), b"1"],
        [packed([ext(0), ext(0)]), packed([GOOD_ROW]), b"1"],
        [packed("unused"), packed([GOOD_ROW]), b"1"],
        [packed(ext(0)), packed([GOOD_ROW])],
        [packed(ext(0)), packed([GOOD_ROW]), b"1", b"2"],
        [packed(ext(0)), packed([[{"serializer": "msgpack"}, -1, None, False]]), b"1"],
        [packed(ext(0)), packed([[{"serializer": "msgpack"}, True, None, False]]), b"1"],
        [packed(ext(0)), packed([[{}, 1, 5, False]]), b"1"],
        [packed(ext(0)), packed([[{}, 1, "a" * 65, False]]), b"1"],
        [packed(ext(0)), packed([[{}, 1, "a\x1b[2J", False]]), b"1"],
        [packed(ext(0)), packed([[{}, 1, None, 0]]), b"1"],
        [packed(ext(0)), packed([["header", 1, None, False]]), b"1"],
        [packed(ext(0)), packed({"a": 1}), b"1"],
        [packed(ext(0)), packed([[{"x": ext(0)}, 1, None, False]]), b"1"],
        [packed(msgpack.ExtType(1, b"123"))],
        [packed(msgpack.ExtType(9, b"1234"))],
        [packed(msgpack.Timestamp(1, 2))[:3]],
        [packed(msgpack.ExtType(3, packed("no list")))],
        [packed(msgpack.ExtType(3, packed([[], {}])))],
        [b"\x82\xa1a\x01\xa1a\x02"],
        [b"\x81\x80\x01"],
        [b"\xa1\xff"],
    ],
)
def test_malformed_frames_are_refused(frames):
    with pytest.raises(PayloadError):
        parse(frames, LIMITS)


def test_depth_is_bounded():
    deep = b"\x91" * 99 + b"\x01"
    parse([deep], LIMITS)
    for depth in (101, 400, 5000, 100_000):
        with pytest.raises(PayloadError):
            parse([b"\x91" * depth + b"\x01"], LIMITS)
    with pytest.raises(PayloadError):
        parse([packed({(((1,),),): 1})], Limits(max_depth=3))


@pytest.mark.parametrize("depth", [1, 2, 200, 5000])
def test_sets_inside_sets_are_refused_before_they_take_the_stack(depth):
    body = packed([1])
    for _ in range(depth):
        body = packed([msgpack.ExtType(3, body)])
    with refusal(PayloadError, "payload.key"):
        parse([packed(msgpack.ExtType(3, body))], LIMITS)


@pytest.mark.parametrize(
    "body",
    [
        b"\xdc\x00\x65" + bytes(300),
        b"\xde\x00\x65" + bytes(300),
        packed([[] for _ in range(120)]),
        packed({i: i for i in range(80)}),
    ],
)
def test_elements_are_counted_before_they_are_kept(body):
    few = Limits(max_memory=100 << 7)
    parse([packed(list(range(50)))], few)
    with refusal(PayloadError, "limit.max_memory"):
        parse([body], few)


def test_a_cyclic_or_deep_message_is_refused_when_sent():
    cyclic: list = []
    cyclic.append(cyclic)
    with pytest.raises(PayloadError):
        encode({"op": "x", "data": cyclic})


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(plain)
def test_plain_messages_round_trip(value):
    if "__" in repr(value):
        return
    assert parse(encode(value), LIMITS).body == value


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_any_frames_give_a_message_or_a_refusal(frames):
    with contextlib.suppress(SafeserError):
        parse(frames, LIMITS)


@given(st.data())
def test_mutated_messages_give_a_message_or_a_refusal(data):
    frames = [bytearray(frame) for frame in encode({"op": "x", "a": [row(b"12"), {1, 2}]})]
    for _ in range(data.draw(st.integers(1, 4))):
        frame = data.draw(st.sampled_from(frames))
        if frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(SafeserError):
        parse([bytes(frame) for frame in frames], LIMITS)


STAMPS = [msgpack.Timestamp(1, 0), msgpack.Timestamp(1, 1), msgpack.Timestamp(-1, 1)]
# The same with their length spelt in one, two and four bytes.
SPELT = [b"\xc7\x04\xff", b"\xc8\x00\x04\xff", b"\xc9\x00\x00\x00\x04\xff"]


@pytest.mark.parametrize("stamp", [*map(packed, STAMPS), *(head + b"\x00" * 4 for head in SPELT)])
@pytest.mark.parametrize(
    "around", [b"%b", b"\x91%b", b"\x91\x91%b", b"\x81\xa1k%b", b"\x81%b\xa1v"]
)
def test_a_timestamp_is_an_extension_like_any_other(stamp, around):
    inside = around % stamp
    for made in (inside, packed([msgpack.ExtType(3, b"\x91" + stamp)])):
        with refusal(PayloadError, "payload.ext"):
            parse([made], LIMITS)


def test_bytes_that_look_like_a_timestamp_are_bytes():
    body = {b"\xd6\xff": [b"\xd7\xff\xc7\x04\xff", "x"]}
    assert parse([packed(body)], LIMITS).body == {b"\xd6\xff": (b"\xd7\xff\xc7\x04\xff", "x")}


def test_an_author_that_is_no_name_is_kept_nowhere():
    before = codec._checked.cache_info().currsize
    for number in range(3):
        assert not codec._can_name("x" * 1_000 + str(number))
    assert codec._checked.cache_info().currsize == before
    assert codec._can_name("ann")


# -- small messages, read without a look at each container -----------------------------------------


def _deep(levels: int) -> bytes:
    return b"\x91" * levels + b"\xc0"


@pytest.mark.parametrize(
    "value",
    [None, 1.5, "x", b"\xff\x04", ({"op": "a", "n": ({"b": (1, -1, 1 << 63)},)}, {b"c": ()}) * 99],
)
def test_it_reads_what_the_reader_reads(value):
    data = msgpack.packb(value)
    assert read_plain(data, LIMITS) == Reader(LIMITS).read(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\xa1a\x01\xa1a\x02",  # a key twice
        b"\xcd\x00\x01",  # a number in a form that no encoder of safeser writes
        b"\xc0\xc0",  # bytes behind the value
        b"\xa1\xff",  # no UTF-8
        msgpack.packb({"__Pickled__": b""}),
        msgpack.packb({1: 2}),
        msgpack.packb(msgpack.Timestamp(1)),
        msgpack.packb([msgpack.ExtType(EXT_EAGER, bytes(4))]),
        msgpack.packb(msgpack.ExtType(EXT_SET, b"\x90")),
        _deep(LIMITS.max_depth + 1),
        msgpack.packb([[0], *[[]] * LIMITS.max_depth, msgpack.unpackb(_deep(LIMITS.max_depth))]),
        msgpack.packb(bytes(1 << 15)),
    ],
)
def test_it_is_not_sure_of_anything_else(data):
    assert read_plain(data, LIMITS) is UNSURE


@given(st.recursive(st.integers(-1, 1) | st.text(), lambda inner: st.lists(inner), max_leaves=20))
def test_it_takes_nothing_that_the_reader_refuses(value):
    limits, data = Limits(max_depth=3), msgpack.packb(value)
    found = read_plain(data, limits)
    assert found is UNSURE or found == Reader(limits).read(data)


def test_it_is_not_sure_of_more_elements_than_a_message_may_have():
    data = msgpack.packb([0] * 20)
    assert read_plain(data, Limits(max_memory=10 << 7)) is UNSURE


# -- packers that are used again, by several threads and inside each other -------------------------


@pytest.fixture(autouse=True)
def _none_idle(monkeypatch):
    monkeypatch.setattr(reader, "_idle", [])


def test_a_leaf_is_packed_inside_of_another():
    def inside(leaf):
        return msgpack.ExtType(3, reader.packed(sorted(leaf)))

    value = reader.packed([{2, 1}, {3}], inside)
    assert value == reader.packed([inside({1, 2}), inside({3})])


def test_a_packer_that_failed_is_not_used_again_and_keeps_nothing():
    with pytest.raises(TypeError, match="no form for object"):
        reader.packed([b"before", object()])
    assert reader._idle == []
    assert reader.packed(b"after") == msgpack.packb(b"after")

    def fails(leaf):
        raise KeyError(leaf)

    with pytest.raises(KeyError):
        reader.packed([b"before", object()], fails)
    assert reader.packed([]) == b"\x90"


def test_threads_have_packers_of_their_own():
    values = [[number, {"key": "x" * number}] for number in range(500)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(reader.packed, values)) == [msgpack.packb(value) for value in values]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 70_000])
def test_a_batch_of_elements_is_one_array(count):
    encoder = Encoder()
    for number in range(count):
        encoder.add(number, lambda leaf: leaf)
    [frame] = encoder.frames(listed=True)
    assert msgpack.unpackb(frame) == list(range(count))

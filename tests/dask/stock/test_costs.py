"""What a small message of a stock peer costs whoever reads it: time, memory, and for how long."""

from __future__ import annotations

import pickle
import zlib

import msgpack
import pytest

from safeser.dask.stock import headers, reader, wire
from safeser.dask.stock.comm import GuardedComm
from safeser.errors import PayloadError
from safeser.gate.values import Limits
from tests.refusal import refusal

# -- frames that are opened ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bomb",
    [
        zlib.compress(bytes(100_000)),
        zlib.compress(bytes(900))[:-4],
        zlib.compress(bytes(900)) + b"more",
        b"garbage",
    ],
    ids=["large", "cut", "more", "garbage"],
)
def test_what_is_opened_in_vain_takes_room_too(bomb, monkeypatch):
    room = wire.Room(Limits(max_bytes=2000, max_array=1000))
    for _ in range(4):
        with pytest.raises(PayloadError):
            wire.decompressed(("zlib",), [memoryview(bomb)], room)
    assert room.for_one <= 0
    monkeypatch.setattr(wire.zlib, "decompressobj", pytest.fail)  # nothing more is opened
    with pytest.raises(PayloadError):
        wire.decompressed(("zlib",), [memoryview(bomb)], room)


def test_a_frame_may_become_as_large_as_there_is_room():
    room = wire.Room(Limits(max_bytes=2000, max_array=1000))
    for _ in range(2):
        [whole] = wire.decompressed(("zlib",), [memoryview(zlib.compress(bytes(1000)))], room)
        assert len(whole) == 1000
    with pytest.raises(PayloadError, match="max_bytes"):
        wire.decompressed(("zlib",), [memoryview(zlib.compress(b"x"))], room)


@pytest.mark.parametrize(("frames", "elsewhere"), [(1, False), (2, True)])
def test_values_are_opened_beside_the_event_loop(peer, frames, elsewhere):
    comm = GuardedComm.__new__(GuardedComm)
    comm.allow_offload, comm.link = True, peer.link
    heard = peer.link.hear([memoryview(b"x")] * frames)
    assert comm._takes_long(heard) is elsewhere


# -- what stays ------------------------------------------------------------------------------------


def test_what_no_class_is_called_is_not_remembered(peer):
    headers._name_of.cache_clear()
    peer.stream()
    for size in (2_000, 200_000):
        pickled = pickle.dumps(print) + bytes(size)
        peer.hear([{"op": "key-in-memory", "key": "x", "type": pickled}])
    assert headers._name_of.cache_info().currsize == 0
    peer.hear([{"op": "key-in-memory", "key": "x", "type": pickle.dumps(int)}])
    assert headers._name_of.cache_info().currsize == 1


# -- errors ----------------------------------------------------------------------------------------


class Claims:
    """Pickles as an exception of a class, called with whatever."""

    def __init__(self, cls, *args):
        self._made = (cls, args)

    def __reduce__(self):
        return self._made


@pytest.mark.parametrize(
    "claims",
    [
        Claims(UnicodeDecodeError, "utf-8", b"x", 1 << 70, 1, "r"),
        Claims(UnicodeEncodeError, "utf-8", "x", 0, 1 << 70, "r"),
        Claims(UnicodeTranslateError, "x", -(1 << 70), 1, "r"),
        Claims(OSError, 1 << 70, 1 << 70, 1 << 70, 1 << 70, 1 << 70),
        Claims(SyntaxError, "m", ("f", 1 << 70, 1 << 70, "t", 1 << 70, 1 << 70)),
    ],
)
def test_no_arguments_of_an_error_end_a_stream(peer, claims):
    peer.stream()
    erred = {"op": "task-erred", "key": "x", "exception": pickle.dumps(claims), "traceback": None}
    [got] = peer.hear([erred])
    assert isinstance(got["exception"], Exception)
    assert str(got["exception"])


# -- places ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [bytes(100_000), ("x" * 100_000,), ((1,) * 100_000,)])
def test_a_long_key_is_not_written_out_for_each_payload_below_it(peer, key):
    many = 200
    body = {key: tuple({"__Serialized__": 1 + 2 * place} for place in range(many))}
    frames = [msgpack.packb(body)]
    for _ in range(many):
        frames += [msgpack.packb({"serializer": "msgpack", "num-sub-frames": 1}), b"\x01"]
    peer.conversation.note_sent({"op": "get_metadata"})
    [values] = peer.hear_frames(frames).values()
    assert values == (1,) * many
    places = {event["where"] for event in peer.audit.events if event["where"]}
    assert places
    assert max(map(len, places)) < 100


# -- what is named many times ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        b"",
        msgpack.packb({"num-sub-frames": 0, "serializer": bytes(10_000)}),
        msgpack.packb({"num-sub-frames": 3}),
        msgpack.packb({"num-sub-frames": 9}),
    ],
    ids=["none", "long", "others", "missing"],
)
def test_a_header_is_read_once_however_often_it_is_named(peer, header, monkeypatch):
    read = []

    class Counting(reader._Structure):
        def read(self, data):
            read.append(bytes(data))
            return super().read(data)

    monkeypatch.setattr(reader, "_Structure", Counting)
    last = msgpack.packb({"num-sub-frames": 0})
    body = ({"__Serialized__": 4}, *({"__Serialized__": 1} for _ in range(50)))
    peer.conversation.note_sent({"op": "get_metadata"})
    with pytest.raises(PayloadError):
        peer.hear_frames([msgpack.packb(body), header, b"", b"", last])
    assert read.count(header) == 1


@pytest.mark.parametrize("cls", [bytes, bytearray, None])
def test_frames_of_one_value_are_measured_before_they_are_joined(cls):
    """Four hundred frames that a megabyte was cut into each: five gigabytes for sixty kilobytes."""
    header = {"serializer": "msgpack"}
    if cls is not None:
        named = {"type": "", "type-serialized": pickle.dumps(cls)}
        header = {"serializer": "dask", **named, "sub-header": {}}
    packed = msgpack.packb(b"x" * 10)
    frames = [packed[:6], packed[6:]]
    headers.Translator(Limits(max_array=12)).outermost(header, frames)
    with refusal(PayloadError, "stock.frames"):
        headers.Translator(Limits(max_array=11)).outermost(header, frames)

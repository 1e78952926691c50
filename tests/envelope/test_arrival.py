"""Frames that arrive in pieces: what they say is released when every tag held, and not before."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.envelope import Sealed
from safeser.errors import EnvelopeError

PIECE = 1 << 10


class Reader:
    """Reads one message as a connection does that takes large frames in pieces."""

    def __init__(self, world, session, wire, *, piece=PIECE):
        self.wire, self.at, self.piece = wire, 0, piece
        prelude = session.prelude(self.take(64))
        self.start = session.start(prelude, self.take(prelude.start_length))
        self.added = world.tag
        self.end = world.end
        self.arrival = session.arrival(self.start, piece=piece)
        self.memory = []

    def take(self, size):
        taken = self.wire[self.at : self.at + size]
        assert len(taken) == size
        self.at += size
        return taken

    def body(self, length):
        """Receive the bytes of one frame, without what follows them."""
        frame = memoryview(bytearray(b"\xee" * length))
        self.memory.append(frame)
        self.arrival.begin(frame)
        for start in range(0, length, self.piece):
            space = self.arrival.space(start, min(start + self.piece, length))
            space[:] = self.take(len(space))
            self.arrival.arrived()

    def frame(self, length):
        self.body(length)
        self.arrival.finish(self.take(self.added))

    def read(self):
        for length in self.start.lengths:
            self.frame(length)
        return self.arrival.verified(self.take(self.end))


def flipped(wire, at):
    return wire[:at] + bytes((wire[at] ^ 1,)) + wire[at + 1 :]


def fails(session, rule, call, *arguments):
    with pytest.raises(EnvelopeError) as caught:
        call(*arguments)
    assert caught.value.rule == rule
    assert session.ended


@given(st.lists(st.integers(0, 5000), max_size=4), st.integers(1, 5000))
def test_pieces_of_any_size(world, lengths, piece):
    a, b = world.sessions()
    frames = [np.random.default_rng(n).bytes(length) for n, length in enumerate(lengths)]
    verified = Reader(world, b, world.sealed(a, b"head", frames), piece=piece).read()
    assert verified.header == b"head"
    assert list(map(bytes, verified.frames)) == frames
    assert world.read(a, world.sealed(b, b"back", [])).header == b"back"


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 5])
def test_large_frames_either_way(world, size):
    a, b = world.sessions()
    content = np.random.default_rng(1).bytes(size)
    for _ in range(2):
        wire = world.sealed(a, b"", [b"x", content])
        verified = Reader(world, b, wire, piece=1 << 20).read()
        assert bytes(verified.frames[1]) == content
        verified = world.read(b, world.sealed(a, b"", [content, b"y"]))
        assert bytes(verified.frames[0]) == content


def test_some_frames_whole_and_some_in_pieces(world):
    a, b = world.sessions()
    wire = world.sealed(a, b"h", [b"first", b"s" * 3000, b""])
    reader = Reader(world, b, wire)
    reader.arrival.take(memoryview(bytearray(reader.take(5 + world.tag))))
    reader.frame(3000)
    reader.arrival.take(memoryview(bytearray(reader.take(world.tag))))
    verified = reader.arrival.verified(reader.take(world.end))
    assert list(map(bytes, verified.frames)) == [b"first", b"s" * 3000, b""]


@pytest.mark.parametrize("place", ["first byte", "last byte", "tag"])
def test_a_changed_frame_leaves_nothing_in_its_memory(encrypted, place):
    a, b = encrypted.sessions()
    plaintext = bytes(range(1, 251)) * 20
    wire = encrypted.sealed(a, b"", [plaintext])
    reader = Reader(encrypted, b, wire)
    at = reader.at + {"first byte": 0, "last byte": 4999, "tag": 5000}[place]
    reader.wire = flipped(wire, at)
    fails(b, "envelope.gcm", reader.read)
    assert bytes(reader.memory[0]) == bytes(5000)
    fails(b, "envelope.format", reader.arrival.verified)


@pytest.mark.parametrize("size", [10, (1 << 20) + 7])
def test_a_changed_frame_that_was_there_whole(encrypted, size):
    a, b = encrypted.sessions()
    wire = encrypted.sealed(a, b"", [b"m" * size])
    start = encrypted.start(b, wire)
    at = 64 + start.prelude.start_length
    sealed = memoryview(bytearray(flipped(wire, at + size - 1)[at:-32]))
    with pytest.raises(EnvelopeError) as caught:
        b.verify(Sealed(start, [sealed], wire[-32:]))
    assert caught.value.rule == "envelope.gcm"
    assert b"mmmm" not in bytes(sealed)


def test_ciphertext_is_received_apart_from_the_frame(encrypted):
    a, b = encrypted.sessions()
    reader = Reader(encrypted, b, encrypted.sealed(a, b"", [b"x" * 3000]))
    frame = memoryview(bytearray(3000))
    reader.arrival.begin(frame)
    space = reader.arrival.space(0, PIECE)
    assert space.obj is not frame.obj
    assert len(space) == PIECE == reader.arrival.memory
    space[:] = reader.take(PIECE)
    assert bytes(frame) == bytes(3000)


def test_plain_frames_are_received_where_they_stay(plain):
    a, b = plain.sessions()
    reader = Reader(plain, b, plain.sealed(a, b"", [b"x" * 5000]))
    frame = memoryview(bytearray(5000))
    reader.arrival.begin(frame)
    assert reader.arrival.space(0, PIECE).obj is frame.obj
    assert reader.arrival.memory == 0


def test_the_lengths_are_authentic_before_a_frame_is_asked_for(encrypted):
    a, b = encrypted.sessions()
    wire = encrypted.sealed(a, b"head", [b"first", b"second"])
    table = 64 + 4 + 16
    changed = wire[:table] + (6).to_bytes(8, "little") + (5).to_bytes(8, "little")
    fails(b, "envelope.mac", Reader, encrypted, b, changed + wire[table + 16 :])


def test_pieces_out_of_order_or_beyond_the_frame(world):
    for start, stop in ((1, 2), (0, 3001), (5, 3), (-1, 1)):
        a, b = world.sessions()
        reader = Reader(world, b, world.sealed(a, b"", [b"x" * 3000]))
        reader.arrival.begin(memoryview(bytearray(3000)))
        fails(b, "envelope.format", reader.arrival.space, start, stop)


def test_a_call_that_the_state_does_not_allow(world):
    def begun(reader):
        reader.arrival.begin(memoryview(bytearray(3000)))
        return reader.arrival

    calls = (
        lambda reader: reader.arrival.space(0, 1),
        lambda reader: reader.arrival.arrived(),
        lambda reader: reader.arrival.finish(bytes(world.tag)),
        lambda reader: reader.arrival.verified(bytes(world.end)),
        lambda reader: reader.arrival.begin(memoryview(bytearray(2999))),
        lambda reader: reader.arrival.take(memoryview(bytearray(world.tag))),
        lambda reader: begun(reader).finish(bytes(world.tag)),
        lambda reader: begun(reader).verified(bytes(world.end)),
        lambda reader: begun(reader).begin(memoryview(bytearray(3000))),
        lambda reader: begun(reader).take(memoryview(bytearray(3000 + world.tag))),
        lambda reader: (reader.frame(3000), reader.frame(3000)),
        lambda reader: (reader.frame(3000), reader.arrival.take(memoryview(b""))),
    )
    for call in calls:
        a, b = world.sessions()
        reader = Reader(world, b, world.sealed(a, b"", [b"x" * 3000]) + bytes(9000))
        fails(b, "envelope.format", call, reader)


def test_a_last_tag_that_is_missing_or_another(encrypted):
    for end in (b"", bytes(31), bytes(32), bytes(33)):
        a, b = encrypted.sessions()
        reader = Reader(encrypted, b, encrypted.sealed(a, b"", [b"x" * 3000]))
        reader.frame(3000)
        fails(b, "envelope.mac", reader.arrival.verified, end)


def test_one_arrival_makes_one_message(world):
    a, b = world.sessions()
    reader = Reader(world, b, world.sealed(a, b"", [b"x" * 3000]))
    reader.frame(3000)
    end = reader.take(world.end)
    assert reader.arrival.verified(end).sequence == 1
    with pytest.raises(EnvelopeError) as caught:
        reader.arrival.verified(end)
    assert caught.value.rule == "envelope.sequence"


def test_a_session_that_ended_meanwhile_releases_nothing(world):
    a, b = world.sessions()
    reader = Reader(world, b, world.sealed(a, b"", [b"x" * 3000]))
    reader.frame(3000)
    b.end("its key was retired")
    with pytest.raises(EnvelopeError, match="retired"):
        reader.arrival.verified(reader.take(world.end))


def test_a_message_is_not_in_memory_twice(encrypted):
    size, piece = 32 << 20, 1 << 20
    a, b = encrypted.sessions()
    frame = memoryview(bytearray(size))
    tracemalloc.start()
    try:
        buffers = a.sealing(b"", [frame])
        head = bytes(next(buffers))
        start = encrypted.start(b, head)
        arrival = b.arrival(start, piece=piece)
        received = memoryview(bytearray(size))
        arrival.begin(received)
        at = 0
        while at < size:
            written = next(buffers)
            arrival.space(at, at + len(written))[:] = written
            arrival.arrived()
            at += len(written)
        tag, end = buffers
        arrival.finish(tag)
        verified = arrival.verified(end)
        assert tracemalloc.get_traced_memory()[1] < size + 4 * piece
    finally:
        tracemalloc.stop()
    assert verified.frames[0].obj is received.obj


def test_a_library_message_is_not_in_memory_twice(encrypted):
    size = 32 << 20
    a, b = encrypted.sessions()
    wire = bytearray(encrypted.sealed(a, b"", [bytes(size)]))
    start = encrypted.start(b, wire)
    at = 64 + start.prelude.start_length
    sealed = memoryview(wire)[at:-32]
    tracemalloc.start()
    try:
        verified = b.verify(Sealed(start, [sealed], bytes(wire[-32:])))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert verified.frames[0].obj is wire

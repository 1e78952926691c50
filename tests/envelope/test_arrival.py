"""Frames that arrive in pieces: what they say is released when every tag held, and not before."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safeser.envelope import Sealed
from safeser.errors import EnvelopeError
from tests.refusal import refusal

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
    with refusal(EnvelopeError, rule):
        call(*arguments)
    assert session.ended


def one_frame(world, size=3000):
    """Return a session, and a reader of one message that it is sent, of one frame."""
    a, b = world.sessions()
    return b, Reader(world, b, world.sealed(a, b"", [b"x" * size]))


@given(st.lists(st.integers(0, 5000), max_size=4), st.integers(1, 5000))
@example([5000, 4096, 4095], 999)
def test_pieces_of_any_size(world, lengths, piece):
    a, b = world.sessions()
    frames = [np.random.default_rng(n).bytes(length) for n, length in enumerate(lengths)]
    verified = Reader(world, b, world.sealed(a, b"head", frames), piece=piece).read()
    assert verified.header == b"head"
    assert list(map(bytes, verified.frames)) == frames
    assert world.read(a, world.sealed(b, b"back", [])).header == b"back"


def test_some_frames_whole_and_some_in_pieces(world):
    a, b = world.sessions()
    wire = world.sealed(a, b"h", [b"first", b"s" * 3000, b""])
    reader = Reader(world, b, wire)
    reader.arrival.take(memoryview(bytearray(reader.take(5 + world.tag))))
    reader.frame(3000)
    reader.arrival.take(memoryview(bytearray(reader.take(world.tag))))
    verified = reader.arrival.verified(reader.take(world.end))
    assert list(map(bytes, verified.frames)) == [b"first", b"s" * 3000, b""]


@pytest.mark.parametrize("changed", [0, 4999, 5000])
def test_a_changed_frame_leaves_nothing_in_its_memory(encrypted, changed):
    b, reader = one_frame(encrypted, 5000)
    reader.wire = flipped(reader.wire, reader.at + changed)
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
    with refusal(EnvelopeError, "envelope.gcm"):
        b.verify(Sealed(start, [sealed], wire[-32:]))
    assert b"mmmm" not in bytes(sealed)


def test_only_plain_frames_are_received_where_they_stay(world):
    _, reader = one_frame(world)
    frame = memoryview(bytearray(3000))
    reader.arrival.begin(frame)
    space = reader.arrival.space(0, PIECE)
    assert (space.obj is frame.obj) is not world.encrypts
    assert len(space) == PIECE
    assert reader.arrival.memory == (PIECE if world.encrypts else 0)
    space[:] = reader.take(PIECE)
    assert (bytes(frame) == bytes(3000)) is world.encrypts


def test_the_lengths_are_authentic_before_a_frame_is_asked_for(encrypted):
    a, b = encrypted.sessions()
    wire = encrypted.sealed(a, b"head", [b"first", b"second"])
    table = 64 + 4 + 16
    changed = wire[:table] + struct.pack("<2Q", 6, 5) + wire[table + 16 :]
    fails(b, "envelope.mac", Reader, encrypted, b, changed)


#: What a reader of a frame of 3000 bytes does next, whether it has begun it, and what it calls.
CALLS = [
    (False, lambda r: r.arrival.space(0, 1)),
    (False, lambda r: r.arrival.arrived()),
    (False, lambda r: r.arrival.finish(bytes(r.added))),
    (False, lambda r: r.arrival.verified(bytes(r.end))),
    (False, lambda r: r.arrival.begin(memoryview(bytearray(2999)))),
    (False, lambda r: r.arrival.take(memoryview(bytearray(r.added)))),
    (False, lambda r: (r.frame(3000), r.frame(3000))),
    (False, lambda r: (r.frame(3000), r.arrival.take(memoryview(b"")))),
    (True, lambda r: r.arrival.finish(bytes(r.added))),
    (True, lambda r: r.arrival.verified(bytes(r.end))),
    (True, lambda r: r.arrival.begin(memoryview(bytearray(3000)))),
    (True, lambda r: r.arrival.take(memoryview(bytearray(3000 + r.added)))),
    (True, lambda r: r.arrival.space(1, 2)),
    (True, lambda r: r.arrival.space(0, 3001)),
    (True, lambda r: r.arrival.space(5, 3)),
    (True, lambda r: r.arrival.space(-1, 1)),
]


@pytest.mark.parametrize(("begun", "call"), CALLS)
def test_a_call_that_the_state_does_not_allow(world, begun, call):
    b, reader = one_frame(world)
    reader.wire += bytes(9000)
    if begun:
        reader.arrival.begin(memoryview(bytearray(3000)))
    fails(b, "envelope.format", call, reader)


@pytest.mark.parametrize("size", [0, 31, 32, 33])
def test_a_last_tag_that_is_missing_or_another(encrypted, size):
    b, reader = one_frame(encrypted)
    reader.frame(3000)
    fails(b, "envelope.mac", reader.arrival.verified, bytes(size))


@pytest.mark.parametrize("before", ["verified", "ended"])
def test_one_arrival_makes_one_message_of_a_session_that_lives(world, before):
    b, reader = one_frame(world)
    reader.frame(3000)
    end = reader.take(world.end)
    if before == "verified":
        assert reader.arrival.verified(end).sequence == 1
    else:
        b.end("its key was retired")
    rule = {"verified": "envelope.sequence", "ended": "envelope.ended"}[before]
    fails(b, rule, reader.arrival.verified, end)


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

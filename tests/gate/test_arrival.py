"""Parts that arrive in pieces: what they say is released when every tag held, and not before."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safeser.errors import EnvelopeError, PayloadError
from safeser.gate.format import SMALL, check_payload
from safeser.gate.values import Limits
from tests.refusal import refusal, remembered

LARGE = SMALL + 3000


class Reader:
    """Reads one message as a connection does that takes large parts in pieces.

    :param begins: bytes of the smallest part that is taken so.
    """

    def __init__(self, world, session, wire, *, piece=1 << 10, begins=SMALL):
        self.arrival, self.wire = world.begin(session, wire)
        self.at, self.piece, self.begins, self.memory = 0, piece, begins, []

    def take(self, size):
        taken = self.wire[self.at : self.at + size]
        assert len(taken) == size
        self.at += size
        return memoryview(bytearray(taken))

    def body(self, length):
        """Receive the bytes of one part, without what follows them."""
        frame = memoryview(bytearray(b"\xee" * length))
        self.memory.append(frame)
        self.arrival.begin(frame)
        for start in range(0, length, self.piece):
            self.arrival.feed(self.take(min(self.piece, length - start)))

    def part(self, length):
        if length < self.begins:
            self.arrival.take([self.take(length)], self.take(16))
            return
        self.body(length)
        self.arrival.finish(self.take(16))

    def read(self):
        for length in self.arrival.parts:
            self.part(length)
        return self.arrival.verified(self.take(len(self.wire) - self.at))


def flipped(wire, at):
    return wire[:at] + bytes((wire[at] ^ 1,)) + wire[at + 1 :]


def fails(session, rule, call, *arguments):
    with refusal(EnvelopeError, rule):
        call(*arguments)
    assert session.ended


def one_frame(world, size=LARGE):
    """Return a session, and a reader of one message that it is sent, of one large frame."""
    a, b = world.sessions()
    return b, Reader(world, b, world.sealed(a, b"", [b"x" * size]))


lengths_strategy = st.lists(
    st.one_of(st.integers(0, 5000), st.sampled_from([SMALL - 1, SMALL, SMALL + 1, 2 * SMALL])),
    max_size=6,
)


@given(lengths_strategy, st.sampled_from([999, 1 << 16, 1 << 20]), st.sampled_from([0, SMALL]))
@example([SMALL, 0, 0, SMALL - 1, 1, 0, 5], 1 << 15, SMALL)
@example([30_000] * 7, 1 << 15, 0)  # parts of several frames
@example([SMALL - 1, 1, 0, SMALL, 0], 1 << 15, 0)
def test_pieces_of_any_size(world, lengths, piece, begins):
    a, b = world.sessions()
    frames = [np.random.default_rng(n).bytes(length) for n, length in enumerate(lengths)]
    wire = world.sealed(a, b"head", frames)
    verified = Reader(world, b, wire, piece=piece, begins=begins).read()
    assert verified.header == b"head"
    assert list(map(bytes, verified.frames)) == frames
    assert not any(frame.readonly for frame in verified.frames)
    assert world.read(a, world.sealed(b, b"back", [])).header == b"back"


def test_a_frame_keeps_little_of_others_in_memory(world):
    a, b = world.sessions()
    verified = world.read(b, world.sealed(a, b"", [b"x" * 9000] * 30 + [b"y" * LARGE, b"z"]))
    owners = {}
    for frame in verified.frames:
        owners.setdefault(id(frame.obj), []).append(len(frame))
    assert all(sum(sizes) < SMALL or len(sizes) == 1 for sizes in owners.values())


SECRET = b"what nobody keeps"


def _read(reader, changed):
    """Read a message with one byte changed, or without the end of its last part."""
    if changed:
        reader.wire = flipped(reader.wire, changed % len(reader.wire))
        reader.read()
    for length in reader.arrival.parts[:-1]:
        reader.part(length)
    reader.body(reader.arrival.parts[-1])
    reader.arrival.drop()  # as a connection does whose stream ends
    reader.arrival.verified(b"")


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        (-1, "envelope.mac"),  # the last tag
        (-33, "envelope.gcm"),  # the tag of the last part
        (-49, "envelope.gcm"),  # its last byte
        (-49 - len(SECRET) * 9000, "envelope.gcm"),  # the tag of the part before it
        (0, "envelope.format"),
    ],
)
@pytest.mark.parametrize("begins", [0, SMALL, 1 << 40])
def test_a_message_that_is_not_whole_leaves_no_plaintext(world, monkeypatch, changed, rule, begins):
    made, empty = [], np.empty
    monkeypatch.setattr(
        "safeser.gate.session.np.empty", lambda *size: made.append(empty(*size)) or made[-1]
    )
    a, b = world.sessions()
    wire = world.sealed(a, b"", [SECRET * n for n in (9, 5000, 3000, 3000, 9000)])
    reader = Reader(world, b, wire, begins=begins)
    with refusal(EnvelopeError, rule) as caught:
        _read(reader, changed)
    fails(b, "envelope.format", reader.arrival.verified)
    if changed in (-33, -49):  # of the last part, into which it was decrypted
        assert not any([*reader.memory, *made][-1])
    reader.memory.clear()  # what the caller gave, who has no message
    made.clear()
    assert not remembered(caught.value, SECRET)


def test_the_lengths_are_authentic_before_a_frame_is_asked_for(world):
    a, b = world.sessions()
    wire = world.sealed(a, b"head", [b"x" * LARGE])
    fails(b, "envelope.gcm", world.begin, b, flipped(wire, 64 + 8))


#: What a reader of one large frame does next, whether it has begun it, and what it calls.
CALLS = [
    (False, lambda r: r.arrival.feed(bytes(1))),
    (False, lambda r: r.arrival.finish(bytes(16))),
    (False, lambda r: r.arrival.verified(bytes(32))),
    (False, lambda r: r.arrival.begin(memoryview(bytearray(LARGE - 1)))),
    (False, lambda r: r.arrival.take([memoryview(b"")], bytes(16))),
    (False, lambda r: r.arrival.take([], b"")),
    (False, lambda r: (r.part(LARGE), r.part(LARGE))),
    (True, lambda r: r.arrival.finish(bytes(16))),
    (True, lambda r: r.arrival.verified(bytes(32))),
    (True, lambda r: r.arrival.begin(memoryview(bytearray(LARGE)))),
    (True, lambda r: r.arrival.take([memoryview(bytearray(LARGE))], bytes(16))),
    (True, lambda r: r.arrival.feed(memoryview(bytearray(LARGE + 1)))),
]


@pytest.mark.parametrize(("begun", "call"), CALLS)
def test_a_call_that_the_state_does_not_allow(world, begun, call):
    b, reader = one_frame(world)
    frame = memoryview(bytearray(b"\xee" * LARGE))
    if begun:
        reader.arrival.begin(frame)
        reader.arrival.feed(reader.take(1000))
    fails(b, "envelope.format", call, reader)
    assert not begun or bytes(frame) == bytes(1000) + b"\xee" * (LARGE - 1000)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_tag_of_another_size_is_none(world, size):
    b, reader = one_frame(world)
    reader.body(LARGE)
    fails(b, "envelope.format", reader.arrival.finish, bytes(size))


def test_a_part_ends_before_the_next_begins(world):
    a, b = world.sessions()
    arrival, _ = world.begin(b, world.sealed(a, b"", [bytes(LARGE)] * 2))
    arrival.begin(memoryview(bytearray(LARGE)))
    fails(b, "envelope.format", arrival.begin, memoryview(bytearray(LARGE)))


@pytest.mark.parametrize("size", [0, 31, 32, 33])
def test_a_last_tag_that_is_missing_or_another(world, size):
    b, reader = one_frame(world)
    reader.part(LARGE)
    fails(b, "envelope.mac", reader.arrival.verified, bytes(size))


def test_nothing_follows_a_message_of_one_part(world):
    a, b = world.sessions()
    arrival, rest = world.begin(b, world.sealed(a, b"", [b"x"]))
    assert rest == b""
    fails(b, "envelope.format", arrival.verified, bytes(32))


@pytest.mark.parametrize("before", ["verified", "ended"])
def test_one_arrival_makes_one_message_of_a_session_that_lives(world, before):
    b, reader = one_frame(world)
    reader.part(LARGE)
    end = reader.take(32)
    if before == "verified":
        assert reader.arrival.verified(end).sequence == 1
    else:
        b.end("its key was retired")
    rule = {"verified": "envelope.format", "ended": "envelope.ended"}[before]
    fails(b, rule, reader.arrival.verified, end)


def test_a_message_is_not_in_memory_twice(world):
    size = 32 << 20
    a, b = world.sessions()
    frame = memoryview(bytearray(size))
    tracemalloc.start()
    try:
        buffers = a.sealing(b"", [frame])
        head = bytes(next(buffers))
        arrival = b.arrival(b.prelude(head[:64]), head[64:])
        received = memoryview(bytearray(size))
        arrival.begin(received)
        for written in buffers:
            if len(written) == 16:
                break
            arrival.feed(written)
        arrival.finish(written)
        verified = arrival.verified(next(buffers))
        assert tracemalloc.get_traced_memory()[1] < size + (4 << 20)
    finally:
        tracemalloc.stop()
    assert verified.frames[0].obj is received.obj


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        (Limits(max_bytes=29), "limit.max_bytes"),
        (Limits(max_array=24), "limit.max_array"),
        (Limits(max_frames=1), "limit.max_frames"),
        (Limits(max_bytes=30, max_array=25, max_frames=2), ""),
    ],
)
def test_a_payload_over_a_limit_is_named_by_it(limits, rule):
    frames = [b"x" * 25, b"y" * 5]
    if not rule:
        check_payload(frames, limits)
        check_payload([], limits)
        return
    with refusal(PayloadError, rule) as caught:
        check_payload(frames, limits)
    assert rule.removeprefix("limit.") in caught.value.fix

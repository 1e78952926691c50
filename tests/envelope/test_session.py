"""Attacks on a live session: whatever is not the next message, whole, from the peer, ends it."""

from __future__ import annotations

import array
import copy
import json
import mmap
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.envelope import MAX_SECONDS, MAX_SESSION_BYTES, Sealed, Verified
from safeser.errors import EnvelopeError
from safeser.values import Limits
from tests.refusal import refusal

EDGES = [0, 1, 15, 16, 17, 4095, 4096, 4097, 9000]
frames_strategy = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(EDGES).map(lambda size: bytes([size % 251]) * size),
    ),
    max_size=6,
)


def refused(world, session, data, *rules):
    """Reading *data* must fail by one of *rules*, and nothing must work afterwards."""
    with pytest.raises(EnvelopeError) as caught:
        world.read(session, data)
    assert caught.value.rule in rules
    assert session.ended
    for attempt in (
        lambda: session.seal(b"", []),
        lambda: session.prelude(bytes(64)),
        lambda: world.read(session, data),
    ):
        with refusal(EnvelopeError, "envelope.ended"):
            attempt()


@given(st.binary(max_size=50), frames_strategy)
def test_what_is_sealed_is_what_is_verified(world, header, frames):
    a, b = world.sessions()
    for session, other in ((a, b), (b, a), (a, b)):
        verified = world.read(other, world.sealed(session, header, frames))
        assert verified.header == header
        assert list(map(bytes, verified.frames)) == frames
        assert verified.sender == session.local
        assert verified.recipient == other.local
        assert verified.session_id == a.id
    assert verified.sequence == 2


def test_every_changed_bit(world):
    a, b = world.sessions()
    wire = world.sealed(a, b"head", [b"first", b"", b"second"])
    for position in range(len(wire) * 8):
        _, b = world.sessions()
        changed = bytearray(wire)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises((EnvelopeError, world.Truncated)) as caught:
            world.read(b, bytes(changed))
        # Longer lengths make a reader wait for bytes that don't come; all else ends the session.
        assert b.ended or caught.type is world.Truncated


@pytest.mark.parametrize("frames", [[], [b"first", b"second"], [b"x" * 4096]])
def test_truncation_at_each_byte(world, frames):
    a, _ = world.sessions()
    wire = world.sealed(a, b"head", frames)
    for size in range(0, len(wire), 1 if len(wire) < 500 else 97):
        _, b = world.sessions()
        with pytest.raises(world.Truncated):
            world.read(b, wire[:size])
        assert not b.ended


def _spliced(world, size, w):
    at = size + world.tag + world.end
    return w[0][:-at] + w[1][-at:]


def _swapped(world, size, w):
    size, body = size + world.tag, w[0][: len(w[0]) - world.end]
    return body[: -2 * size] + body[-size:] + body[-2 * size : -size] + w[0][len(body) :]


#: Name, how many messages of alice bob takes first, what he reads then, and the rule.
OTHERS = [
    ("the last one again", 1, lambda world, size, w: w[0], "envelope.sequence"),
    ("an older one again", 3, lambda world, size, w: w[1], "envelope.sequence"),
    ("one is lost", 0, lambda world, size, w: w[1], "envelope.sequence"),
    ("two are exchanged", 1, lambda world, size, w: w[2], "envelope.sequence"),
    ("another number", 0, lambda world, size, w: w[1][:8] + w[0][8:16] + w[1][16:], "envelope.mac"),
    ("a frame of another message", 0, _spliced, "envelope.gcm"),
    ("frames exchanged", 0, _swapped, "envelope.gcm"),
]


@pytest.mark.parametrize("size", [5, 4096])
@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row[0])
def test_whatever_is_not_the_next_message_ends_the_session(world, size, row):
    _, before, change, rule = row
    a, b = world.sessions()
    contents = [[bytes([n]) * size, bytes([n + 1]) * size] for n in (1, 7, 9)]
    wires = [world.sealed(a, b"head", frames) for frames in contents]
    for wire in wires[:before]:
        world.read(b, wire)
    if rule == "envelope.gcm" and not world.encrypts:
        rule = "envelope.mac"
    refused(world, b, change(world, size, wires), rule)


def test_bytes_moved_between_header_and_frames(plain):
    a, b = plain.sessions()
    wire = plain.sealed(a, b"headfi", [b"rst"])
    fields = struct.pack("<4sBBHQIIQ", b"SSm1", 1, 1, 0, 1, 4, 1, 5)
    moved = fields + wire[32:64] + b"head" + struct.pack("<Q", 5) + b"first"
    refused(plain, b, moved, "envelope.mac")


def test_a_message_that_comes_back_or_is_of_another_session(world):
    (a, b), two = world.pair(), world.pair()
    assert a.id != two[0].id
    wire = world.sealed(a, b"h", [b"f", b"x" * 5000])
    for reader in (a, two[1]):
        refused(world, reader, wire, "envelope.mac")
    world.read(b, wire)


@given(st.binary(max_size=300))
def test_any_bytes_give_an_error_or_wait(world, data):
    _, b = world.sessions()
    with pytest.raises((EnvelopeError, world.Truncated)):
        world.read(b, data)


def test_lengths_cost_nothing_before_they_are_checked(world):
    worst = struct.pack("<4sBBHQIIQ", b"SSm1", 1, 1, 0, 1, 2**32 - 1, 2**32 - 1, 2**64 - 1)
    tracemalloc.start()
    try:
        _, b = world.sessions()
        refused(world, b, worst + bytes(32), "envelope.limits")
        _, b = world.sessions()
        largest = struct.pack("<4sBBHQIIQ", b"SSm1", 1, 1, 0, 1, 1 << 20, 100_000, 2 << 30)
        b.prelude(largest + bytes(32))
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()


def test_limits_bind_both_sides(world):
    tight = Limits(max_bytes=10, max_frames=2, max_header=3)
    for header, frames in [(b"1234", []), (b"", [b""] * 3), (b"", [b"123456"] * 2)]:
        a, b = world.sessions(limits=tight)
        with refusal(EnvelopeError, "envelope.limits"):
            a.seal(header, frames)
        # Nothing was sent, so the session goes on with the next number.
        assert world.read(b, world.sealed(a, b"123", [b"12345"] * 2)).sequence == 1
        loose, _ = world.sessions()
        _, b = world.sessions(limits=tight)
        refused(world, b, world.sealed(loose, header, frames), "envelope.limits")


def test_a_frame_over_a_gibibyte_is_refused(world):
    a, _ = world.sessions(limits=Limits(max_bytes=4 << 30))
    zeros = mmap.mmap(-1, (1 << 30) + 1)  # pages that nobody touches
    with refusal(EnvelopeError, "envelope.limits", match="over the limit"):
        a.seal(b"", [memoryview(zeros), b""])
    assert a.seal(b"", [])


def test_sealed_must_be_what_the_prelude_says(world):
    changes = (
        lambda one, two, *end: [one],
        lambda one, two, *end: [one, two + b"d"],
        lambda one, two, *end: [one, two[:-1]],
        lambda one, two, *end: [one, two, b""],
        lambda one, two, *end: [one, two, bytes(16)],
        lambda one, two, *end: [one, b""],
        lambda one, two, *end: [],
    )
    for change in changes:
        a, b = world.sessions()
        head, *frames = map(bytes, a.seal(b"head", [b"ab", b"c"]))
        start = world.start(b, head)
        with refusal(EnvelopeError, "envelope.format"):
            b.verify(Sealed(start, change(*frames)))
        assert b.ended


def test_a_prelude_read_twice_verifies_once(world):
    a, b = world.sessions()
    wire = world.sealed(a, b"h", [])
    one, two = world.start(b, wire), world.start(b, wire)
    end = wire[len(wire) - world.end :]
    b.verify(Sealed(one, [], end))
    with refusal(EnvelopeError, "envelope.sequence"):
        b.verify(Sealed(two, [], end))


def test_any_contiguous_buffer_is_a_frame(world):
    grid = np.arange(2000, dtype="<u4").reshape(40, 50)
    doubles = memoryview(array.array("d", [1.0, 2.0]))
    frames = [bytearray(b"ab"), doubles, memoryview(grid), memoryview(np.zeros((3, 0)))]
    a, b = world.sessions()
    verified = world.read(b, world.sealed(a, bytearray(b"h"), frames))
    assert [len(frame) for frame in verified.frames] == [2, 16, 8000, 0]
    assert bytes(verified.frames[2]) == grid.tobytes()
    with pytest.raises(EnvelopeError, match="contiguous"):
        a.seal(b"", [memoryview(grid[:, ::2])])


def test_the_header_is_copied_before_it_is_verified(world):
    a, b = world.sessions()
    wire = bytearray(world.sealed(a, b"head", []))
    start, end = world.start(b, wire), bytes(wire[len(wire) - world.end :])
    wire[:] = bytes(len(wire))
    assert b.verify(Sealed(start, [], end)).header == b"head"


def test_a_session_ends_after_a_day(world):
    now = [0.0]
    a, b = world.sessions(clock=lambda: now[0])
    assert a.ends_at == MAX_SECONDS
    now[0] = MAX_SECONDS - 0.001
    wires = [world.sealed(a, b"h", []) for _ in range(2)]
    prelude = b.prelude(wires[0][:64])
    start = world.start(b, wires[0])
    arrival = b.arrival(start, piece=1)
    now[0] = MAX_SECONDS
    for attempt in (
        lambda: arrival.verified(wires[0][len(wires[0]) - world.end :]),
        lambda: a.seal(b"h", []),
        lambda: b.verify(Sealed(start, [])),
        lambda: b.prelude(wires[0][:64]),
        lambda: b.start(prelude, b""),
    ):
        with refusal(EnvelopeError, "envelope.ended", match="time is up"):
            attempt()


@pytest.mark.parametrize("left", [0, 1, 63])
def test_a_session_ends_after_its_bytes(world, left):
    a, b = world.sessions()
    wire = world.sealed(world.sessions()[0], b"", [])
    a._sending.total = b._receiving.total = MAX_SESSION_BYTES - left
    for attempt in (lambda: a.seal(b"", []), lambda: world.read(b, wire)):
        with pytest.raises(EnvelopeError, match="all that one session may"):
            attempt()
    for end in (a, b):
        assert end.ended
        assert end._sending.keys is end._receiving.keys is None


def test_only_verify_makes_verified(world):
    a, b = world.sessions()
    verified = world.read(b, world.sealed(a, b"header", [b"frame"]))
    with pytest.raises(TypeError):
        Verified()
    with pytest.raises(TypeError):
        Verified(b"header", (), "alice", "bob", b"", 1)
    with pytest.raises(AttributeError):
        verified.sender = "mallory"
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(verified)
    assert "header" not in repr(verified)
    assert "alice -> bob" in repr(verified)


def test_sessions_show_and_share_no_secret(world):
    a, _ = world.sessions()
    assert repr(a) == f"Session(alice with bob, suite {world.suite.word}, id {a.id.hex()[:16]})"
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError):
            attempt(a)
    with pytest.raises(TypeError):
        a.__getstate__()
    with pytest.raises(AttributeError):
        a.peer = "mallory"
    a.end("it was closed")
    assert "ended: it was closed" in repr(a)

"""Attacks on a live session: whatever is not the next message, whole, from the peer, ends it."""

from __future__ import annotations

import array
import copy
import json
import mmap
import pickle
import struct
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import EnvelopeError
from safeser.gate import direction
from safeser.gate.format import DATA, pack_fields
from safeser.gate.session import MAX_SECONDS, MAX_SESSION_BYTES, SessionClosed, Verified
from safeser.gate.values import Limits
from tests.refusal import refusal, remembered

SECRET = b"what nobody keeps"
EDGES = [0, 1, 15, 16, 17, 4096, 65535, 65536, 65537, 70_000]
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


@pytest.mark.parametrize("frames", [[], [b"first", b"second"], [b"a", b"x" * 65536, b"y" * 65536]])
def test_truncation_at_each_byte(world, frames):
    a, _ = world.sessions()
    wire = world.sealed(a, b"head", frames)
    # Each byte of what is not the inside of a large part, and each end of one.
    each, end = min(len(wire), 300), len(wire)
    for size in {*range(each), *range(0, end, 9973), *range(max(0, end - 60), end)}:
        _, b = world.sessions()
        with pytest.raises(world.Truncated):
            world.read(b, wire[:size])
        assert not b.ended


def _spliced(world, size, w):
    """The end of the block, or the last part, of another message."""
    at = size + 16 + 32 if size >= 65536 else size + 16
    return w[0][:-at] + w[1][-at:]


def _swapped(world, size, w):
    size, body = size + 16, w[0][: len(w[0]) - 32]
    return body[: -2 * size] + body[-size:] + body[-2 * size : -size] + w[0][len(body) :]


#: Name, how many messages of alice bob takes first, what he reads then, and the rule.
OTHERS = [
    ("the last one again", 1, lambda world, size, w: w[0], "envelope.sequence"),
    ("an older one again", 3, lambda world, size, w: w[1], "envelope.sequence"),
    ("one is lost", 0, lambda world, size, w: w[1], "envelope.sequence"),
    ("two are exchanged", 1, lambda world, size, w: w[2], "envelope.sequence"),
    ("another number", 0, lambda world, size, w: w[1][:8] + w[0][8:16] + w[1][16:], "envelope.mac"),
    ("a frame of another message", 0, _spliced, "envelope.gcm"),
]


@pytest.mark.parametrize("size", [5, 65536])
@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row[0])
def test_whatever_is_not_the_next_message_ends_the_session(world, size, row):
    _, before, change, rule = row
    a, b = world.sessions()
    contents = [[bytes([n]) * size, bytes([n + 1]) * size] for n in (1, 7, 9)]
    wires = [world.sealed(a, b"head", frames) for frames in contents]
    for wire in wires[:before]:
        world.read(b, wire)
    if rule == "envelope.gcm" and size < 65536:
        rule = "envelope.mac"  # the block's tag is under the first HMAC
    refused(world, b, change(world, size, wires), rule)


def test_large_frames_exchanged(world):
    a, b = world.sessions()
    wire = world.sealed(a, b"h", [b"1" * 65536, b"2" * 65536])
    refused(world, b, _swapped(world, 65536, [wire]), "envelope.gcm")


def test_a_message_that_comes_back_or_is_of_another_session(world):
    (a, b), two = world.pair(), world.pair()
    assert a.id != two[0].id
    wire = world.sealed(a, b"h", [b"f", b"x" * 70_000])
    for reader in (a, two[1]):
        refused(world, reader, wire, "envelope.mac")
    world.read(b, wire)


@given(st.binary(max_size=300))
def test_any_bytes_give_an_error_or_wait(world, data):
    _, b = world.sessions()
    with pytest.raises((EnvelopeError, world.Truncated)):
        world.read(b, data)


def test_lengths_cost_nothing_before_they_are_checked(world):
    worst = pack_fields(DATA, 1, 2**64 - 1, 2**64 - 1)
    tracemalloc.start()
    try:
        _, b = world.sessions()
        refused(world, b, worst + bytes(32), "envelope.limits")
        _, b = world.sessions()
        b.prelude(pack_fields(DATA, 1, 8 + 8 * 100_000 + (1 << 20), 2 << 30) + bytes(32))
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


def test_an_authentic_message_over_a_limit_leaves_no_plaintext(world):
    loose, _ = world.sessions()
    _, b = world.sessions(limits=Limits(max_frames=2))
    wire = world.sealed(loose, b"", [SECRET] * 3)
    with refusal(EnvelopeError, "envelope.limits") as caught:
        world.read(b, wire)
    assert not remembered(caught.value, SECRET)


def test_a_frame_over_the_longest_is_refused(world, monkeypatch):
    monkeypatch.setattr("safeser.gate.format.MAX_FRAME", 1 << 30)
    a, _ = world.sessions(limits=Limits(max_bytes=4 << 30))
    zeros = mmap.mmap(-1, (1 << 30) + 1)  # pages that nobody touches
    with refusal(EnvelopeError, "envelope.limits", match="over the limit"):
        a.seal(b"", [memoryview(zeros), b""])
    assert a.seal(b"", [])


@pytest.mark.parametrize("rest", [0, 64, 70_000])
def test_a_block_must_be_what_the_prelude_says(world, rest):
    a, b = world.sessions()
    wire = world.sealed(a, b"head", [b"x" * rest])
    prelude = b.prelude(wire[:64])
    with refusal(EnvelopeError, "envelope.format"):
        b.arrival(prelude, wire[64 : 64 + prelude.block - 1])
    assert b.ended


def test_a_prelude_read_twice_verifies_once(world):
    a, b = world.sessions()
    wire = world.sealed(a, b"h", [])
    one, two = b.prelude(wire[:64]), b.prelude(wire[:64])
    b.arrival(one, wire[64:]).verified()
    with refusal(EnvelopeError, "envelope.sequence"):
        b.arrival(two, wire[64:])


def test_a_prelude_out_of_sequence_is_refused_before_its_block_is_read(world):
    a, b = world.sessions()
    world.sealed(a, b"h", [])
    with refusal(EnvelopeError, "envelope.sequence"):
        b.prelude(world.sealed(a, b"h", [])[:64])
    assert b.ended


def test_a_small_message_is_one_call_of_each(world):
    a, b = world.sessions()
    calls = []

    class Counting:
        def __init__(self, real):
            self.real = real

        def __getattr__(self, name):
            calls.append(name)
            return getattr(self.real, name)

    for keys in (a._sending.keys, b._receiving.keys):
        keys.gcm, keys.hmac = Counting(keys.gcm), Counting(keys.hmac)
    wire = world.sealed(a, b"h", [b"x" * 60_000, *[b"y"] * 500])
    assert calls == ["encrypt", "copy"]
    calls.clear()
    assert len(world.read(b, wire).frames) == 501
    assert calls == ["copy", "decrypt"]


# --- the end of a stream -------------------------------------------------------------------------


def test_a_close_message_ends_both_sides_and_comes_once(world):
    a, b = world.sessions()
    wire = world.sealed(a, b"h", [])
    last = a.closing()
    world.read(b, wire)
    with refusal(SessionClosed, "envelope.closed"):
        world.read(b, last)
    for session in (a, b):
        assert session.ended
        with refusal(EnvelopeError, "envelope.ended"):
            session.seal(b"", [])


@pytest.mark.parametrize("change", ["cut", "replayed", "bit", "other"])
def test_a_close_message_that_is_not_the_next_is_none(world, change):
    a, b = world.sessions()
    wire = world.sealed(a, b"h", [])
    last = world.sessions(1)[0].closing() if change == "other" else a.closing()
    if change == "cut":
        with pytest.raises(world.Truncated):
            world.read(b, world.sessions()[0].closing()[:79])
        assert not b.ended  # as a reset connection is
        return
    if change == "bit":
        world.read(b, wire)
        last = last[:-1] + bytes((last[-1] ^ 1,))
    rule = {"replayed": "envelope.sequence"}.get(change, "envelope.mac")
    refused(world, b, last, rule)


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


def test_what_was_verified_is_not_what_the_caller_may_change(world):
    a, b = world.sessions()
    wire = bytearray(world.sealed(a, b"head", [b"frame", b"x" * 70_000]))
    verified = world.read(b, wire)
    wire[:] = bytes(len(wire))
    assert verified.header == b"head"
    assert list(map(bytes, verified.frames)) == [b"frame", b"x" * 70_000]


def test_a_session_ends_after_a_day(world):
    now = [0.0]
    a, b = world.sessions(clock=lambda: now[0])
    assert a._ends_at == MAX_SECONDS
    now[0] = MAX_SECONDS - 0.001
    wires = [world.sealed(a, b"h", []) for _ in range(2)]
    prelude = b.prelude(wires[0][:64])
    arrival = b.arrival(prelude, wires[0][64:])
    now[0] = MAX_SECONDS
    for attempt in (
        arrival.verified,
        lambda: a.seal(b"h", []),
        lambda: b.prelude(wires[0][:64]),
        lambda: b.arrival(prelude, wires[0][64:]),
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
    assert repr(a) == f"Session(alice with bob, id {a.id.hex()[:16]})"
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError):
            attempt(a)
    with pytest.raises(TypeError):
        a.__getstate__()
    with pytest.raises(AttributeError):
        a.peer = "mallory"
    a.end("it was closed")
    assert "ended: it was closed" in repr(a)


# --- nonces --------------------------------------------------------------------------------------


class Noting:
    """AES-256-GCM that notes the nonce of each encryption."""

    def __init__(self, real, nonces):
        self.real = real
        self.nonces = nonces

    def encrypt(self, nonce, data, associated):
        self.nonces.append(bytes(nonce))
        return self.real.encrypt(nonce, data, associated)


@pytest.fixture
def nonces(monkeypatch, world):
    """Return one end of a session, and the nonces that it encrypts under."""
    found = []
    session, _ = world.sessions()
    keys = session._sending.keys
    keys.gcm = Noting(keys.gcm, found)
    gcm = direction.GCM

    def noted(nonce):
        found.append(bytes(nonce))
        return gcm(nonce)

    monkeypatch.setattr(direction, "GCM", noted)
    return session, found


def test_no_nonce_is_used_twice(nonces):
    session, found = nonces
    for _ in range(3):
        session.seal(b"head", [b"", b"a", bytes(1 << 19), bytes((1 << 19) + 1), b"b"])
    session.seal(b"", [])
    session.closing()
    assert len(found) == 3 * 4 + 2
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("taken", [0, 1, 2, 5])
def test_an_interrupted_message_is_the_last_that_the_direction_can_send(nonces, taken):
    session, found = nonces
    buffers = session.sealing(b"head", [b"a", bytes(3 << 20), b"b"])
    for _ in range(taken):
        next(buffers)
    buffers.close()
    for attempt in (
        lambda: session.seal(b"head", [b"another"]),
        lambda: session.sealing(b"head", [bytes(1 << 17)]),
        session.closing,
    ):
        with refusal(EnvelopeError, "envelope.busy"):
            attempt()
    assert len(set(found)) == len(found)


def test_threads_never_share_a_sequence_number(world):
    """To check that a direction is free and to claim it is one step."""
    session, _ = world.sessions()
    both = threading.Barrier(2)
    outcomes, clock, waiting = [], session._clock, set()

    def slow():
        if threading.get_ident() not in waiting:
            waiting.add(threading.get_ident())
            both.wait(10)  # each of two has seen that the session lives
        return clock()

    session._clock = slow

    def claim():
        try:
            outcomes.append(session.sealing(b"", [bytes(1 << 17)]))
        except EnvelopeError as error:
            outcomes.append(error.rule)

    threads = [threading.Thread(target=claim) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert outcomes.count("envelope.busy") == 1
    assert session._sending.sequence == 1


def test_a_forked_process_has_no_session(world, monkeypatch):
    """It would count on from the same number, under the same keys."""
    a, b = world.sessions()
    wire = world.sealed(b, b"h", [])
    monkeypatch.setattr("safeser.gate.session.os.getpid", lambda: -1)
    for attempt in (lambda: a.seal(b"", [b"x"]), a.closing, lambda: world.read(a, wire)):
        with pytest.raises(EnvelopeError, match="another process"):
            attempt()
    assert a._sending.keys is a._receiving.keys is None


@pytest.mark.parametrize("why", ["its key was retired", "its time is up", "another process"])
def test_a_session_that_ends_while_a_message_is_written_writes_no_more(world, monkeypatch, why):
    now = [0.0]
    session, _ = world.sessions(clock=lambda: now[0])
    buffers = session.sealing(b"", [bytes(4 << 20)])
    next(buffers)
    next(buffers)
    if "key" in why:
        session.end(why)
    elif "time" in why:
        now[0] = MAX_SECONDS
    else:
        monkeypatch.setattr("safeser.gate.session.os.getpid", lambda: -1)
    with refusal(EnvelopeError, "envelope.ended", match=why):
        next(buffers)


def test_a_session_that_ends_before_the_last_tag_writes_none(world):
    session, _ = world.sessions()
    buffers = session.sealing(b"", [bytes(1 << 17)])
    next(buffers)
    next(buffers)
    session.end("its key was retired")
    with refusal(EnvelopeError, "envelope.ended", match="its key was retired"):
        next(buffers)


def test_keys_take_the_place_of_others_between_two_messages(world):
    (a, b), (c, d) = world.sessions(), world.sessions(1)
    buffers = a.sealing(b"", [bytes(1 << 17)])
    begin = next(buffers)
    arrival = b.arrival(b.prelude(begin[:64]), begin[64:])
    for change in (lambda: a.send_as(c), lambda: b.receive_as(d)):
        with refusal(EnvelopeError, "envelope.busy"):
            change()
    assert arrival.whole(memoryview(b"".join(buffers))).sequence == 1
    a.send_as(c)
    b.receive_as(d)
    assert world.read(b, world.sealed(a, b"h", [])).session_id == d.id


@pytest.mark.parametrize("number", [2**64 - 2, 2**64 - 1])
def test_the_last_numbers_do_not_wrap_around(world, number):
    a, _ = world.sessions()
    a._sending.sequence = number
    if number == 2**64 - 1:
        with pytest.raises(struct.error):
            a.seal(b"", [])
        with refusal(EnvelopeError, "envelope.busy"):
            a.seal(b"", [])
        return
    assert a.seal(b"", [])

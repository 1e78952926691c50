"""Who gets a session and who doesn't; what a stranger can learn, cost or break."""

from __future__ import annotations

import contextlib
import copy
import datetime
import pickle
import struct
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safeser.envelope import Claims, HandshakeRefused, preamble
from safeser.envelope.noise import HandshakeState
from safeser.errors import AuthenticationError, ConfigError, SafeserError
from safeser.identity import KeyState, PublicKey, Roster, RosterEntry
from safeser.values import Suite

PREAMBLE = preamble(Suite.AUTHENTICATE)
OPAQUE = str(AuthenticationError("the peer could not be authenticated"))


def refused(handshake, *pieces):
    """Feed all *pieces*; the last one must be refused. Return the detail."""
    for piece in pieces[:-1]:
        handshake.feed(piece)
    with pytest.raises(HandshakeRefused) as caught:
        handshake.feed(pieces[-1])
    assert str(caught.value) == OPAQUE
    assert caught.value.rule == "authentication"
    assert not handshake.complete
    assert handshake.wanted == 0
    with pytest.raises(HandshakeRefused):
        handshake.session()
    with pytest.raises(HandshakeRefused):
        handshake.feed(pieces[-1])
    return caught.value.detail


class Rogue:
    """An initiator that speaks perfect Noise and lies in its claims."""

    def __init__(self, world, static):
        self.preamble = world.preamble
        self.state = HandshakeState(initiator=True, prologue=self.preamble, static=static)

    def against(self, responder, payload):
        first = self.state.write_message(b"")
        responder.feed(self.preamble)
        self.state.read_message(responder.feed(first)[12:])
        return self.state.write_message(payload)


def test_both_sides_agree(world):
    a, b = world.shake(world.initiator(expected_peer="bob"), world.responder())
    assert (a.local, a.peer, b.local, b.peer) == ("alice", "bob", "bob", "alice")
    assert a.id == b.id
    assert len(a.id) == 32
    assert a.peer_key == world.bob.public
    assert a.peer_claims == Claims("bob", None, *world.policy)
    assert b.peer_claims == Claims("alice", "bob", *world.policy)
    assert world.read(b, world.sealed(a, b"h", [b"f"])).sender == "alice"
    assert world.read(a, world.sealed(b, b"h", [b"f"])).sender == "bob"


def test_a_stranger_costs_a_fixed_number_of_bytes(world):
    initiator, responder = world.initiator(), world.responder()
    assert (len(initiator.outgoing), responder.outgoing) == (44, b"")
    assert responder.wanted == 12
    assert responder.feed(initiator.outgoing[:12]) == b""
    assert responder.wanted == 32
    answer = responder.feed(initiator.outgoing[12:])
    assert len(answer) == 428
    assert initiator.wanted == 12
    initiator.feed(answer[:12])
    assert initiator.wanted == 416
    assert len(initiator.feed(answer[12:])) == 384 == responder.wanted
    assert initiator.complete
    assert initiator.wanted == 0


def test_session_is_one(world):
    initiator, responder = world.initiator(), world.responder()
    a, _ = world.shake(initiator, responder)
    assert initiator.session() is a  # a second one would use the same keys and sequence again
    with pytest.raises(HandshakeRefused):
        initiator.feed(b"")


def test_every_handshake_has_its_own_id(world):
    assert len({world.pair()[0].id for _ in range(5)}) == 5


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n"[:12], "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", "TLS"),
        (struct.pack("<QI", 2, 5), "plain Dask"),
        (b"\xff" * 12, "does not speak"),
        (b"SSH-2.0-Open", "does not speak"),
        (PREAMBLE[:8] + b"\2\1\0\0", "version 2, suite 1"),
        (PREAMBLE[:9] + b"\0\0\0", "version 1, suite 0; this is version 1, suites 1 and 2"),
        (PREAMBLE[:9] + b"\3\0\0", "version 1, suite 3"),
        (PREAMBLE[:11] + b"\1", "version 1"),
    ],
)
def test_other_protocols_are_known_by_their_first_bytes(world, data, said):
    assert said in refused(world.responder(), data)
    assert said in refused(world.initiator(), data)


def test_an_unlisted_key(world):
    responder = world.responder()
    last = Rogue(world, world.mallory).against(
        responder, Claims("alice", "bob", *world.policy).encode()
    )
    assert world.mallory.public.text in refused(responder, last)


def test_an_unlisted_responder(world):
    initiator, responder = world.initiator(), world.responder(world.mallory)
    responder.feed(initiator.outgoing[:12])
    answer = responder.feed(initiator.outgoing[12:])
    assert world.mallory.public.text in refused(initiator, answer[:12], answer[12:])


@pytest.mark.parametrize("state", [KeyState.PENDING, KeyState.RETIRED])
def test_keys_that_are_not_active(world, state):
    today = datetime.date(2026, 1, 31)
    roster = Roster([RosterEntry(world.alice.public, "alice", state, today)])
    responder = world.responder(principal_of=roster.principal_of)
    last = Rogue(world, world.alice).against(
        responder, Claims("alice", "bob", *world.policy).encode()
    )
    refused(responder, last)


@pytest.mark.parametrize(
    ("principal", "peer"),
    [("bob", "bob"), ("mallory", "bob"), ("alice", "alice"), ("alice", None), ("Alice", "bob")],
)
def test_claims_that_differ_from_the_roster_or_from_us(world, principal, peer):
    responder = world.responder()
    last = Rogue(world, world.alice).against(
        responder, Claims(principal, peer, *world.policy).encode()
    )
    refused(responder, last)


@pytest.mark.parametrize("payload", [b"", bytes(320), bytes(319), b"\xff" * 320])
def test_claims_that_are_none(world, payload):
    responder = world.responder()
    refused(responder, Rogue(world, world.alice).against(responder, payload))


@pytest.mark.parametrize(("principal", "peer"), [("alice", None), ("bob", "alice")])
def test_a_responder_that_lies(world, principal, peer):
    initiator = world.initiator()
    state = HandshakeState(initiator=False, prologue=world.preamble, static=world.bob)
    state.read_message(initiator.outgoing[12:])
    answer = state.write_message(Claims(principal, peer, *world.policy).encode())
    refused(initiator, world.preamble, answer)


def test_the_initiator_reaches_whom_it_meant(world):
    initiator, responder = world.initiator(expected_peer="carol"), world.responder()
    responder.feed(initiator.outgoing[:12])
    answer = responder.feed(initiator.outgoing[12:])
    assert "reached bob, not carol" in refused(initiator, answer[:12], answer[12:])


def test_a_relayed_initiator_does_not_reach_another_responder(world):
    # Mallory's node forwards to bob what alice meant for mallory: the noise breaks, and if it
    # did not, message 3 names its addressee.
    roster = {**world.roster, world.mallory.public: "mallory"}
    alice = world.initiator(principal_of=roster.get)
    bob, mallory = world.responder(), world.responder(world.mallory)
    for responder in (bob, mallory):
        responder.feed(alice.outgoing[:12])
    answer = mallory.feed(alice.outgoing[12:])
    bob.feed(alice.outgoing[12:])
    alice.feed(answer[:12])
    refused(bob, alice.feed(answer[12:]))


def test_processes_that_share_a_key_may_talk(world):
    # Two workers of one node, or a process and itself: both prove that they hold the key.
    a, b = world.shake(world.initiator(), world.responder(world.alice))
    assert a.peer == b.peer == "alice"
    assert world.read(b, world.sealed(a, b"h", [])).header == b"h"
    # ... and a message that comes back is nobody's.
    with pytest.raises(SafeserError):
        world.read(a, world.sealed(a, b"h", []))


def test_a_mirror_is_not_a_peer(world):
    initiator = world.initiator()
    first = initiator.outgoing
    assert "our own" in refused(initiator, first[:12], first[12:].ljust(416, b"\0"))


def test_two_initiators_or_two_responders_get_nowhere(world):
    one, two = world.initiator(), world.initiator()
    one.feed(two.outgoing[:12])
    refused(one, two.outgoing[12:])
    assert world.responder().outgoing == b""


LOW_ORDER = (
    *(number.to_bytes(32, "little") for number in (0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18)),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    *(
        (2**255 + number).to_bytes(32, "little")
        for number in (0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18)
    ),
)


@pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[-8:])
def test_low_order_ephemeral(world, point):
    refused(world.responder(), world.preamble, point)
    refused(world.initiator(), world.preamble, point + bytes(384))


@pytest.mark.parametrize("point", LOW_ORDER[:7], ids=lambda point: point.hex()[-8:])
def test_low_order_static(world, point):
    class Static:
        public = object.__new__(PublicKey)
        exchange = world.mallory.exchange

    object.__setattr__(Static.public, "raw", point)
    responder = world.responder(principal_of=lambda key: "alice")
    last = Rogue(world, Static).against(responder, Claims("alice", "bob", *world.policy).encode())
    assert "low order" in refused(responder, last)


def test_every_flipped_byte_of_every_flight(world):
    fixed = (
        {"generate": lambda: world.key("ephemeral a")},
        {"generate": lambda: world.key("ephemeral b")},
    )
    initiator, responder = world.initiator(**fixed[0]), world.responder(**fixed[1])
    first = initiator.outgoing
    responder.feed(first[:12])
    second = responder.feed(first[12:])
    initiator.feed(second[:12])
    third = initiator.feed(second[12:])

    def flip(data, position, bit):
        return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]

    for position in range(len(second)):
        data = flip(second, position, position % 8)
        pieces = [data[:12]] if position < 12 else [data[:12], data[12:]]
        refused(world.initiator(**fixed[0]), *pieces)
    for position in range(len(third)):
        data = flip(third, position, position % 8)
        refused(world.responder(**fixed[1]), first[:12], first[12:], data)
    for position in range(12):
        refused(world.responder(**fixed[1]), flip(first, position, 0)[:12])
    # A changed message 1 is only noticed by the initiator: it carries no secret yet.
    for position in range(12, 44):
        responder = world.responder(**fixed[1])
        data = flip(first, position, position % 8)
        responder.feed(data[:12])
        answer = responder.feed(data[12:])
        refused(world.initiator(**fixed[0]), answer[:12], answer[12:])


def test_sizes_are_exact(world):
    for size in (0, 11, 13, 4096):
        refused(world.responder(), PREAMBLE.ljust(size, b"\0")[:size])
    for size in (0, 31, 33):
        refused(world.responder(), world.preamble, bytes(range(1, size + 1)))


def test_the_reader_may_hand_over_any_buffer(world):
    initiator, responder = world.initiator(), world.responder()
    responder.feed(memoryview(initiator.outgoing)[:12])
    answer = bytearray(responder.feed(bytearray(initiator.outgoing[12:])))
    initiator.feed(answer[:12])
    responder.feed(initiator.feed(memoryview(answer)[12:]))
    assert responder.complete


def test_a_roster_that_fails_ends_the_handshake_with_its_own_error(world):
    def broken(key):
        raise OSError("the roster's disk is gone")

    initiator, responder = world.initiator(principal_of=broken), world.responder()
    responder.feed(initiator.outgoing[:12])
    answer = responder.feed(initiator.outgoing[12:])
    initiator.feed(answer[:12])
    with pytest.raises(OSError, match="disk"):
        initiator.feed(answer[12:])
    with pytest.raises(HandshakeRefused):
        initiator.feed(answer[12:])
    assert not initiator.complete


def test_a_library_that_meets_a_low_order_point_is_one_more_refusal(world, monkeypatch):
    responder = world.responder()
    responder.feed(PREAMBLE)
    monkeypatch.setattr("safeser.identity.identities._LOW_ORDER", frozenset())
    assert refused(responder, bytes(32))


def test_settings_are_refused_before_anybody_connects(world):
    for policy in [("", 1, "0" * 64), ("p", -1, "0" * 64), ("p", 1, "0"), ("p", True, "0" * 64)]:
        with pytest.raises(ConfigError):
            world.responder(policy=policy)
    with pytest.raises(ConfigError):
        world.responder(expected_peer="alice")
    with pytest.raises(ConfigError):
        world.initiator(expected_peer="no name\n")


def test_handshakes_show_and_share_no_secret(world):
    handshake = world.initiator()
    text = repr(handshake) + repr(world.alice)
    assert world.alice._private._secret_text() not in text
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(handshake)


@given(st.lists(st.binary(max_size=500), max_size=4), st.booleans())
@example([PREAMBLE, b"\x09" + bytes(31), bytes(384)], False)
def test_any_bytes_are_answered_or_refused(world, pieces, initiator):
    handshake = world.initiator() if initiator else world.responder()
    for piece in pieces:
        with contextlib.suppress(AuthenticationError):
            handshake.feed(piece)
    assert not handshake.complete


def test_garbage_takes_no_memory(world):
    garbage = bytes(64 << 20)
    responder = world.responder()
    tracemalloc.start()
    try:
        refused(responder, garbage)
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()

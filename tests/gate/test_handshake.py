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

from safeser.errors import AuthenticationError, ConfigError, SafeserError
from safeser.gate.claims import Claims
from safeser.gate.handshake import PREAMBLE, OtherVersion
from safeser.gate.key_pairs import PublicKey
from safeser.gate.noise import HandshakeRefused, HandshakeState
from safeser.identity import KeyState, Roster, RosterEntry
from tests.refusal import refusal

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
        self.state = HandshakeState(initiator=True, prologue=PREAMBLE, static=static)

    def against(self, responder, payload):
        first = self.state.write_message(b"")
        responder.feed(PREAMBLE)
        self.state.read_message(responder.feed(first)[12:])
        return self.state.write_message(payload)


def answered(initiator, responder):
    """Return what *responder* answers the first message of *initiator*."""
    responder.feed(initiator.outgoing[:12])
    return responder.feed(initiator.outgoing[12:])


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
    assert (len(initiator.outgoing), responder.outgoing, responder.wanted) == (44, b"", 12)
    assert responder.feed(initiator.outgoing[:12]) == b""
    assert responder.wanted == 32
    answer = responder.feed(initiator.outgoing[12:])
    assert (len(answer), initiator.wanted) == (428, 12)
    initiator.feed(answer[:12])
    assert initiator.wanted == 416
    assert len(initiator.feed(answer[12:])) == 384 == responder.wanted
    assert initiator.complete


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
        (PREAMBLE[:8] + b"\1\1\0\0", "speaks version 1 of safeser's envelope, and this process"),
        (PREAMBLE[:8] + b"\1\2\0\0", "version 2: upgrade safeser at that end"),
        (PREAMBLE[:8] + b"\3\0\0\0", "version 3 of safeser's envelope"),
        (PREAMBLE[:8] + b"\3\0\0\0", "upgrade safeser at this process"),
        (PREAMBLE[:11] + b"\1", "reserved"),
    ],
)
def test_other_protocols_are_known_by_their_first_bytes(world, data, said):
    assert said in refused(world.responder(), data)
    assert said in refused(world.initiator(), data)


#: Whose key an initiator proves, what it says of itself and of whom it means, and how alice's key
#: is listed. Blocks that are no claims at all are vectors.
LIARS = [
    ("mallory", ("alice", "bob"), KeyState.ACTIVE),
    ("alice", ("alice", "bob"), KeyState.PENDING),
    ("alice", ("alice", "bob"), KeyState.RETIRED),
    ("alice", ("alice", "bob"), KeyState.VERIFY_ONLY),
    ("alice", ("bob", "bob"), KeyState.ACTIVE),
    ("alice", ("mallory", "bob"), KeyState.ACTIVE),
    ("alice", ("Alice", "bob"), KeyState.ACTIVE),
    ("alice", ("alice", "alice"), KeyState.ACTIVE),
    ("alice", ("alice", None), KeyState.ACTIVE),
    ("alice", b"", KeyState.ACTIVE),
    ("alice", bytes(319), KeyState.ACTIVE),
    ("alice", b"\xff" * 320, KeyState.ACTIVE),
]


@pytest.mark.parametrize(("key", "says", "state"), LIARS)
def test_an_initiator_that_is_not_who_it_says(world, key, says, state):
    listed = RosterEntry(world.alice.public, "alice", state, datetime.date(2026, 1, 31))
    responder = world.responder(principal_of=Roster([listed]).principal_of)
    claims = says if isinstance(says, bytes) else Claims(*says, *world.policy).encode()
    identity = getattr(world, key)
    said = refused(responder, Rogue(world, identity).against(responder, claims))
    assert identity.public.text in said or (state, key) == (KeyState.ACTIVE, "alice")


@pytest.mark.parametrize("expected", [None, "carol"])
def test_another_responder_than_the_one_that_was_meant(world, expected):
    responder = world.responder(None if expected else world.mallory)
    initiator = world.initiator(expected_peer=expected)
    answer = answered(initiator, responder)
    said = "reached bob, not carol" if expected else world.mallory.public.text
    assert said in refused(initiator, answer[:12], answer[12:])


@pytest.mark.parametrize(("principal", "peer"), [("alice", None), ("bob", "alice")])
def test_a_responder_that_lies(world, principal, peer):
    initiator = world.initiator()
    state = HandshakeState(initiator=False, prologue=PREAMBLE, static=world.bob)
    state.read_message(initiator.outgoing[12:])
    answer = state.write_message(Claims(principal, peer, *world.policy).encode())
    refused(initiator, PREAMBLE, answer)


def test_a_relayed_initiator_does_not_reach_another_responder(world):
    # Mallory's node forwards to bob what alice meant for mallory: the noise breaks, and if it
    # did not, message 3 names its addressee.
    alice = world.initiator(principal_of={world.mallory.public: "mallory"}.get)
    bob, mallory = world.responder(), world.responder(world.mallory)
    answered(alice, bob)
    answer = answered(alice, mallory)
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


def test_a_mirror_and_another_initiator_are_no_peers(world):
    initiator = world.initiator()
    first = initiator.outgoing
    assert "our own" in refused(initiator, first[:12], first[12:].ljust(416, b"\0"))
    one, two = world.initiator(), world.initiator()
    refused(one, two.outgoing[:12], two.outgoing[12:])


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
    refused(world.responder(), PREAMBLE, point)
    refused(world.initiator(), PREAMBLE, point + bytes(384))


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
    def sides():
        return [
            make(generate=lambda name=name: world.key(f"ephemeral {name}"))
            for make, name in ((world.initiator, "a"), (world.responder, "b"))
        ]

    def flipped(data):
        for position in range(len(data)):
            changed = data[position] ^ 1 << position % 8
            yield position, data[:position] + bytes([changed]) + data[position + 1 :]

    initiator, responder = sides()
    first, second = initiator.outgoing, answered(initiator, responder)
    initiator.feed(second[:12])
    third = initiator.feed(second[12:])
    for position, data in flipped(second):
        refused(sides()[0], data[:12], *([data[12:]] if position >= 12 else []))
    for _, data in flipped(third):
        refused(sides()[1], first[:12], first[12:], data)
    for position, data in flipped(first):
        initiator, responder = sides()
        if position < 12:
            refused(responder, data[:12])
            continue
        # Only the initiator notices: message 1 carries no secret yet.
        responder.feed(data[:12])
        answer = responder.feed(data[12:])
        refused(initiator, answer[:12], answer[12:])


@pytest.mark.parametrize("size", [0, 11, 13, 31, 33, 64 << 20])
def test_sizes_are_exact_and_another_takes_no_memory(world, size):
    data = PREAMBLE + bytes(max(size - 12, 0))
    responder, after = world.responder(), world.responder()
    after.feed(memoryview(PREAMBLE))
    tracemalloc.start()
    try:
        refused(responder, data[:size])
        refused(after, data[:size])
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()


def test_a_roster_that_fails_ends_the_handshake_with_its_own_error(world):
    def broken(key):
        raise OSError("the roster's disk is gone")

    initiator = world.initiator(principal_of=broken)
    answer = answered(initiator, world.responder())
    initiator.feed(answer[:12])
    for error in (OSError, HandshakeRefused):
        with pytest.raises(error):
            initiator.feed(answer[12:])
    assert not initiator.complete


def test_a_library_that_meets_a_low_order_point_is_one_more_refusal(world, monkeypatch):
    responder = world.responder()
    responder.feed(PREAMBLE)
    monkeypatch.setattr(PublicKey, "low_order", frozenset())
    assert refused(responder, bytes(32))


def test_settings_are_refused_before_anybody_connects(world):
    with refusal(ConfigError, "config.revision"):
        world.responder(policy=("p", -1, "0" * 64))
    with refusal(ConfigError, "config.handshake"):
        world.responder(expected_peer="alice")
    with refusal(ConfigError, "config.principal"):
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


def test_a_recorded_handshake_and_its_messages_replayed(world):
    initiator, responder = world.initiator(), world.responder()
    first = initiator.outgoing
    answer = answered(initiator, responder)
    initiator.feed(answer[:12])
    third = initiator.feed(answer[12:])
    responder.feed(third)
    fresh = world.responder()
    answered(initiator, fresh)
    assert first == initiator.outgoing
    refused(fresh, third)  # its ephemeral key is another


def test_another_version_is_told_from_another_protocol(world):
    with pytest.raises(OtherVersion):
        world.responder().feed(PREAMBLE[:8] + b"\1\1\0\0")
    with pytest.raises(HandshakeRefused) as caught:
        world.responder().feed(b"GET / HTTP/1.1\r\n"[:12])
    assert not isinstance(caught.value, OtherVersion)

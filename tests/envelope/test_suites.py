"""Attacks on the choice of a suite: nobody between the two, and neither of them, gets a weaker one.

The sides of these tests hold right keys; what differs is the suite that they propose and require.
"""

from __future__ import annotations

import itertools
import struct
import threading

import pytest

from safeser.envelope import Handshake, HandshakeRefused, preamble
from safeser.errors import ConfigError, EnvelopeError
from safeser.values import Suite
from tests.refusal import refusal

ONE, TWO = Suite.AUTHENTICATE, Suite.ENCRYPT


def sides(world, *, proposes, here=ONE, there=ONE):
    """Return an initiator and a responder that require what *here* and *there* say."""
    usual = {"principal_of": world.roster.get, "policy": world.policy}
    return (
        Handshake(
            initiator=True,
            identity=world.alice,
            required=lambda _: here,
            suite=proposes,
            **usual,
        ),
        Handshake(initiator=False, identity=world.bob, required=lambda _: there, **usual),
    )


@pytest.mark.parametrize(("proposes", "here", "there"), list(itertools.product(Suite, repeat=3)))
def test_a_session_is_what_was_proposed_or_there_is_none(plain, proposes, here, there):
    initiator, responder = sides(plain, proposes=proposes, here=here, there=there)
    if proposes < max(here, there):
        with pytest.raises(HandshakeRefused) as caught:
            plain.shake(initiator, responder)
        assert "the policy here requires encrypt" in caught.value.detail
        assert "encrypt" not in str(caught.value)
        assert not responder.complete
        return
    for session in plain.shake(initiator, responder):
        assert session.suite is proposes


def test_what_is_required_is_asked_for_the_principal_that_proved_itself(plain):
    asked = []

    def required(principal):
        asked.append(principal)
        return ONE

    usual = {"principal_of": plain.roster.get, "policy": plain.policy, "required": required}
    plain.shake(
        Handshake(initiator=True, identity=plain.alice, suite=ONE, **usual),
        Handshake(initiator=False, identity=plain.bob, **usual),
    )
    assert asked == ["bob", "alice"]


@pytest.mark.parametrize(("proposes", "written"), [(TWO, ONE), (ONE, TWO)])
@pytest.mark.parametrize("back", [False, True])
def test_a_suite_changed_on_the_way(plain, proposes, written, back):
    """The responder answers in the suite that it read; changed back, its prologue is another."""
    initiator, responder = sides(plain, proposes=proposes)
    responder.feed(preamble(written))
    answer = responder.feed(initiator.outgoing[12:])
    if back:
        initiator.feed(preamble(proposes))
    with pytest.raises(HandshakeRefused) as caught:
        initiator.feed(answer[12:] if back else answer[:12])
    assert back or f"not {proposes.word} as proposed" in caught.value.detail


@pytest.mark.parametrize("number", sorted(set(range(256)) - {1, 2}))
def test_there_are_two_suites(plain, number):
    _, responder = sides(plain, proposes=ONE)
    with pytest.raises(HandshakeRefused):
        responder.feed(preamble(ONE)[:9] + bytes((number, 0, 0)))


def test_a_side_says_what_it_proposes_or_takes_what_it_hears(plain):
    usual = {"principal_of": plain.roster.get, "policy": plain.policy, "required": lambda _: ONE}
    for wrong in ({"initiator": True}, {"initiator": False, "suite": ONE}):
        with refusal(ConfigError, "config.handshake"):
            Handshake(identity=plain.alice, **wrong, **usual)


# --- messages of one suite in a session of the other ---------------------------------------------


def message(session, frames=(b"first", b"x" * 5000)):
    return b"".join(session.seal(b"head", frames))


@pytest.mark.parametrize("rest", [b"", bytes(4096)])
def test_messages_of_the_other_suite(plain, encrypted, rest):
    """Even with the same split keys and session id, which no two handshakes have."""
    for one, other in ((plain, encrypted), (encrypted, plain)):
        sender, _ = one.sessions()
        _, receiver = other.sessions()
        with pytest.raises((EnvelopeError, other.Truncated)) as caught:
            other.read(receiver, message(sender) + rest)
        assert receiver.ended or caught.type is other.Truncated
        assert receiver._receiving.sequence == 0


def test_a_recorded_handshake_and_its_messages_replayed(encrypted):
    initiator, responder = encrypted.initiator(), encrypted.responder()
    spoken = [initiator.outgoing]
    responder.feed(spoken[0][:12])
    answer = responder.feed(spoken[0][12:])
    initiator.feed(answer[:12])
    spoken.append(initiator.feed(answer[12:]))
    responder.feed(spoken[1])
    fresh = encrypted.responder()
    fresh.feed(spoken[0][:12])
    fresh.feed(spoken[0][12:])
    with pytest.raises(HandshakeRefused):  # its ephemeral key is another
        fresh.feed(spoken[1])


# --- nonces --------------------------------------------------------------------------------------


class Recording:
    """AES-256-GCM that notes the nonce of each encryption."""

    def __init__(self, real, nonces):
        self.real = real
        self.nonces = nonces

    def encrypt(self, nonce, data, associated):
        self.nonces.append(bytes(nonce))
        return self.real.encrypt(nonce, data, associated)

    def decrypt(self, *arguments):
        return self.real.decrypt(*arguments)


@pytest.fixture
def nonces(monkeypatch, encrypted):
    """Return one end of a session, and the nonces that it encrypts under."""
    found = []
    session, _ = encrypted.sessions()
    keys = session._sending.keys
    keys.gcm = Recording(keys.gcm, found)
    real = __import__("safeser.envelope.aead", fromlist=["GCM"])
    gcm = real.GCM

    def noted(nonce):
        found.append(bytes(nonce))
        return gcm(nonce)

    monkeypatch.setattr(real, "GCM", noted)
    return session, found


def test_no_nonce_is_used_twice(nonces):
    session, found = nonces
    for _ in range(3):
        message(session, [b"", b"a", bytes(1 << 20), bytes((1 << 20) + 1)])
    session.seal(b"", [])
    assert len(found) == 3 * 5 + 1
    assert len(set(found)) == len(found)
    assert found[0] == struct.pack(">QI", 1, 2**32 - 1)
    assert found[1:5] == [struct.pack(">QI", 1, index) for index in range(4)]
    assert found[-1] == struct.pack(">QI", 4, 2**32 - 1)


@pytest.mark.parametrize("taken", [0, 1, 2, 4])
def test_a_message_given_up_halfway_ends_what_the_direction_can_send(nonces, taken):
    session, found = nonces
    buffers = session.sealing(b"head", [b"a", bytes(3 << 20), b"b"])
    for _ in range(taken):
        next(buffers)
    buffers.close()
    for attempt in (session.seal, session.sealing):
        with refusal(EnvelopeError, "envelope.busy"):
            attempt(b"head", [b"another"])
    assert len(set(found)) == len(found)


def test_two_messages_are_not_sealed_at_once(encrypted):
    session, _ = encrypted.sessions()
    buffers = session.sealing(b"", [bytes(1 << 17)])
    with refusal(EnvelopeError, "envelope.busy"):
        session.sealing(b"", [b"b"])
    assert len(list(buffers)) == 3
    assert session.seal(b"", [b"b"])


def test_threads_never_share_a_sequence_number(encrypted):
    """To check that a direction is free and to claim it is one step."""
    session, _ = encrypted.sessions()
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
    monkeypatch.setattr("safeser.envelope.session.os.getpid", lambda: -1)
    for attempt in (lambda: a.seal(b"", [b"x"]), lambda: world.read(a, wire)):
        with pytest.raises(EnvelopeError, match="another process"):
            attempt()
    assert a._sending.keys is a._receiving.keys is None


def test_a_session_that_ends_while_a_message_is_written_writes_no_more(encrypted):
    session, _ = encrypted.sessions()
    buffers = session.sealing(b"", [bytes(4 << 20)])
    next(buffers)
    next(buffers)
    session.end("its key was retired")
    with pytest.raises(EnvelopeError, match="retired"):
        next(buffers)

"""The vectors of docs/reference/envelope.md hold, each refused by the layer that it names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from safeser.errors import EnvelopeError
from safeser.gate.claims import Claims
from safeser.gate.handshake import PREAMBLE, Handshake
from safeser.gate.key_pairs import PrivateKey, PublicKey
from safeser.gate.noise import HandshakeRefused, HandshakeState
from safeser.gate.session import Session, SessionClosed
from safeser.gate.values import Limits
from safeser.identity import Identity
from tests.gate import document
from tests.refusal import refusal

FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS = json.loads((FOLDER / "envelope-v2.json").read_text("ascii"))
DIRECTIONS = ("initiator to responder", "responder to initiator")
LAYERS = {
    "format": ("envelope.format", "envelope.limits"),
    "mac": ("envelope.mac",),
    "gcm": ("envelope.gcm",),
    "sequence": ("envelope.sequence",),
}


def cases(kind):
    names = [case["name"] for case in VECTORS[kind]]
    assert len(set(names)) == len(names)
    return pytest.mark.parametrize("case", VECTORS[kind], ids=names)


def private(role, kind):
    return PrivateKey.from_bytes(bytes.fromhex(VECTORS["identities"][role][kind]))


def identity(role):
    return Identity(VECTORS["identities"][role]["principal"], private(role, "static"))


def handshake(role):
    roster = {
        PublicKey.parse(one["public"]): one["principal"] for one in VECTORS["identities"].values()
    }
    return Handshake(
        initiator=role == "initiator",
        identity=identity(role),
        principal_of=roster.get,
        policy=tuple(VECTORS["policy"].values()),
        generate=lambda: private(role, "ephemeral"),
    )


def session(role):
    other = {"initiator": "responder", "responder": "initiator"}[role]
    peer, known = identity(other), VECTORS["handshake"]
    return Session(
        initiator=role == "initiator",
        split=tuple(map(bytes.fromhex, known["split"])),
        session_id=bytes.fromhex(known["session id"]),
        local=identity(role).principal,
        peer=peer.principal,
        peer_key=peer.public,
        peer_claims=Claims.decode(bytes.fromhex(known[f"claims of the {other}"])),
        limits=Limits(),
    )


def keys_of(direction):
    """Return the keys of one direction, from the split keys."""
    known = VECTORS["handshake"]
    half = bytes.fromhex(known["split"][DIRECTIONS.index(direction)])
    return document.derive(half, direction, bytes.fromhex(known["session id"]))


def frames_of(case):
    frames = [bytes.fromhex(one["hex"]) * one.get("times", 1) for one in case["frames"]]
    return frames * case.get("repeated", 1)


MATERIALS = {
    case["name"]: document.write_message(
        keys_of(DIRECTIONS[0]), case["sequence"], bytes.fromhex(case["header"]), frames_of(case)
    )
    for case in VECTORS["materials"]
}


def wire_of(pieces):
    """Return the bytes that *pieces* spell: hexadecimal, or slices of the materials."""
    return b"".join(
        bytes.fromhex(piece) if isinstance(piece, str) else MATERIALS[piece[0]][slice(*piece[1:])]
        for piece in pieces
    )


def test_handshake():
    initiator, responder = handshake("initiator"), handshake("responder")
    expected = VECTORS["handshake"]
    first, third = map(bytes.fromhex, expected["initiator sends"])
    second = bytes.fromhex(*expected["responder sends"])
    assert initiator.outgoing == first
    responder.feed(first[:12])
    assert responder.feed(first[12:]) == second
    initiator.feed(second[:12])
    assert initiator.feed(second[12:]) == third
    responder.feed(third)
    for side, other in ((initiator, "responder"), (responder, "initiator")):
        assert side.session().id.hex() == expected["session id"]
        assert side.session().peer_claims.encode().hex() == expected[f"claims of the {other}"]
        assert side.session().peer_key.text == VECTORS["identities"][other]["public"]


def test_messages_by_the_product_and_by_the_document_alone(world):
    """What either writes is the vector, byte by byte, and the other reads that again."""
    ends = {role: session(role) for role in ("initiator", "responder")}
    for case in VECTORS["messages"]:
        sender, receiver = ends.values()
        if case["direction"] != DIRECTIONS[0]:
            sender, receiver = receiver, sender
        header, frames = bytes.fromhex(case["header"]), frames_of(case)
        wire = world.sealed(sender, header, frames)
        assert wire[:64].hex() == case["start"]
        assert hashlib.sha256(wire).hexdigest() == case["sha256"]
        keys, sequence = keys_of(case["direction"]), int.from_bytes(wire[8:16], "little")
        assert document.write_message(keys, sequence, header, frames) == wire
        assert document.read_message(keys, sequence, wire) == (header, frames)
        verified = world.read(receiver, wire)
        assert verified.header == header
        assert list(map(bytes, verified.frames)) == frames


def test_closing(world):
    wire = bytes.fromhex(VECTORS["closing"])
    assert session("initiator").closing() == wire
    assert document.read_message(keys_of(DIRECTIONS[0]), 1, wire) is None
    with pytest.raises(SessionClosed):
        world.read(session("responder"), wire)


@cases("invalid messages")
def test_invalid_messages(world, case):
    receiver, keys, sequence = session("responder"), keys_of(DIRECTIONS[0]), 1
    if case["before"]:
        world.read(receiver, wire_of(case["before"]))
        document.read_message(keys, sequence, wire_of(case["before"]))
        sequence += 1
    wire = wire_of(case["wire"])
    with pytest.raises(EnvelopeError) as caught:
        world.read(receiver, wire)  # whole: what is cut off is no vector
    assert caught.value.rule in LAYERS[case["layer"]]
    assert receiver.ended
    with pytest.raises(document.RefusedBy) as told:
        document.read_message(keys, sequence, wire)
    assert told.value.args == (case["layer"],)


@cases("invalid handshakes")
def test_invalid_handshakes(case):
    responder = handshake("responder")
    *before, last = map(bytes.fromhex, case["reads"])
    for piece in before:
        assert len(piece) == responder.wanted
        responder.feed(piece)
    assert len(last) == responder.wanted
    with pytest.raises(HandshakeRefused) as caught:
        responder.feed(last)
    # The peer cannot tell the layers apart.
    assert str(caught.value) == "the peer could not be authenticated\n  rule: authentication"
    if case["layer"] == "claims":
        bare = HandshakeState(
            initiator=False,
            prologue=PREAMBLE,
            static=identity("responder"),
            generate=lambda: private("responder", "ephemeral"),
        )
        bare.read_message(before[1])
        bare.write_message(bytes.fromhex(VECTORS["handshake"]["claims of the responder"]))
        assert len(bare.read_message(last)) == 320  # the noise holds; what it says does not


@cases("invalid claims")
def test_invalid_claims(case):
    with refusal(EnvelopeError, "envelope.claims"):
        Claims.decode(bytes.fromhex(case["block"]))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_keys_from_the_document_alone(direction):
    derived = {name: key.hex() for name, key in keys_of(direction).items()}
    assert VECTORS["keys"][direction] == derived

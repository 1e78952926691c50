"""The vectors of docs/reference/envelope-v1.md hold, each refused by the layer that it names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from safeser.envelope import Claims, Handshake, HandshakeRefused, Session, preamble
from safeser.envelope.noise import HandshakeState
from safeser.errors import EnvelopeError
from safeser.identity import Identity, PrivateKey, PublicKey
from safeser.values import Limits, Suite
from tests.envelope import document
from tests.refusal import refusal

FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS = {
    Suite.AUTHENTICATE: json.loads((FOLDER / "envelope-v1.json").read_text("ascii")),
    Suite.ENCRYPT: json.loads((FOLDER / "envelope-v1-suite-2.json").read_text("ascii")),
}
ONE, TWO = VECTORS.values()
DIRECTIONS = ("initiator to responder", "responder to initiator")
LAYERS = {
    "format": ("envelope.format", "envelope.limits"),
    "mac": ("envelope.mac",),
    "gcm": ("envelope.gcm",),
    "sequence": ("envelope.sequence",),
}

both = pytest.mark.parametrize("suite", list(Suite), ids=lambda suite: suite.word)


def cases(kind, *files):
    """Run a test for each case of *kind*; files of both suites unless others are named."""
    found = [
        (Suite(file["suite"]), case) for file in files or (ONE, TWO) for case in file.get(kind, ())
    ]
    names = [f"{suite.word}-{case['name']}" for suite, case in found]
    return pytest.mark.parametrize(("suite", "case"), found, ids=names)


def private(role, kind):
    return PrivateKey.from_bytes(bytes.fromhex(ONE["identities"][role][kind]))


def identity(role):
    return Identity(ONE["identities"][role]["principal"], private(role, "static"))


def handshake(role, suite):
    roster = {
        PublicKey.parse(one["public"]): one["principal"] for one in ONE["identities"].values()
    }
    return Handshake(
        initiator=role == "initiator",
        identity=identity(role),
        principal_of=roster.get,
        required=lambda _: suite,
        suite=suite if role == "initiator" else None,
        policy=tuple(ONE["policy"].values()),
        generate=lambda: private(role, "ephemeral"),
    )


def session(role, suite):
    other = {"initiator": "responder", "responder": "initiator"}[role]
    peer, vectors = identity(other), VECTORS[suite]
    return Session(
        suite=suite,
        initiator=role == "initiator",
        split=tuple(map(bytes.fromhex, vectors["handshake"]["split"])),
        session_id=bytes.fromhex(vectors["handshake"]["session id"]),
        local=identity(role).principal,
        peer=peer.principal,
        peer_key=peer.public,
        peer_claims=Claims.decode(bytes.fromhex(vectors["handshake"][f"claims of the {other}"])),
        limits=Limits(),
    )


def read(world, receiver, data):
    try:
        return world.read(receiver, data)
    except world.Truncated:
        pytest.fail("the vector is too short to be refused")


@both
def test_handshake(suite):
    initiator, responder = handshake("initiator", suite), handshake("responder", suite)
    expected = VECTORS[suite]["handshake"]
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
        assert side.session().suite is suite
        assert side.session().peer_claims.encode().hex() == expected[f"claims of the {other}"]
        assert side.session().peer_key.text == ONE["identities"][other]["public"]


def frames_of(case):
    return [bytes.fromhex(one["hex"]) * one.get("times", 1) for one in case["frames"]]


@both
def test_messages(plain, suite):
    ends = {role: session(role, suite) for role in ("initiator", "responder")}
    vectors = VECTORS[suite]["messages"]
    assert len({case["name"] for case in vectors}) == len(vectors)
    for case in vectors:
        sender, receiver = ends.values()
        if case["direction"] != DIRECTIONS[0]:
            sender, receiver = receiver, sender
        frames = frames_of(case)
        buffers = list(map(bytes, sender.seal(bytes.fromhex(case["header"]), frames)))
        assert buffers[0].hex() == case["start"]
        assert buffers[0][32:64].hex() == case["tag"]
        rest = hashlib.sha256(b"".join(buffers[1:])).hexdigest()
        assert case.get("rest", rest) == rest
        verified = plain.read(receiver, b"".join(buffers))
        assert verified.header.hex() == case["header"]
        assert list(map(bytes, verified.frames)) == frames


@cases("invalid messages")
def test_invalid_messages(plain, suite, case):
    receiver = session("responder", suite)
    if case["before"]:
        read(plain, receiver, bytes.fromhex(case["before"]))
    with pytest.raises(EnvelopeError) as caught:
        read(plain, receiver, bytes.fromhex(case["wire"]))
    assert caught.value.rule in LAYERS[case["layer"]]
    assert receiver.ended


@cases("invalid messages")
def test_invalid_messages_by_the_document_alone(suite, case):
    keys = keys_of(suite, DIRECTIONS[0])
    sequence = 1
    if case["before"]:
        document.read_message(suite, keys, sequence, bytes.fromhex(case["before"]))
        sequence += 1
    with pytest.raises(document.RefusedBy) as caught:
        document.read_message(suite, keys, sequence, bytes.fromhex(case["wire"]))
    assert caught.value.args == (case["layer"],)


def keys_of(suite, direction):
    """Return the keys of one direction, from the split keys."""
    vectors = VECTORS[suite]["handshake"]
    half = bytes.fromhex(vectors["split"][DIRECTIONS.index(direction)])
    return document.derive(half, direction, suite, bytes.fromhex(vectors["session id"]))


@cases("invalid handshakes")
def test_invalid_handshakes(suite, case):
    responder = handshake("responder", suite)
    *before, last = map(bytes.fromhex, case["reads"])
    for piece in before:
        assert len(piece) == responder.wanted
        responder.feed(piece)
    assert len(last) == responder.wanted
    with pytest.raises(HandshakeRefused) as caught:
        responder.feed(last)
    # The peer cannot tell the layers apart.
    assert str(caught.value) == "the peer could not be authenticated\n  rule: authentication"
    assert ("policy here requires" in caught.value.detail) == (case["layer"] == "suite")
    if case["layer"] in ("claims", "suite"):
        proposed = preamble(Suite.AUTHENTICATE)
        assert before[0] == proposed
        bare = HandshakeState(
            initiator=False,
            prologue=proposed,
            static=identity("responder"),
            generate=lambda: private("responder", "ephemeral"),
        )
        bare.read_message(before[1])
        bare.write_message(bytes.fromhex(ONE["handshake"]["claims of the responder"]))
        assert len(bare.read_message(last)) == 320  # the noise holds; what it says does not


@cases("invalid claims", ONE)
def test_invalid_claims(suite, case):
    with refusal(EnvelopeError, "envelope.claims"):
        Claims.decode(bytes.fromhex(case["block"]))


@both
def test_keys_from_the_document_alone(suite):
    for direction in DIRECTIONS:
        derived = {name: key.hex() for name, key in keys_of(suite, direction).items()}
        assert VECTORS[suite]["keys"][direction] == derived


@cases("messages")
def test_messages_sealed_and_read_from_the_document_alone(suite, case):
    """What the document writes is the vector, byte by byte, and it reads that again."""
    start = bytes.fromhex(case["start"])
    header, frames = bytes.fromhex(case["header"]), frames_of(case)
    sequence = int.from_bytes(start[8:16], "little")
    keys = keys_of(suite, case["direction"])
    wire = document.write_message(suite, keys, sequence, header, frames)
    assert wire[: len(start)] == start
    rest = wire[len(start) :]
    if suite is Suite.ENCRYPT:
        assert hashlib.sha256(rest).hexdigest() == case["rest"]
    else:
        assert rest == b"".join(frames)
    assert document.read_message(suite, keys, sequence, wire) == (header, frames)

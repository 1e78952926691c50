"""The vectors of docs/envelope-v1.md hold, each refused by the layer that it names."""

from __future__ import annotations

import hmac
import json
import struct
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from safeser.envelope import (
    PREAMBLE,
    Claims,
    Handshake,
    HandshakeRefused,
    Session,
)
from safeser.envelope.noise import HandshakeState
from safeser.errors import EnvelopeError
from safeser.keys import Identity, PrivateKey, PublicKey
from safeser.values import Limits

PATH = Path(__file__).parents[1] / "vectors" / "envelope-v1.json"
VECTORS = json.loads(PATH.read_text(encoding="ascii"))
DIRECTIONS = ("initiator to responder", "responder to initiator")
LAYERS = {
    "format": ("envelope.format", "envelope.limits"),
    "mac": ("envelope.mac",),
    "sequence": ("envelope.sequence",),
}


def cases(kind):
    return pytest.mark.parametrize("case", VECTORS[kind], ids=[v["name"] for v in VECTORS[kind]])


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
    peer = identity(other)
    return Session(
        initiator=role == "initiator",
        split=tuple(map(bytes.fromhex, VECTORS["handshake"]["split"])),
        session_id=bytes.fromhex(VECTORS["handshake"]["session id"]),
        local=identity(role).principal,
        peer=peer.principal,
        peer_key=peer.public,
        peer_claims=Claims.decode(bytes.fromhex(VECTORS["handshake"][f"claims of the {other}"])),
        limits=Limits(),
    )


def read(world, receiver, data):
    try:
        return world.read(receiver, data)
    except world.Truncated:
        pytest.fail("the vector is too short to be refused")


def test_the_file_is_what_its_script_makes(generator):
    assert PATH.read_text(encoding="ascii") == generator["text"]()


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


def test_messages(world):
    ends = {role: session(role) for role in ("initiator", "responder")}
    assert len({case["name"] for case in VECTORS["messages"]}) == len(VECTORS["messages"])
    for case in VECTORS["messages"]:
        sender, receiver = ends.values()
        if case["direction"] != DIRECTIONS[0]:
            sender, receiver = receiver, sender
        frames = [bytes.fromhex(one["hex"]) * one.get("times", 1) for one in case["frames"]]
        buffers = sender.seal(bytes.fromhex(case["header"]), frames)
        assert buffers[0].hex() == case["start"]
        assert buffers[0][32:64].hex() == case["tag"]
        verified = world.read(receiver, b"".join(buffers))
        assert verified.header.hex() == case["header"]
        assert list(map(bytes, verified.frames)) == frames


@cases("invalid messages")
def test_invalid_messages(world, case):
    receiver = session("responder")
    if case["before"]:
        read(world, receiver, bytes.fromhex(case["before"]))
    with pytest.raises(EnvelopeError) as caught:
        read(world, receiver, bytes.fromhex(case["wire"]))
    assert caught.value.rule in LAYERS[case["layer"]]
    assert receiver.ended


@cases("invalid handshakes")
def test_invalid_handshakes(case):
    responder = handshake("responder")
    *before, last = map(bytes.fromhex, case["reads"])
    for piece in before:
        assert len(piece) == responder.wanted
        responder.feed(piece)
    assert len(last) == responder.wanted
    with pytest.raises(HandshakeRefused):
        responder.feed(last)
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
    with pytest.raises(EnvelopeError) as caught:
        Claims.decode(bytes.fromhex(case["block"]))
    assert caught.value.rule == "envelope.claims"


def test_keys_from_the_document_alone():
    session_id = bytes.fromhex(VECTORS["handshake"]["session id"])
    for direction, half in zip(DIRECTIONS, VECTORS["handshake"]["split"], strict=True):
        made = VECTORS["keys"][direction]
        assert set(made) == {"HMAC-SHA256", "AES-256-GMAC"}
        for purpose, key in made.items():
            info = f"safeser envelope 1 {direction} {purpose}".encode() + session_id + b"\1"
            assert hmac.digest(bytes.fromhex(half), info, "sha256").hex() == key


@cases("messages")
def test_tags_from_the_document_alone(case):
    keys = {name: bytes.fromhex(key) for name, key in VECTORS["keys"][case["direction"]].items()}
    start = bytes.fromhex(case["start"])
    nonce = start[8:16][::-1]
    elements = [start[:32], bytes.fromhex(case["header"])]
    for index, one in enumerate(case["frames"]):
        body = bytes.fromhex(one["hex"]) * one.get("times", 1)
        size, mode = struct.pack("<Q", len(body)), b"\0"
        if len(body) >= 4096:
            gcm = modes.GCM(nonce + struct.pack(">I", index))
            gmac = Cipher(algorithms.AES256(keys["AES-256-GMAC"]), gcm).encryptor()
            gmac.authenticate_additional_data(body)
            gmac.finalize()
            body, mode = gmac.tag, b"\1"
        elements.append(size + mode + body)
    encoded = struct.pack("<Q", len(elements))
    encoded += b"".join(struct.pack("<Q", len(one)) + one for one in elements)
    assert hmac.digest(keys["HMAC-SHA256"], encoded, "sha256").hex() == case["tag"]

"""Our Noise is everybody's Noise: the published vectors, and what a state must refuse."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest

from safeser.errors import AuthenticationError
from safeser.gate.key_pairs import PrivateKey
from safeser.gate.noise import CipherState, HandshakeRefused, HandshakeState

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "noise-xx-25519-aesgcm-sha256.json").read_text()
)["vectors"]


def state(vector, role, *, initiator):
    return HandshakeState(
        initiator=initiator,
        prologue=bytes.fromhex(vector[f"{role}_prologue"]),
        static=PrivateKey.from_bytes(bytes.fromhex(vector[f"{role}_static"])),
        generate=lambda: PrivateKey.from_bytes(bytes.fromhex(vector[f"{role}_ephemeral"])),
    )


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["source"] for vector in VECTORS])
def test_published_vectors(vector):
    assert vector["protocol_name"] == "Noise_XX_25519_AESGCM_SHA256"
    writer, reader = state(vector, "init", initiator=True), state(vector, "resp", initiator=False)
    messages = [
        (bytes.fromhex(message["payload"]), bytes.fromhex(message["ciphertext"]))
        for message in vector["messages"]
    ]
    for payload, ciphertext in messages[:3]:
        assert writer.write_message(payload) == ciphertext
        assert reader.read_message(ciphertext) == payload
        writer, reader = reader, writer
    assert writer.complete
    assert reader.complete
    assert writer.hash == reader.hash
    assert writer.hash.hex() == vector.get("handshake_hash", writer.hash.hex())
    assert writer.split() == reader.split()
    # After three messages it is the responder's turn.
    to_responder, to_initiator = ((CipherState(key), CipherState(key)) for key in writer.split())
    for number, (payload, ciphertext) in enumerate(messages[3:]):
        seal, open_ = (to_initiator, to_responder)[number % 2]
        assert seal.encrypt_with_ad(b"", payload) == ciphertext
        assert open_.decrypt_with_ad(b"", ciphertext) == payload


@pytest.fixture
def pair():
    def side(initiator):
        return HandshakeState(initiator=initiator, prologue=b"p", static=PrivateKey.generate())

    return side(True), side(False)


def test_turns_are_kept(pair):
    initiator, responder = pair

    def refuse(call, *arguments):
        with pytest.raises(HandshakeRefused) as caught:
            call(*arguments)
        return caught.value.detail

    refuse(responder.write_message, b"")
    refuse(initiator.read_message, bytes(32))
    first = initiator.write_message(b"")
    refuse(initiator.write_message, b"")
    responder.read_message(first)
    refuse(responder.read_message, first)
    assert refuse(responder.split) == "the handshake is not complete"
    initiator.read_message(responder.write_message(b""))
    responder.read_message(initiator.write_message(b""))
    refuse(responder.write_message, b"")


@pytest.mark.parametrize("size", [0, 31, 65536])
def test_wrong_sizes(pair, size):
    _, responder = pair
    with pytest.raises(HandshakeRefused):
        responder.read_message((b"\x09" + bytes(65535))[:size])


def test_nonces_end_before_they_wrap():
    cipher = CipherState(bytes(32))
    cipher._nonce = 2**64 - 2
    cipher.encrypt_with_ad(b"", b"last")
    with pytest.raises(HandshakeRefused):
        cipher.encrypt_with_ad(b"", b"one more")


def test_refusals_are_one_error_that_travels_without_its_detail():
    error = HandshakeRefused("what really happened")
    assert error.rule == "authentication"
    assert "really" not in str(error) + repr(error)
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is AuthenticationError
        assert str(again) == str(error)
        assert not hasattr(again, "detail")


def test_states_are_not_copied(pair):
    for secret in (*pair, pair[0]._symmetric, CipherState(bytes(32))):
        with pytest.raises(TypeError):
            pickle.dumps(secret)
        with pytest.raises(TypeError):
            copy.copy(secret)

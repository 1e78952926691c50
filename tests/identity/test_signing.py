"""A signature is its owner's, over these bytes, and no key verifies what its owner did not sign."""

from __future__ import annotations

import pickle

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.key_pairs import PublicKey
from safeser.identity import SigningKey, VerifyingKey
from tests.refusal import refusal

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
SIGN = 1 << 255

#: RFC 8032, section 7.1: TEST 1, TEST 2, TEST 3 and TEST SHA(abc); seed, key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701c"
        "f9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0"
        "f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f76098"
        "4dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3"
        "feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c664"
        "31e0303dca179c138ac17ad9bef1177331a704",
    ),
]

KEY = SigningKey.from_bytes(bytes(range(32)))
GOOD = KEY.public.text


@pytest.mark.parametrize(("seed", "public", "message", "signature"), VECTORS)
def test_the_vectors_of_the_rfc(seed, public, message, signature):
    key = SigningKey.from_bytes(bytes.fromhex(seed))
    data, signed = bytes.fromhex(message), bytes.fromhex(signature)
    assert key.public.raw.hex() == public
    assert key.sign(data) == signed
    assert VerifyingKey(bytes.fromhex(public)).verify(signed, data)
    assert not key.public.verify(signed, data + b"\0")
    assert not KEY.public.verify(signed, data)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=50))
def test_text_and_signature_round_trip(seed, data):
    key = SigningKey.from_bytes(seed)
    public = VerifyingKey.parse(key.public.text)
    assert public == key.public
    assert public.verify(key.sign(data), data)
    assert len(public.text) == 8 + 43
    assert str(public) == public.text in repr(public)
    assert pickle.loads(pickle.dumps(public)) == public


NINE = (9).to_bytes(32, "little")


def test_keys_of_two_kinds_are_never_equal_and_have_fingerprints_alike():
    assert VerifyingKey(NINE).fingerprint == PublicKey(NINE).fingerprint
    assert KEY.public.fingerprint != VerifyingKey(NINE).fingerprint
    assert len({VerifyingKey(NINE), PublicKey(NINE)}) == 2


# --- signatures ----------------------------------------------------------------------------------

SIGNED = KEY.sign(b"data")


@pytest.mark.parametrize(
    "signature",
    [
        *(
            b"",
            bytes(64),
            b"\xff" * 64,
            bytearray(SIGNED),
            memoryview(SIGNED),
            SIGNED.hex(),
            None,
            64,
        ),
        *(SIGNED[:-1], SIGNED + b"\0", SIGNED[32:] + SIGNED[:32]),
        SIGNED[:63] + bytes([SIGNED[63] ^ 0x80]),
    ],
)
def test_what_is_no_signature_is_false_and_raises_nothing(signature):
    assert KEY.public.verify(SIGNED, b"data")
    assert KEY.public.verify(signature, b"data") is False


def test_a_signature_has_one_scalar():
    """RFC 8032, 5.1.7: S is below the group's order, so that nobody makes a second signature."""
    scalar = int.from_bytes(SIGNED[32:], "little")
    other = SIGNED[:32] + (scalar + ORDER).to_bytes(32, "little")
    assert not KEY.public.verify(other, b"data")


@given(st.binary(max_size=80))
def test_any_bytes_are_no_signature(data):
    assert KEY.public.verify(data, b"data") is False


# --- public keys ---------------------------------------------------------------------------------


#: As in libsodium, C2SP/CCTV and "Taming the many EdDSAs": eight points, in 14 spellings.
_Y8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
SMALL = (1, P - 1, 0, _Y8, P - _Y8, P, P + 1)

#: R is the neutral point and S is zero: no secret is in it.
FORGED = (1).to_bytes(32, "little") + bytes(32)


def accepts_a_forgery(raw):
    """Tell whether the library alone takes :data:`FORGED` for a signature over one of 99 texts."""
    key = Ed25519PublicKey.from_public_bytes(raw)
    for number in range(99):
        try:
            key.verify(FORGED, b"run this %d" % number)
        except InvalidSignature:
            continue
        return True
    return False


@pytest.mark.parametrize("sign", [0, SIGN])
@pytest.mark.parametrize("y", SMALL)
def test_a_key_of_small_order_is_refused(y, sign):
    raw = (y | sign).to_bytes(32, "little")
    with refusal(ConfigError, "config.key"):
        VerifyingKey(raw)
    assert accepts_a_forgery(raw)  # the library's own check is not enough
    assert not accepts_a_forgery(KEY.public.raw)


@pytest.mark.parametrize("y", [*range(P + 2, 2**255), P + 3 | SIGN, 2**256 - 1])
def test_other_encodings_of_a_key_are_refused(y):
    with pytest.raises(ConfigError):
        VerifyingKey(y.to_bytes(32, "little"))


def test_bytes_that_are_no_point_verify_nothing():
    assert VerifyingKey((2).to_bytes(32, "little")).verify(FORGED, b"data") is False

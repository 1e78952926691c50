"""A key has one spelling, and is somebody's: public keys, and in part those that verify."""

from __future__ import annotations

import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import AuthenticationError, ConfigError
from safeser.gate.key_pairs import PrivateKey, PublicKey
from safeser.identity import SigningKey, VerifyingKey
from tests.refusal import refusal

P = 2**255 - 19
LOW = (
    0,
    1,
    P - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)


@given(st.binary(min_size=32, max_size=32))
def test_text_round_trip(secret):
    public = PrivateKey.from_bytes(secret).public
    assert PublicKey.parse(public.text) == public
    assert public.text.startswith("x25519:")
    assert len(public.text) == 7 + 43
    assert str(public) == public.text in repr(public)
    assert pickle.loads(pickle.dumps(public)) == public


def test_fingerprint_is_short_and_stable():
    public = PrivateKey.from_bytes(bytes(range(32))).public
    assert public.fingerprint == "53oy-qpna-vfcr-le64"


@pytest.mark.parametrize("number", LOW)
def test_low_order_points_are_nobodys(number):
    raw = number.to_bytes(32, "little")
    with pytest.raises(ConfigError):
        PublicKey(raw)
    # The list is right: the library agrees that these share nothing.
    with pytest.raises(ValueError):
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(raw))


@pytest.mark.parametrize("number", [P, P + 1, P + 9, 2**255 - 1, 2**255 + 9, 2**256 - 1])
def test_other_encodings_of_a_key_are_refused(number):
    with pytest.raises(ConfigError):
        PublicKey(number.to_bytes(32, "little"))


KINDS = pytest.mark.parametrize("kind", [PublicKey, VerifyingKey])


@KINDS
@pytest.mark.parametrize(
    "raw", [b"", bytes(31), b"\x09" + bytes(32), bytearray(32), "9" * 32, None]
)
def test_wrong_sizes_and_types(kind, raw):
    with pytest.raises(ConfigError):
        kind(raw)


def test_a_point_that_shares_zero_is_an_authentication_failure():
    zero = object.__new__(PublicKey)
    object.__setattr__(zero, "raw", bytes(32))
    with pytest.raises(AuthenticationError):
        PrivateKey.generate().exchange(zero)


GOOD = {
    PublicKey: PrivateKey.from_bytes(bytes(range(32))).public.text,
    VerifyingKey: SigningKey.from_bytes(bytes(range(32))).public.text,
}

#: Other texts than the good one, of its prefix and its other characters.
TEXTS = [
    lambda prefix, rest: "",
    lambda prefix, rest: rest,
    lambda prefix, rest: (prefix + rest).upper(),
    lambda prefix, rest: prefix + rest + "=",
    lambda prefix, rest: prefix + rest + "\n",
    lambda prefix, rest: " " + prefix + rest,
    lambda prefix, rest: prefix + rest[:-1],
    lambda prefix, rest: prefix + rest + "A",
    lambda prefix, rest: {"x25519:": "ed25519:", "ed25519:": "x25519:"}[prefix] + rest,
    lambda prefix, rest: prefix + rest[:-1] + chr(ord(rest[-1]) + 1),  # the spare bits
    lambda prefix, rest: prefix + "A" * 43,
    lambda prefix, rest: prefix + "+" * 43,
    lambda prefix, rest: None,
    lambda prefix, rest: prefix.encode(),
]


@KINDS
@pytest.mark.parametrize("change", TEXTS)
def test_other_texts_are_refused(kind, change):
    prefix, colon, rest = GOOD[kind].partition(":")
    with refusal(ConfigError, "config.key"):
        kind.parse(change(prefix + colon, rest))


@KINDS
@given(text=st.text(max_size=60))
def test_any_text(kind, text):
    for candidate in (text, "x25519:" + text, "ed25519:" + text):
        with pytest.raises(ConfigError):
            kind.parse(candidate)


def test_private_keys_agree():
    one, two = PrivateKey.generate(), PrivateKey.generate()
    assert one.exchange(two.public) == two.exchange(one.public)

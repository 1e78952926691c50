"""Ed25519 keys (RFC 8032): the private half signs, the public half verifies.

The one rule: a public key that verifies signatures which its owner did not make is no key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from safeser.errors import ConfigError
from safeser.gate.key_pairs import FIELD_PRIME, KEY_SIZE, KeepsSecrets, decode, encode, fingerprint

__all__ = ["SIGNATURE_SIZE", "SigningKey", "VerifyingKey"]

SIGNATURE_SIZE = 64

_SIGN_BIT = 1 << 255

# The y-coordinates of the eight points whose order divides 8. Under such a key a signature that
# consists of public constants verifies: each message for the neutral point (y = 1), and one message
# in two, four or eight for the others. RFC 8032, section 5.1.7, does not refuse these keys, and
# OpenSSL accepts them. The list is that of libsodium (ge25519_has_small_order), also in the test
# vectors of C2SP/CCTV (ed25519) and in "Taming the many EdDSAs" (Chalkias, Garillot, Nikolaenko,
# 2020). A coordinate has both signs of x; the other six spellings of these points are not reduced.
_OF_ORDER_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER = frozenset({0, 1, FIELD_PRIME - 1, _OF_ORDER_8, FIELD_PRIME - _OF_ORDER_8})

_TEXT = re.compile(r"ed25519:([A-Za-z0-9_-]{43})\Z")


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """One Ed25519 public key: 32 bytes, canonical, and not a point of small order.

    RFC 8032, section 5.1.3, has a decoder refuse a y-coordinate that is not reduced; OpenSSL
    reduces it. It is refused here, so that no second spelling of a retired key passes a roster.
    Bytes that are no point of the curve are not looked for: they verify nothing.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.raw, bytes) or len(self.raw) != KEY_SIZE:
            raise ConfigError("a signing key's public half has 32 bytes", rule="config.key")
        coordinate = int.from_bytes(self.raw, "little") & ~_SIGN_BIT
        if coordinate >= FIELD_PRIME or coordinate in _SMALL_ORDER:
            raise ConfigError(
                "that is not the public half of any signing key",
                rule="config.key",
                fix="Copy the key again from its owner.",
            )

    @classmethod
    def parse(cls, text: str) -> VerifyingKey:
        """Return the key that *text* spells, ``ed25519:`` and 43 characters of base64url."""
        match = _TEXT.match(text) if isinstance(text, str) else None
        raw = decode(match[1]) if match else None
        if raw is None:
            raise ConfigError(
                "that is not the public half of a signing key; one is 'ed25519:' and 43 letters,"
                " digits, '-' or '_'",
                rule="config.key",
            )
        return cls(raw)

    @property
    def text(self) -> str:
        return "ed25519:" + encode(self.raw)

    @property
    def fingerprint(self) -> str:
        """80 bits of the key's SHA-256 in four groups, for people to compare by eye or voice."""
        return fingerprint(self.raw)

    def verify(self, signature: bytes, data: bytes) -> bool:
        """Tell whether the owner of this key made *signature* over *data* (RFC 8032, 5.1.7).

        A signature is exactly 64 bytes; anything else, whatever its type, is false.
        """
        if not isinstance(signature, bytes) or len(signature) != SIGNATURE_SIZE:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
        except InvalidSignature:
            return False
        return True

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"VerifyingKey({self.text!r})"


class SigningKey(KeepsSecrets):
    """One Ed25519 private key that signs and can show its public half."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = VerifyingKey(key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> SigningKey:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, raw: bytes) -> SigningKey:
        """Return the key of the 32-byte seed *raw*."""
        return cls(Ed25519PrivateKey.from_private_bytes(raw))

    def sign(self, data: bytes) -> bytes:
        """Return the 64 bytes that :meth:`VerifyingKey.verify` accepts for *data*.

        *data* must begin with bytes that say what is signed: one key signs several things.
        """
        return self._key.sign(data)

    def _secret_text(self) -> str:
        return encode(self._key.private_bytes_raw())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(public={self.public.text!r})"

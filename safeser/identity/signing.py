"""Ed25519 keys (RFC 8032): the private half signs, the public half verifies.

The one rule: a public key that verifies signatures which its owner did not make is no key.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from safeser.gate.key_pairs import FIELD_PRIME, KeepsSecrets, PublicHalf, encode

__all__ = ["SIGNATURE_SIZE", "SigningKey", "VerifyingKey"]

SIGNATURE_SIZE = 64

# The y-coordinates of the eight points whose order divides 8. Under such a key a signature that
# consists of public constants verifies: each message for the neutral point (y = 1), and one message
# in two, four or eight for the others. RFC 8032, section 5.1.7, does not refuse these keys, and
# OpenSSL accepts them. The list is that of libsodium (ge25519_has_small_order), also in the test
# vectors of C2SP/CCTV (ed25519) and in "Taming the many EdDSAs" (Chalkias, Garillot, Nikolaenko,
# 2020). A coordinate has both signs of x; the other six spellings of these points are not reduced.
_OF_ORDER_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022


class VerifyingKey(PublicHalf):
    """One Ed25519 public key: 32 bytes, canonical, and not a point of small order.

    RFC 8032, section 5.1.3, has a decoder refuse a y-coordinate that is not reduced; OpenSSL
    reduces it. It is refused here, so that no second spelling of a retired key passes a roster.
    Bytes that are no point of the curve are not looked for: they verify nothing.
    """

    __slots__ = ()

    prefix, called = "ed25519", "the public half of a signing key"
    owned, sign_bit = "the public half of any signing key", 1 << 255
    low_order = frozenset({0, 1, FIELD_PRIME - 1, _OF_ORDER_8, FIELD_PRIME - _OF_ORDER_8})

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

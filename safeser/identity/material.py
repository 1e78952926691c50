"""What X25519 and Ed25519 keys share: their text, their fingerprint, and the ban on copies.

The one rule: 32 bytes have one text, and a text that is not exactly that is refused.
"""

from __future__ import annotations

import base64
import hashlib
from typing import NoReturn, SupportsIndex

__all__ = ["FIELD_PRIME", "KEY_SIZE", "KeepsSecrets", "decode", "encode", "fingerprint"]

KEY_SIZE = 32

#: The prime of Curve25519 and edwards25519 (RFC 7748, section 4.1).
FIELD_PRIME = 2**255 - 19


def encode(data: bytes) -> str:
    """Return the base64url text of *data*, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode(text: str) -> bytes | None:
    """Return the 32 bytes that 43 base64url characters stand for; None if not the one spelling."""
    data = base64.urlsafe_b64decode(text + "=")
    # The last character has two spare bits: without this, four texts would name one key.
    return data if encode(data) == text else None


def fingerprint(raw: bytes) -> str:
    """Return 80 bits of the SHA-256 of *raw* in four groups, to compare by eye or voice."""
    digest = base64.b32encode(hashlib.sha256(raw).digest()[:10]).decode("ascii").lower()
    return "-".join(digest[start : start + 4] for start in range(0, 16, 4))


class KeepsSecrets:
    """Refuse to pickle or copy: a copy of a secret is a second place that it can leak from."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds secrets and is never pickled or copied")

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds secrets and is never pickled or copied")

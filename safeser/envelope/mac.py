"""The tag of a message: HMAC-SHA256 over an unambiguous encoding, with AES-GMAC for big frames.

The one rule: a key has one direction and one purpose, and the length of a frame alone decides how
it enters the tag. Nothing on the wire selects an algorithm.

HMAC over every byte would halve the speed of a transfer (1.7 GB/s here, AES-GMAC 20). So frames of
4,096 bytes and more are hashed by GMAC under a key of their own, whose output only ever enters the
HMAC: it is never sent, and never compared by itself.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from safeser.envelope.format import Buffer
from safeser.keys import KeepsSecrets

__all__ = ["MessageKeys", "equal"]

#: The shortest frame that GMAC covers. Below it one HMAC is quicker than the call.
GMAC_FROM = 4096
GMAC_SIZE = 16

MODE_PLAIN = 0
MODE_GMAC = 1

_COUNT_AND_LENGTH = struct.Struct("<QQ")
_LENGTH = struct.Struct("<Q")
_PART = struct.Struct("<QQB")  # length of the part; then the part: frame length, mode, body
_PART_HEAD = 9  # of which the part's own fields
_NONCE = struct.Struct(">QI")

# Small frames are joined before they are hashed, this many at a time: 1 MiB at most is copied.
_CHUNK = 256


class MessageKeys(KeepsSecrets):
    """The keys that authenticate one direction of one session."""

    __slots__ = ("_gmac", "_hmac")

    def __init__(self, *, hmac_key: bytes, gmac_key: bytes) -> None:
        self._hmac = HMAC(hmac_key, SHA256())
        self._gmac = AESGCM(gmac_key)

    def tag(
        self, sequence: int, fields: bytes, header: bytes, frames: Sequence[memoryview]
    ) -> bytes:
        """Return the 32-byte tag of one message.

        tag = HMAC-SHA256(K, PAE(fields, header, part_0, ..., part_n-1)), where PAE is a 64-bit
        count and then each element with its 64-bit length before it, all little-endian.

        :param sequence: number of the message in its direction; never used twice with one key.
        :param fields: the prelude without its tag.
        :param frames: flat views, see :func:`safeser.envelope.format.flat`.
        """
        mac = self._hmac.copy()
        pieces: list[Buffer] = [
            _COUNT_AND_LENGTH.pack(2 + len(frames), len(fields)),
            fields,
            _LENGTH.pack(len(header)),
            header,
        ]
        for index, frame in enumerate(frames):
            length = len(frame)
            if length < GMAC_FROM:
                pieces.append(_PART.pack(_PART_HEAD + length, length, MODE_PLAIN))
                pieces.append(frame)
            else:
                pieces.append(_PART.pack(_PART_HEAD + GMAC_SIZE, length, MODE_GMAC))
                # GMAC is AES-GCM of nothing; the frame is the associated data, read in place.
                pieces.append(self._gmac.encrypt(_NONCE.pack(sequence, index), b"", frame))
            if index % _CHUNK == _CHUNK - 1:
                mac.update(b"".join(pieces))
                pieces.clear()
        mac.update(b"".join(pieces))
        return mac.finalize()


def equal(left: bytes, right: bytes) -> bool:
    """Compare two tags in a time that says nothing about them."""
    return hmac.compare_digest(left, right)

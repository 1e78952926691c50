"""The keys of one direction of a session: one call of AES-256-GCM for each part, and the HMAC.

The one rule: a key has one direction and one purpose, and a nonce is sequence and index of a part.
:class:`safeser.gate.session.Session` sees to it that no sequence number is taken twice.
"""

from __future__ import annotations

import hmac
import struct
import threading
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from safeser.gate.format import Buffer
from safeser.gate.key_pairs import KeepsSecrets
from safeser.gate.refusals import EnvelopeError

#: Larger frames are encrypted in pieces of this size: a large frame is not copied whole, and a
#: piece stays in the processor's cache. Of 128, 256, 512 and 1,024 KiB this takes the least
#: processor time on a connection.
PIECE = 1 << 19

_LABEL = "safeser envelope 2 {direction} {purpose}"
INITIATOR_TO_RESPONDER = "initiator to responder"
RESPONDER_TO_INITIATOR = "responder to initiator"

#: Sequence and index of a part, big-endian: unique under one key.
NONCE = struct.Struct(">QI")


class DirectionKeys(KeepsSecrets):
    """The keys that encrypt and authenticate one direction of one session."""

    __slots__ = ("aes", "gcm", "hmac")

    def __init__(self, split_key: bytes, direction: str, session_id: bytes) -> None:
        gcm_key = expand(split_key, direction, "AES-256-GCM", session_id)
        self.hmac = HMAC(expand(split_key, direction, "HMAC-SHA256", session_id), hashes.SHA256())
        self.gcm = AESGCM(gcm_key)
        self.aes = AES256(gcm_key)

    def tag(self, data: bytes, given: Buffer | None = None) -> bytes:
        """Return the HMAC of *data*: to send it, or to verify the one that was *given*.

        The two are compared in a time that says nothing about them.

        :raises EnvelopeError: if they differ.
        """
        mac = self.hmac.copy()
        mac.update(data)
        tag = mac.finalize()
        if given is not None and not hmac.compare_digest(tag, given):
            raise EnvelopeError("a message does not authenticate", rule="envelope.mac")
        return tag

    def decrypt(self, sequence: int, index: int, sealed: Buffer) -> bytes:
        """Return the plaintext of part *index*, all of which, its GCM tag too, is in *sealed*.

        :raises EnvelopeError: if the tag does not hold.
        """
        try:
            return self.gcm.decrypt(NONCE.pack(sequence, index), sealed, None)
        except InvalidTag:
            raise wrong_part() from None

    def encrypted(self, nonce: bytes, frame: memoryview) -> Iterator[bytes]:
        """Yield the ciphertext of *frame* in pieces; its tag is the end of the last one."""
        if len(frame) <= PIECE:
            yield self.gcm.encrypt(nonce, frame, None)
            return
        context = Cipher(self.aes, GCM(nonce)).encryptor()
        for at in range(0, len(frame), PIECE):
            yield context.update(frame[at : at + PIECE])
        context.finalize()
        yield context.tag


def expand(split_key: bytes, direction: str, purpose: str, session_id: bytes) -> bytes:
    """Return the key of one purpose, 32 bytes, by HKDF-Expand (RFC 5869, section 2.3).

    A split key of the handshake is input to this and to nothing else.
    """
    info = _LABEL.format(direction=direction, purpose=purpose).encode("ascii") + session_id
    return HKDFExpand(algorithm=hashes.SHA256(), length=32, info=info).derive(split_key)


class Direction(KeepsSecrets):
    """Keys and counts of one direction; without keys, it is over.

    :ivar sequence: the number of the last message that was sealed or accepted; 0 before the first.
    :ivar total: bytes of all of its messages, tags and preludes too.
    :ivar claimed: locked by the message that is being sealed or opened.
    """

    __slots__ = ("claimed", "keys", "sequence", "total")

    def __init__(self, split_key: bytes, direction: str, session_id: bytes) -> None:
        self.keys: DirectionKeys | None = DirectionKeys(split_key, direction, session_id)
        self.sequence = 0
        self.total = 0
        self.claimed = threading.Lock()


def wrong_part() -> EnvelopeError:
    return EnvelopeError("a part of a message does not authenticate", rule="envelope.gcm")

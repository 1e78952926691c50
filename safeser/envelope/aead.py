"""Suite 2: AES-256-GCM for the header and every frame, one HMAC-SHA256 over all of their tags.

The one rule: a nonce is used once. Sequence and index make it, the session never gives one sequence
to two messages, and each byte of plaintext is read and encrypted once.

The tags travel before the frames, so that the HMAC is verified before a frame is decrypted. A frame
is decrypted in place, in memory that its reader keeps to itself; where its tag does not hold, the
plaintext is overwritten.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from safeser.envelope.format import GCM_TAG_SIZE, SEALED_ROW, Buffer, Start
from safeser.envelope.mac import COUNT_AND_LENGTH, LENGTH, NONCE, check_tag
from safeser.errors import EnvelopeError
from safeser.keys import KeepsSecrets

__all__ = ["EncryptionKeys"]

MODE_GCM = 2

#: The index of the header in its nonce. No frame has it: a message has at most this many frames.
HEADER_INDEX = (1 << 32) - 1

#: What one frame adds to the HMAC: the length of its part, its own length, its mode and its tag.
_PART = struct.Struct("<QQB16s")
_PART_LENGTH = _PART.size - LENGTH.size

#: Frames below this size are copied to be encrypted and decrypted by one call, which is quicker
#: than to set up a context for each: 2 microseconds against 5 for 4 KiB.
_ONE_CALL = 1 << 15

#: Large frames are encrypted in pieces, which stay in the processor's cache.
_PIECE = 1 << 20


class EncryptionKeys(KeepsSecrets):
    """The keys that encrypt and authenticate one direction of one session of suite 2."""

    __slots__ = ("aes", "gcm", "hmac")

    def __init__(self, *, hmac_key: bytes, gcm_key: bytes) -> None:
        self.hmac = HMAC(hmac_key, SHA256())
        self.gcm = AESGCM(gcm_key)
        self.aes = AES256(gcm_key)

    def seal(
        self, sequence: int, fields: bytes, header: bytes, frames: Sequence[memoryview]
    ) -> list[Buffer]:
        """Return the buffers of one message: ciphertext in memory of its own."""
        sealed = self.gcm.encrypt(NONCE.pack(sequence, HEADER_INDEX), header, None)
        bodies: list[Buffer] = []
        tags = []
        for index, frame in enumerate(frames):
            body, tag = self._encrypt(NONCE.pack(sequence, index), frame)
            bodies.append(body)
            tags.append(tag)
        lengths = [*map(len, frames)]
        tag = self.tag(fields, sealed, lengths, tags)
        rows = [SEALED_ROW.pack(*row) for row in zip(lengths, tags, strict=True)]
        return [b"".join((fields, tag, sealed, *rows)), *bodies]

    def open(self, start: Start) -> Opening:
        """Return what decrypts the message that begins with *start*.

        :raises EnvelopeError: if its HMAC does not hold.
        """
        return Opening(self, start)

    def tag(
        self, fields: bytes, sealed: bytes, lengths: Sequence[int], tags: Sequence[bytes]
    ) -> bytes:
        """Return the 32-byte tag of one message.

        tag = HMAC-SHA256(K, PAE(fields, sealed header, part_0, ..., part_n-1)); PAE as in
        :meth:`safeser.envelope.mac.AuthenticationKeys.tag`.

        :param fields: the prelude without its tag.
        :param sealed: the header's ciphertext and tag.
        """
        mac = self.hmac.copy()
        parts = [
            _PART.pack(_PART_LENGTH, length, MODE_GCM, tag)
            for length, tag in zip(lengths, tags, strict=True)
        ]
        head = COUNT_AND_LENGTH.pack(2 + len(lengths), len(fields))
        mac.update(b"".join((head, fields, LENGTH.pack(len(sealed)), sealed, *parts)))
        return mac.finalize()

    def _encrypt(self, nonce: bytes, frame: memoryview) -> tuple[Buffer, bytes]:
        """Return the ciphertext of *frame* and its tag."""
        if len(frame) < _ONE_CALL:
            sealed = self.gcm.encrypt(nonce, frame, None)
            return sealed[:-GCM_TAG_SIZE], sealed[-GCM_TAG_SIZE:]
        # NumPy asks the system for large pages, whose first use costs a third of small ones'.
        body = np.empty(len(frame), np.uint8).data
        context = Cipher(self.aes, GCM(nonce)).encryptor()
        for at in range(0, len(frame), _PIECE):
            context.update_into(frame[at : at + _PIECE], body[at : at + _PIECE])
        context.finalize()
        return body, context.tag


class Opening(KeepsSecrets):
    """Decrypts one message whose HMAC held and whose frames arrive in order.

    :ivar header: of the message, decrypted.
    """

    __slots__ = ("_keys", "_start", "header")

    def __init__(self, keys: EncryptionKeys, start: Start) -> None:
        prelude = start.prelude
        check_tag(keys.tag(prelude.fields, start.header, start.lengths, start.tags), start)
        self._keys = keys
        self._start = start
        try:
            nonce = NONCE.pack(prelude.sequence, HEADER_INDEX)
            self.header = keys.gcm.decrypt(nonce, start.header, None)
        except InvalidTag:
            raise _wrong("header") from None

    def whole(self, index: int, frame: memoryview) -> None:
        """Decrypt frame *index*, which has arrived, in place.

        :raises EnvelopeError: if its tag does not hold.
        """
        if len(frame) >= _ONE_CALL:
            pieces = self.pieces(index, frame)
            pieces.take(0, len(frame))
            pieces.finish()
            return
        sealed = b"".join((frame, self._start.tags[index]))
        try:
            plain = self._keys.gcm.decrypt(self._nonce(index), sealed, None)
        except InvalidTag:
            raise _wrong("frame") from None
        frame[:] = plain

    def pieces(self, index: int, frame: memoryview) -> _Decryption:
        """Return what decrypts frame *index* in place as it arrives."""
        return _Decryption(self._keys.aes, self._nonce(index), frame, self._start.tags[index])

    def check(self) -> None:
        """Nothing is left to check: the HMAC held at first, and each frame's tag at its end."""

    def _nonce(self, index: int) -> bytes:
        return NONCE.pack(self._start.prelude.sequence, index)


class _Decryption(KeepsSecrets):
    """One frame that is decrypted as it arrives: not authentic before :meth:`finish` returns."""

    __slots__ = ("_context", "_frame", "_tag")

    def __init__(self, aes: AES256, nonce: bytes, frame: memoryview, tag: bytes) -> None:
        self._frame = frame
        self._tag = tag
        self._context = Cipher(aes, GCM(nonce)).decryptor()

    def take(self, start: int, stop: int) -> None:
        """Decrypt the bytes of the frame from *start* to *stop*, which have arrived."""
        for at in range(start, stop, _PIECE):
            piece = self._frame[at : min(at + _PIECE, stop)]
            # In and out are the same memory, which OpenSSL allows if both begin alike.
            self._context.update_into(piece, piece)

    def finish(self) -> None:
        """Check the tag of the frame, of which everything has arrived.

        :raises EnvelopeError: if it does not hold; the frame is overwritten then.
        """
        try:
            self._context.finalize_with_tag(self._tag)
        except InvalidTag:
            np.frombuffer(self._frame, np.uint8).fill(0)
            raise _wrong("frame") from None


def _wrong(part: str) -> EnvelopeError:
    return EnvelopeError(f"a {part} of a message does not authenticate", rule="envelope.gcm")

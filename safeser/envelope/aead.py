"""Suite 2: AES-256-GCM for the header and every frame, HMAC-SHA256 over lengths and tags.

The one rule: a nonce is used once. Sequence and index make it, the session never gives one sequence
to two messages, and each byte of plaintext is read and encrypted once.

Each frame's tag travels behind its ciphertext, so that large frames are encrypted while they are
written and decrypted while they arrive, a piece at a time. A frame is decrypted into memory that
its reader keeps to itself until all tags of the message held. Ciphertext and plaintext of one call
never share memory: the releases of ``cryptography`` differ in what they do then.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from safeser.envelope.format import GCM_TAG_SIZE, Buffer, Start, pack_lengths
from safeser.envelope.mac import COUNT_AND_LENGTH, LENGTH, NONCE, check_tag
from safeser.errors import EnvelopeError
from safeser.identity import KeepsSecrets

__all__ = ["EncryptionKeys", "part"]

MODE_GCM = 2

#: The index of the header in its nonce. No frame has it: a message has at most this many frames.
HEADER_INDEX = (1 << 32) - 1

#: What one frame adds to the last HMAC: the length of its part, its own length, its mode, its tag.
_PART = struct.Struct("<QQB16s")
_PART_LENGTH = _PART.size - LENGTH.size

#: Larger frames are encrypted in pieces of this size, and decrypted in such pieces if they are in
#: memory whole: a large frame is not copied whole, and a piece stays in the processor's cache.
#: Of 128, 256, 512 and 1,024 KiB this takes the least processor time on a connection.
_PIECE = 1 << 19


class EncryptionKeys(KeepsSecrets):
    """The keys that encrypt and authenticate one direction of one session of suite 2."""

    __slots__ = ("aes", "gcm", "hmac")

    def __init__(self, *, hmac_key: bytes, gcm_key: bytes) -> None:
        self.hmac = HMAC(hmac_key, SHA256())
        self.gcm = AESGCM(gcm_key)
        self.aes = AES256(gcm_key)

    def seal(
        self, sequence: int, fields: bytes, header: bytes, frames: Sequence[memoryview]
    ) -> Iterator[Buffer]:
        """Yield the buffers of one message, each encrypted when it is asked for."""
        sealed = self.gcm.encrypt(NONCE.pack(sequence, HEADER_INDEX), header, None)
        table = pack_lengths([len(frame) for frame in frames])
        yield b"".join((fields, self.start_tag(fields, sealed, table), sealed, table))
        parts = []
        for index, frame in enumerate(frames):
            last: Buffer = b""
            for last in self._encrypted(NONCE.pack(sequence, index), frame):
                yield last
            parts.append(part(len(frame), bytes(last[-GCM_TAG_SIZE:])))
        yield self.end_tag(fields, sealed, parts)

    def _encrypted(self, nonce: bytes, frame: memoryview) -> Iterator[bytes]:
        """Yield the ciphertext of *frame* in pieces; its tag is the end of the last one."""
        if len(frame) <= _PIECE:
            yield self.gcm.encrypt(nonce, frame, None)
            return
        context = Cipher(self.aes, GCM(nonce)).encryptor()
        for at in range(0, len(frame), _PIECE):
            yield context.update(frame[at : at + _PIECE])
        context.finalize()
        yield context.tag

    def open(self, start: Start, *, piece: int) -> Opening:
        """Return what decrypts the message that begins with *start*.

        :param piece: at most this many bytes of a frame arrive at once.
        :raises EnvelopeError: if the tag of its prelude does not hold.
        """
        return Opening(self, start, piece=piece)

    def verify(
        self, start: Start, frames: Sequence[memoryview], end: Buffer
    ) -> tuple[bytes, Sequence[memoryview]]:
        """Return header and frames of a message that arrived whole, decrypted, if its tags hold.

        Frames are decrypted where they are, if that memory can be written to.

        :raises EnvelopeError: if one of its tags does not.
        """
        opening = self.open(start, piece=0)
        opened = [opening.take(index, _writable(frame)) for index, frame in enumerate(frames)]
        opening.check(end)
        return opening.header, opened

    def start_tag(self, fields: bytes, sealed: bytes, table: bytes) -> bytes:
        """Return the tag of the prelude: HMAC-SHA256(K, PAE(fields, sealed header, table)).

        :param fields: the prelude without its tag.
        :param sealed: the header's ciphertext and tag.
        """
        return self._tag(fields, sealed, (LENGTH.pack(len(table)), table), count=1)

    def end_tag(self, fields: bytes, sealed: bytes, parts: Sequence[bytes]) -> bytes:
        """Return the tag of the message: HMAC-SHA256(K, PAE(fields, sealed header, part_0, ...)).

        No part has the length of a table, so that neither tag stands for the other.

        :param parts: one of :func:`part` for each frame.
        """
        return self._tag(fields, sealed, parts, count=len(parts))

    def _tag(self, fields: bytes, sealed: bytes, encoded: Sequence[bytes], *, count: int) -> bytes:
        mac = self.hmac.copy()
        head = COUNT_AND_LENGTH.pack(2 + count, len(fields))
        mac.update(b"".join((head, fields, LENGTH.pack(len(sealed)), sealed, *encoded)))
        return mac.finalize()


def part(length: int, tag: bytes) -> bytes:
    """Return what a frame adds to the message's tag, with its own length before it."""
    return _PART.pack(_PART_LENGTH, length, MODE_GCM, tag)


class Opening(KeepsSecrets):
    """Decrypts one message whose prelude is authentic and whose frames arrive in order.

    :ivar header: of the message, decrypted.
    :ivar memory: bytes that it takes beside the frames, for the ciphertext of one piece.
    """

    __slots__ = ("_arrived", "_keys", "_parts", "_start", "header", "memory")

    def __init__(self, keys: EncryptionKeys, start: Start, *, piece: int) -> None:
        prelude = start.prelude
        check_tag(keys.start_tag(prelude.fields, start.header, start.table), prelude.tag)
        self._keys = keys
        self._start = start
        self._parts: list[bytes] = []
        try:
            self.header = keys.gcm.decrypt(self._nonce(HEADER_INDEX), start.header, None)
        except InvalidTag:
            raise _wrong("header") from None
        self.memory = min(piece, max(start.lengths, default=0))
        self._arrived: memoryview | None = None

    def take(self, index: int, sealed: memoryview) -> memoryview:
        """Decrypt frame *index*, whose tag stands behind it, and return it in its place.

        :raises EnvelopeError: if its tag does not hold.
        """
        frame, tag = sealed[:-GCM_TAG_SIZE], bytes(sealed[-GCM_TAG_SIZE:])
        if len(frame) > _PIECE:
            decryption = self.pieces(index, frame)
            decryption.take_in_place()
            decryption.finish(tag)
            return frame
        try:
            frame[:] = self._keys.gcm.decrypt(self._nonce(index), sealed, None)
        except InvalidTag:
            raise _wrong("frame") from None
        self.add(len(frame), tag)
        return frame

    def pieces(self, index: int, frame: memoryview) -> _Decryption:
        """Return what decrypts frame *index* as it arrives."""
        return _Decryption(self, frame, Cipher(self._keys.aes, GCM(self._nonce(index))))

    def space(self, size: int) -> memoryview:
        """Return where *size* bytes of ciphertext are to be received: the same place each time."""
        if self._arrived is None:
            self._arrived = memoryview(bytearray(self.memory))
        return self._arrived[:size]

    def add(self, length: int, tag: bytes) -> None:
        """Record that the next frame arrived, whose *tag* held."""
        self._parts.append(part(length, tag))

    def check(self, end: Buffer) -> None:
        """Check the tag of the message, all of whose frames arrived.

        :raises EnvelopeError: if it does not hold.
        """
        fields = self._start.prelude.fields
        check_tag(self._keys.end_tag(fields, self._start.header, self._parts), end)

    def _nonce(self, index: int) -> bytes:
        return NONCE.pack(self._start.prelude.sequence, index)


class _Decryption(KeepsSecrets):
    """One frame that is decrypted as it arrives: not authentic before :meth:`finish` returns."""

    __slots__ = ("_context", "_frame", "_opening")

    def __init__(self, opening: Opening, frame: memoryview, gcm: Cipher[GCM]) -> None:
        self._opening = opening
        self._frame = frame
        self._context = gcm.decryptor()

    def space(self, start: int, stop: int) -> memoryview:
        """Return where the ciphertext of the frame from *start* to *stop* is to be received."""
        return self._opening.space(stop - start)

    def take(self, start: int, stop: int) -> None:
        """Decrypt the bytes of the frame from *start* to *stop*, which have arrived."""
        self._context.update_into(self._opening.space(stop - start), self._frame[start:stop])

    def take_in_place(self) -> None:
        """Decrypt the frame, whose ciphertext stands in its place."""
        frame = self._frame
        for at in range(0, len(frame), _PIECE):
            frame[at : at + _PIECE] = self._context.update(frame[at : at + _PIECE])

    def finish(self, end: Buffer) -> None:
        """Check the tag of the frame, which is what follows it on the wire.

        :raises EnvelopeError: if it does not hold; the frame is overwritten then.
        """
        tag = bytes(end)
        try:
            self._context.finalize_with_tag(tag)
        except InvalidTag:
            np.frombuffer(self._frame, np.uint8).fill(0)
            raise _wrong("frame") from None
        self._opening.add(len(self._frame), tag)


def _writable(frame: memoryview) -> memoryview:
    return memoryview(bytearray(frame)) if frame.readonly else frame


def _wrong(what: str) -> EnvelopeError:
    return EnvelopeError(f"a {what} of a message does not authenticate", rule="envelope.gcm")

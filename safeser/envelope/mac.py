"""Suite 1: one HMAC-SHA256 over an unambiguous encoding of a message, AES-GMAC for large frames.

The one rule: a key has one direction and one purpose, and the length of a frame alone decides how
it enters the tag. Nothing on the wire selects an algorithm.

HMAC over every byte would halve the speed of a transfer (1.7 GB/s here, AES-GMAC 20). So frames of
4,096 bytes and more are hashed by GMAC under a key of their own, whose output only ever enters the
HMAC: it is never sent, and never compared by itself.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator, Sequence
from itertools import chain

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from safeser.envelope.format import GCM_TAG_SIZE, Buffer, Start, pack_lengths
from safeser.errors import EnvelopeError
from safeser.identity import KeepsSecrets

__all__ = ["COUNT_AND_LENGTH", "LENGTH", "NONCE", "AuthenticationKeys", "check_tag"]

#: The shortest frame that GMAC covers. Below it one HMAC is quicker than the call.
GMAC_FROM = 4096

MODE_PLAIN = 0
MODE_GMAC = 1

COUNT_AND_LENGTH = struct.Struct("<QQ")
LENGTH = struct.Struct("<Q")
_PART = struct.Struct("<QQB")  # length of the part; then the part: frame length, mode, body
_PART_HEAD = 9  # of which the part's own fields

#: Sequence and index of a frame, big-endian: unique under one key.
NONCE = struct.Struct(">QI")

#: Returns the head of the part of a frame shorter than :data:`GMAC_FROM`, by its length.
_plain_head = [
    _PART.pack(_PART_HEAD + length, length, MODE_PLAIN) for length in range(GMAC_FROM)
].__getitem__

# Small frames are joined before they are hashed, this many at a time: 1 MiB at most is copied.
_CHUNK = 256


class AuthenticationKeys(KeepsSecrets):
    """The keys that authenticate one direction of one session of suite 1."""

    __slots__ = ("aes", "gmac", "hmac")

    def __init__(self, *, hmac_key: bytes, gmac_key: bytes) -> None:
        self.hmac = HMAC(hmac_key, SHA256())
        self.gmac = AESGCM(gmac_key)
        self.aes = AES256(gmac_key)

    def seal(
        self, sequence: int, fields: bytes, header: bytes, frames: Sequence[memoryview]
    ) -> Iterator[Buffer]:
        """Return the buffers of one message; the frames are the caller's own, not copies."""
        tag = self.tag(sequence, fields, header, frames)
        start = b"".join((fields, tag, header, pack_lengths([*map(len, frames)])))
        return iter([start, *frames])

    def open(self, start: Start, *, piece: int) -> Opening:
        """Return what verifies the message that begins with *start*.

        :param piece: at most this many bytes of a frame arrive at once; it makes no difference.
        """
        del piece
        return Opening(self, start)

    def verify(
        self, start: Start, frames: Sequence[memoryview], end: Buffer
    ) -> tuple[bytes, Sequence[memoryview]]:
        """Return header and frames of a message that arrived whole, if its tag holds.

        :raises EnvelopeError: if it does not.
        """
        del end
        prelude = start.prelude
        tag = self.tag(prelude.sequence, prelude.fields, start.header, frames)
        check_tag(tag, prelude.tag)
        return start.header, frames

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
        lengths = [*map(len, frames)]
        if len(lengths) > _CHUNK:
            running = _Tag(self, sequence, fields, header, len(lengths))
            running.add(0, frames)
            return running.digest()
        # Nearly all messages are a few frames: one join and one hash.
        pieces = _head(fields, header, len(lengths))
        if max(lengths, default=0) < GMAC_FROM:
            pieces += chain.from_iterable(zip(map(_plain_head, lengths), frames, strict=True))
        else:
            self.add_parts(pieces, sequence, 0, frames)
        mac = self.hmac.copy()
        mac.update(b"".join(pieces))
        return mac.finalize()

    def add_parts(
        self, pieces: list[Buffer], sequence: int, first: int, frames: Sequence[memoryview]
    ) -> None:
        """Add to *pieces* what *frames* add to the tag of message *sequence*: heads and bodies.

        :param first: index of the first of them in the message.
        """
        for index, (length, frame) in enumerate(zip(map(len, frames), frames, strict=True), first):
            if length < GMAC_FROM:
                pieces += (_plain_head(length), frame)
                continue
            # GMAC is AES-GCM of nothing; the frame is the associated data, read in place.
            gmac = self.gmac.encrypt(NONCE.pack(sequence, index), b"", frame)
            pieces += (_PART.pack(_PART_HEAD + GCM_TAG_SIZE, length, MODE_GMAC), gmac)


class _Tag(KeepsSecrets):
    """The tag of one message, to which its frames are added in order."""

    __slots__ = ("_keys", "_mac", "_pieces", "_sequence")

    def __init__(
        self, keys: AuthenticationKeys, sequence: int, fields: bytes, header: bytes, count: int
    ) -> None:
        self._keys = keys
        self._mac = keys.hmac.copy()
        self._sequence = sequence
        self._pieces = _head(fields, header, count)

    def add(self, first: int, frames: Sequence[memoryview]) -> None:
        """Add whole *frames*, of which the first is frame *first*."""
        for at in range(0, len(frames), _CHUNK):
            chunk = frames[at : at + _CHUNK]
            self._keys.add_parts(self._pieces, self._sequence, first + at, chunk)
            if len(self._pieces) > 2 * _CHUNK:
                self._hash()

    def pieces(self, index: int, frame: memoryview) -> _Pieces:
        """Return what adds frame *index* as it arrives."""
        if len(frame) < GMAC_FROM:
            return _Pieces(self, index, frame)
        nonce = NONCE.pack(self._sequence, index)
        return _Gmac(self, index, frame, Cipher(self._keys.aes, GCM(nonce)))

    def add_gmac(self, length: int, gmac: bytes) -> None:
        self._pieces += (_PART.pack(_PART_HEAD + GCM_TAG_SIZE, length, MODE_GMAC), gmac)
        if len(self._pieces) > 2 * _CHUNK:
            self._hash()

    def digest(self) -> bytes:
        self._hash()
        return self._mac.finalize()

    def _hash(self) -> None:
        self._mac.update(b"".join(self._pieces))
        self._pieces.clear()


def _head(fields: bytes, header: bytes, count: int) -> list[Buffer]:
    """Return what stands before the parts of a message's *count* frames in what is hashed."""
    head = COUNT_AND_LENGTH.pack(2 + count, len(fields))
    return [head, fields, LENGTH.pack(len(header)), header]


class _Pieces(KeepsSecrets):
    """One small frame that arrives in pieces."""

    __slots__ = ("_frame", "_index", "_tag")

    def __init__(self, tag: _Tag, index: int, frame: memoryview) -> None:
        self._tag = tag
        self._index = index
        self._frame = frame

    def space(self, start: int, stop: int) -> memoryview:
        """Return where the bytes of the frame from *start* to *stop* are to be received."""
        return self._frame[start:stop]

    def take(self, start: int, stop: int) -> None:
        """Take the bytes of the frame from *start* to *stop*, which have arrived."""

    def finish(self, end: Buffer) -> None:
        """Add the frame, all of which has arrived, to the message's tag; nothing follows it."""
        del end
        self._tag.add(self._index, (self._frame,))


class _Gmac(_Pieces):
    """The GMAC of one large frame that arrives in pieces."""

    __slots__ = ("_context",)

    def __init__(self, tag: _Tag, index: int, frame: memoryview, gcm: Cipher[GCM]) -> None:
        super().__init__(tag, index, frame)
        self._context = gcm.encryptor()

    def take(self, start: int, stop: int) -> None:
        self._context.authenticate_additional_data(self._frame[start:stop])

    def finish(self, end: Buffer) -> None:
        self._context.finalize()
        self._tag.add_gmac(len(self._frame), self._context.tag)


class Opening(_Tag):
    """Verifies one message whose frames arrive in order.

    :ivar header: of the message, not to be believed before :meth:`check` returns.
    :ivar memory: bytes that it takes beside the frames.
    """

    __slots__ = ("_start", "header")

    memory = 0

    def __init__(self, keys: AuthenticationKeys, start: Start) -> None:
        prelude = start.prelude
        super().__init__(keys, prelude.sequence, prelude.fields, start.header, prelude.frame_count)
        self._start = start
        self.header = start.header

    def take(self, index: int, sealed: memoryview) -> memoryview:
        """Return frame *index*, which stands on the wire as it is."""
        self.add(index, (sealed,))
        return sealed

    def check(self, end: Buffer) -> None:
        """Check the tag of the message, all of whose frames were added; nothing follows them.

        :raises EnvelopeError: if it does not hold.
        """
        del end
        check_tag(self.digest(), self._start.prelude.tag)


def check_tag(tag: bytes, given: Buffer) -> None:
    """Compare *tag* with the one that came, in a time that says nothing about them.

    :raises EnvelopeError: if they differ.
    """
    if not hmac.compare_digest(tag, given):
        raise EnvelopeError("a message does not authenticate", rule="envelope.mac")

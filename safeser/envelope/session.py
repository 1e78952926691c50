"""An authenticated connection between two principals: seals what goes out, verifies what comes in.

The one rule: the receive state moves only after a message's tags held, and the first thing that is
wrong ends the session for good. There is no resynchronizing, skipping or retrying on a session.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Protocol, SupportsIndex

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from safeser.envelope import format as wire
from safeser.envelope.aead import EncryptionKeys
from safeser.envelope.claims import Claims
from safeser.envelope.format import (
    Buffer,
    Prelude,
    Sealed,
    Start,
    all_flat,
    check_lengths,
    check_sizes,
    message_length,
    pack_fields,
    parse_prelude,
    parse_start,
)
from safeser.envelope.mac import AuthenticationKeys
from safeser.errors import EnvelopeError
from safeser.identity import KeepsSecrets, PublicKey
from safeser.values import Limits, Suite

__all__ = ["MAX_SECONDS", "MAX_SESSION_BYTES", "Arrival", "Session", "Verified"]

#: A session key that leaks is worth a day of traffic at most.
MAX_SECONDS = 24 * 60 * 60
#: In each direction. Keeps AES-GCM and AES-GMAC far from their bounds, and sequence numbers from
#: their end; docs/reference/envelope-v1-messages.md, section 9, has the arithmetic.
MAX_SESSION_BYTES = 1 << 48

#: Bytes of frames up to which all buffers of a message are made at once.
_AT_ONCE = 1 << 16

_LABEL = "safeser envelope 1 {direction} {purpose}"
INITIATOR_TO_RESPONDER = "initiator to responder"
RESPONDER_TO_INITIATOR = "responder to initiator"


class Verified:
    """A message whose tags held: it is what :attr:`sender` sealed, in order, and nothing else.

    Only a :class:`Session` makes one. The frames are the caller's own buffers: to write to them
    afterwards changes what was verified.
    """

    __slots__ = (
        "__weakref__",  # the memory budget counts a message for as long as it lives
        "frames",
        "header",
        "recipient",
        "sender",
        "sequence",
        "session_id",
    )

    header: bytes
    frames: tuple[memoryview, ...]
    sender: str
    recipient: str
    session_id: bytes
    sequence: int

    def __init__(self) -> None:
        raise TypeError("only a Session makes a Verified")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Verified is immutable")

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a Verified is never pickled or copied")

    def __repr__(self) -> str:
        return (
            f"Verified({self.sender} -> {self.recipient}, sequence {self.sequence},"
            f" {len(self.frames)} frames)"
        )


# The descriptors of the slots go past __setattr__, and cost half of object.__setattr__.
_set_header, _set_frames, _set_sender, _set_recipient, _set_session_id, _set_sequence = (
    getattr(Verified, name).__set__ for name in Verified.__annotations__
)
_new_verified: Callable[[type[Verified]], Verified] = object.__new__


_MessageKeys = AuthenticationKeys | EncryptionKeys


class _Direction(KeepsSecrets):
    """Keys and counts of one direction; without keys, it is over."""

    __slots__ = ("claimed", "keys", "sequence", "suite", "total")

    def __init__(self, suite: Suite, keys: _MessageKeys) -> None:
        self.suite = suite
        self.keys: _MessageKeys | None = keys
        self.sequence = 0
        self.total = 0
        self.claimed = threading.Lock()  # by the message that is being sealed or opened


def expand(split_key: bytes, direction: str, purpose: str, session_id: bytes) -> bytes:
    """Return the key of one purpose. A split key is input to this and to nothing else."""
    info = _LABEL.format(direction=direction, purpose=purpose).encode("ascii") + session_id
    return HKDFExpand(algorithm=hashes.SHA256(), length=32, info=info).derive(split_key)


def _keys(suite: Suite, split_key: bytes, direction: str, session_id: bytes) -> _MessageKeys:
    hmac_key = expand(split_key, direction, "HMAC-SHA256", session_id)
    if suite is Suite.AUTHENTICATE:
        gmac_key = expand(split_key, direction, "AES-256-GMAC", session_id)
        return AuthenticationKeys(hmac_key=hmac_key, gmac_key=gmac_key)
    gcm_key = expand(split_key, direction, "AES-256-GCM", session_id)
    return EncryptionKeys(hmac_key=hmac_key, gcm_key=gcm_key)


class Session(KeepsSecrets):
    """One side of an authenticated connection, made by a complete Handshake.

    Reading goes: :meth:`prelude`, :meth:`start`, then :meth:`verify` if the frames are there, or
    :meth:`arrival` to verify and decrypt them as they arrive. Either direction serves one caller at
    a time; the two are independent of each other.
    """

    __slots__ = ("_clock", "_ended", "_ends_at", "_limits", "_local", "_peer",
                 "_peer_claims", "_peer_key", "_process", "_receiving", "_sending",
                 "id")  # fmt: skip

    def __init__(
        self,
        *,
        suite: Suite,
        initiator: bool,
        split: tuple[bytes, bytes],
        session_id: bytes,
        local: str,
        peer: str,
        peer_key: PublicKey,
        peer_claims: Claims,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._process = os.getpid()
        #: The handshake hash, 32 bytes that no other session has; not a secret. Renewal changes it.
        self.id = session_id
        self._local = local
        self._peer = peer
        self._peer_key = peer_key
        self._peer_claims = peer_claims
        self._limits = limits
        self._clock = clock
        self._ends_at = clock() + MAX_SECONDS
        self._ended = ""
        there = _Direction(suite, _keys(suite, split[0], INITIATOR_TO_RESPONDER, session_id))
        back = _Direction(suite, _keys(suite, split[1], RESPONDER_TO_INITIATOR, session_id))
        self._sending, self._receiving = (there, back) if initiator else (back, there)

    @property
    def suite(self) -> Suite:
        """What the session does for its messages at the least; the handshake bound it.

        While a session is renewed by another suite, its two directions differ for a moment.
        """
        return min(self._sending.suite, self._receiving.suite)

    @property
    def local(self) -> str:
        return self._local

    @property
    def peer(self) -> str:
        """The principal whose key took part in the handshake."""
        return self._peer

    @property
    def peer_key(self) -> PublicKey:
        return self._peer_key

    @property
    def peer_claims(self) -> Claims:
        return self._peer_claims

    @property
    def ended(self) -> str:
        """Why the session is over; empty while it lives."""
        return self._ended

    @property
    def ends_at(self) -> float:
        """When the session ends by itself, on its own clock."""
        return self._ends_at

    @property
    def is_aged(self) -> bool:
        """Whether half of its time is over, so that it should be renewed."""
        return self._clock() >= self._ends_at - MAX_SECONDS // 2

    def send_as(self, other: Session) -> None:
        """Seal by the keys of *other* from the next message on, a session of the same two."""
        self._sending = other._sending

    def receive_as(self, other: Session) -> None:
        """Verify by the keys of *other* from the next message on, and be that session."""
        self._receiving = other._receiving
        self.id, self._ends_at = other.id, other._ends_at
        self._peer_key, self._peer_claims = other._peer_key, other._peer_claims

    def limit(self, limits: Limits) -> None:
        """Take messages of at most *limits* from now on."""
        self._limits = limits

    def end(self, reason: str = "it was closed") -> None:
        """End the session for good and forget its keys; the first reason stays."""
        self._ended = self._ended or reason
        self._sending.keys = self._receiving.keys = None

    def seal(self, header: bytes, frames: Sequence[Buffer]) -> list[Buffer]:
        """Return the buffers to write, in order, for one message; see :meth:`sealing`."""
        return list(self.sealing(header, frames))

    def sealing(self, header: bytes, frames: Sequence[Buffer]) -> Iterator[Buffer]:
        """Return the buffers to write, in order, for one message, each made when it is asked for.

        A message that is too large is refused with :class:`EnvelopeError` and the session goes on,
        since nothing was sent. All buffers must be taken, and written, before the next message is
        sealed. In suite 1 large frames are not copied, and one that changes before it is written
        ends the session at the other side. In suite 2 they are encrypted piece by piece. Those of a
        small message are made at once.
        """
        out, keys, fields, views = self._begin(header, frames)
        buffers = keys.seal(out.sequence, fields, header, views)
        if sum(map(len, views)) > _AT_ONCE:
            return self._made(out, buffers)
        made = list(buffers)
        out.claimed.release()
        return iter(made)

    def sealed(self, header: bytes, frames: Sequence[Buffer]) -> bytes:
        """Return one message that is not large as the bytes to write; see :meth:`sealing`."""
        out, keys, fields, views = self._begin(header, frames)
        message = b"".join(keys.seal(out.sequence, fields, header, views))
        out.claimed.release()
        return message

    def _begin(
        self, header: bytes, frames: Sequence[Buffer]
    ) -> tuple[_Direction, _MessageKeys, bytes, list[memoryview]]:
        """Claim the next number for a message; return its keys, fields and flat frames."""
        views = all_flat(frames)
        lengths = [*map(len, views)]
        header_size, count, size = len(header), len(lengths), sum(lengths)
        check_sizes(self._limits, header_size, count, size)
        if size > wire.MAX_FRAME:  # otherwise no frame can be longer
            check_lengths(lengths)
        out = self._sending
        keys = self._claim(out, message_length(out.suite, header_size, count, size))
        out.sequence = number = out.sequence + 1
        return out, keys, pack_fields(number, header_size, count, size), views

    def _made(self, out: _Direction, buffers: Iterator[Buffer]) -> Iterator[Buffer]:
        for buffer in buffers:
            yield buffer
            if self._ended:  # a key may be retired while a large message is written
                self._check_ended()
        out.claimed.release()  # stays claimed where a caller gives up: the number was used

    def prelude(self, data: Buffer) -> Prelude:
        """Parse the next 64 bytes of the connection; a wrong one ends the session.

        What it announces is within limits but not yet authenticated: take memory for it as bytes
        arrive, not at once.
        """
        incoming = self._receiving
        if self._ended or incoming.claimed.locked() or self._clock() >= self._ends_at:
            self._check_alive(incoming)
        try:
            prelude = parse_prelude(data, self._limits, incoming.suite)
            if prelude.sequence != incoming.sequence + 1:
                raise _out_of_sequence()
        except EnvelopeError as error:
            self.end(error.message)
            raise
        return prelude

    def start(self, prelude: Prelude, data: Buffer) -> Start:
        """Parse the bytes between *prelude* and the first frame; wrong ones end the session."""
        if self._ended:
            self._check_ended()
        try:
            return parse_start(prelude, data)
        except EnvelopeError as error:
            self.end(error.message)
            raise

    def arrival(self, start: Start, *, piece: int) -> Arrival:
        """Return what takes the frames of the message that begins with *start*.

        In suite 2 the tag of its prelude is verified here: the lengths are the peer's own.

        :param piece: at most this many bytes of a frame arrive at once.
        """
        keys = self._claim(self._receiving, start.prelude.message_length)
        try:
            if start.prelude.sequence != self._receiving.sequence + 1:
                raise _out_of_sequence()
            return Arrival(self, start, keys.open(start, piece=piece))
        except EnvelopeError as error:
            self.end(error.message)
            raise

    def verify(self, sealed: Sealed) -> Verified:
        """Return the message in *sealed* if its tags hold; anything else ends the session.

        In suite 2 its frames are decrypted where they are, if that memory can be written to.
        """
        return self._verified(sealed.start, all_flat(sealed.frames), sealed.end)

    def verify_whole(self, start: Start, rest: memoryview) -> Verified:
        """Do the same for a message whose frames, and what follows them, are *rest*."""
        frames, at = [], 0
        for length in start.sealed_lengths:
            frames.append(rest[at : at + length])
            at += length
        return self._verified(start, frames, rest[at:])

    def _verified(self, start: Start, frames: list[memoryview], end: Buffer) -> Verified:
        incoming, prelude = self._receiving, start.prelude
        keys = self._claim(incoming, prelude.message_length)
        try:
            if prelude.sequence != incoming.sequence + 1:
                raise _out_of_sequence()
            if tuple(map(len, frames)) != start.sealed_lengths:
                raise _other_shape()
            header, opened = keys.verify(start, frames, end)
        except EnvelopeError as error:
            self.end(error.message)
            raise
        return self._accept(prelude, header, opened)

    def _accept(self, prelude: Prelude, header: bytes, frames: Sequence[memoryview]) -> Verified:
        # It may have ended while the message arrived: a key was retired, or its time was up.
        if self._ended or self._clock() >= self._ends_at:
            self._check_time()
            self._check_ended()
        incoming, number = self._receiving, prelude.sequence
        if number != incoming.sequence + 1:  # one arrival makes one message
            raise _out_of_sequence()
        incoming.sequence = number
        incoming.claimed.release()
        verified = _new_verified(Verified)
        _set_header(verified, header)
        _set_frames(verified, tuple(frames))
        _set_sender(verified, self._peer)
        _set_recipient(verified, self._local)
        _set_session_id(verified, self.id)
        _set_sequence(verified, number)
        return verified

    @property
    def expected(self) -> int:
        """Number of the next message to come: a replay, drop or swap is an attack on a stream."""
        return self._receiving.sequence + 1

    def _check_time(self) -> None:
        if not self._ended and self._clock() >= self._ends_at:
            self.end("its time is up")

    def _check_ended(self) -> None:
        if self._ended:
            raise EnvelopeError(
                f"the session is over: {self._ended}", rule="envelope.ended", fix="Connect again."
            )

    def _check_alive(self, direction: _Direction) -> None:
        if self._clock() >= self._ends_at:
            self._check_time()
        if self._process != os.getpid():
            # Both would count on from the same number, under the same keys.
            self.end("it is another process's")
        self._check_ended()
        if direction.claimed.locked():
            raise _in_use()

    def _claim(self, direction: _Direction, size: int) -> _MessageKeys:
        """Claim *direction* for a message of *size* bytes.

        It stays claimed when the work is interrupted: a sequence number that may have been used
        with a key must not be used again.
        """
        keys = direction.keys  # read before the end is asked for: another thread may end it now
        if (
            keys is None
            or self._ended
            or self._clock() >= self._ends_at
            or self._process != os.getpid()
            or direction.total + size > MAX_SESSION_BYTES
            or not direction.claimed.acquire(blocking=False)
        ):
            self._check_alive(direction)
            if direction.total + size > MAX_SESSION_BYTES:
                self.end("it has carried all that one session may")
                self._check_ended()
            raise _in_use()
        direction.total += size
        return keys

    def __repr__(self) -> str:
        state = f", ended: {self._ended}" if self._ended else ""
        return (
            f"Session({self._local} with {self._peer}, suite {self.suite.word},"
            f" id {self.id.hex()[:16]}{state})"
        )


class _Pieces(Protocol):
    """One frame that arrives in pieces, in either suite."""

    def space(self, start: int, stop: int) -> memoryview: ...

    def take(self, start: int, stop: int) -> None: ...

    def finish(self, end: Buffer) -> None: ...


class _Opening(Protocol):
    """One message that arrives, in either suite: what verifies and decrypts its frames."""

    header: bytes
    memory: int

    def take(self, index: int, sealed: memoryview) -> memoryview: ...

    def pieces(self, index: int, frame: memoryview) -> _Pieces: ...

    def check(self, end: Buffer) -> None: ...


class Arrival(KeepsSecrets):
    """One message whose frames arrive in order: verified as they do, released when all have.

    Each frame is given with :meth:`take` when it is there, as it stands on the wire, or with
    :meth:`begin`, :meth:`space`, :meth:`arrived` and :meth:`finish` while its bytes come in. Until
    :meth:`verified` returns, its memory is for the caller alone, and nothing in it may be believed.
    """

    __slots__ = ("_at", "_frame", "_frames", "_opening", "_pieces", "_session", "_start", "_stop")

    def __init__(self, session: Session, start: Start, opening: _Opening) -> None:
        self._session = session
        self._start = start
        self._opening = opening
        self._frames: list[memoryview] = []
        self._pieces: _Pieces | None = None  # of the frame that was begun
        self._frame = memoryview(b"")
        self._at = self._stop = 0

    @property
    def memory(self) -> int:
        """Bytes that it takes beside the frames while one of them arrives in pieces."""
        return self._opening.memory

    def take(self, sealed: memoryview) -> None:
        """Verify the next frame, all of which is in *sealed*."""
        self._expect(len(sealed) - self._start.prelude.overhead.frame)
        try:
            self._frames.append(self._opening.take(len(self._frames), sealed))
        except EnvelopeError as error:
            self._fail(error)

    def begin(self, frame: memoryview) -> None:
        """Say that the next frame arrives, and is to be in *frame*."""
        self._expect(len(frame))
        self._frame, self._at, self._stop = frame, 0, 0
        self._pieces = self._opening.pieces(len(self._frames), frame)

    def space(self, start: int, stop: int) -> memoryview:
        """Return where the bytes of that frame from *start* to *stop*, the next ones, are received.

        In suite 2 that is not in the frame: what arrives is ciphertext.
        """
        if self._pieces is None or not self._at == start <= stop <= len(self._frame):
            self._fail(_other_shape())
        self._stop = stop
        return self._pieces.space(start, stop)

    def arrived(self) -> None:
        """Say that the bytes for which :meth:`space` was asked last are there."""
        if self._pieces is None:
            self._fail(_other_shape())
        self._pieces.take(self._at, self._stop)
        self._at = self._stop

    def finish(self, end: Buffer = b"") -> None:
        """Verify the frame that was begun; *end* follows it on the wire: in suite 2 its tag."""
        pieces, self._pieces = self._pieces, None
        if pieces is None or self._at != len(self._frame):
            self._fail(_other_shape())
        try:
            pieces.finish(end)
        except EnvelopeError as error:
            self._fail(error)
        self._frames.append(self._frame)

    def verified(self, end: Buffer = b"") -> Verified:
        """Return the message, all of whose frames arrived; *end* follows the last on the wire.

        :raises EnvelopeError: if something is missing or does not hold; the session is over then.
        """
        if self._pieces is not None or len(self._frames) != len(self._start.lengths):
            self._fail(_other_shape())
        try:
            if self._start.prelude.sequence != self._session.expected:
                raise _out_of_sequence()  # one arrival makes one message
            self._opening.check(end)
        except EnvelopeError as error:
            self._fail(error)
        return self._session._accept(self._start.prelude, self._opening.header, self._frames)

    def _expect(self, length: int) -> None:
        lengths, index = self._start.lengths, len(self._frames)
        if self._pieces is not None or index >= len(lengths) or length != lengths[index]:
            self._fail(_other_shape())

    def _fail(self, error: EnvelopeError) -> NoReturn:
        self._session.end(error.message)
        raise error


def _out_of_sequence() -> EnvelopeError:
    return EnvelopeError("a message is out of sequence", rule="envelope.sequence")


def _in_use() -> EnvelopeError:
    return EnvelopeError(
        "the session is in use by another caller, or its last message was interrupted",
        rule="envelope.busy",
    )


def _other_shape() -> EnvelopeError:
    return EnvelopeError("a message is not what its prelude says", rule="envelope.format")

"""An authenticated connection between two principals: seals what goes out, verifies what comes in.

The one rule: the receive state moves only after a MAC held, and the first thing that is wrong ends
the session for good. There is no resynchronizing, skipping or retrying on a session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NoReturn, SupportsIndex

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from safeser.envelope.claims import Claims
from safeser.envelope.format import (
    PRELUDE_SIZE,
    Buffer,
    Prelude,
    Sealed,
    check_lengths,
    check_sizes,
    flat,
    pack_fields,
    pack_lengths,
    parse_lengths,
    parse_prelude,
)
from safeser.envelope.mac import MessageKeys, equal
from safeser.errors import EnvelopeError
from safeser.keys import KeepsSecrets, PublicKey
from safeser.values import Limits

__all__ = ["MAX_SECONDS", "MAX_SESSION_BYTES", "Session", "Verified"]

#: A session key that leaks is worth a day of traffic at most.
MAX_SECONDS = 24 * 60 * 60
#: In each direction. Keeps AES-GMAC far from its bounds, and sequence numbers from their end.
MAX_SESSION_BYTES = 1 << 48

_LABEL = "safeser envelope 1 {direction} {purpose}"
INITIATOR_TO_RESPONDER = "initiator to responder"
RESPONDER_TO_INITIATOR = "responder to initiator"


class Verified:
    """A message whose MAC held: it is what :attr:`sender` sealed, in order, and nothing else.

    Only :meth:`Session.verify` makes one. The frames are the caller's own buffers: whoever writes
    to them afterwards changes what was verified.
    """

    __slots__ = (
        "__weakref__",  # whoever counts what a message costs counts it for as long as it lives
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
        raise TypeError("only Session.verify makes a Verified")

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
_SETTERS = tuple(getattr(Verified, name).__set__ for name in Verified.__annotations__)


def _verified(*values: object) -> Verified:
    verified = object.__new__(Verified)
    for setter, value in zip(_SETTERS, values, strict=True):
        setter(verified, value)
    return verified


class _Direction(KeepsSecrets):
    """Keys and counts of one direction; without keys, it is over."""

    __slots__ = ("busy", "keys", "sequence", "total")

    def __init__(self, split_key: bytes, direction: str, session_id: bytes) -> None:
        self.keys: MessageKeys | None = MessageKeys(
            hmac_key=expand(split_key, direction, "HMAC-SHA256", session_id),
            gmac_key=expand(split_key, direction, "AES-256-GMAC", session_id),
        )
        self.sequence = 0
        self.total = 0
        self.busy = False


def expand(split_key: bytes, direction: str, purpose: str, session_id: bytes) -> bytes:
    """Return the key of one purpose. A split key is input to this and to nothing else."""
    info = _LABEL.format(direction=direction, purpose=purpose).encode("ascii") + session_id
    return HKDFExpand(algorithm=hashes.SHA256(), length=32, info=info).derive(split_key)


class Session(KeepsSecrets):
    """One side of an authenticated connection, made by a complete Handshake.

    Reading goes: :meth:`prelude`, :meth:`lengths`, :meth:`verify`. Either direction serves one
    caller at a time; the two are independent of each other.
    """

    __slots__ = ("_clock", "_ended", "_ends_at", "_id", "_limits", "_local", "_peer",
                 "_peer_claims", "_peer_key", "_receiving", "_sending")  # fmt: skip

    def __init__(
        self,
        *,
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
        self._id = session_id
        self._local = local
        self._peer = peer
        self._peer_key = peer_key
        self._peer_claims = peer_claims
        self._limits = limits
        self._clock = clock
        self._ends_at = clock() + MAX_SECONDS
        self._ended = ""
        there = _Direction(split[0], INITIATOR_TO_RESPONDER, session_id)
        back = _Direction(split[1], RESPONDER_TO_INITIATOR, session_id)
        self._sending, self._receiving = (there, back) if initiator else (back, there)

    @property
    def id(self) -> bytes:
        """The handshake hash: 32 bytes that no other session has. Not a secret."""
        return self._id

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
        self._id, self._ends_at = other._id, other._ends_at
        self._peer_key, self._peer_claims = other._peer_key, other._peer_claims

    def limit(self, limits: Limits) -> None:
        """Take messages of at most *limits* from now on."""
        self._limits = limits

    def end(self, reason: str = "it was closed") -> None:
        """End the session for good and forget its keys; the first reason stays."""
        self._ended = self._ended or reason
        self._sending.keys = self._receiving.keys = None

    def seal(self, header: bytes, frames: Sequence[Buffer]) -> list[Buffer]:
        """Return the buffers to write, in order, for one message; big frames are not copied.

        A message that is too large is refused with :class:`EnvelopeError` and the session goes on,
        since nothing was sent. Whatever this returns must be written before the next call's, and a
        frame that changes before it is written ends the session at the other side.
        """
        views = [flat(frame) for frame in frames]
        lengths = [len(view) for view in views]
        body_length = sum(lengths)
        check_sizes(
            self._limits,
            header_length=len(header),
            frame_count=len(views),
            body_length=body_length,
        )
        check_lengths(lengths)
        table = pack_lengths(lengths)
        out = self._sending
        keys = self._start(out, PRELUDE_SIZE + len(header) + len(table) + body_length)
        out.sequence += 1
        fields = pack_fields(
            sequence=out.sequence,
            header_length=len(header),
            frame_count=len(views),
            body_length=body_length,
        )
        tag = keys.tag(out.sequence, fields, header, views)
        out.busy = False
        return [b"".join((fields, tag, header, table)), *views]

    def prelude(self, data: Buffer) -> Prelude:
        """Parse the next 64 bytes of the connection; a wrong one ends the session.

        What it announces is within limits but not yet authenticated: take memory for it as bytes
        arrive, not at once.
        """
        self._check_alive(self._receiving)
        try:
            prelude = parse_prelude(data, self._limits)
            self._check_sequence(prelude)
        except EnvelopeError as error:
            self.end(error.message)
            raise
        return prelude

    def lengths(self, prelude: Prelude, table: Buffer) -> tuple[int, ...]:
        """Parse the table of frame lengths after the header; a wrong one ends the session."""
        self._check_alive(self._receiving)
        try:
            return parse_lengths(prelude, table)
        except EnvelopeError as error:
            self.end(error.message)
            raise

    def verify(self, sealed: Sealed) -> Verified:
        """Return the message in *sealed* if its MAC holds; anything else ends the session."""
        incoming = self._receiving
        keys = self._start(incoming, sealed.prelude.message_length)
        try:
            verified = self._verify(keys, sealed)
        except EnvelopeError as error:
            self.end(error.message)
            raise
        incoming.sequence = sealed.prelude.sequence
        incoming.busy = False
        return verified

    def _verify(self, keys: MessageKeys, sealed: Sealed) -> Verified:
        prelude = sealed.prelude
        # 1. the numbers of the prelude are those of the message; 2. it is the next one;
        # 3. the tag holds. The header is copied first: it must not change once it was verified.
        header = bytes(sealed.header)
        frames = tuple([flat(frame) for frame in sealed.frames])
        shape = (len(header), len(frames), sum(map(len, frames)))
        if shape != (prelude.header_length, prelude.frame_count, prelude.body_length):
            raise EnvelopeError("a message is not what its prelude says", rule="envelope.format")
        self._check_sequence(prelude)
        tag = keys.tag(prelude.sequence, prelude.fields, header, frames)
        if not equal(tag, prelude.tag):
            raise EnvelopeError("a message does not authenticate", rule="envelope.mac")
        return _verified(header, frames, self._peer, self._local, self._id, prelude.sequence)

    def _check_sequence(self, prelude: Prelude) -> None:
        # Exactly the next one: a replay, a drop and a swap are all an attack on a stream.
        if prelude.sequence != self._receiving.sequence + 1:
            raise EnvelopeError("a message is out of sequence", rule="envelope.sequence")

    def _check_alive(self, direction: _Direction) -> MessageKeys:
        if not self._ended and self._clock() >= self._ends_at:
            self.end("its time is up")
        if direction.keys is None:
            raise EnvelopeError(
                f"the session is over: {self._ended}",
                rule="envelope.ended",
                fix="Connect again.",
            )
        if direction.busy:
            raise EnvelopeError(
                "the session is in use by another caller, or its last message was interrupted",
                rule="envelope.busy",
            )
        return direction.keys

    def _start(self, direction: _Direction, size: int) -> MessageKeys:
        """Claim *direction* for a message of *size* bytes.

        It stays claimed when the work is interrupted, by whatever: a sequence number that may have
        been used with a key must not be used again.
        """
        keys = self._check_alive(direction)
        if direction.total + size > MAX_SESSION_BYTES:
            self.end("it has carried all that one session may")
            return self._check_alive(direction)
        direction.busy = True
        direction.total += size
        return keys

    def __repr__(self) -> str:
        state = f", ended: {self._ended}" if self._ended else ""
        return f"Session({self._local} with {self._peer}, id {self._id.hex()[:16]}{state})"

"""An authenticated connection between two principals: seals what goes out, verifies what comes in.

The one rule: the receive state moves only after all tags of a message held, and the first thing
that is wrong ends the session for good. There is no resynchronizing, skipping or retrying.

A message is encrypted by AES-256-GCM, one call for each part, and nearly all have one part. An
HMAC-SHA256 over its prelude and the GCM tags makes the parts one message, and commits to the key:
both keys of a direction come from one secret (RFC 9771). A nonce is sequence and index of a part,
and no sequence number is given to two messages. Large frames are encrypted while they are written
and decrypted while they arrive, in pieces that stay in the processor's cache.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, SupportsIndex

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.modes import GCM

from safeser.gate.claims import Claims
from safeser.gate.direction import (
    INITIATOR_TO_RESPONDER,
    NONCE,
    PIECE,
    RESPONDER_TO_INITIATOR,
    Direction,
    DirectionKeys,
    wrong_part,
)
from safeser.gate.format import (
    CLOSE,
    DATA,
    FIELDS_SIZE,
    GCM_TAG_SIZE,
    PRELUDE_SIZE,
    SMALL,
    Block,
    Buffer,
    Prelude,
    all_flat,
    check_sizes,
    cut_at,
    grouped,
    malformed,
    pack_block,
    pack_fields,
    parse_block,
    parse_prelude,
    rest_size,
)
from safeser.gate.key_pairs import KeepsSecrets, PublicKey
from safeser.gate.refusals import EnvelopeError
from safeser.gate.values import Limits

#: A session key that leaks is worth a day of traffic at most.
MAX_SECONDS = 24 * 60 * 60
#: In each direction. Keeps AES-GCM far from its bounds, and sequence numbers from their end;
#: docs/reference/envelope.md, section 9, has the arithmetic.
MAX_SESSION_BYTES = 1 << 48

#: What the two tags of a message begin with, so that neither is taken for the other.
_FIRST, _LAST = b"\1", b"\2"


class SessionClosed(EnvelopeError):
    """The peer said, authentically, that nothing follows: it closes the connection."""


class Verified:
    """A message whose tags held: it is what :attr:`sender` sealed, in order, and nothing else.

    Only a :class:`Session` makes one. Its frames are in memory that nothing else refers to, or that
    the caller gave for them.
    """

    __slots__ = (
        "__weakref__",  # tests find by it that nothing keeps a refused message
        "frames",
        "header",
        "left",
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
    #: What is left of the message's limits, as the link that opens it counts; None before that.
    left: object

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


# The descriptors of the slots go past __setattr__, and cost half of object.__setattr__. Their order
# is that of the annotations.
_set_header, _set_frames, _set_sender, _set_recipient, _set_session_id, _set_sequence, set_left = (
    getattr(Verified, name).__set__ for name in Verified.__annotations__
)
_new_verified: Callable[[type[Verified]], Verified] = object.__new__


class Session(KeepsSecrets):
    """One side of an authenticated connection, made by a complete Handshake.

    Reading goes: :meth:`prelude`, then :meth:`arrival` with the block that follows it, which tells
    what else is to come. Writing is :meth:`sealing`, or :meth:`seal` and :meth:`sealed` where the
    message is there at once. Either direction serves one caller at a time; the two are independent
    of each other.

    :param split: the keys of Noise's Split(), for the direction from the initiator first.
    :param clock: seconds that never go back.
    """

    __slots__ = ("_clock", "_ended", "_ends_at", "_limits", "_local", "_peer",
                 "_peer_claims", "_peer_key", "_process", "_receiving", "_sending",
                 "id")  # fmt: skip

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
        there = Direction(split[0], INITIATOR_TO_RESPONDER, session_id)
        back = Direction(split[1], RESPONDER_TO_INITIATOR, session_id)
        self._sending, self._receiving = (there, back) if initiator else (back, there)

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
    def is_aged(self) -> bool:
        """Whether half of its time is over, so that it should be renewed."""
        return self._clock() >= self._ends_at - MAX_SECONDS // 2

    def send_as(self, other: Session) -> None:
        """Seal by the keys of *other* from the next message on, a session of the same two ends.

        The keys that it replaces are forgotten. Renewal does this and :meth:`receive_as` at the
        times that envelope.md, section 9, says.

        :raises EnvelopeError: amid a message.
        """
        if self._sending.claimed.locked():
            raise _in_use()
        self._sending = other._sending

    def receive_as(self, other: Session) -> None:
        """Verify by the keys of *other* from the next message on, and be that session.

        :raises EnvelopeError: amid a message.
        """
        if self._receiving.claimed.locked():
            raise _in_use()
        self._receiving = other._receiving
        self.id, self._ends_at = other.id, other._ends_at
        self._peer_key, self._peer_claims = other._peer_key, other._peer_claims

    def limit(self, limits: Limits) -> None:
        """Send and take messages of at most *limits* from now on."""
        self._limits = limits

    def end(self, reason: str = "it was closed") -> None:
        """End the session for good and forget its keys; the first reason stays."""
        self._ended = self._ended or reason
        self._sending.keys = self._receiving.keys = None

    # --- sealing ---------------------------------------------------------------------------------

    def seal(self, header: bytes, frames: Sequence[Buffer]) -> list[Buffer]:
        """Return the buffers to write, in order, for one message; see :meth:`sealing`."""
        return list(self.sealing(header, frames))

    def sealing(self, header: bytes, frames: Sequence[Buffer]) -> Iterator[Buffer]:
        """Return the buffers to write, in order, for one message, each made when it is asked for.

        A message that is too large is refused with :class:`EnvelopeError` and the session goes on,
        since nothing was sent. All buffers must be taken, and written, before the next message is
        sealed. A message of one part, as nearly all are, is one buffer, made at once. A large frame
        is encrypted piece by piece. A session that is over, or ends meanwhile, raises it, too.
        """
        views = all_flat(frames)
        lengths = [*map(len, views)]
        size = check_sizes(self._limits, len(header), lengths)
        counts, sizes = ([len(views)], [size]) if size < SMALL else grouped(lengths)
        first, rest = counts[0], rest_size(sizes)
        block = pack_block(header, lengths, views[:first])
        out, keys, begin = self._begin(DATA, block, rest)
        if not rest:
            out.claimed.release()
            return iter((begin,))
        return self._encrypt_parts(out, keys, begin, counts[1:], views[first:])

    def sealed(self, header: bytes, frames: Sequence[Buffer]) -> bytes:
        """Return one message that is not large as the bytes to write; see :meth:`sealing`."""
        return b"".join(self.sealing(header, frames))

    def closing(self) -> bytes:
        """Return the message after which nothing is sent, and end the session.

        Without it a peer cannot tell whether an attacker cut the connection (RFC 8446, 6.1).
        """
        _, _, message = self._begin(CLOSE, b"", 0)
        self.end("this side closed it")
        return message

    def _begin(self, kind: int, block: bytes, rest: int) -> tuple[Direction, DirectionKeys, bytes]:
        """Claim the next number for a message; return its keys and the bytes that begin it."""
        out = self._sending
        keys = self._claim(out, PRELUDE_SIZE + len(block) + GCM_TAG_SIZE + rest)
        # Taken before anything is encrypted: a number that may have been used is not used again.
        out.sequence = number = out.sequence + 1
        fields = pack_fields(kind, number, len(block), rest)
        sealed = keys.gcm.encrypt(NONCE.pack(number, 0), block, None)
        tag = keys.tag(b"".join((_FIRST, fields, sealed[-GCM_TAG_SIZE:])))
        return out, keys, b"".join((fields, tag, sealed))

    def _encrypt_parts(
        self,
        out: Direction,
        keys: DirectionKeys,
        begin: bytes,
        counts: Sequence[int],
        views: Sequence[memoryview],
    ) -> Iterator[Buffer]:
        yield begin
        covered = [_LAST, begin[:FIELDS_SIZE], begin[-GCM_TAG_SIZE:]]
        at = 0
        for index, count in enumerate(counts, 1):
            frames = views[at : at + count]
            at += count
            part = frames[0] if len(frames) == 1 else memoryview(b"".join(frames))
            last = b""
            for last in keys.encrypted(NONCE.pack(out.sequence, index), part):
                # Meanwhile a key may be retired, a process forked, and the time of a session up.
                if self._ended or self._process != os.getpid() or self._clock() >= self._ends_at:
                    self._check_alive(out)
                yield last
            covered.append(last[-GCM_TAG_SIZE:])
        if self._ended:
            self._check_ended()
        yield keys.tag(b"".join(covered))
        out.claimed.release()  # stays claimed where a caller gives up: the number was used

    # --- opening ---------------------------------------------------------------------------------

    def prelude(self, data: Buffer) -> Prelude:
        """Parse the next 64 bytes of the connection; wrong ones end the session.

        What it announces is within limits but not yet authenticated: take memory for it as bytes
        arrive, not at once.

        :raises EnvelopeError: if they are wrong, or the session is over.
        """
        incoming = self._receiving
        if self._ended or incoming.claimed.locked() or self._clock() >= self._ends_at:
            self._check_alive(incoming)
        try:
            prelude = parse_prelude(data, self._limits)
            if prelude.sequence != incoming.sequence + 1:
                raise _out_of_sequence()
        except EnvelopeError as error:
            self.end(error.message)
            raise
        return prelude

    def arrival(self, prelude: Prelude, block: Buffer) -> Arrival:
        """Return what takes the rest of the message that begins with *prelude* and sealed *block*.

        Both are authentic when this returns; nothing of the block is decrypted before its HMAC
        holds.

        :raises EnvelopeError: if anything is wrong; the session is over.
        :raises SessionClosed: if nothing is, and the peer says that nothing follows; likewise.
        """
        incoming = self._receiving
        keys = self._claim(incoming, PRELUDE_SIZE + prelude.block + prelude.rest)
        try:
            if prelude.sequence != incoming.sequence + 1:
                raise _out_of_sequence()
            if len(block) != prelude.block:
                raise _other_shape()
            first = b"".join((prelude.fields, block[-GCM_TAG_SIZE:]))
            keys.tag(_FIRST + first, prelude.tag)
            plain = keys.decrypt(prelude.sequence, 0, block)
            if prelude.closes:
                raise SessionClosed(
                    "the peer closed the connection", rule="envelope.closed", fix="Connect again."
                )
            parsed = parse_block(plain, prelude.rest, self._limits)
        except EnvelopeError as error:
            self.end(error.message)
            # What is raised refers to this call, and the one that parsed: none keeps the block.
            plain, error.__traceback__ = b"", None
            raise
        return Arrival(self, keys, prelude.sequence, first, parsed)

    def _accept(self, number: int, header: bytes, frames: tuple[memoryview, ...]) -> Verified:
        # It may have ended while the message arrived: a key was retired, or its time was up.
        if self._ended or self._clock() >= self._ends_at:
            self._check_time()
            self._check_ended()
        incoming = self._receiving
        if number != incoming.sequence + 1:  # one arrival makes one message
            raise _out_of_sequence()
        incoming.sequence = number
        incoming.claimed.release()
        verified = _new_verified(Verified)
        _set_header(verified, header)
        _set_frames(verified, frames)
        _set_sender(verified, self._peer)
        _set_recipient(verified, self._local)
        _set_session_id(verified, self.id)
        _set_sequence(verified, number)
        set_left(verified, None)
        return verified

    def _check_time(self) -> None:
        if not self._ended and self._clock() >= self._ends_at:
            self.end("its time is up")

    def _check_ended(self) -> None:
        if self._ended:
            raise EnvelopeError(
                f"the session is over: {self._ended}", rule="envelope.ended", fix="Connect again."
            )

    def _check_alive(self, direction: Direction) -> None:
        if self._clock() >= self._ends_at:
            self._check_time()
        if self._process != os.getpid():
            # Both would count on from the same number, under the same keys.
            self.end("it is another process's")
        self._check_ended()
        if direction.claimed.locked():
            raise _in_use()

    def _claim(self, direction: Direction, size: int) -> DirectionKeys:
        """Claim *direction* for a message of *size* bytes.

        It stays claimed when the work is interrupted: a sequence number that may have been used
        with a key must not be used again.
        """
        keys = direction.keys  # read before the end is asked for: another thread may end it now
        # One condition, which nearly all messages pass; why one does not is found out below.
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
        return f"Session({self._local} with {self._peer}, id {self.id.hex()[:16]}{state})"


class Arrival(KeepsSecrets):
    """One message whose beginning was authentic, and whose other parts arrive in order.

    Each part is given with :meth:`take` when it is there, as it stands on the wire, or with
    :meth:`begin`, :meth:`feed` and :meth:`finish` while its bytes come in. Until :meth:`verified`
    returns, their memory is for the caller alone, and nothing in it may be believed. Each method
    raises :class:`EnvelopeError` for what is wrong, or out of turn, and the session is over then.

    :ivar header: of the message, authentic.
    :ivar lengths: of its frames, authentic.
    :ivar parts: bytes of each part that is to come, the GCM tag behind it aside.
    """

    __slots__ = ("_arriving", "_at", "_context", "_counts", "_covered", "_index", "_keys",
                 "_memory", "_number", "_session", "header", "lengths", "parts")  # fmt: skip

    def __init__(
        self, session: Session, keys: DirectionKeys, number: int, first: bytes, parsed: Block
    ) -> None:
        self._session = session
        self._keys = keys
        self._number = number
        self._counts = parsed.counts
        self._memory = [parsed.inside]  # of each part that arrived
        self._covered = [_LAST, first]  # of the last tag
        self._index = 0  # of the last part that arrived, or is arriving
        self._arriving: memoryview | None = None  # of the part that was begun, filled up to _at
        self._at = 0
        self.header = parsed.header
        self.lengths = parsed.lengths
        self.parts = parsed.sizes[1:]

    def take(self, sealed: Sequence[memoryview], tag: Buffer) -> None:
        """Decrypt the next part, all of which is in *sealed*, into memory that is taken for it.

        :param tag: the GCM tag, which follows it on the wire.
        """
        size = sum(map(len, sealed))
        if size >= SMALL:
            self.begin(np.empty(size, np.uint8).data)
            for piece in sealed:
                self.feed(piece)
            self.finish(tag)
            return
        self._next(size)
        try:
            plain = self._keys.decrypt(self._number, self._index, b"".join((*sealed, tag)))
        except EnvelopeError as error:
            self._fail(error)
        self._covered.append(bytes(tag))
        self._memory.append(memoryview(bytearray(plain)))

    def begin(self, memory: memoryview) -> None:
        """Say that the next part arrives, and is to be decrypted into *memory*, of its size."""
        self._next(len(memory))
        self._arriving, self._at = memory, 0
        nonce = NONCE.pack(self._number, self._index)
        self._context = Cipher(self._keys.aes, GCM(nonce)).decryptor()

    def feed(self, piece: memoryview) -> None:
        """Decrypt the next bytes of the part that was begun, which are in other memory."""
        at, end = self._at, self._at + len(piece)
        if self._arriving is None or end > len(self._arriving):
            self._fail(_other_shape())
        for start in range(0, len(piece), PIECE):
            part = piece[start : start + PIECE]
            self._context.update_into(part, self._arriving[at : at + len(part)])
            self._at = at = at + len(part)

    def finish(self, tag: Buffer) -> None:
        """Check the GCM *tag* of the part that was begun; overwrite the part if it is wrong."""
        # No local variable for the memory: the traceback of an error keeps those of this call.
        if self._arriving is None or self._at != len(self._arriving) or len(tag) != GCM_TAG_SIZE:
            self._fail(_other_shape())
        try:
            self._context.finalize_with_tag(bytes(tag))
        except InvalidTag:
            self._fail(wrong_part())
        self._covered.append(bytes(tag))
        self._memory.append(self._arriving)
        self._arriving = None

    def whole(self, rest: memoryview) -> Verified:
        """Return the message, all of which arrived: *rest* is what follows its block."""
        at = 0
        for size in self.parts:
            end = at + size
            at = end + GCM_TAG_SIZE
            self.take([rest[end - size : end]], rest[end:at])
        return self.verified(rest[at:])

    def verified(self, end: Buffer = b"") -> Verified:
        """Return the message, all of whose parts arrived.

        :param end: what follows the last part on the wire; nothing where the block is all.
        :raises EnvelopeError: if something is missing or does not hold; the session is over then.
        """
        if self._arriving is not None or len(self._memory) != len(self._counts):
            self._fail(_other_shape())
        try:
            if self.parts:
                self._keys.tag(b"".join(self._covered), end)
            elif len(end):
                raise _other_shape()
            frames: list[memoryview] = []
            for memory, count in zip(self._memory, self._counts, strict=True):
                frames += cut_at(memory, self.lengths[len(frames) : len(frames) + count])
            verified = self._session._accept(self._number, self.header, tuple(frames))
        except EnvelopeError as error:
            self._fail(error)
        self._memory = []  # it is the message's now
        return verified

    def drop(self) -> None:
        """Forget a message that does not arrive whole, and overwrite what no tag vouches for."""
        if self._arriving is not None:
            # No more than that: to touch memory of a frame that has not arrived is to take it.
            np.frombuffer(self._arriving, np.uint8, self._at).fill(0)
        self._memory, self._arriving = [], None

    def _next(self, size: int) -> None:
        """Count the next part, which has *size* bytes."""
        index = self._index
        if self._arriving is not None or index >= len(self.parts) or size != self.parts[index]:
            self._fail(_other_shape())
        self._index = index + 1

    def _fail(self, error: EnvelopeError) -> NoReturn:
        self.drop()
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
    return malformed("a message is not what its prelude says")

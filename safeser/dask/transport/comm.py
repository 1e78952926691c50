"""One connection of ``safeser://`` with an authenticated peer, and its one conversation.

The one rule: bytes from a socket reach Dask only through :class:`Conversation`. What ends a session
ends its connection: bytes after it need not begin where a message begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar, cast
from weakref import ref

from distributed.client import Client, _current_client
from distributed.comm.core import CommClosedError
from distributed.comm.tcp import TCP, convert_stream_closed_error
from distributed.comm.utils import OFFLOAD_THRESHOLD
from distributed.utils import offload
from tornado.iostream import IOStream, StreamClosedError

from safeser.channel import Link
from safeser.dask.client_ids import ClientIds
from safeser.dask.messages.conversation import SKIP, Conversation
from safeser.dask.messages.sending import may_be_large
from safeser.dask.sealed.value import Requests
from safeser.dask.transport.frames import ONE_READ, read_frame, read_parts, written_pieces
from safeser.dask.transport.gc_pause import gc_paused
from safeser.dask.transport.session_control import LONGEST_HEADER, SessionControl
from safeser.dask.transport.unfinished import COUNTED_FROM, Arriving, unfinished
from safeser.dask.wire.ceilings import CONTROL_BOUNDS, MessageBounds, over_bounds
from safeser.dask.wire.codec import expanded
from safeser.errors import AuthenticationError, EnvelopeError, PolicyDenied, SafeserError
from safeser.gate.format import (
    PRELUDE_SIZE,
    Buffer,
    Prelude,
    byte_count,
    longest_block,
    longest_rest,
)
from safeser.gate.handshake import ACCEPTED, REFUSED
from safeser.gate.noise import HandshakeRefused
from safeser.gate.session import Arrival, SessionClosed, Verified
from safeser.operations import Server

__all__ = ["REFUSED", "SafeserComm"]

logger = logging.getLogger("safeser.dask")

#: In place of ``ACCEPTED``: it was, and its principal holds as many connections as one may.
_FULL = b"full"

#: Messages up to this size are understood on the event loop: to parse and judge runs at a megabyte
#: a second. To authenticate, encrypt and decrypt runs at some gigabytes, and larger messages are
#: verified and decrypted there a piece at a time.
_AT_ONCE = 1 << 15

#: What a frame costs beside its bytes, in bytes that are understood: the value that it is may be
#: refused, which takes half a millisecond with its record.
_TO_UNDERSTAND = 1 << 9

#: What a frame takes beside its bytes (a view, its length, its places in lists), in bytes that are
#: counted where a message has more frames than a few.
_FRAME, _FEW_FRAMES = 256, 64

#: A message of more frames is cut into them in a thread: 100,000 take 70 milliseconds.
_MANY_FRAMES = 1 << 12

#: Elements of one batch that Dask is given at once; its handlers take 10 to 100 microseconds each.
_ELEMENTS = 500

S = TypeVar("S")

_NOTHING = memoryview(b"")


class SafeserComm(TCP):  # type: ignore[misc]  # distributed ships no types
    """One connection whose peer has proved its principal."""

    stream: IOStream | None

    #: The client whose stream from its scheduler this is.
    stream_of: ref[Client] | None = None

    #: None where there is no session.
    control: SessionControl | None = None

    def __init__(
        self,
        stream: IOStream,
        local_addr: str,
        peer_addr: str,
        deserialize: bool = True,
        *,
        link: Link,
        server: Server | None,
        deserializers: Sequence[str] | None = None,
        client_ids: ClientIds | None = None,
        taken: Requests | None = None,
        registration_refused: Callable[[SafeserError], None] | None = None,
        authority: Callable[[SafeserComm, Any], None] | None = None,
    ) -> None:
        super().__init__(stream, local_addr, peer_addr, deserialize)
        self.link = link
        link.place(self.local_address, self.peer_address)
        self._written: Any = None  # the future of the last write; done when all is written
        self._sealing = asyncio.Lock()  # one large message is sealed and written at a time
        self._unread: deque[Any] = deque()  # elements of the last batch that Dask has not read yet
        self._authority = authority
        self.conversation = Conversation(
            link,
            server=server,
            opens=deserialize,
            deserializers=deserializers,
            client_ids=client_ids,
            taken=taken,
            registration_refused=registration_refused,
        )
        self._extra = {"safeser": {"principal": link.peer, "key": link.session.peer_key.text}}
        self.control = SessionControl(self, link, initiator=server is None)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call *callback* once the open stream of this connection closes, by either end."""
        assert self.stream is not None
        # A stream has one callback, which is Dask's, and this connection may be collected first.
        note_closed = self.stream._close_callback

        def closed() -> None:
            note_closed()
            callback()

        self.stream.set_close_callback(closed)

    def handshake_info(self) -> dict[str, Any]:
        # The envelope's MAC covers frames as they are; compression would only add a bomb to check.
        info: dict[str, Any] = {**super().handshake_info(), "compression": None}
        server = self.conversation.server
        if server is not None:
            info["safeser-server"] = server.value
        return info

    async def read(self, deserializers: Sequence[str] | None = None) -> Any:
        """Return the next message that policy lets through; refusals are answered here."""
        conversation = self.conversation
        if conversation.ready is not None:
            return conversation.take_reply()
        if self._unread and self.link.over is None:
            await asyncio.sleep(0)
            return self._take_elements()
        while True:
            message = await self._next(deserializers)
            answered = conversation.answers and await self._answer()
            if isinstance(message, SafeserError):
                raise message
            if message is not SKIP and not conversation.answers_requests:
                if self.control is not None:
                    self.control.answered()
                return self._some_of(message) if conversation.reads_stream else message
            # Reading what has already arrived does not pause: a peer who sends one request after
            # the other, refused or not, would keep the event loop for itself.
            await asyncio.sleep(0)
            if message is not SKIP and not self._refuse(message):
                return message
            if await self._answer() or answered:
                await self._flush()

    async def _answer(self) -> bool:
        """Send what refusals queued for the peer; tell whether there was anything."""
        answers = self.conversation.take_answers()
        for answer in answers:
            await self._send(answer)
        return bool(answers)

    def _refuse(self, request: Any) -> bool:
        """Refuse *request* where its peer may not make it now; tell whether that was so.

        Dask calls the handler of what :meth:`read` returns without a pause.
        """
        try:
            if self._authority is not None:
                self._authority(self, request)
        except PolicyDenied as error:
            self.conversation.refuse(request, error)
            return True
        return False

    def _some_of(self, message: Any) -> Any:
        """Return *message* of a stream, or as many of its elements as may be handled at once.

        Dask handles all elements of what it reads without a pause. The others are read next.
        """
        if type(message) is not tuple or len(message) <= _ELEMENTS:
            return message
        self._unread.extend(message)
        return self._take_elements()

    def _take_elements(self) -> tuple[Any, ...]:
        count = min(len(self._unread), _ELEMENTS)
        return tuple(self._unread.popleft() for _ in range(count))

    async def _next(self, deserializers: Sequence[str] | None) -> Any:
        """Return what the conversation makes of the next message, or the error that refuses it.

        A refused message is gone with this call: the error does not refer to its frames.
        """
        with Arriving(unfinished, self.link.peer, self.abort) as arriving:
            try:
                verified = await self._receive(arriving)
                if self.control is not None and verified.header:
                    await self._take_control(self.control, verified)
                    return SKIP
                if self._takes_long(verified):
                    try:
                        return await offload(_uncollected, self._hear, verified, deserializers)
                    except asyncio.CancelledError:
                        self.abort()  # the thread goes on, and the message is lost
                        raise
                return self._hear(verified, deserializers)
            except SafeserError as error:
                if self.conversation.forgotten:
                    self.abort()
                return error.without_frames()

    async def accept(self) -> None:
        """Tell the initiator that its key was accepted."""
        await self._send([ACCEPTED])

    async def refuse_connection(self) -> None:
        """Tell the initiator, whose key is fine, that its principal holds too many connections."""
        await self._send([_FULL])

    async def hear_acceptance(self) -> bool:
        """Read the responder's first message; return whether it accepted this side.

        :raises CommClosedError: if it has no room, which Dask tries again.
        """
        with Arriving(unfinished, self.link.peer, self.abort) as arriving:
            verified = await self._receive(arriving, first=True)
        said = [bytes(frame) for frame in verified.frames]
        if said == [_FULL]:
            raise CommClosedError(
                f"{self.link.peer} keeps no more connections of {self.link.local} open"
                " (limits.max_connections in its policy, or its limit of open files)"
            )
        return said == [ACCEPTED]

    async def _flush(self) -> None:
        """Wait until the peer took what it was told.

        Replies to a peer that sends requests and never reads would fill this process's memory.
        """
        await asyncio.wait([self._written])  # if it failed, the next read says so

    def _takes_long(self, verified: Any) -> bool:
        """Tell whether to understand *verified* may take long, and belongs in a thread.

        Connections that Dask opens without *allow_offload*, a scheduler's, are no exception:
        nothing of the scheduler is touched there, only this connection's conversation.
        """
        frames = verified.frames
        size: int = _TO_UNDERSTAND * len(frames) + sum(map(len, frames))
        return size > _AT_ONCE or size + expanded(frames, self.link.policy.limits) > _AT_ONCE

    def _hear(self, verified: Any, deserializers: Sequence[str] | None) -> Any:
        """Return what the conversation makes of *verified*; actors in it are its client's.

        An actor takes for its own the current client of where it is made (distributed 2026.8.0,
        ``actor.py``), which is the latest of a process that has several: what it is asked would go
        to the cluster of another, under a key and to a worker of this peer's choice.
        """
        client = None if self.conversation.server is not None else self._client()
        if client is None:
            return self.conversation.receive(verified, deserializers)
        token = _current_client.set(client)
        try:
            return self.conversation.receive(verified, deserializers)
        finally:
            _current_client.reset(token)

    def _client(self) -> Client | None:
        """Return the client that this connection is of, where it is one's."""
        pool = getattr(self, "_pool", None)  # Dask's, of which this is, to ask through
        of = self.stream_of if pool is None else getattr(pool(), "server", None)
        server = None if of is None else of()
        return server if isinstance(server, Client) else None

    async def _receive(self, arriving: Arriving, *, first: bool = False) -> Verified:
        """Read one message; *first* is the responder's word on whether it accepted this side."""
        stream = self.stream
        if stream is None:
            self.raise_if_ended()
            raise CommClosedError("the connection is closed")
        session, data, arrival, complete = self.link.session, _NOTHING, None, None
        try:
            head = await stream.read_bytes(PRELUDE_SIZE)
            if first:
                _check_accepted(head)
            prelude, bounds = session.prelude(head), self.conversation.message_bounds()
            _check_announced(prelude, bounds)
            size = prelude.block + prelude.rest
            whole = size <= ONE_READ
            begins = size if whole else prelude.block
            if begins > ONE_READ:
                data = await read_frame(stream, begins, arriving)
            else:
                if size > COUNTED_FROM:
                    await arriving.take(begins)
                data = memoryview(bytearray(begins))
                await stream.read_into(data)
            arrival = session.arrival(prelude, data[: prelude.block])
            _check_arrival(arrival, bounds)
            if len(arrival.lengths) > _FEW_FRAMES:
                await arriving.take(_FRAME * len(arrival.lengths))
            if not whole and arrival.parts:
                complete = partial(arrival.verified, await read_parts(stream, arriving, arrival))
            else:
                complete = partial(arrival.whole, data[prelude.block :])
            arriving.complete = True
            if len(arrival.lengths) <= _MANY_FRAMES:
                return complete()
            return cast("Verified", await offload(_uncollected, complete))
        except BaseException as error:
            # What is raised refers to this frame and to those that it called; none keeps a message.
            data, complete = _NOTHING, None
            if arrival is not None:
                arrival.drop()
            if isinstance(error, (StreamClosedError, EnvelopeError)):
                error.__traceback__ = error.__context__ = None
            self._not_received(error)
            raise

    def _not_received(self, error: BaseException) -> None:
        """End this connection, since what was already read of it is unknown.

        :raises CommClosedError: where Dask knows that for *error*.
        """
        if isinstance(error, StreamClosedError):
            self.stream = None
            self._closed = True
            self.raise_if_ended()
            convert_stream_closed_error(self, error)
        if isinstance(error, SessionClosed):
            self.abort()
            raise CommClosedError(f"{self.link.peer} closed the connection") from None
        if isinstance(error, EnvelopeError) and not isinstance(error, AuthenticationError):
            self.raise_if_ended()
            if self.stream is None:  # this side closed it meanwhile
                raise self._over(error) from None
            self._give_up(error)
        self.abort()

    async def close(self) -> None:
        """Close the connection, and tell the reader of a stream that nothing was cut off.

        Requests and answers are no streams: who waits for one sees that it is missing. A last
        message that is not read yet would hide from them that the connection is closed.
        """
        stream = self.stream
        if stream is not None and not stream.closed() and self.conversation.reads_stream:
            waits = stream.writing()
            with contextlib.suppress(EnvelopeError, StreamClosedError):  # in use, or over
                stream.write(self.link.session.closing())
            if stream.writing() and not waits:
                self.abort()  # a peer that takes nothing is not waited for
        await super().close()

    async def write(
        self, msg: Any, serializers: Sequence[str] | None = None, on_error: str = "message"
    ) -> int:
        """Seal and enqueue *msg*; return the number of bytes.

        :raises PolicyDenied: if policy does not let this message leave.
        """
        del on_error  # the conversation knows what a refusal becomes: an error, a reply, a field
        self._require_open()
        conversation = self.conversation
        if self.allow_offload and OFFLOAD_THRESHOLD and may_be_large(msg):
            try:
                frames = await offload(conversation.send, msg, serializers)
            except asyncio.CancelledError:
                self.abort()  # the thread goes on, and what it encodes is lost
                raise
        else:
            frames = conversation.send(msg, serializers)
        if not frames:  # the conversation has said it already
            return 0
        if conversation.is_overfull(msg, frames):
            conversation.sent.rollback()
            middle = len(msg) // 2
            sent = await self.write(msg[:middle], serializers)
            return sent + await self.write(msg[middle:], serializers)
        tells = bool(conversation.sent.undo)
        conversation.sent.commit()
        try:
            sent = await self._send_sealed(b"", frames)
        except BaseException:
            if tells:
                self.abort()  # what is written next refers to what this would have told
            raise
        if conversation.answers_requests:
            await self._flush()
        return sent

    @property
    def ended_because(self) -> str:
        """Why the session was ended, by this side or by the peer; empty while it was not."""
        return "" if self.control is None else self.control.ended_because

    def raise_if_ended(self) -> None:
        """Raise :class:`CommClosedError` with the reason if either side ended the session."""
        if self.control is not None:
            self.control.raise_if_ended()

    async def _take_control(self, control: SessionControl, verified: Verified) -> None:
        try:
            await control.take(verified)
        except EnvelopeError as error:
            self._give_up(error)
        except asyncio.CancelledError:
            self.abort()  # a step that was taken and not answered is never answered
            raise

    def _give_up(self, error: EnvelopeError) -> NoReturn:
        """End a session of which what follows cannot be trusted to begin where a message begins.

        Dask handles a closed connection; it knows no other failure.
        """
        logger.warning("Closing the connection from %s: %s", self.link.peer, error)
        self.link.note_unauthenticated(error)
        self.link.session.end(error.message)
        self.abort()
        raise self._over(error) from None

    def is_idle(self) -> bool:
        """Tell whether this connection lies unused in one of Dask's pools."""
        of = getattr(self, "_pool", None)
        pool = None if of is None else of()
        return pool is not None and any(self in idle for idle in pool.available.values())

    async def send_control(
        self, header: bytes, frames: Sequence[bytes], *, then: Callable[[], None]
    ) -> None:
        """Send one message about the session and call *then* before anything else is sealed.

        Return when it left this process: the next step is not read from a peer that takes none.
        """
        await self._send_sealed(header, frames, then=then)
        await self._flush()

    async def _send(self, frames: Sequence[Any]) -> int:
        return await self._send_sealed(b"", frames)

    async def _send_sealed(
        self, header: bytes, frames: Sequence[Any], *, then: Callable[[], None] | None = None
    ) -> int:
        # A message is sealed and enqueued before the next one is sealed: the sequence number is the
        # order on the wire.
        size = len(header) + byte_count(frames)
        if size <= ONE_READ and not self._sealing.locked():  # nothing comes in between
            return self._send_whole(header, frames, then)
        async with self._sealing:
            if size <= ONE_READ:
                return self._send_whole(header, frames, then)
            try:
                self._require_open()
                sent = await self._write_pieces(self.link.session.sealing(header, frames))
            except BaseException as error:
                self._not_sent(error)
            if then is not None:
                then()
            return sent

    def _send_whole(
        self, header: bytes, frames: Sequence[Any], then: Callable[[], None] | None
    ) -> int:
        try:
            self._require_open()
            sent = self._enqueue(self.link.session.sealed(header, frames))
        except BaseException as error:
            self._not_sent(error)
        if then is not None:
            then()
        return sent

    def _not_sent(self, error: BaseException) -> NoReturn:
        """End this connection, since a message whose number is taken failed with *error*."""
        if isinstance(error, StreamClosedError):
            self.stream = None
            self._closed = True
            self.raise_if_ended()
            convert_stream_closed_error(self, error)
        if isinstance(error, EnvelopeError):
            if not self.link.session.ended:  # this one message is too large; nothing was sent
                raise error
            self.raise_if_ended()
            self.abort()
            raise self._over(error) from None
        # Part of it may be written: nothing can follow it.
        self.abort()
        raise error

    def _require_open(self) -> None:
        if self.stream is None or self.stream.closed():
            self.raise_if_ended()
            raise CommClosedError("the connection is closed")

    def _over(self, error: EnvelopeError) -> CommClosedError:
        return CommClosedError(f"the session with {self.link.peer} ended: {error}")

    async def _write_pieces(self, buffers: Iterator[Buffer]) -> int:
        """Write *buffers*; return how many bytes they are.

        One is encrypted while the socket takes the one before it, and no third: the ciphertext of a
        large message is never in memory whole.
        """
        total, before = 0, None
        for piece in written_pieces(buffers):
            total += self._enqueue(piece)
            if before is not None:
                await before
            before = self._written
            # A peer that is as fast as this side would keep the event loop for itself.
            await asyncio.sleep(0)
        return total

    def _enqueue(self, piece: Buffer) -> int:
        if self.stream is None:
            raise CommClosedError("the connection is closed")
        self._written = self.stream.write(piece)
        return len(piece)


def _uncollected(call: Callable[..., S], *arguments: Any) -> S:
    """Call *call*; no collection of the many objects meanwhile stops all threads."""
    with gc_paused:
        return call(*arguments)


def _check_announced(prelude: Prelude, bounds: MessageBounds) -> None:
    """Refuse a message that is larger than anything its sender may say now."""
    block = longest_block(LONGEST_HEADER, bounds.frames)
    if prelude.block > block:
        raise over_bounds("the beginning of a message", prelude.block, block)
    rest = longest_rest(bounds.whole)
    if prelude.rest > rest:
        raise over_bounds("a message", prelude.rest, rest)


def _check_arrival(arrival: Arrival, bounds: MessageBounds) -> None:
    """Refuse a message of which one of the lengths is larger than its sender may send now."""
    # Dask's messages have no header; those about the session have little else.
    if arrival.header:
        bounds = CONTROL_BOUNDS
    size, count = sum(arrival.lengths), len(arrival.lengths)
    if len(arrival.header) > LONGEST_HEADER:
        raise over_bounds("the header of a message", len(arrival.header), LONGEST_HEADER)
    if size > bounds.whole:
        raise over_bounds("a message", size, bounds.whole)
    if count > bounds.frames:
        raise over_bounds("the number of a message's frames", count, bounds.frames)
    said = max(arrival.lengths[:2], default=0)
    if said > bounds.structure:
        raise over_bounds("what a message says", said, bounds.structure)


def _check_accepted(head: bytes) -> None:
    if head == REFUSED:
        raise HandshakeRefused("the peer did not accept this side")

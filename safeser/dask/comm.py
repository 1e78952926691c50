"""The comm backend for ``safeser://``: sockets, handshake, and one conversation per connection.

The one rule: bytes from a socket reach Dask only through :class:`Conversation`, which stands behind
the one door. Whatever cannot prove who it is, is closed before Dask's own handshake begins.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import CommClosedError
from distributed.comm.tcp import (
    MAX_BUFFER_SIZE,
    TCP,
    BaseTCPBackend,
    BaseTCPConnector,
    BaseTCPListener,
    convert_stream_closed_error,
    get_stream_address,
    read_bytes_rw,
)
from distributed.comm.utils import OFFLOAD_THRESHOLD
from distributed.utils import offload
from tornado.iostream import IOStream, StreamClosedError

from safeser.channel import Channel, Link
from safeser.dask.around import confine
from safeser.dask.conflicts import guard_scheduler
from safeser.dask.conversation import SKIP, Conversation
from safeser.dask.dependents import fail_dependents
from safeser.dask.direct import guard_worker
from safeser.dask.hosts import is_same_host
from safeser.dask.interrupts import unblock
from safeser.dask.named import own_connections
from safeser.dask.registrations import ClientIds
from safeser.dask.roles import Roles, scheduler_of, served_by
from safeser.envelope import PRELUDE_SIZE, Handshake, HandshakeRefused, Sealed, Verified, runs
from safeser.errors import AuditError, AuthenticationError, ConfigError, EnvelopeError, SafeserError
from safeser.operations import Server

__all__ = ["Backend", "SafeserComm"]

logger = logging.getLogger("safeser.dask")

PREFIX = "safeser://"

#: An unauthenticated peer has this long to prove who it is; a handshake takes two round trips.
HANDSHAKE_SECONDS = 10.0

#: Unauthenticated connections that one listener keeps open; the oldest goes when one more comes,
#: so that connections which stall cannot keep honest ones out.
MAX_UNAUTHENTICATED = 256

#: The first sealed message from the responder: the initiator's key was accepted.
_ACCEPTED = b"accepted"

#: What the responder writes, in the clear, in its place: the initiator did not authenticate,
#: whatever the reason. Without it a refused key looks like a network fault, which Dask's workers
#: retry for ever. Whoever forges it achieves what cutting the connection does.
_REFUSED = b"\x93SAFESER refused".ljust(PRELUDE_SIZE, b"\0")

#: A body up to this size is read in one piece; a larger one frame by frame, so that each large
#: buffer owns its memory and arrays need no copy.
_ONE_READ = 1 << 18

_TABLE_ENTRY = 8


class SafeserComm(TCP):  # type: ignore[misc]  # distributed ships no types
    """One connection whose peer has proved who it is."""

    stream: IOStream | None

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
        registration_refused: Callable[[SafeserError], None] | None = None,
    ) -> None:
        super().__init__(stream, local_addr, peer_addr, deserialize)
        self.link = link
        self._written: Any = None  # the future of the last write; done when all is written
        self._deserializers = deserializers
        self.conversation = Conversation(
            link,
            server=server,
            opens=deserialize,
            deserializers=deserializers,
            client_ids=client_ids,
            registration_refused=registration_refused,
        )
        self._extra = {"safeser": {"principal": link.peer, "key": link.session.peer_key.text}}

    def handshake_info(self) -> dict[str, Any]:
        # The envelope's MAC covers frames as they are; compression would only add a bomb to check.
        info: dict[str, Any] = {**super().handshake_info(), "compression": None}
        server = self.conversation.server
        if server is not None:
            info["safeser-server"] = server.value
        return info

    async def read(self, deserializers: Sequence[str] | None = None) -> Any:
        """Return the next message that policy lets through; refusals are answered here."""
        instead = self.conversation.take_reply()
        if instead is not None:
            return instead
        while True:
            verified = await self._receive()
            try:
                message = await self._understand(verified, deserializers)
            except SafeserError:
                if not self.conversation.greeted:
                    self.abort()  # Dask forgets a connection whose handshake failed
                for answer in self.conversation.take_answers():
                    await self._send(answer)
                raise
            answers = self.conversation.take_answers()
            for answer in answers:
                await self._send(answer)
            if message is not SKIP and not self.conversation.answers_requests:
                return message
            # Reading what has already arrived does not pause: a peer who sends one request after
            # the other, refused or not, would keep the event loop for itself.
            await asyncio.sleep(0)
            if message is not SKIP:
                return message
            if answers:
                await self._flush()

    async def _flush(self) -> None:
        """Wait until the peer took what it was told.

        Answers to somebody who asks and never reads them would fill this process's memory.
        """
        await asyncio.wait([self._written])  # if it failed, the next read says so

    async def _understand(self, verified: Verified, deserializers: Sequence[str] | None) -> Any:
        size = sum(frame.nbytes for frame in verified.frames)
        if self.allow_offload and OFFLOAD_THRESHOLD and size > OFFLOAD_THRESHOLD:
            return await offload(self.conversation.receive, verified, deserializers)
        return self.conversation.receive(verified, deserializers)

    async def _receive(self, *, first: bool = False) -> Verified:
        """Read one message; *first* is the responder's word on whether it accepted this side."""
        stream = self.stream
        if stream is None:
            raise CommClosedError("the connection is closed")
        session = self.link.session
        try:
            head = await stream.read_bytes(PRELUDE_SIZE)
            if first:
                _check_accepted(head)
            prelude = session.prelude(head)
            start = prelude.header_length + _TABLE_ENTRY * prelude.frame_count
            if prelude.body_length <= _ONE_READ:
                data = await read_bytes_rw(stream, start + prelude.body_length)
                header, table, body = _cut(memoryview(data).cast("B"), prelude.header_length, start)
                frames = _cut_at(body, session.lengths(prelude, table))
            else:
                data = await stream.read_bytes(start)
                header, table, _ = _cut(memoryview(data), prelude.header_length, start)
                frames = []
                for lengths in runs(session.lengths(prelude, table)):
                    frames += _cut_at(await _read_frame(stream, sum(lengths)), lengths)
            return session.verify(Sealed(prelude, header, tuple(frames)))
        except StreamClosedError as error:
            self.stream = None
            self._closed = True
            convert_stream_closed_error(self, error)
            raise  # unreachable: the line above always raises
        except AuthenticationError:
            self.abort()
            raise
        except EnvelopeError as error:
            # The session is over: what follows on this connection cannot be trusted to begin
            # where a message begins. Dask handles a closed connection; it knows no other failure.
            logger.warning("Closing the connection from %s: %s", self.link.peer, error)
            self.link.note_unauthenticated(error)
            self.abort()
            raise CommClosedError(f"the session with {self.link.peer} ended: {error}") from None
        except BaseException:
            # What was already read is unknown, so this connection cannot be read again.
            self.abort()
            raise

    async def write(
        self,
        msg: Any,
        serializers: Sequence[str] | None = None,
        on_error: str = "message",
    ) -> int:
        """Seal and enqueue *msg*; return the number of bytes.

        :raises PolicyDenied: if policy does not let this message leave.
        """
        del on_error  # the conversation knows what a refusal becomes: an error, a reply, a field
        if self.stream is None:
            raise CommClosedError("the connection is closed")
        frames = await self._encode(msg, serializers)
        if not frames:  # the conversation has said it already
            return 0
        if self.conversation.is_overfull(msg, frames):
            middle = len(msg) // 2
            sent = await self.write(msg[:middle], serializers)
            return sent + await self.write(msg[middle:], serializers)
        sent = await self._send(frames)
        if self.conversation.answers_requests:
            await self._flush()
        return sent

    async def _encode(self, msg: Any, serializers: Sequence[str] | None) -> list[Any]:
        if self.allow_offload and OFFLOAD_THRESHOLD and self.conversation.may_be_large(msg):
            frames: list[Any] = await offload(self.conversation.send, msg, serializers)
            return frames
        return self.conversation.send(msg, serializers)

    async def _send(self, frames: Sequence[Any]) -> int:
        stream = self.stream
        if stream is None or stream.closed():
            raise CommClosedError("the connection is closed")
        # Sealing and enqueueing happen without an await between them: the sequence number is the
        # order on the wire.
        session = self.link.session
        try:
            buffers = session.seal(b"", frames)
        except EnvelopeError as error:
            if not session.ended:  # this one message is too large; nothing of it was sent
                raise
            self.abort()
            raise CommClosedError(f"the session with {self.link.peer} ended: {error}") from None
        total = sum(memoryview(buffer).nbytes for buffer in buffers)
        try:
            if total <= _ONE_READ:
                self._written = _forget(stream.write(b"".join(buffers)))
            else:
                for buffer in buffers:
                    if memoryview(buffer).nbytes:
                        self._written = _forget(stream.write(memoryview(buffer).cast("B")))
        except StreamClosedError as error:
            self.stream = None
            self._closed = True
            convert_stream_closed_error(self, error)
        except BaseException:
            self.abort()
            raise
        return total


def _check_accepted(head: bytes) -> None:
    if head == _REFUSED:
        raise HandshakeRefused("the peer did not accept this side")


def _forget(future: Any) -> Any:
    """Take the exception of a write that nobody awaits; the read side reports the closed stream."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


async def _read_frame(stream: IOStream, length: int) -> memoryview:
    """Read one frame into memory of its own, which an array can keep without a copy.

    Nobody vouches for *length* yet: whoever can change bytes on the way can claim a gigabyte. That
    much address space is asked for, of one frame at a time, but the system gives memory to it only
    where bytes arrive. Growing the buffer with them would copy each large frame once more.
    """
    try:
        return memoryview(await read_bytes_rw(stream, length)).cast("B")
    except MemoryError:
        raise EnvelopeError(
            "there is no memory for a frame as long as a message says", rule="envelope.limits"
        ) from None


def _cut(data: memoryview, header: int, start: int) -> tuple[memoryview, memoryview, memoryview]:
    return data[:header], data[header:start], data[start:]


def _cut_at(data: memoryview, lengths: Iterable[int]) -> list[memoryview]:
    frames, at = [], 0
    for length in lengths:
        frames.append(data[at : at + length])
        at += length
    return frames


def _way(stream: IOStream) -> dict[str, Any]:
    """Return how a link over *stream* travels, for contexts that ask for it."""
    return {"transport": "safeser", "same_host": is_same_host(stream)}


async def _shake_hands(stream: IOStream, handshake: Handshake) -> None:
    """Run *handshake* over *stream*; raise AuthenticationError or StreamClosedError."""
    if handshake.outgoing:
        _forget(stream.write(handshake.outgoing))
    while not handshake.complete:
        answer = handshake.feed(await stream.read_bytes(handshake.wanted))
        if answer:
            _forget(stream.write(answer))


async def _hear(stream: IOStream, handshake: Handshake) -> None:
    """Answer an initiator; tell it that it was refused only if it speaks safeser at all."""
    handshake.feed(await stream.read_bytes(handshake.wanted))  # the preamble
    try:
        await _shake_hands(stream, handshake)
    except AuthenticationError:
        if not stream.closed():
            _forget(stream.write(_REFUSED))
        raise


class _Connector(BaseTCPConnector):  # type: ignore[misc]
    prefix = PREFIX
    comm_class = SafeserComm
    encrypted = False

    def __init__(self, roles: Roles) -> None:
        self._roles = roles

    async def connect(
        self,
        address: str,
        deserialize: bool = True,
        *,
        safeser: Mapping[str, Any] | None = None,
        **connection_args: Any,
    ) -> SafeserComm:
        if "guarded" in connection_args:
            raise ConfigError(
                "something in a cluster without safeser leads to safeser://", rule="scheme.guarded"
            )
        self._check_encryption(address, connection_args)
        try:
            channel = self._roles.connecting(safeser or {})
            comm = await self._connect(address, channel, deserialize, safeser or {})
        except (AuditError, AuthenticationError, ConfigError) as error:
            self._roles.stop_command_line(error, connecting_to=address)
            raise
        self._roles.note_connected()
        return comm

    async def _connect(
        self, address: str, channel: Channel, deserialize: bool, given: Mapping[str, Any]
    ) -> SafeserComm:
        try:
            stream = await self._open(address)
        except StreamClosedError as error:
            convert_stream_closed_error(self, error)
            raise
        expected = self._roles.expected_at(address, given)
        handshake = channel.handshake(initiator=True, expected_peer=expected)
        try:
            try:
                await asyncio.wait_for(_shake_hands(stream, handshake), HANDSHAKE_SECONDS)
            except StreamClosedError as error:
                convert_stream_closed_error(self, error)
            comm = SafeserComm(
                stream,
                PREFIX + get_stream_address(stream),
                PREFIX + address,
                deserialize,
                link=channel.link(handshake, shared=False, **_way(stream)),
                server=None,
                deserializers=given.get("deserializers"),
                registration_refused=partial(self._roles.stop_registering, at=address),
            )
        except BaseException as error:
            stream.close()
            if isinstance(error, AuthenticationError):
                raise _not_accepted(address, channel, expected=expected) from None
            raise
        await self._confirm(comm, address, channel)
        return comm

    async def _open(self, address: str) -> IOStream:
        ip, port = parse_host_port(address)
        stream = await self.client.connect(ip, port, max_buffer_size=MAX_BUFFER_SIZE)
        if stream.closed() and stream.error:
            raise StreamClosedError(stream.error)
        return stream

    async def _confirm(self, comm: SafeserComm, address: str, channel: Channel) -> None:
        """Wait for the responder's word that it accepted this side."""
        try:
            verified = await asyncio.wait_for(comm._receive(first=True), HANDSHAKE_SECONDS)
        except AuthenticationError:
            raise _not_accepted(address, channel) from None
        except TimeoutError:
            comm.abort()
            raise
        if [bytes(frame) for frame in verified.frames] != [_ACCEPTED]:
            comm.abort()
            raise _not_accepted(address, channel)


def _not_accepted(
    address: str, channel: Channel, *, expected: str | None = None
) -> AuthenticationError:
    """Return the one error that a user sees; what led to it is opaque and would add nothing."""
    identity = channel.identity
    who = "" if expected is None else f", that it is {expected}, who is expected there"
    return AuthenticationError(
        f"{PREFIX}{address} and this process ({identity.principal}, {identity.public.text}) did not"
        " accept each other",
        fix=f"Check that it speaks safeser://{who}, and that rosters and policies of both sides"
        " list both keys.",
    )


class _Listener(BaseTCPListener):  # type: ignore[misc]
    ip: str
    prefix = PREFIX
    comm_class = SafeserComm
    encrypted = False

    def __init__(
        self,
        address: str,
        comm_handler: Callable[[Any], Any],
        deserialize: bool = True,
        *,
        roles: Roles,
        safeser: Mapping[str, Any] | None = None,
        **connection_args: Any,
    ) -> None:
        super().__init__(address, comm_handler, deserialize, **connection_args)
        if not self.ip:
            # Without a stated host Dask would bind every interface.
            self.ip = "127.0.0.1"
        self._server = served_by(comm_handler)
        owner = getattr(comm_handler, "__self__", None)
        works_for = None if self._server is Server.SCHEDULER else scheduler_of(comm_handler)
        self._channel = roles.listening(self._server, safeser or {}, scheduler=works_for)
        own_connections(comm_handler, self._server)
        if self._server is Server.NANNY:
            roles.follow_worker(comm_handler)
        if self._server is Server.WORKER:
            fail_dependents(owner)
            guard_worker(owner, self._channel)
            unblock()
        self._client_ids = ClientIds.of(owner)
        confine(owner, self._channel.policy)
        if self._server is Server.SCHEDULER:
            guard_scheduler(owner, self._channel, self._client_ids)
        self._pending: OrderedDict[IOStream, None] = OrderedDict()

    def _get_server_args(self, **connection_args: Any) -> dict[str, Any]:
        return {}

    async def _handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        peer = self.prefix + unparse_host_port(*address[:2])
        link = await self._authenticate(stream, peer)
        if link is None:
            return
        if self.tcp_server is None:  # stopped while the peer was proving itself
            stream.close()
            return
        try:
            comm = SafeserComm(
                stream,
                self.prefix + get_stream_address(stream),
                peer,
                self.deserialize,
                link=link,
                server=self._server,
                client_ids=self._client_ids,
            )
            comm.allow_offload = self.allow_offload
            await comm._send([_ACCEPTED])
            await self.on_connection(comm)
        except CommClosedError:
            logger.info("Connection from %s closed before Dask's handshake ended", peer)
            return
        except SafeserError as error:
            logger.warning("Refused %s (%s) during Dask's handshake: %s", link.peer, peer, error)
            comm.abort()
            return
        await self.comm_handler(comm)

    async def _authenticate(self, stream: IOStream, peer: str) -> Link | None:
        while len(self._pending) >= MAX_UNAUTHENTICATED:
            oldest, _ = self._pending.popitem(last=False)
            oldest.close()
        self._pending[stream] = None
        handshake = self._channel.handshake(initiator=False)
        try:
            await asyncio.wait_for(_hear(stream, handshake), HANDSHAKE_SECONDS)
            return self._channel.link(handshake, shared=False, **_way(stream))
        except (AuthenticationError, StreamClosedError, TimeoutError, struct.error) as error:
            detail = getattr(error, "detail", "") or type(error).__name__
            logger.warning("Closed %s: it did not authenticate (%s)", peer, detail)
            # Closed first: a log that cannot be written must not keep a stranger connected.
            stream.close()
            self._channel.audit.count(
                sender="unknown",
                recipient=self._channel.identity.principal,
                operation="handshake",
                rule="authentication",
                permitted=False,
            )
            return None
        finally:
            self._pending.pop(stream, None)

    def abort_handshaking_comms(self) -> None:
        for stream in list(self._pending):
            stream.close()
        super().abort_handshaking_comms()


class Backend(BaseTCPBackend):  # type: ignore[misc]
    """What ``distributed`` finds for the scheme ``safeser``."""

    def __init__(self) -> None:
        self._roles = Roles()

    def get_connector(self) -> _Connector:
        return _Connector(self._roles)

    def get_listener(
        self,
        loc: str,
        handle_comm: Callable[[Any], Any],
        deserialize: bool,
        **connection_args: Any,
    ) -> _Listener:
        try:
            return _Listener(loc, handle_comm, deserialize, roles=self._roles, **connection_args)
        except (AuditError, ConfigError) as error:
            self._roles.stop_command_line(error)
            raise

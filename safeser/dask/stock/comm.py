"""The comm backends for ``tcp://`` and ``tls://`` of a process that has a guarded client.

The one rule: they connect for a guarded client, to the scheme of its cluster, and do nothing else.
They never listen. A connection that no guarded client asked for is refused, and so is an address in
a message that leads from TLS to plain TCP, or to another scheme.

Only the reading differs from a connection on ``safeser://``. :class:`Conversation` decides which
message may come, what follows from a refusal, and what Dask's client gets.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from distributed.comm.core import CommClosedError
from distributed.comm.tcp import (
    TCP,
    TLS,
    BaseTCPBackend,
    TCPConnector,
    TLSConnector,
    convert_stream_closed_error,
)
from tornado.iostream import IOStream, StreamClosedError

from safeser.channel import Arrived, AuditSink, OpenLink, Unverified
from safeser.dask.comm_backend import HANDSHAKE_SECONDS
from safeser.dask.messages.conversation import Conversation
from safeser.dask.messages.deciding import Message, unknown_operation
from safeser.dask.messages.elements import Elements
from safeser.dask.messages.pending import pending
from safeser.dask.messages.refused import Refusals
from safeser.dask.same_host import is_same_host
from safeser.dask.stock.errors import PlainFields
from safeser.dask.stock.reader import Stock
from safeser.dask.stock.wire import GREETING, read_message
from safeser.dask.transport.comm import SafeserComm
from safeser.dask.transport.other_schemes import note_left
from safeser.dask.transport.unfinished import Arriving
from safeser.errors import ConfigError, PayloadError, SafeserError
from safeser.gate.values import UNKNOWN, Context, Kind
from safeser.operations import Operation
from safeser.policy import Policy

__all__ = ["GUARDED", "Guard", "GuardedBackend", "GuardedConversation"]

logger = logging.getLogger("safeser.dask")

#: The schemes that a guarded client can speak.
GUARDED = ("tcp", "tls")


@dataclass(frozen=True, eq=False)
class Guard:
    """The guard of one client, in the arguments of each connection that it opens.

    :param scheme: of its cluster; it speaks no other.
    :param principal: the principal of this process in *policy*.
    :param deserializers: families that it is willing to open.
    """

    scheme: str
    principal: str
    policy: Policy
    audit: AuditSink
    deserializers: tuple[str, ...]

    def link(self, address: str, *, same_host: bool | None = None) -> OpenLink:
        return OpenLink(
            local=self.principal,
            policy=self.policy,
            audit=self.audit,
            transport=self.scheme,
            address=address,
            same_host=same_host,
        )

    def note_refusal(self, error: SafeserError, address: str) -> None:
        """Record that a value from *address*, which had been let in as arrays, was refused."""
        context = Context(UNKNOWN, self.principal, Kind.DATA, transport=self.scheme)
        self.link(address).note_refusal(context, error)


#: A restart cancels futures, all at once. The scheduler's request of that name is authority, which
#: no policy grants to unknown; this is what it says to clients, and they must hear of it.
_RESTART, _CANCELS = "restart", "cancelled-keys"


class _StockElements(Elements):
    """The stream elements that a stock scheduler sends."""

    def row_of(self, element: Any) -> Operation:
        row = super().row_of(element)
        return replace(row, name=_CANCELS) if row.name == _RESTART else row


class GuardedConversation(Conversation):
    """The state of one connection to a stock scheduler or worker.

    :param deserializers: families that this side is willing to open at all.
    """

    _elements_type = _StockElements

    def __init__(self, link: OpenLink, *, deserializers: Sequence[str] | None = None) -> None:
        super().__init__(link, server=None, opens=True, deserializers=deserializers)

    def _parse(self, verified: Arrived, refusals: Refusals) -> Message:
        policy = self.link.policy
        limits = policy.limits if self.greeted else GREETING
        stock = Stock(verified.frames, limits)
        body, plainer = stock.body, PlainFields(stock)
        if self.reads_stream and not (isinstance(body, dict) and "op" not in body):
            listed = body if isinstance(body, tuple) else (body,)
            body = plainer.elements(listed)
        elif self.greeted:
            body = plainer.reply(self._asked.fields.encodings, body)
        return Message(verified, body, tuple(stock.rows), policy)

    def _plain(self, elements: Sequence[Any], *, listed: bool = False) -> list[Any]:
        return list(elements)  # written by Dask's own protocol, which the other side reads

    def note_sent(self, message: Any) -> None:
        """Record the request that Dask writes, by which the answer is read.

        :raises PolicyDenied: if no answer to it could be read.
        """
        if not self._greeting_sent:
            self._greeting_sent = True
            return
        if not isinstance(message, dict) or "op" not in message:
            return  # a batch of stream elements, or the last word of an exchange
        row = self._row_for(message)
        if row is None:
            raise unknown_operation(message["op"])
        self._request_written(row, pending(message))


class GuardedComm(SafeserComm):
    """One connection to a peer that is not authenticated."""

    close = TCP.close  # no session ends with it

    def __init__(
        self,
        stream: IOStream,
        local_addr: str,
        peer_addr: str,
        deserialize: bool = True,
        *,
        guard: Guard,
    ) -> None:
        # Not SafeserComm's, which begins with a session.
        TCP.__init__(self, stream, local_addr, peer_addr, deserialize)
        self._unread = deque()
        self.link = self._open_link = guard.link(peer_addr, same_host=is_same_host(stream))
        self.link.place(self.local_address, self.peer_address)
        self.conversation = self._talk = GuardedConversation(
            self._open_link, deserializers=guard.deserializers
        )

    async def _receive(self, arriving: Arriving, *, first: bool = False) -> Any:
        del first
        stream = self.stream
        if stream is None:
            raise CommClosedError("the connection is closed")
        try:
            return await self._read(stream, arriving)
        except (StreamClosedError, ssl.SSLError) as error:
            self.stream = None
            self._closed = True
            real = getattr(error, "real_error", error)
            if not self.conversation.greeted and isinstance(real, ConnectionResetError | None):
                # A server on safeser:// resets connections that do not begin with a handshake, too.
                place = self._peer_addr.partition("://")[2]
                raise CommClosedError(
                    f"{self._peer_addr} closed the connection without an answer; if that"
                    f" cluster runs safeser, connect to safeser://{place} with a key of your own"
                ) from None
            convert_stream_closed_error(self, error)
            raise  # unreachable: the line above always raises
        except PayloadError as error:
            # Where the next message begins is not known any more.
            logger.warning("Closing the connection to %s: %s", self._peer_addr, error)
            self.link.note_refusal(self.link.inbound(Kind.ADMIN), error)
            self.abort()
            raise CommClosedError(f"{self._peer_addr} does not speak Dask: {error}") from None
        except BaseException:
            self.abort()
            raise

    def _takes_long(self, verified: Any) -> bool:
        # What a frame becomes when it is opened, no size on the wire says.
        several = bool(self.allow_offload) and len(verified.frames) > 1
        return several or super()._takes_long(verified)

    async def _read(self, stream: IOStream, arriving: Arriving) -> Unverified:
        if self.conversation.greeted:
            frames = await read_message(stream, self.link.policy.limits, arriving)
        else:
            # Dask waits for this without a bound.
            try:
                frames = await asyncio.wait_for(
                    read_message(stream, GREETING, arriving), HANDSHAKE_SECONDS
                )
            except TimeoutError:
                self.abort()
                raise CommClosedError(f"{self._peer_addr} says nothing") from None
        return self._open_link.hear(frames)

    async def write(
        self, msg: Any, serializers: Sequence[str] | None = None, on_error: str = "message"
    ) -> int:
        """Write *msg* by Dask's own protocol: what this process sends is its user's."""
        self._talk.note_sent(msg)
        return await self._put(msg, serializers=serializers, on_error=on_error)

    async def _send(self, frames: Sequence[Any]) -> int:
        (message,) = frames
        return await self._put(message)

    async def _flush(self) -> None:
        """Wait for nothing: this side sends requests, and its last message is short."""

    async def _put(self, message: Any, **options: Any) -> int:
        written: int = await TCP.write(self, message, **options)
        return written


class GuardedTLSComm(GuardedComm):
    max_shard_size = TLS.max_shard_size


def _refuse(scheme: str, message: str, *, fix: str) -> NoReturn:
    error = ConfigError(message, rule="scheme.guarded", fix=fix)
    note_left(error, scheme)
    raise error


def _checked(scheme: str, guarded: object) -> Guard:
    """Return the guard of the client that connects by *scheme*, or refuse."""
    if not isinstance(guarded, Guard):
        _refuse(
            scheme,
            f"{scheme}:// is for guarded clients only: this process has opened one",
            fix="Use safeser.Client, or another process for a client, worker or scheduler without"
            " safeser.",
        )
    if guarded.scheme != scheme:
        _refuse(
            scheme,
            f"this client's cluster is on {guarded.scheme}://, and something in it leads to"
            f" {scheme}://",
            fix="A cluster that a guarded client talks to has one scheme.",
        )
    return guarded


class _TCPConnector(TCPConnector):  # type: ignore[misc]  # distributed ships no types
    async def connect(
        self, address: str, deserialize: bool = True, *, guarded: Any = None, **arguments: Any
    ) -> Any:
        self.comm_class = partial(GuardedComm, guard=_checked("tcp", guarded))
        return await super().connect(address, deserialize, **arguments)


class _TLSConnector(TLSConnector):  # type: ignore[misc]  # as above
    async def connect(
        self, address: str, deserialize: bool = True, *, guarded: Any = None, **arguments: Any
    ) -> Any:
        self.comm_class = partial(GuardedTLSComm, guard=_checked("tls", guarded))
        return await super().connect(address, deserialize, **arguments)


_CONNECTORS = {"tcp": _TCPConnector, "tls": _TLSConnector}


class GuardedBackend(BaseTCPBackend):  # type: ignore[misc]  # as above
    """What ``distributed`` finds for ``tcp`` or ``tls`` once a guarded client is open."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    def get_connector(self) -> Any:
        return _CONNECTORS[self._scheme]()

    def get_listener(
        self, loc: Any, handle_comm: Any, deserialize: Any, **connection_args: Any
    ) -> Any:
        _refuse(
            self._scheme,
            f"{self._scheme}:// never listens in a process that has a guarded client",
            fix="Start schedulers and workers in processes of their own.",
        )

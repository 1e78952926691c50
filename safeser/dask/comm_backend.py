"""The comm backend for ``safeser://``: listening, connecting, and authenticating peers.

The one rule: a connection whose peer proves no principal is closed before Dask's own handshake
begins, and nothing of it but the envelope's handshake is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import CommClosedError
from distributed.comm.tcp import (
    MAX_BUFFER_SIZE,
    BaseTCPBackend,
    BaseTCPConnector,
    BaseTCPListener,
    convert_stream_closed_error,
    get_stream_address,
)
from tornado.iostream import IOStream, StreamClosedError

from safeser.channel import Channel, Link
from safeser.dask import patches
from safeser.dask.clients.joblib_calls import register_backend
from safeser.dask.roles import Roles, scheduler_of, served_by
from safeser.dask.same_host import is_same_host
from safeser.dask.scheduler.request_authority import require_authority
from safeser.dask.servers import Served, register
from safeser.dask.transport.comm import REFUSED, SafeserComm
from safeser.dask.transport.connection_limits import connections
from safeser.dask.transport.connection_roles import own_connections
from safeser.dask.transport.other_schemes import note_left
from safeser.dask.worker.confinement import REPORT, prove
from safeser.dask.worker.endings import silence_closed_connections, unblock
from safeser.dask.worker.process_surface import confine
from safeser.dask.worker.task_loads import record_refused_loads
from safeser.errors import AuditError, AuthenticationError, ConfigError, SafeserError
from safeser.gate.handshake import PREAMBLE, Handshake, OtherVersion
from safeser.gate.noise import HandshakeRefused
from safeser.gate.values import UNKNOWN
from safeser.operations import Server

__all__ = ["HANDSHAKE_SECONDS", "PREFIX", "Backend"]

logger = logging.getLogger("safeser.dask")

PREFIX = "safeser://"

#: An unauthenticated peer has this long to prove its principal; a handshake takes two round trips.
HANDSHAKE_SECONDS = 10.0

#: How often, and how many seconds apart, a peer is asked again that refused this process: files
#: that are replaced together are taken within some two seconds of each other.
_AGAIN, _AGAIN_SECONDS = 4, 1.0

#: How often, and how many seconds apart, a new connection asks whether changed files were taken.
_LOOKS, _LOOK_SECONDS = 30, 0.1

#: Unauthenticated connections that one listener keeps open; the oldest goes when one more comes,
#: so that connections which stall cannot keep honest ones out.
MAX_UNAUTHENTICATED = 256


async def _settled(channel: Channel, stream: IOStream) -> None:
    """Wait until *channel* has taken a change of its files: a new key may be in it.

    Dask's processes give up where they are refused, and are started as soon as their key is listed.
    A *stream* that is closed meanwhile is not waited for: strangers can open as many as they like.
    """
    for _ in range(_LOOKS):
        if stream.closed() or channel.is_settled:
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def _shake_hands(stream: IOStream, handshake: Handshake) -> None:
    """Run *handshake* over *stream*; raise AuthenticationError or StreamClosedError."""
    if handshake.outgoing:
        stream.write(handshake.outgoing)
    while not handshake.complete:
        answer = handshake.feed(await stream.read_bytes(handshake.wanted))
        if answer:
            stream.write(answer)


async def _hear(stream: IOStream, handshake: Handshake) -> None:
    """Answer an initiator; tell it that it was refused only if it speaks safeser at all."""
    try:
        handshake.feed(await stream.read_bytes(handshake.wanted))  # the preamble
    except OtherVersion:
        if not stream.closed():
            stream.write(PREAMBLE)  # its log says which version this is
        raise
    try:
        await _shake_hands(stream, handshake)
    except AuthenticationError:
        if not stream.closed():
            stream.write(REFUSED)
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
            error = ConfigError(
                "something in a cluster without safeser leads to safeser://", rule="scheme.guarded"
            )
            note_left(error, "safeser")
            raise error
        self._check_encryption(address, connection_args)
        given = safeser or {}
        # Servers name their role; only a client may have been made before this backend.
        if given.get("role", Server.CLIENT.value) == Server.CLIENT.value:
            register_backend()
        try:
            channel = self._roles.connecting(given)
            comm = await self._connect_with_retries(address, channel, deserialize, given)
        except (AuditError, AuthenticationError, ConfigError) as error:
            self._roles.stop_command_line(error, connecting_to=address)
            raise
        self._roles.note_connected(address, comm.link.peer)
        return comm

    async def _connect_with_retries(
        self, address: str, channel: Channel, deserialize: bool, given: Mapping[str, Any]
    ) -> SafeserComm:
        """Connect, and where a peer refuses a process that others accept, try again for a while.

        A policy or roster that is being rolled out reaches one of two workers first. Dask takes a
        refusal for final: the task that needs the other's data would fail.
        """
        for _ in range(_AGAIN if self._roles.was_accepted else 0):
            try:
                return await self._connect(address, channel, deserialize, given)
            except AuthenticationError as error:
                if error.rule != "authentication":  # this process's own key
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)
        return await self._connect(address, channel, deserialize, given)

    async def _connect(
        self, address: str, channel: Channel, deserialize: bool, given: Mapping[str, Any]
    ) -> SafeserComm:
        channel.require_speaking()  # before a connection is opened that the other end would log
        try:
            stream = await self._open(address)
        except StreamClosedError as error:
            convert_stream_closed_error(self, error)
            raise
        expected = self._roles.expected_at(address, given)
        try:
            await _settled(channel, stream)
            way: dict[str, Any] = {"transport": "safeser", "same_host": is_same_host(stream)}
            handshake = channel.handshake(initiator=True, expected_peer=expected)
            try:
                await asyncio.wait_for(_shake_hands(stream, handshake), HANDSHAKE_SECONDS)
            except StreamClosedError as error:
                raise CommClosedError(
                    f"{PREFIX}{address} closed the connection during the handshake ({error}). If"
                    " it runs a release of safeser that speaks version 1 of the envelope, upgrade"
                    " that: this process speaks version 2"
                ) from None
            comm = SafeserComm(
                stream,
                PREFIX + get_stream_address(stream),
                PREFIX + address,
                deserialize,
                link=channel.link(handshake, shared=False, address=address, **way),
                server=None,
                deserializers=given.get("deserializers"),
                registration_refused=partial(self._roles.stop_registering, at=address),
            )
        except BaseException as error:
            stream.close()
            if isinstance(error, AuthenticationError) and error.rule == "authentication":
                logger.warning("%s%s is not accepted: %s", PREFIX, address, _detail(error))
                if isinstance(error, OtherVersion):  # a version is no secret
                    raise AuthenticationError(f"{PREFIX}{address}: {error.detail}") from None
                raise _not_accepted(address, channel, expected=expected) from None
            raise  # or what this process knows of its own key
        try:
            accepted = await asyncio.wait_for(comm.hear_acceptance(), HANDSHAKE_SECONDS)
        except AuthenticationError:
            raise _not_accepted(address, channel) from None
        except TimeoutError:
            comm.abort()
            raise
        if not accepted:
            comm.abort()
            raise _not_accepted(address, channel)
        return comm

    async def _open(self, address: str) -> IOStream:
        ip, port = parse_host_port(address)
        stream = await self.client.connect(ip, port, max_buffer_size=MAX_BUFFER_SIZE)
        if stream.closed() and stream.error:
            raise StreamClosedError(stream.error)
        return stream


def _not_accepted(
    address: str, channel: Channel, *, expected: str | None = None
) -> AuthenticationError:
    """Return the one error that a user sees; what led to it is opaque and would add nothing."""
    identity = channel.identity
    who = "" if expected is None else f", that it is {expected}, which is expected there"
    return AuthenticationError(
        f"{PREFIX}{address} and this process ({identity.principal}, {identity.public.text}) did not"
        " accept each other",
        fix=f"Check that it speaks safeser://{who}, that rosters and policies of both sides list"
        " both keys, and that both run the same version of safeser.",
    )


def _detail(error: Exception) -> str:
    """Return what went wrong in a handshake, for this process's own log."""
    if isinstance(error, StreamClosedError):
        return "it closed the connection, as a peer does that does not accept this side"
    if isinstance(error, TimeoutError):
        return f"it did not finish within {HANDSHAKE_SECONDS:.0f} seconds"
    return getattr(error, "detail", "") or type(error).__name__


def _leave(link: Link) -> None:
    """Count the closed connection of *link* no more; the link lives until it is collected."""
    connections.leave(link.peer)
    link.is_client = False


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
        server = comm_handler.__self__  # type: ignore[attr-defined]  # of which it is a method
        works_for = None if self._server is Server.SCHEDULER else scheduler_of(comm_handler)
        self._channel = roles.listening(self._server, safeser or {}, scheduler=works_for)
        if self._server is Server.WORKER:
            settings = roles.settings(self._server, safeser or {})
            report = prove(self._channel, settings, server.nanny)
            if report is not None:
                server.startup_information[REPORT] = lambda _: report
        known = Served(
            role=self._server,
            channel=self._channel,
            is_scheduler=partial(roles.answered, works_for),
        )
        # Before it listens: from here on the functions in Dask's place know the server.
        self._known = register(server, known)
        self._authority = partial(require_authority, self._known, server)
        patches.rebind(server)
        own_connections(server, self._server)
        confine(server, self._channel.policy)
        if self._server is Server.WORKER:
            record_refused_loads()
            unblock()
            silence_closed_connections(server)
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
        if stream.closed():
            return
        comm = SafeserComm(
            stream,
            self.prefix + get_stream_address(stream),
            peer,
            self.deserialize,
            link=link,
            server=self._server,
            client_ids=self._known.client_ids,
            taken=self._known.requests,
            authority=self._authority,
        )
        if connections.take(link.peer, self._channel.policy.limits.max_connections):
            comm.when_closed(partial(_leave, link))
            await self._serve(comm)
        else:
            await self._refuse_connection(comm)

    async def _serve(self, comm: SafeserComm) -> None:
        try:
            comm.allow_offload = self.allow_offload
            await comm.accept()
            await self.on_connection(comm)
        except CommClosedError:
            logger.info(
                "Connection from %s closed before Dask's handshake ended", comm.peer_address
            )
            return
        except SafeserError as error:
            logger.warning(
                "Refused %s (%s) during Dask's handshake: %s",
                comm.link.peer,
                comm.peer_address,
                error,
            )
            comm.abort()
            return
        await self.comm_handler(comm)

    async def _refuse_connection(self, comm: SafeserComm) -> None:
        """Tell a peer whose principal holds too many connections to come later."""
        peer = comm.link.peer
        logger.warning(
            "Closed a connection of %s (%s), which holds as many as one principal may. If they are"
            " honest, raise limits.max_connections in the policy, or this process's limit of open"
            " files (ulimit -n).",
            peer,
            comm.peer_address,
        )
        with contextlib.suppress(CommClosedError):
            await comm.refuse_connection()
        comm.abort()
        self._channel.audit.count(
            sender=peer,
            recipient=comm.link.local,
            operation="handshake",
            rule="limits.max_connections",
            permitted=False,
        )

    async def _authenticate(self, stream: IOStream, peer: str) -> Link | None:
        while len(self._pending) >= MAX_UNAUTHENTICATED:
            oldest, _ = self._pending.popitem(last=False)
            oldest.close()
        self._pending[stream] = None
        try:
            await _settled(self._channel, stream)
            way: dict[str, Any] = {"transport": "safeser", "same_host": is_same_host(stream)}
            handshake = self._channel.handshake(initiator=False)
            await asyncio.wait_for(_hear(stream, handshake), HANDSHAKE_SECONDS)
            address = peer.removeprefix(PREFIX)
            return self._channel.link(handshake, shared=False, address=address, **way)
        except (AuthenticationError, StreamClosedError, TimeoutError, struct.error) as error:
            logger.warning("Closed %s: it did not authenticate (%s)", peer, _detail(error))
            # Closed first: a log that cannot be written must not keep a stranger connected.
            stream.close()
            self._note_refused(error, address=peer.removeprefix(PREFIX))
            return None
        except BaseException:
            stream.close()  # the event loop ends while a peer is proving itself
            raise
        finally:
            self._pending.pop(stream, None)

    def _note_refused(self, error: Exception, *, address: str) -> None:
        """Record a peer whose key is not listed; count one that proves none.

        A key costs its owner nothing either: the log writes some of a flood, and counts the others.
        """
        if isinstance(error, HandshakeRefused) and error.key:
            self._channel.note_unlisted_key(error.key, address)
            return
        self._channel.audit.count(
            sender=UNKNOWN,
            recipient=self._channel.identity.principal,
            operation="handshake",
            rule="authentication",
            permitted=False,
        )

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
        self, loc: str, handle_comm: Callable[[Any], Any], deserialize: bool, **connection_args: Any
    ) -> _Listener:
        try:
            return _Listener(loc, handle_comm, deserialize, roles=self._roles, **connection_args)
        except (AuditError, ConfigError) as error:
            self._roles.stop_command_line(error)
            raise

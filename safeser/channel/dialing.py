"""The handshake over a socket that carries whole messages, in one call at each end.

The one rule: no message is taken from a peer before its key has proven who it is; a peer that is
refused learns that, and never why. Deadlines are those of the socket.

Each end sends and receives in turn, so that REQ and REP sockets do: the initiator begins, and the
responder ends with the first sealed message, by which the initiator knows that it was let in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

from safeser.channel.link import Link
from safeser.errors import AuthenticationError, EnvelopeError
from safeser.gate.handshake import ACCEPTED, REFUSED
from safeser.gate.noise import HandshakeRefused
from safeser.gate.values import UNKNOWN

if TYPE_CHECKING:
    from safeser.channel.door import Channel

__all__ = ["shaken"]

#: The most bytes of one message of the handshake: preamble and message 2.
_MOST = 428

#: Yields what is to be sent, or None for what is to be received.
_Steps = Generator[bytes | None, Any, Link]


def shaken(
    channel: Channel,
    send: Callable[[bytes], Any],
    recv: Callable[[], Any],
    *,
    initiator: bool,
    peer: str | None = None,
    address: str = "",
) -> Link | Awaitable[Link]:
    """Return the link after the handshake; an awaitable of it where *send* or *recv* gives one."""
    steps = _steps(channel, initiator=initiator, peer=peer, address=address)
    done = None
    try:
        while True:
            data = steps.send(done)
            done = recv() if data is None else send(data)
            if hasattr(done, "__await__"):
                return _shaken(steps, done, send, recv)
    except StopIteration as end:
        link: Link = end.value
        return link


async def _shaken(
    steps: _Steps, pending: Any, send: Callable[[bytes], Any], recv: Callable[[], Any]
) -> Link:
    try:
        while True:
            data = steps.send(await pending)
            pending = recv() if data is None else send(data)
    except StopIteration as end:
        link: Link = end.value
        return link


def _steps(channel: Channel, *, initiator: bool, peer: str | None, address: str) -> _Steps:
    handshake = channel.handshake(initiator=initiator, expected_peer=peer)
    if initiator:
        yield handshake.outgoing
    data, speaks = b"", initiator
    try:
        while handshake.wanted:
            if len(data) < handshake.wanted:
                data += _message((yield None), _MOST)
                continue
            part, data = data[: handshake.wanted], data[handshake.wanted :]
            answer = handshake.feed(part)
            speaks = True  # the preamble was right
            if answer:
                yield answer
        if data:
            raise HandshakeRefused("sent more than that")
        link = channel.link(handshake, shared=False, address=address)
    except AuthenticationError as error:
        if isinstance(error, HandshakeRefused) and error.key:
            channel.note_unlisted_key(error.key, address)
        else:
            own = channel.identity.principal
            channel.audit.count(UNKNOWN, own, "handshake", "authentication", False)
        if speaks and not initiator and isinstance(error, HandshakeRefused):
            yield REFUSED
        raise
    try:
        if initiator:
            _require_accepted(link, (yield None))
        else:
            yield link.session.sealed(b"", [ACCEPTED])
    except BaseException:
        link.session.end("the handshake did not end")
        raise
    channel.share(link)
    return link


def _require_accepted(link: Link, received: Any) -> None:
    data = _message(received, link.policy.limits.max_header)
    if data == REFUSED:
        raise AuthenticationError(
            f"{link.peer} refused this process",
            rule="authentication.refused",
            fix="Its log says why: look there whether the roster lists this process's key.",
        )
    first = link.verify([data])
    if (first.header, [*map(bytes, first.frames)]) != (b"", [ACCEPTED]):
        raise EnvelopeError("a peer began with another message", rule="envelope.control")


def _message(received: Any, most: int) -> bytes:
    """Return one message as bytes, of which there are some, and not too many."""
    try:
        data = memoryview(received).cast("B")
    except TypeError:  # such as the text that a peer of a WebSocket may send
        raise AuthenticationError(
            f"recv returned an object of {type(received).__name__} in the handshake, no bytes",
            fix="Have recv return one message as bytes.",
        ) from None
    if not 0 < data.nbytes <= most:
        why = "closed the connection" if not data.nbytes else "sent too much"
        raise AuthenticationError(f"the peer {why} in the handshake")
    return bytes(data)

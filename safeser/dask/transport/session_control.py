"""Control messages of a session: its end, and renewal with new keys, which are recorded.

The one rule: these messages are sealed like all others and never reach Dask. They are the ones with
a header; all of Dask's have none. A key follows another only where one peer proved both, the new
one inside a session of the old one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakMethod, ref

from distributed.comm.core import CommClosedError
from tornado.iostream import StreamClosedError

from safeser.channel import Ending, Link, Renewal, Step
from safeser.errors import AuthenticationError, EnvelopeError
from safeser.gate.handshake import Handshake
from safeser.gate.session import Verified
from safeser.gate.values import Kind

if TYPE_CHECKING:
    from safeser.dask.transport.comm import SafeserComm

__all__ = ["LONGEST_HEADER", "SessionControl"]

logger = logging.getLogger("safeser.dask")

_NOTICE, _RENEW = b"notice", b"renew"

#: Bytes of the longest header.
LONGEST_HEADER = max(map(len, (_NOTICE, _RENEW)))

#: The longest word of a notice or name of a step, bytes: that of a principal.
_WORD = 64

#: Seconds that the last message has to leave this process.
_LAST_WORD = 1.0

#: Seconds between two attempts to renew a session. Each takes both ends a millisecond.
_AGAIN = 3.0

#: The part of them within which no second attempt that the peer begins is taken: each also writes
#: to the log and the audit log. It is not all of them, since one attempt may arrive late.
_TOO_SOON = 1 / 3


class SessionControl:
    """The session of one connection: its notices and renewals.

    :param initiator: whether this side opened the connection.
    :ivar ended_because: why the session was ended, by this side or by the peer; empty while it was
        not.
    """

    def __init__(self, connection: SafeserComm, link: Link, *, initiator: bool) -> None:
        self.ended_because = ""
        # The connection has this control, and is collected as soon as Dask drops it.
        self._connection_of = ref(connection)
        self._link = link
        self._renewal = Renewal(
            initiator=initiator,
            begin=partial(link.handshake, initiator=initiator),
            receive_anew=_weakly(WeakMethod(self._receive_anew)),
        )
        self._initiator = initiator
        self._asked = False  # the peer was told to close this connection once it is idle
        self._leaves = False  # this side closes this connection once it is idle
        self._due = 0.0  # when the next attempt to renew may begin
        self._peer_due = 0.0  # likewise where the peer begins it
        self._tasks: set[asyncio.Future[None]] = set()
        assert connection.stream is not None
        loop = connection.stream.io_loop
        link.when_over(partial(_scheduled, loop, WeakMethod(self.finish)))
        link.when_stale(partial(_scheduled, loop, WeakMethod(self.renew)))

    @property
    def _connection(self) -> SafeserComm:
        connection = self._connection_of()
        assert connection is not None  # it is what calls this
        return connection

    async def take(self, verified: Verified) -> None:
        """Take a message with a header.

        :raises CommClosedError: if it ends the session.
        :raises EnvelopeError: if it is none that may come now.
        """
        if verified.header == _NOTICE:
            self._take_notice(verified)
        if verified.header != _RENEW or len(verified.frames) != 2:
            raise EnvelopeError("a message has an unknown header", rule="envelope.control")
        name, data = (bytes(frame) for frame in verified.frames)
        await self._take_step(name, data)

    # --- the end ---------------------------------------------------------------------------------

    def finish(self, ending: Ending) -> None:
        """Tell the peer in a last message that *ending* ends the session, and close.

        A peer that ignores the notice, or reads nothing, is cut off all the same.
        """
        connection = self._connection_of()
        stream = None if connection is None else connection.stream
        link, session = self._link, self._link.session
        self.ended_because = f"{link.local} ended the session with {link.peer}: {ending}"
        if stream is not None and not stream.closed() and not session.ended:
            # In the middle of another message there is no place for a notice.
            with contextlib.suppress(EnvelopeError, StreamClosedError):
                said = [ending.rule.encode("ascii"), ending.whose.encode("ascii")]
                stream.write(b"".join(session.seal(_NOTICE, said)))
        session.end(str(ending))
        if connection is not None and connection.is_idle():
            connection.abort()  # at once: Dask would ask through it, and have an error for it
        elif stream is not None and not stream.closed():
            stream.io_loop.call_later(_LAST_WORD, stream.close)

    def _take_notice(self, verified: Verified) -> NoReturn:
        """Read the peer's notice that it ends the session, and end it here.

        Only the rule and a principal of it are read: this side writes the text for the user.
        """
        said = [bytes(frame[:_WORD]).decode("ascii", "replace") for frame in verified.frames]
        ending = Ending.named(*said) if len(said) == 2 else None
        link = self._link
        why = "it gives no reason that is known here" if ending is None else str(ending)
        self.ended_because = f"{link.peer} ended the session with {link.local}: {why}"
        logger.log(link.channel.level_of_end(link.peer, why), "%s", self.ended_because)
        rule = "session.ended" if ending is None else ending.rule
        link.note_refusal(link.inbound(Kind.ADMIN), EnvelopeError(self.ended_because, rule=rule))
        link.session.end(self.ended_because)
        self._connection.abort()
        raise CommClosedError(self.ended_because)

    def raise_if_ended(self) -> None:
        """Raise what a user of the connection can understand, if either side ended the session.

        :raises CommClosedError: as Dask expects of a connection that is closed.
        """
        if self.ended_because:
            self._connection.abort()
            raise CommClosedError(self.ended_because)

    # --- another handshake -----------------------------------------------------------------------

    def renew(self) -> None:
        """Begin to renew the session; close a connection that Dask opens again when it needs one.

        To be called by the event loop, again and again, as long as the session should be renewed.
        """
        connection = self._connection_of()
        stream = None if connection is None else connection.stream
        if connection is None or stream is None or self._link.over is not None:
            return
        if self._initiator and not self._link.lasts:
            # A renewal needs both sides to read, and the one that asks reads answers alone.
            if connection.is_idle():
                connection.abort()
            self._leaves = True
            return
        now = stream.io_loop.time()
        # A peer that does not read all the time keeps what it is asked for until it does.
        if now >= self._due and (self._link.lasts or not self._asked):
            self._asked = not self._link.lasts
            self._due = now + _AGAIN
            task = asyncio.ensure_future(self._begin())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def answered(self) -> None:
        """Record that this side has its answer: a connection that it leaves may be idle by then.

        One that is asked through all the time is never idle when the files are checked.
        """
        if self._leaves and not self._link.lasts:
            stream = self._connection.stream
            if stream is not None:
                _scheduled(stream.io_loop, WeakMethod(self.renew))

    async def _begin(self) -> None:
        try:
            step = self._renewal.start()
            if step is not None:
                await self._send(step)
        except (AuthenticationError, CommClosedError) as error:
            logger.info("The session with %s is not renewed: %s", self._link.peer, error)

    async def _take_step(self, name: bytes, data: bytes) -> None:
        if name == b"ask" and self._initiator and not self._link.lasts:
            self._link.stale = self._leaves = True
            return
        if name == b"refuse" and self._renewal.under_way is not None:
            logger.warning("%s does not accept a new key yet", self._link.peer)
        too_soon = name in Renewal.FIRST and not self._may_begin()
        if too_soon and name == b"ask":
            return  # it asks again while it wants it
        try:
            step = self._renewal.decline() if too_soon else self._renewal.take(name, data)
        except AuthenticationError as error:
            logger.warning("The session with %s is not renewed: %s", self._link.peer, error)
            return
        if step is not None:
            await self._send(step)

    def _may_begin(self) -> bool:
        """Tell whether the peer may begin a renewal now, and count its next one from here."""
        stream = self._connection.stream
        now = 0.0 if stream is None else stream.io_loop.time()
        if now < self._peer_due:
            return False
        self._peer_due = now + _AGAIN * _TOO_SOON
        return True

    async def _send(self, step: Step) -> None:
        def sent() -> None:
            handshake = self._renewal.sent(step)
            if handshake is not None:
                self._link.session.send_as(handshake.session())

        await self._connection.send_control(_RENEW, [step.name, step.data], then=sent)

    def _receive_anew(self, handshake: Handshake) -> None:
        self._link.renewed(handshake)
        logger.info("The session with %s was renewed", self._link.peer)


def _weakly(method: WeakMethod[Any]) -> Callable[..., None]:
    """Return what calls *method* and does not keep its object alive."""

    def called(*arguments: Any) -> None:
        bound = method()
        if bound is not None:
            bound(*arguments)

    return called


def _scheduled(loop: Any, method: WeakMethod[Any], *arguments: Any) -> None:
    """Schedule *method* in *loop*, from any thread, if its object lives by then."""
    with contextlib.suppress(RuntimeError):  # the loop is closed, and its streams with it
        loop.add_callback(partial(_weakly(method), *arguments))

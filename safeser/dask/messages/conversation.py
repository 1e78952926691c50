"""The protocol of one connection: classify each message by state, handle it, and encode replies.

The one rule: each message is classified by the connection's own state (``states.py``) and the
table of operations, decided as a whole, and only then built. A refusal answers a request, fails a
reply, or replaces a stream element; it never ends a stream that others share.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from safeser.channel import Arrived, Link
from safeser.channel.records import READING
from safeser.dask import drift
from safeser.dask.client_ids import ClientIds
from safeser.dask.messages import sending, translate
from safeser.dask.messages.building import build
from safeser.dask.messages.deciding import (
    Message,
    Side,
    judge_operation,
    judge_reply,
    names_operation,
    operation_of,
    unknown_operation,
)
from safeser.dask.messages.elements import STREAMS, Elements
from safeser.dask.messages.fetched import Unfetched, read_fetched, takes_parts
from safeser.dask.messages.pending import (
    NO_REQUEST,
    Pending,
    answered,
    is_actor_call,
    is_uncaught,
    pending,
    require_bounded_repr,
    require_form,
    rows_of,
)
from safeser.dask.messages.refused import (
    Refusals,
    error_reply,
    failed_call,
    failed_values,
    refused,
    unless_refused,
    why_no_values,
)
from safeser.dask.messages.states import (
    GREETINGS,
    NEXT,
    SERVES,
    Meaning,
    State,
    meaning_of,
    meaning_of_malformed,
)
from safeser.dask.messages.states import STREAMS as STREAM_STATES
from safeser.dask.messages.stream_identity import StreamIdentity, check_registration
from safeser.dask.sealed.call import Sent
from safeser.dask.sealed.value import Requests
from safeser.dask.wire.ceilings import (
    GREETING_BOUNDS,
    MessageBounds,
    ceilings_of,
    incoming_bounds,
    reply_bounds,
)
from safeser.dask.wire.codec import parse, parse_batch
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.gate.values import Kind
from safeser.operations import Channel, Operation, Server, lookup
from safeser.policy import Policy

__all__ = ["SKIP", "Conversation"]

logger = logging.getLogger("safeser.dask")

#: Returned by :meth:`Conversation.receive` where nothing is left for Dask to handle.
SKIP: Any = type("Skip", (), {"__repr__": lambda self: "SKIP"})()

#: Requests whose asker confirms the reply with one more message, which is not a request.
_CONFIRMED = frozenset({"get_data", "register_nanny"})

#: States in which malformed elements are dropped and the rest of their batch is handled.
_BATCHES = frozenset({State.STREAMING, State.UNOPENED})

#: What Dask hears nothing of where it cannot be parsed.
_LEFT_OUT = frozenset({Meaning.REQUEST, Meaning.ELEMENTS})

#: States in which the peer's next message may be a request.
_REQUESTS = frozenset({State.SERVING, State.CONFIRMING})

#: The state after writing each request for a stream.
_STREAM_WRITTEN = {"client-stream": State.STARTING, "worker-stream": State.OPENING}


class Conversation:
    """The messages of one connection above the envelope, and its state.

    :param server: the role of the Dask server on this side; None where this side connected.
    :param opens: whether payloads are opened here (Dask's ``deserialize``) or relayed.
    :param deserializers: families that this side is willing to open; None for no restriction.
    :param client_ids: owners of client ids, shared by all connections of one scheduler.
    :param taken: signed requests accepted so far, on all connections of one worker or nanny.
    :param registration_refused: called with the error if the peer refuses to register this process.
    """

    _elements_type = Elements

    def __init__(
        self,
        link: Link,
        *,
        server: Server | None,
        opens: bool,
        deserializers: Sequence[str] | None = None,
        client_ids: ClientIds | None = None,
        taken: Requests | None = None,
        registration_refused: Callable[[SafeserError], None] | None = None,
    ) -> None:
        self.link = link
        self.server = server
        self._is_in(State.ASKER_GREETING if server is None else State.SERVER_GREETING)
        self._registration_refused = registration_refused
        self._taken = taken or Requests()
        self._identity = StreamIdentity(link, client_ids or ClientIds(), here=server is not None)
        self._opens = opens
        self._side: Side | None = None  # used again while the requested families are the same
        self._willing = deserializers
        self._greeting_sent = False
        self._remote: Server | None = None
        self._current: Operation | None = None  # the last request that was admitted here
        self._asked = NO_REQUEST  # the last request that this side wrote
        self._elements: Elements | None = None  # of the stream that the connection became
        self._writer: sending.ElementWriter | None = None  # of that stream
        # The bounds of elements, and the policy from which they were computed.
        self._bounds: tuple[Policy | None, MessageBounds] = (None, GREETING_BOUNDS)
        #: Messages that refusals queued for the peer.
        self.answers: list[list[Any]] = []
        self.sent = Sent()  # definitions of sealed tasks that the peer keeps
        #: What is read in place of a reply where the request was refused here; or None.
        self.ready: Any = None

    def _enter(self, state: State) -> None:
        assert state in NEXT[self.state]
        self._is_in(state)

    def _is_in(self, state: State) -> None:
        self.state = state
        #: Whether Dask's own handshake is over.
        self.greeted = state not in GREETINGS
        #: Whether the peer sends requests here; False once it has opened a stream.
        self.answers_requests = state in SERVES
        #: Whether the peer sends batches of stream elements here.
        self.reads_stream = state in STREAM_STATES

    @property
    def forgotten(self) -> bool:
        """Whether Dask keeps no state of this connection after a failed read."""
        return not self.greeted or self.state is State.UNOPENED

    def take_answers(self) -> list[list[Any]]:
        """Return and clear the messages that refusals queued for the peer."""
        answers, self.answers = self.answers, []
        return answers

    def take_reply(self) -> Any:
        """Return and clear the reply to a request that was refused here and never sent, or None."""
        ready, self.ready = self.ready, None
        return ready

    def is_overfull(self, message: Any, frames: Sequence[Any]) -> bool:
        """Tell whether *frames* of a batch may be over limits; its halves are sent then."""
        if self._writer is None or not isinstance(message, list | tuple) or len(message) < 2:
            return False
        over = sending.is_overfull(frames, self.link.policy.limits)
        return over or (len(frames) > 1 and sending.has_much_structure(message))

    # --- receiving -----------------------------------------------------------------------------

    def receive(self, verified: Arrived, deserializers: Sequence[str] | None) -> Any:
        """Turn verified frames into the message that Dask reads, or :data:`SKIP`.

        :raises SafeserError: if Dask's handshake or the reply to a request of this side is refused.
        """
        requested = deserializers if self._willing is None else self._willing
        side = self._side
        if side is None or side.requested is not requested:
            side = Side(self.link, requested, self._opens, self._taken)
            self._side = side
        refusals = Refusals(self.link, verified.sequence)
        before = READING.set((self.link, refusals))
        try:
            try:
                message = self._parse(verified, refusals)
            except SafeserError as error:
                return self._malformed(error, refusals)
            return _READERS[meaning_of(self.state, message.body)](self, side, message, refusals)
        finally:
            READING.reset(before)
            if refusals.counts:
                self.link.count_refused(refusals)

    def message_bounds(self) -> MessageBounds:
        """Return how large the peer's next message may be, before any of it is read."""
        if self._elements is not None:
            policy, bounds = self._bounds
            if policy is not self.link.policy:  # computed once for each
                policy, reads = self.link.policy, self._elements.reads
                bounds = incoming_bounds(self.link, reads, Channel.STREAM)
                self._bounds = policy, bounds
            return bounds
        if not self.greeted:
            return GREETING_BOUNDS
        if self.server is not None:
            return incoming_bounds(self.link, self.server, Channel.RPC)
        return reply_bounds(self.link.policy.limits, values=self._asked.fields.values)

    def _parse(self, verified: Arrived, refusals: Refusals) -> Message:
        """Parse a message; note a refusal for each malformed element of a batch."""
        policy, ceiling_of = self.link.policy, None
        if self.state in _REQUESTS:
            assert self.server is not None
            ceiling_of = ceilings_of(self.link, self.server, Channel.RPC)
        elif self.state in _BATCHES:
            assert self._elements is not None
            reads = self._elements.reads
            ceiling_of = ceilings_of(self.link, reads, Channel.STREAM)
            relayed = reads is not Server.SCHEDULER  # which says what its clients make it say
            at = (verified.frames, policy.limits, ceiling_of, refusals.note)
            return Message(verified, *parse_batch(*at, relayed=relayed), policy)
        return Message(verified, *parse(verified.frames, policy.limits, ceiling_of), policy)

    def _malformed(self, error: SafeserError, refusals: Refusals) -> Any:
        """Handle a message that cannot be parsed, as its meaning is."""
        refusals.note(error)
        meaning = meaning_of_malformed(self.state)
        if meaning is Meaning.REQUEST:
            self._answer(error)
        if meaning in _LEFT_OUT:
            return SKIP
        if meaning is Meaning.START:  # Dask waits for it and would hang without it
            self._enter(State.UNOPENED)
        raise error

    def _greeting(self, side: Side, message: Message, refusals: Refusals) -> Any:
        """Read Dask's own handshake: versions, as plain data."""
        del side
        self.link.admit(message.verified, self.link.inbound(Kind.ADMIN))
        match message.body:
            case {"pickle-protocol": int() as protocol, "python": tuple() as python} if (
                not message.rows and 4 <= protocol <= 99 and all(type(n) is int for n in python)
            ):
                remote = message.body.get("safeser-server")
                names = {server.value: server for server in Server}
                self._remote = names.get(remote) if isinstance(remote, str) else None
                self._enter(State.ASKING if self.server is None else State.SERVING)
                return {"compression": None, "python": python, "pickle-protocol": protocol}
        error = PayloadError("Dask's handshake is malformed", rule="payload.handshake")
        refusals.note(error)
        raise error

    # --- receiving: where this side serves -------------------------------------------------------

    def _request(self, side: Side, message: Message, refusals: Refusals) -> Any:
        body, reply = message.body, True
        try:
            name = operation_of(body)
            reply = body.get("reply", True) is not False
            assert self.server is not None
            row = lookup(self.server, Channel.RPC, name, body)
            if row is None:
                raise unknown_operation(name)
            # A peer that opens a stream expects no reply, but must hear of a refusal.
            reply = reply or row.becomes is not None
            check_registration(row, body)
            judged = judge_operation(side, row, body, message)
            self._identity.claim_client_id(row, body)
            own = answered(row, side.link.peer, built := build(judged))
        except SafeserError as error:
            refusals.note(error, body, heard=reply)
            if reply:
                self._answer(error)
            return SKIP
        if own is not None:
            self.answers.append(self._plain([own]))
            return SKIP
        self._current = row
        if row.becomes in STREAMS:
            self._begin_stream(row.becomes, body, reading=0)
            self._enter(State.STREAMING)
        else:
            self._enter(State.CONFIRMING if row.name in _CONFIRMED else State.SERVING)
        return built

    def _last_word(self, side: Side, message: Message, refusals: Refusals) -> Any:
        """Read the asker's confirmation of the last reply, which is plain data."""
        if message.rows:
            return self._request(side, message, refusals)  # refused there: it names no operation
        self._current = None
        self._enter(State.SERVING)
        self.link.admit(message.verified, self.link.inbound(Kind.ADMIN))
        return message.body

    def refuse(self, request: Mapping[str, Any], error: SafeserError) -> None:
        """Answer *request*, which was admitted but not yet served, with *error*."""
        self._current = None
        self._enter(State.SERVING)
        reply = request.get("reply", True) is not False
        Refusals(self.link).note(error, request, heard=reply)
        if reply:
            self._answer(error)

    def _answer(self, error: SafeserError) -> None:
        """Queue an error reply for the peer."""
        self.answers.append(self._plain([error_reply(error)]))

    # --- receiving: streams ----------------------------------------------------------------------

    def _begin_stream(self, stream: str, body: dict[str, Any], *, reading: int) -> None:
        """Turn the connection into a stream; *reading* is 0 for the server, 1 for the asker."""
        reads, writes = STREAMS[stream][reading], STREAMS[stream][1 - reading]
        self._writer = sending.ElementWriter(self.link, writes, self.sent)
        self._elements = self._elements_type(
            self.link,
            stream,
            reads,
            identity=self._identity,
            answers_clients=writes is Server.CLIENT,
        )
        self._bounds = None, GREETING_BOUNDS
        self.link.lasts = True
        self.link.is_client = reading == 0 and stream == "client-stream"
        self._identity.registers(stream, body)

    def _batch(self, side: Side, message: Message, refusals: Refusals) -> Any:
        """Read a batch of stream elements: each is decided alone, all before any is built."""
        assert self._elements is not None
        if self.state is State.OPENING:
            self._enter(State.STREAMING)
        elements, reports = self._elements.receive(side, message, refusals)
        if reports:
            self.answers.append(self._plain(reports, listed=True))
        return elements or SKIP

    def _start(self, side: Side, message: Message, refusals: Refusals) -> Any:
        """Read the start of a client's stream, or raise why there is none.

        Dask's client waits for this message alone, until it times out.
        """
        body = message.body
        try:
            if isinstance(body, dict) and "op" not in body:
                self._reply(side, message, refusals)  # raises the refusal that it is
                said = SKIP
            else:
                said = self._batch(side, message, refusals)
            if said is SKIP or [element["op"] for element in said] != ["stream-start"]:
                raise refusals.latest or PayloadError(
                    "the scheduler's first message is not the start of a stream",
                    rule="reply.opening",
                )
        except SafeserError:
            self._enter(State.UNOPENED)
            raise
        self._enter(State.STREAMING)
        return said

    # --- receiving: replies ----------------------------------------------------------------------

    def _reply(self, side: Side, message: Message, refusals: Refusals) -> Any:
        """Read the reply to the pending request, or raise or return what replaces a refused one."""
        if self.state is State.OPENING:
            self._enter(State.STREAMING)
        asked = self._asked
        try:
            if asked is NO_REQUEST:
                raise PayloadError(
                    "unexpected reply: no request is pending on this connection",
                    rule="reply.unasked",
                )
            reply = self._built_reply(side, message, refusals)
            require_form(asked.message, reply)
            errors: list[SafeserError] = []
            reply = translate.incoming_reply(asked.fields.encodings, reply, errors)
            for error in errors:
                refusals.note(error, heard=True)
            if self._opens and message.rows:
                require_bounded_repr(asked, reply)
        except SafeserError as error:
            refusals.note(error, heard=asked is not NO_REQUEST)
            return self._without_values(error)
        if not is_uncaught(reply):
            return reply
        if not (self._opens and asked.is_actor_call):
            return self._failed(reply)
        refusal = reply.get("exception")
        if refusal is None or isinstance(refusal, OSError):  # Dask itself handles a lost worker
            return reply
        return failed_call(refusal)

    def _failed(self, reply: dict[str, Any]) -> Any:
        """Return a *reply* that reports a failure in a form that Dask handles, or raise it."""
        asked, refusal = self._asked, reply.get("exception")
        tell = self._registration_refused if asked.name in sending.REGISTERING else None
        if tell is not None and isinstance(refusal, SafeserError):
            tell(refusal)
        if asked.name == "get_data" and not self._opens:
            failed = why_no_values(refusal, local=self.link.local)
            if failed is not None:
                self._enter(State.SILENCED)
                return failed_values(asked.message, failed)
        if self._elements is not None:
            # Dask's own handling of an error here would not tell its user about the refusal.
            raise refusal if isinstance(refusal, Exception) else PolicyDenied("refused by the peer")
        return reply if self._opens else unless_refused(reply)

    def _built_reply(self, side: Side, message: Message, refusals: Refusals) -> Any:
        """Decide, record and build a reply; a refused value of ``get_data`` fails alone."""
        values = self._asked.name == "get_data"
        if not values or (self._opens and not takes_parts()):
            return build(judge_reply(side, self._asked, message))
        reply, failed = read_fetched(side, self._asked, message, refusals)
        if failed:  # many values may share one error
            instead: dict[SafeserError, Any] = {
                error: Unfetched(error) if self._opens else refused(error, self.link.local)
                for error in set(failed.values())
            }
            reply["data"] |= {key: instead[error] for key, error in failed.items()}
        return reply

    def _without_values(self, error: SafeserError) -> Any:
        """Return the replacement of a refused reply, or raise *error*."""
        name = self._asked.name
        if self._opens and self._asked.is_actor_call:
            return failed_call(error)
        if name == "get_data" and not self._opens:
            instead = refused(error, self.link.local)
            return failed_values(self._asked.message, instead)
        if name in _CONFIRMED:
            # The peer's handler waits for a confirmation, which Dask sends only for a valid reply;
            # the handler would take the next request on this connection for it.
            self.answers.append(self._plain(["OK"]))
        raise error

    # --- sending -------------------------------------------------------------------------------

    def send(self, message: Any, serializers: Sequence[str] | None = None) -> list[Any]:
        """Turn a message that Dask writes into frames to seal; an empty list sends nothing.

        :raises PolicyDenied: if a request may not leave. In replies and on streams, the reason
            replaces a value that may not leave.
        """
        if not self._greeting_sent:
            self._greeting_sent = True
            return self._plain([message])
        listed = isinstance(message, list | tuple)
        if self._writer is not None and (listed or names_operation(message)):
            return self._writer.frames(message if listed else [message], listed=listed)
        if self.server is None:
            return self._send_request(message, serializers)
        if self._current is not None and self._current.name == "identity":
            message = drift.stated(message, self.link)
        try:
            return sending.encode_message(
                self.link, message, None, serializers=serializers, fails=True, answers=self._current
            )
        except SafeserError as error:
            if self._current is not None and self._current.name in _CONFIRMED:
                raise  # its handler writes the reply itself, and Dask answers with what that raises
            logger.warning("Not answered to %s: %s", self.link.peer, error)
            return self._plain([error_reply(error)])

    def _send_request(self, message: Any, serializers: Sequence[str] | None) -> list[Any]:
        if not names_operation(message):  # the confirmation of a reply, such as "OK"
            if self.state is State.SILENCED:
                self._enter(State.ASKING)
                return []
            return self._plain([message])
        try:
            row = self._row_for(message)
            if row is None:
                raise unknown_operation(message["op"])
            message, frames = sending.encode_request(self.link, row, message, serializers)
            self._request_written(row, pending(message))
        except SafeserError as error:
            if not self._opens or not is_actor_call(message):
                raise
            self.ready = failed_call(error)
            return []
        return frames

    def _request_written(self, row: Operation, asked: Pending) -> None:
        """Keep the request, which decides how its reply is read."""
        self._asked = asked
        if row.becomes in STREAMS:
            self._begin_stream(row.becomes, dict(asked.message), reading=1)
            self._enter(_STREAM_WRITTEN[row.becomes])
        else:
            self._enter(State.ASKING)

    def _plain(self, elements: Sequence[Any], *, listed: bool = False) -> list[Any]:
        return sending.encode_plain(elements, self.link.policy.limits, listed=listed)

    def _row_for(self, message: Mapping[str, Any]) -> Operation | None:
        """Return the row of a request; the role that the peer claims only chooses the table."""
        rows = rows_of(message)
        own = [row for row in rows if row.server is self._remote]
        return next(iter(own or rows), None)


_Reader = Callable[[Conversation, Side, Message, Refusals], Any]

#: The method that reads each kind of message.
_READERS: Mapping[Meaning, _Reader] = {
    Meaning.GREETING: Conversation._greeting,
    Meaning.REQUEST: Conversation._request,
    Meaning.LAST_WORD: Conversation._last_word,
    Meaning.REPLY: Conversation._reply,
    Meaning.START: Conversation._start,
    Meaning.ELEMENTS: Conversation._batch,
}

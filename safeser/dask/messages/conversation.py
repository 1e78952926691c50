"""What may be said next on one connection, and what becomes of what was said.

The one rule: each message is classified by the connection's own state and the table of
operations, decided as a whole, and only then built. Replies and stream elements name no operation
or one of several tables; the state says which. A refusal answers a request, fails a reply, or
replaces a stream element; it never ends a stream that others share.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from safeser.channel import Admitted, Arrived, Link
from safeser.dask import drift
from safeser.dask.client_ids import ClientIds
from safeser.dask.groups.author_statements import stated
from safeser.dask.groups.authors import require_receiver
from safeser.dask.messages import replies, sending, translate
from safeser.dask.messages.building import build
from safeser.dask.messages.deciding import (
    Judged,
    Message,
    judge_operation,
    judge_reply,
    names_operation,
    nested,
    operation_of,
    read,
    read_apart,
    unknown_operation,
)
from safeser.dask.messages.fetched import Unfetched, read_values, takes_parts
from safeser.dask.messages.pending import NO_REQUEST, is_actor_call, pending, rows_of
from safeser.dask.messages.refused import GraphFailures, element_instead
from safeser.dask.messages.stream_identity import Speaker, check_registration
from safeser.dask.sealed import requests
from safeser.dask.sealed.call import Kept, Sent
from safeser.dask.sealed.renewal import RENEWALS, Current, Statements, renewed_in
from safeser.dask.sealed.value import Requests
from safeser.dask.wire.ceilings import (
    Room,
    ceilings_of,
    greeting_room,
    incoming_room,
    reply_room,
)
from safeser.dask.wire.codec import MOST_STRANGE, slices
from safeser.dask.wire.gc_pause import no_search
from safeser.dask.wire.shapes import check_fields
from safeser.envelope import Verified
from safeser.errors import AuditError, PayloadError, PolicyDenied, SafeserError
from safeser.operations import FLOOR, Channel, Operation, Server, lookup
from safeser.policy import Policy
from safeser.policy.rules import WEAKEST
from safeser.values import Context, Kind

__all__ = ["SKIP", "Conversation"]

logger = logging.getLogger("safeser.dask")

#: Returned by :meth:`Conversation.receive` where nothing is left for Dask to handle.
SKIP: Any = type("Skip", (), {"__repr__": lambda self: "SKIP"})()

#: Which table the elements of a stream belong to: (what the responder reads, what it writes).
_STREAMS = {
    "client-stream": (Server.SCHEDULER, Server.CLIENT),
    "worker-stream": (Server.SCHEDULER, Server.WORKER),
}

#: After these requests the asker says one word more, which is no request.
_ACKNOWLEDGED = frozenset({"get_data", "register_nanny"})

#: What a process of a cluster asks once, before it is any use.
_REGISTRATIONS = frozenset({"register-worker", "register_nanny"})

#: Rules by which a sender may not say this at all, so that no other form of it passes either.
_NOT_ITS_WORD = frozenset({"context.none", "operation.not-granted"})

#: Rules that refuse what is no element of any stream.
_STRANGE = frozenset({"operation.missing", "operation.unknown"})

#: Refusals of one message that are logged and recorded one by one; the others are counted, since a
#: message of two megabytes can hold three hundred thousand.
_NOTED = 100


#: Frames of a message from which on it is worth not to look for garbage meanwhile.
_MANY = 1000


class Conversation:
    """The state of one connection above the envelope.

    :param server: which of Dask's servers answers here; None where this side connected.
    :param opens: whether payloads are opened here (Dask's ``deserialize``) or passed on.
    :param deserializers: families that this side is willing to open at all.
    :param client_ids: whose the ids of clients are, for all connections of one scheduler.
    :param taken: signed requests that all connections of one worker or nanny have taken.
    :param registration_refused: is told why the peer takes no worker or nanny of this side's.
    :param statements: of the sealed graphs of one scheduler, for all of its connections; otherwise
        those that came over this one.
    :param renewed: is told, by any thread, of each statement that the peer renewed.
    """

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
        statements: Statements | None = None,
        renewed: Callable[[Current], None] | None = None,
    ) -> None:
        self.link = link
        self._statements = Statements() if statements is None else statements
        self._renewed = renewed
        self._registration_refused = registration_refused
        self._taken = taken or Requests()
        self._speaker = Speaker(link, client_ids or ClientIds(), here=server is not None)
        self.server = server
        self._opens = opens
        self._willing = deserializers
        self._greeted = False
        self._greeting_sent = False
        self._remote: Server | None = None
        self._current: Operation | None = None  # the last request that was admitted here
        self._asked = NO_REQUEST  # the last request that this side wrote
        self._stream = ""  # state of the connection, as the table names it
        # How stream elements without payloads were admitted, by their rows, under which policy.
        self._repeated: dict[str, Admitted] = {}
        self._repeated_under: Policy | None = None
        # The room for elements, under the policy for which it was found.
        self._room: tuple[Policy | None, Room] = (None, greeting_room())
        self._opening = False  # this side asked for a stream and has not heard of it yet
        self._reads: Server | None = None  # table of incoming stream elements
        self._writes: Server | None = None  # table of outgoing stream elements
        self._answers: list[list[Any]] = []
        self._unopened = False  # the stream that this side asked for came to nothing
        self._refusals = 0  # in the message that is being received
        self._latest: SafeserError | None = None  # of these
        self._strange = 0  # elements of it that no row of the table describes
        self._graph_failures = GraphFailures()  # likewise
        self.sent = Sent()  # definitions of sealed tasks that the peer keeps
        self._kept = Kept()  # those that this side keeps
        self._ready: Any = None  # what is read in place of a reply, where nothing was asked
        #: What stands in a reply to get_data for values that the peer may not read.
        self.withheld: Mapping[Any, Any] = {}
        self._said = False  # the last word of the exchange need not be said any more

    @property
    def greeted(self) -> bool:
        """Whether Dask's own handshake is over."""
        return self._greeted

    @property
    def forgotten(self) -> bool:
        """Whether Dask keeps nothing of this connection once a read of it fails."""
        return not self._greeted or self._unopened

    def inbound_context(self) -> Context:
        return self.link.inbound(Kind.ADMIN)

    def take_answers(self) -> list[list[Any]]:
        """Return, once, the frames that refusals put in line for the peer."""
        answers, self._answers = self._answers, []
        return answers

    def take_reply(self) -> Any:
        """Return, once, what stands in place of a reply to what was not even sent; else None."""
        ready, self._ready = self._ready, None
        return ready

    @property
    def answers_requests(self) -> bool:
        """Whether the peer asks here and waits for replies, as long as it opened no stream."""
        return self.server is not None and self._writes is None

    @property
    def reads_stream(self) -> bool:
        """Whether the peer sends batches of stream elements here."""
        return self._reads is not None

    def is_overfull(self, message: Any, frames: Sequence[Any]) -> bool:
        """Tell whether *frames* of a batch might hold more than the peer's limits for one message.

        Then its halves have to be sent one after the other.
        """
        if self._writes is None or not isinstance(message, list | tuple) or len(message) < 2:
            return False
        return sending.is_overfull(frames, self.link.policy.limits)

    # --- receiving -----------------------------------------------------------------------------

    def receive(self, verified: Arrived, deserializers: Sequence[str] | None) -> Any:
        """Turn verified frames into what Dask reads, or :data:`SKIP`.

        :raises SafeserError: only where this side asked and the answer is refused.
        """
        if len(verified.frames) < _MANY:
            return self._received(verified, deserializers)
        with no_search:
            return self._received(verified, deserializers)

    def room(self) -> Room:
        """Return how large the peer's next message may be, before any of it was read."""
        if not self._greeted:
            return greeting_room()
        if self._reads is not None:
            return self._stream_room(self._reads)
        if self.server is not None:
            return incoming_room(self.link, self.server, Channel.RPC)
        return reply_room(self.link, self._asked.rows)

    def _stream_room(self, reads: Server) -> Room:
        """Return the room for a batch of elements; it is asked for with each, and changes with the
        policy alone."""
        policy, room = self._room
        if policy is not self.link.policy:
            policy, room = self.link.policy, incoming_room(self.link, reads, Channel.STREAM)
            self._room = policy, room
        return room

    def _received(self, verified: Arrived, deserializers: Sequence[str] | None) -> Any:
        willing = deserializers if self._willing is None else self._willing
        self._refusals, self._latest = 0, None
        try:
            parsed = self._parse(verified)
        except SafeserError as error:
            return self._malformed(error, verified, willing)
        if not self._greeted:
            return self._greeting(parsed)
        opening, self._opening = self._opening, False
        if opening and self._stream == "client-stream":
            return self._opened(parsed, willing)
        if self._reads is not None and not (opening and _is_reply(parsed.body)):
            return self._elements(parsed, willing)
        if self.server is not None:
            return self._request(parsed, willing)
        return self._reply(parsed, willing)

    def _parse(self, verified: Arrived) -> Message:
        assert isinstance(verified, Verified)
        limits = self.link.policy.limits
        if self._reads is not None:
            if not self._opening and _has_large(verified.frames):
                return self._parse_apart(verified)
        elif self.server is not None and self._greeted:
            return read(verified, limits, ceilings_of(self.link, self.server, Channel.RPC))
        return read(verified, limits)

    def _parse_apart(self, verified: Arrived) -> Message:
        """Parse a batch element by element, and note why some of them are left out."""
        assert isinstance(verified, Verified)
        assert self._reads is not None
        ceiling_of = ceilings_of(self.link, self._reads, Channel.STREAM)
        parsed, errors = read_apart(verified, self.link.policy.limits, ceiling_of)
        for error in errors:
            self._note(error)
        return parsed

    def _malformed(
        self, error: SafeserError, verified: Arrived, willing: Sequence[str] | None
    ) -> Any:
        # What opens a stream is waited for: without it nothing would ever come.
        if self._reads is not None and not self._opening:
            return self._what_is_left(error, verified, willing)
        self._note(error)
        if self.server is None:
            self._unopened = self._opening
            raise error
        self._answer(error)
        return SKIP

    def _what_is_left(
        self, error: SafeserError, verified: Arrived, willing: Sequence[str] | None
    ) -> Any:
        """The elements of a malformed batch that are not at fault."""
        refusals = self._refusals
        try:
            parsed = self._parse_apart(verified)
        except SafeserError:
            self._note(error)
            return SKIP
        if self._refusals == refusals:  # what is wrong is in none of them
            self._note(error)
        return self._elements(parsed, willing)

    def _greeting(self, parsed: Message) -> Any:
        """Dask's own handshake: versions, as plain data."""
        try:
            return self._greeted_by(parsed)
        except PayloadError as error:
            self._note(error)
            raise

    def _greeted_by(self, parsed: Message) -> Any:
        self.link.admit(parsed.verified, self.inbound_context())
        match parsed.body:
            case {"pickle-protocol": int() as protocol, "python": tuple() as python} if (
                not parsed.rows and 4 <= protocol <= 99 and all(type(n) is int for n in python)
            ):
                remote = parsed.body.get("safeser-server")
                names = {server.value: server for server in Server}
                self._remote = names.get(remote) if isinstance(remote, str) else None
                self._greeted = True
                return {"compression": None, "python": python, "pickle-protocol": protocol}
        raise PayloadError("Dask's handshake is malformed", rule="payload.handshake")

    def _request(self, parsed: Message, willing: Sequence[str] | None) -> Any:
        body = parsed.body
        acknowledged = self._current is not None and self._current.name in _ACKNOWLEDGED
        if acknowledged and not parsed.rows and not (isinstance(body, dict) and "op" in body):
            self._current = None
            self.link.admit(parsed.verified, self.inbound_context())
            return body
        reply = True
        try:
            name = operation_of(body)
            reply = body.get("reply", True) is not False
            assert self.server is not None
            row = lookup(self.server, Channel.RPC, name, body)
            if row is None:
                raise unknown_operation(name)
            # A stream's opener waits for the stream, not for a reply, but must hear of a refusal.
            reply = reply or row.becomes is not None
            check_registration(row, body)
            judged = self._decide(row, body, parsed, willing)
            self._speaker.claim_client_id(row, body)
            message = build(judged, opens=self._opens)
        except SafeserError as error:
            self._note(error, body)
            if reply:
                self._answer(error)
            return SKIP
        self._current = row
        self._begin_stream(row, body, reading=0)
        return message

    def refuse(self, request: Mapping[str, Any], error: SafeserError) -> None:
        """Answer *request*, which was admitted, with *error* before anything has served it."""
        self._current = None
        self._note(error, request)
        if request.get("reply", True) is not False:
            self._answer(error)

    def _begin_stream(self, row: Operation, body: dict[str, Any], *, reading: int) -> None:
        """Note that the connection becomes a stream; *reading* is 0 for the responder."""
        if row.becomes not in _STREAMS:
            return
        tables = _STREAMS[row.becomes]
        self._reads, self._writes = tables[reading], tables[1 - reading]
        self._room = None, greeting_room()
        self._stream = row.becomes
        self.link.lasts = True
        self.link.is_client = reading == 0 and row.becomes == "client-stream"
        self._speaker.registers(row.becomes, body)

    def _opened(self, parsed: Message, willing: Sequence[str] | None) -> Any:
        """What a client is told first, or raise why not: Dask's client waits for nothing else, and
        for that until its time is out.
        """
        self._unopened = True
        if _is_reply(parsed.body):
            self._reply(parsed, willing)  # raises the refusal that it is
            said = SKIP
        else:
            said = self._elements(parsed, willing)
        if said is SKIP or [element["op"] for element in said] != ["stream-start"]:
            raise self._latest or PayloadError(
                "a scheduler began with something else than the start of a stream",
                rule="reply.opening",
            )
        self._unopened = False
        return said

    def _reply(self, parsed: Message, willing: Sequence[str] | None) -> Any:
        """What a peer answers to what this side asked."""
        asked = self._asked
        try:
            if asked is NO_REQUEST:
                raise PayloadError("this replies to nothing that was asked", rule="reply.unasked")
            reply = self._built_reply(parsed, willing)
            replies.require_form(asked.message, reply)
            reply = translate.incoming_reply(asked.fields.encodings, reply, note=self._note)
            if self._opens and parsed.rows:
                replies.require_bounded_repr(asked, reply)
        except SafeserError as error:
            self._note(error)
            return self._without_values(error)
        if self._opens and asked.is_actor_call:
            return self._called(reply)
        if not _is_uncaught(reply):
            return reply
        refusal = reply.get("exception")
        tell = self._registration_refused if asked.name in _REGISTRATIONS else None
        if tell is not None and isinstance(refusal, SafeserError):
            tell(refusal)
        if asked.name == "get_data" and not self._opens:
            failed = replies.why_no_values(refusal, local=self.link.local)
            if failed is not None:
                self._said = True  # the peer waits for no word after an error
                return replies.failed_values(asked.message, failed)
        if self._stream:
            # Dask looks for a refusal here in no way that its user would understand.
            raise refusal if isinstance(refusal, Exception) else PolicyDenied("refused by the peer")
        return reply

    def _called(self, reply: Any) -> Any:
        """Return what an actor answered in a form that Dask's actor reads; see ``failed_call``."""
        if _is_uncaught(reply):
            refusal = reply.get("exception")
            if isinstance(refusal, OSError):
                # A worker that nobody reaches any more is Dask's to name, or to look for elsewhere.
                return reply
            reply = replies.failed_call(refusal)
        if replies.answers_call(reply):
            return reply
        error = PayloadError(
            "an actor's answer says neither what came of the call nor why it failed",
            rule="reply.call",
        )
        self._note(error)
        return replies.failed_call(error)

    def _built_reply(self, parsed: Message, willing: Sequence[str] | None) -> Any:
        """Decide, record and build a reply; of several values one that is refused fails alone."""
        values = self._asked.name == "get_data"
        if not values or (self._opens and not takes_parts()):
            judged = judge_reply(self.link, self._asked, parsed, willing, opens=self._opens)
            if values:
                replies.require_values(parsed.body)
            return build(judged, opens=self._opens)
        replies.require_values(parsed.body)
        reply, failed = read_values(
            self.link, self._asked, parsed, willing, opens=self._opens, note=self._note
        )
        if failed:
            reply["data"] |= self._instead_of_values(failed)
        return reply

    def _instead_of_values(self, failed: Mapping[Any, SafeserError]) -> dict[Any, Any]:
        """Return what stands for each value that failed; many may share one error."""
        errors = {id(error): error for error in failed.values()}
        instead: dict[int, Any] = {
            number: Unfetched(error) if self._opens else replies.refused(error, self.link.local)
            for number, error in errors.items()
        }
        return {key: instead[id(error)] for key, error in failed.items()}

    def _without_values(self, error: SafeserError) -> Any:
        """Return what stands in place of a refused reply, or raise *error*."""
        name = self._asked.name
        if self._opens and self._asked.is_actor_call:
            return replies.failed_call(error)
        if name == "get_data" and not self._opens:
            instead = replies.refused(error, self.link.local)
            return replies.failed_values(self._asked.message, instead)
        if name in _ACKNOWLEDGED:
            # The peer's handler waits for a word that Dask says only when it understood the reply;
            # it would take the next request on this connection for it.
            self._answers.append(self._plain(["OK"]))
        raise error

    def _elements(self, parsed: Message, willing: Sequence[str] | None) -> Any:
        """A batch of stream elements: each is decided by itself, all before any is built."""
        if self._reads is Server.WORKER:
            parsed = parsed.with_calls(self._kept, self.link.policy.limits)
        body = parsed.body
        elements = body if isinstance(body, tuple) else (body,)
        kept: list[Any] = []
        decided: list[tuple[Any, Judged | None]] = []
        try:
            with self.link.recorded_together():
                decided += self._judged(elements, parsed, willing)
        except AuditError as error:
            # What is not recorded is not loaded; what was refused anyway stays refused.
            decided = [
                (each if judged is None else self._instead(each, error), None)
                for each, judged in decided
            ]
        for element, judged in decided:
            if judged is None:
                kept.append(element)
                continue
            try:
                if element["op"] in RENEWALS:
                    self._renew(element)
                    continue
                message = build(judged, opens=self._opens)
                assert self._reads is not None
                name = element["op"]
                takes_code = partial(self._takes_code, name, willing)
                note = partial(self._note, about=element)
                kept.append(
                    translate.incoming_element(
                        self._reads, name, message, takes_code=takes_code, note=note
                    )
                )
            except SafeserError as error:
                kept.append(self._instead(element, error))
        failures = self._graph_failures.elements()
        if failures:
            self._answers.append(self._plain(failures, listed=True))
        left = tuple(element for element in kept if element is not None)
        return left or SKIP

    def _judged(
        self, elements: Sequence[Any], parsed: Message, willing: Sequence[str] | None
    ) -> Iterator[tuple[Any, Judged | None]]:
        """Decide each of *elements*; the rest is left out where many are no elements at all."""
        self._strange = 0
        for each in elements:
            if self._strange == MOST_STRANGE:
                logger.warning("The rest of this message from %s is left out", self.link.peer)
                return
            yield self._judge(each, parsed, willing)

    def _judge(
        self, element: Any, parsed: Message, willing: Sequence[str] | None
    ) -> tuple[Any, Judged | None]:
        """Decide one element; a refused one comes back as what stands in its place, or None."""
        try:
            row = self._row_of_element(element)
        except SafeserError as error:
            # Nothing stands in for what its sender may not even begin to say.
            self._strange += error.rule in _STRANGE
            self._note(error, element)
            return None, None
        policy = self.link.policy
        try:
            judged = self._again(row, element, parsed, policy)
            if judged is None:
                judged = self._decide(row, element, parsed, willing)
                self._repeat(row, judged, policy)
        except SafeserError as error:
            return self._instead(element, error), None
        return element, judged

    def _again(
        self, row: Operation, element: dict[str, Any], parsed: Message, policy: Policy
    ) -> Judged | None:
        """Decide *element* as the one before it with the same row, if nothing else can come of it.

        Most elements of a stream are of few rows and carry no payloads: what is left to ask of
        those is whether their fields have the shapes that their handler takes.
        """
        if parsed.rows or policy is not self._repeated_under:
            return None
        admitted = self._repeated.get(row.name)
        if admitted is None:
            return None
        check_fields(row, element, payloads=False)
        if not self.link.admit_again(parsed.verified, admitted, policy):
            return None
        return Judged(self.link, admitted.context, element, admitted)

    def _repeat(self, row: Operation, judged: Judged, policy: Policy) -> None:
        """Keep how *judged* was admitted, if that was under *policy* and asks for no authority."""
        if not (row.plain and judged.admitted.is_plain) or row.name in RENEWALS:
            return
        if policy is not self._repeated_under:
            self._repeated, self._repeated_under = {}, policy
        if policy is self.link.policy:  # it has not been replaced meanwhile
            self._repeated[row.name] = judged.admitted

    def _decide(
        self, row: Operation, body: Any, parsed: Message, willing: Sequence[str] | None
    ) -> Judged:
        return judge_operation(
            self.link,
            row,
            body,
            parsed,
            willing,
            opens=self._opens,
            taken=self._taken,
            statements=self._statements,
        )

    def _renew(self, element: Mapping[str, Any]) -> None:
        """Take the statement in *element*, which was judged; Dask has no handler for it."""
        current = self._statements.renew(renewed_in(element["statement"]))
        if current is not None and self._renewed is not None:
            self._renewed(current)

    def _takes_code(self, operation: str, willing: Sequence[str] | None) -> bool:
        """Tell whether the peer may hand code to this side, which is willing to run it."""
        if willing is not None and "cloudpickle" not in willing:
            return False
        context = self.link.inbound(Kind.DATA, operation)
        return self.link.policy.decide(context, "cloudpickle").permitted

    def _row_of_element(self, element: Any) -> Operation:
        name = operation_of(element)
        assert self._reads is not None
        row = lookup(self._reads, Channel.STREAM, name, element)
        if row is None or self._stream not in row.streams:
            raise unknown_operation(name)
        self._speaker.check(self._stream, element)
        return row

    def _note(self, error: SafeserError, about: Any = None) -> None:
        """Log and record *error*, with the operation that the request or element *about* names."""
        about = about or {"op": error.operation}
        error.without_frames()
        self._refusals, self._latest = self._refusals + 1, error
        if self._refusals > _NOTED:
            if not error.recorded:
                self.link.count_refusal(self._named(about), error)
            return
        logger.warning("Refused from %s: %s", self.link.peer, error)
        if self._refusals == _NOTED:
            logger.warning("Further refusals of this message from %s are counted", self.link.peer)
        if not error.recorded:
            self.link.note_refusal(self._named(about), error)

    def _named(self, message: Any) -> Context:
        """Return the context of *message*, refused before it was judged; a peer's inventions are
        no operations."""
        if isinstance(message, tuple) and len(message) == 1:
            [message] = message
        name = message.get("op") if isinstance(message, dict) else None
        kind = WEAKEST.get(name) if isinstance(name, str) else None
        return self.inbound_context() if kind is None else self.link.inbound(kind, name)

    def _answer(self, error: SafeserError) -> None:
        """Put an error reply in line for the peer."""
        self._answers.append(self._plain([replies.error_reply(error)]))

    def _instead(self, element: dict[str, Any], error: SafeserError) -> dict[str, Any] | None:
        """Return what Dask handles in place of a refused element, or None to leave it out."""
        self._note(error, element)
        if element["op"] == "update-graph" and self._writes is Server.CLIENT:
            self._graph_failures.add(element.get("keys"), error)
            return None
        if self._reads is Server.SCHEDULER and error.rule in _NOT_ITS_WORD:
            return None
        return element_instead(self._row_of_element(element), element, error, local=self.link.local)

    # --- sending -------------------------------------------------------------------------------

    def send(self, message: Any, serializers: Sequence[str] | None = None) -> list[Any]:
        """Turn what Dask writes into frames to seal; none where nothing is to be said.

        :raises PolicyDenied: if a request may not leave. In replies and on streams a value that
            may not leave is replaced by the reason.
        """
        if not self._greeting_sent:
            self._greeting_sent = True
            return self._plain([message])
        listed = isinstance(message, list | tuple)
        if self._writes is not None and (listed or names_operation(message)):
            elements = message if listed else [message]
            return sending.encode_elements(
                self.link, self._writes, elements, self.sent, listed=listed
            )
        if self.server is None:
            return self._send_request(message, serializers)
        if self._current is not None and self._current.name == "identity":
            message = drift.stated(message, self.link)
        elif self.withheld:
            message, self.withheld = replies.with_withheld(message, self.withheld), {}
        try:
            return sending.encode_message(
                self.link,
                message,
                None,
                serializers=serializers,
                fails=True,
                answers=self._current,
            )
        except SafeserError as error:
            if self._current is not None and self._current.name in _ACKNOWLEDGED:
                raise  # its handler writes by itself: Dask answers with what it raises
            logger.warning("Not answered to %s: %s", self.link.peer, error)
            return self._plain([replies.error_reply(error)])

    def _send_request(self, message: Any, serializers: Sequence[str] | None) -> list[Any]:
        if not names_operation(message):  # the last word of an exchange, such as "OK"
            if self._said:
                self._said = False
                return []
            return self._plain([message])
        try:
            frames = self._request_frames(message, serializers)
        except SafeserError as error:
            if not self._opens or not is_actor_call(message):
                raise
            self._ready = replies.failed_call(error)
            return []
        self._opening = bool(self._stream)
        return frames

    def _request_frames(
        self, message: dict[str, Any], serializers: Sequence[str] | None
    ) -> list[Any]:
        row = self._row_for(message)
        if row is None:
            raise unknown_operation(message["op"])
        self.link.permit_operation(self.link.outbound(row.kind, row.name))
        rows = [("", row)]
        for path, _, known in nested(row, message):
            rows.append((path, known[0]))
            for inner in known:
                self.link.permit_operation(self.link.outbound(inner.kind, inner.name))
        require_receiver(self.link, message)
        message = requests.signed(self.link, stated(message), rows)
        frames = sending.encode_message(
            self.link, message, row, serializers=serializers, fails=False
        )
        self._asked = pending(message)
        self._begin_stream(row, message, reading=1)
        return frames

    def _plain(self, elements: Sequence[Any], *, listed: bool = False) -> list[Any]:
        return sending.encode_plain(elements, self.link.policy.limits, listed=listed)

    def _row_for(self, message: Mapping[str, Any]) -> Operation | None:
        """Return the row of a request; the peer's word about its role only picks the table."""
        rows = rows_of(message)
        own = [row for row in rows if row.server is self._remote]
        return next(iter(own or rows), None)


def _has_large(frames: Sequence[Any]) -> bool:
    """Tell whether a batch has an element that is larger than every operation may be."""
    if not frames or len(frames[0]) <= FLOOR:
        return False
    return any(len(element) > FLOOR for element in slices(frames[0]))


def _is_reply(body: Any) -> bool:
    """Tell the reply to a registration from the first element of the stream that it opens."""
    return isinstance(body, dict) and "op" not in body


def _is_uncaught(reply: Any) -> bool:
    """Tell whether *reply* says that its server failed; a payload in that field says nothing."""
    status = reply.get("status") if isinstance(reply, dict) else None
    return type(status) is str and status == "uncaught-error"

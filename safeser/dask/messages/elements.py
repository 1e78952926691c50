"""Receive the stream elements of a peer: decide each alone, and all of a batch before building any.

The one rule: a refused element is replaced by one that its handler accepts, or left out; it never
ends a stream that others share.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from safeser.channel import Admitted, Link, PendingRecords
from safeser.dask.messages import translate
from safeser.dask.messages.building import build
from safeser.dask.messages.deciding import (
    Judged,
    Message,
    Side,
    judge_operation,
    operation_of,
    unknown_operation,
)
from safeser.dask.messages.refused import Refusals, element_instead
from safeser.dask.messages.stream_identity import StreamIdentity
from safeser.dask.sealed.call import Kept
from safeser.dask.wire.codec import MOST_STRANGE, rest_refused
from safeser.dask.wire.shapes import check_fields
from safeser.errors import AuditError, SafeserError
from safeser.gate.values import Kind
from safeser.operations import Channel, Operation, Server, is_alone, lookup
from safeser.policy import Policy

__all__ = ["STREAMS", "Elements"]

#: The tables of a stream's elements: (those that the server reads, those that it writes).
STREAMS = {
    "client-stream": (Server.SCHEDULER, Server.CLIENT),
    "worker-stream": (Server.SCHEDULER, Server.WORKER),
}

#: Rules that refuse the operation itself, so that no replacement of the element may pass either.
_NOT_PERMITTED = frozenset({"context.ended", "context.none", "operation.not-granted"})

#: Rules that refuse something that is not an element of any stream.
_STRANGE = frozenset({"operation.missing", "operation.unknown"})


class _Known(NamedTuple):
    """The decision on a plain element, which holds for others of its name.

    :param row: of the table, the only one of that name.
    """

    row: Operation
    admitted: Admitted


#: An element that may pass and its row, to be built where its decision is one of its own; or what
#: replaces a refused one, if anything, and no row.
_Decided = tuple[Any, Operation | None, Judged | None]


class Elements:
    """The incoming half of one stream.

    :param stream: the state of the connection, as the table of operations names it.
    :param reads: the role of the server or client whose table describes the elements.
    :param answers_clients: whether the peer is a client, to which refused graphs are reported.
    """

    def __init__(
        self,
        link: Link,
        stream: str,
        reads: Server,
        *,
        identity: StreamIdentity,
        answers_clients: bool,
    ) -> None:
        self.link = link
        self.stream = stream
        self.reads = reads
        self.identity = identity
        self.answers_clients = answers_clients
        self._kept = Kept()  # definitions of sealed tasks that this side keeps
        # Decisions on elements without payloads, by their name, and the policy of all of them.
        self.known: dict[str, _Known] = {}
        self._under: Policy | None = None

    def receive(
        self, side: Side, message: Message, refusals: Refusals
    ) -> tuple[tuple[Any, ...], list[dict[str, Any]]]:
        """Decide each element, record all of them, and build those that are permitted.

        :return: elements for Dask to handle, in order, and elements to send, which report refused
            graphs to the peer.
        """
        if message.rows and self.reads is Server.WORKER:
            message = message.with_calls(self._kept, self.link.policy.limits)
        elif message.rows and self.reads is Server.SCHEDULER:
            message = message.within_structure()
        decided: list[_Decided] = []
        try:
            with self.link.recorded_together() as records:
                self._decide(side, message, refusals, records, decided)
        except AuditError as error:
            # What was to be recorded is not loaded; refused ones stay refused.
            for at, (element, row, _) in enumerate(decided):
                if row is not None:
                    decided[at] = self._refused(row, element, error, refusals), None, None
        made = []
        for element, row, judged in decided:
            one = element
            if row is not None:
                one = self._built(side, row, element, judged, refusals)
            if one is not None:
                made.append(one)
        return tuple(made), refusals.failed_graphs()

    def _decide(
        self,
        side: Side,
        message: Message,
        refusals: Refusals,
        records: PendingRecords,
        decided: list[_Decided],
    ) -> None:
        """Decide each element; refuse the rest after too many that are none at all.

        Most elements are of few rows and carry no payloads: of those, the decision is looked up,
        and only who they name and the shapes of their fields remain to be checked.
        """
        elements = message.body if isinstance(message.body, tuple) else (message.body,)
        known, again, strange = self.holding(message), dict[str, int](), 0
        for each in elements:
            if strange == MOST_STRANGE:
                refusals.note(rest_refused())
                break
            try:
                # No name but a text, since keys may be equal that are not the same.
                said = each["op"] if each.__class__ is dict and "op" in each else None
                name = said if type(said) is str else ""
                found = known.get(name)
                if found is None:
                    row = self.row_of(each)
                else:
                    row = found.row
                    self.identity.check(self.stream, each)
            except SafeserError as error:
                # It names no row of the table, so there is nothing to replace it by.
                strange += error.rule in _STRANGE
                refusals.note(error, each)
                continue
            judged = None
            try:
                if found is None:
                    judged = judge_operation(side, row, each, message, records)
                    self.keep(row, judged, message.policy)
                else:
                    check_fields(row, each, payloads=False)
                    again[name] = again.get(name, 0) + 1
                decided.append((each, row, judged))
            except SafeserError as error:
                decided.append((self._refused(row, each, error, refusals), None, None))
        for name, times in again.items():
            self.link.count_again(known[name].admitted, times)

    def _built(
        self,
        side: Side,
        row: Operation,
        element: Any,
        judged: Judged | None,
        refusals: Refusals,
    ) -> Any:
        """Return the element for Dask to handle, or None if there is none."""
        refused: list[SafeserError] = []
        try:
            message = element
            if judged is not None:
                message = build(judged)
            takes_code = partial(self._takes_code, side)
            message = translate.incoming_element(
                self.reads, element["op"], message, refused, takes_code=takes_code
            )
        except SafeserError as error:
            return self._refused(row, element, error, refusals)
        for refusal in refused:
            refusals.note(refusal, element)
        return message

    def _takes_code(self, side: Side, operation: str) -> bool:
        """Tell whether the peer may send code to this side, and this side is willing to load it."""
        if side.requested is not None and "cloudpickle" not in side.requested:
            return False
        context = self.link.inbound(Kind.DATA, operation)
        return self.link.policy.decide(context, "cloudpickle").permitted

    def _refused(
        self, row: Operation, element: dict[str, Any], error: SafeserError, refusals: Refusals
    ) -> dict[str, Any] | None:
        """Note the refusal of *element*, and return its replacement, if it has one."""
        error.without_frames()  # what is told of it says nothing of this process's own code
        if self.answers_clients and element["op"] == "update-graph":
            refusals.note_graph(element, error)
            return None
        ended = self.link.over is not None
        if self.reads is Server.SCHEDULER and (ended or error.rule in _NOT_PERMITTED):
            refusals.note(error, element)
            return None
        instead = element_instead(row, element, refusals.told(error), refusals)
        # A type that is left out is no error that its reader would hear of.
        fails = instead is not None and not instead.keys().isdisjoint(("exception", "run_spec"))
        refusals.note(error, element, heard=fails)
        return instead

    def holding(self, message: Message) -> Mapping[str, _Known]:
        """Return the decisions that hold for the elements of *message*."""
        if message.rows or self._under is None:
            return {}
        return self.known if self.link.holds_again(message.verified, self._under) else {}

    def keep(self, row: Operation, judged: Judged, policy: Policy) -> None:
        """Keep the admission of *judged* if it was under *policy* and needs no authority."""
        if not (row.plain and judged.admitted.is_plain and is_alone(row)):
            return
        if policy is not self._under:
            self.known, self._under = {}, policy
        if policy is self.link.policy:  # not replaced since the decision
            self.known[row.wire] = _Known(row, judged.admitted)

    def row_of(self, element: Any) -> Operation:
        """Return the row of the table that describes *element*.

        :raises SafeserError: if there is none, or the element names another client or worker.
        """
        name = operation_of(element)
        row = lookup(self.reads, Channel.STREAM, name, element)
        if row is None or self.stream not in row.streams:
            raise unknown_operation(name)
        self.identity.check(self.stream, element)
        return row

"""Receive the stream elements of a peer: decide each alone, and all of a batch before building any.

The one rule: a refused element is replaced by one that its handler accepts, or left out; it never
ends a stream that others share.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from safeser.channel import Admitted, Link
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
from safeser.dask.messages.refused import GraphFailures, Refusals, element_instead
from safeser.dask.messages.stream_identity import StreamIdentity
from safeser.dask.sealed.call import Kept
from safeser.dask.sealed.renewal import RENEWALS, Current, renewed_in
from safeser.dask.wire.codec import MOST_STRANGE
from safeser.dask.wire.shapes import check_fields
from safeser.errors import AuditError, SafeserError
from safeser.gate.values import Kind
from safeser.operations import Channel, Operation, Server, is_alone, lookup
from safeser.policy import Policy

__all__ = ["STREAMS", "Batch", "Elements"]

logger = logging.getLogger("safeser.dask")

#: The tables of a stream's elements: (those that the server reads, those that it writes).
STREAMS = {
    "client-stream": (Server.SCHEDULER, Server.CLIENT),
    "worker-stream": (Server.SCHEDULER, Server.WORKER),
}

#: Rules that refuse the operation itself, so that no replacement of the element may pass either.
_NOT_PERMITTED = frozenset({"context.none", "operation.not-granted"})

#: Rules that refuse something that is not an element of any stream.
_STRANGE = frozenset({"operation.missing", "operation.unknown"})


class Batch(NamedTuple):
    """The result of one batch.

    :param elements: for Dask to handle, in order.
    :param reports: elements to send, which report refused graphs to the peer.
    """

    elements: tuple[Any, ...]
    reports: list[dict[str, Any]]


class _Decided(NamedTuple):
    """One element, decided.

    :param judged: None for a refused element.
    :param instead: the element that replaces a refused one, or None to leave it out.
    """

    element: Any
    judged: Judged | None
    instead: dict[str, Any] | None = None


class _Repeated(NamedTuple):
    """The decision on a plain element that holds for others of its name.

    :param row: of the table, the only one of that name.
    """

    row: Operation
    admitted: Admitted


def _present(made: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([each for each in made if each is not None])


class Elements:
    """The incoming half of one stream.

    :param stream: the state of the connection, as the table of operations names it.
    :param reads: the role of the server or client whose table describes the elements.
    :param answers_clients: whether the peer is a client, to which refused graphs are reported.
    :param renewed: called, from any thread, with each statement that the peer renewed.
    """

    def __init__(
        self,
        link: Link,
        stream: str,
        reads: Server,
        *,
        identity: StreamIdentity,
        answers_clients: bool,
        renewed: Callable[[Current], None] | None,
    ) -> None:
        self.link = link
        self.stream = stream
        self.reads = reads
        self._identity = identity
        self._answers_clients = answers_clients
        self._renewed = renewed
        self._kept = Kept()  # definitions of sealed tasks that this side keeps
        # The last admission of elements without payloads, by their name, and its policy.
        self._repeated: dict[str, _Repeated] = {}
        self._repeated_under: Policy | None = None

    def receive(self, side: Side, message: Message, refusals: Refusals) -> Batch:
        """Decide each element, record all of them, and build those that are permitted.

        A message whose elements all repeat admitted ones is counted instead of decided.
        """
        body, takes_code = message.body, partial(self._takes_code, side)
        elements: Sequence[Any] = body if isinstance(body, tuple) else (body,)
        if not message.rows:
            try:
                repeated = self._count_repeated(message, elements)
            except AuditError as error:  # not all of them are counted
                made = [self._refused(each, error, refusals, None).instead for each in elements]
                return Batch(_present(made), [])
            if repeated:
                made = [self._translated(e, e, takes_code, refusals, None) for e in elements]
                return Batch(_present(made), [])
        if self.reads is Server.WORKER:
            message = message.with_calls(self._kept, self.link.policy.limits)
        elif self.reads is Server.SCHEDULER:
            message = message.within_structure()
        graphs = GraphFailures() if self._answers_clients else None
        decided: list[_Decided] = []
        try:
            with self.link.recorded_together() as records:
                recording = side._replace(records=records)
                self._decide(
                    decided, recording, elements, message, refusals=refusals, graphs=graphs
                )
        except AuditError as error:
            # Elements that are not recorded are not loaded; refused ones stay refused.
            decided = [self._unrecorded(each, error, refusals, graphs) for each in decided]
        made = [self._built(side, each, takes_code, refusals, graphs) for each in decided]
        return Batch(_present(made), [] if graphs is None else graphs.elements())

    def _count_repeated(self, message: Message, elements: Sequence[Any]) -> bool:
        """Count *elements* if each repeats one that was admitted under the policy in force.

        Most elements of a stream are of few rows and carry no payloads: of those, only who they
        name and the shapes of their fields remain to be checked. Others are decided each by itself,
        and so is all of a message with a single one of those.

        :return: whether they are counted.
        :raises AuditError: if one cannot be counted.
        """
        link, policy, repeated = self.link, self._repeated_under, self._repeated
        if policy is None or not link.holds_again(message.verified, policy):
            return False
        passed: dict[str, int] = {}
        try:
            for each in elements:
                name = each["op"] if each.__class__ is dict and "op" in each else None
                if name.__class__ is not str or name not in repeated:
                    return False
                self._identity.check(self.stream, each)
                check_fields(repeated[name].row, each, payloads=False)
                passed[name] = passed.get(name, 0) + 1
        except SafeserError:
            return False
        for name, times in passed.items():
            link.count_again(repeated[name].admitted, times)
        return True

    def _decide(
        self,
        decided: list[_Decided],
        side: Side,
        elements: Sequence[Any],
        message: Message,
        *,
        refusals: Refusals,
        graphs: GraphFailures | None,
    ) -> None:
        """Add each of *elements* to *decided*; drop the rest after too many that are none at all.

        Those that were decided before one that cannot be recorded are refused as well.
        """
        policy = self.link.policy
        strange = 0
        for each in elements:
            if strange == MOST_STRANGE:
                logger.warning("The rest of this message from %s is left out", self.link.peer)
                break
            try:
                row = self.row_of(each)
            except SafeserError as error:
                # It names no row of the table, so there is nothing to replace it by.
                strange += error.rule in _STRANGE
                refusals.note(error, each)
                continue
            try:
                judged = judge_operation(side, row, each, message)
                self._keep_decision(row, judged, policy)
                decided.append(_Decided(each, judged))
            except SafeserError as error:
                decided.append(self._refused(each, error, refusals, graphs))

    def _keep_decision(self, row: Operation, judged: Judged, policy: Policy) -> None:
        """Keep the admission of *judged* if it was under *policy* and needs no authority."""
        if not (row.plain and judged.admitted.is_plain and is_alone(row)) or row.name in RENEWALS:
            return
        if policy is not self._repeated_under:
            self._repeated, self._repeated_under = {}, policy
        if policy is self.link.policy:  # not replaced since the decision
            self._repeated[row.wire] = _Repeated(row, judged.admitted)

    def row_of(self, element: Any) -> Operation:
        """Return the row of the table that describes *element*.

        :raises SafeserError: if there is none, or the element names another client or worker.
        """
        name = operation_of(element)
        row = lookup(self.reads, Channel.STREAM, name, element)
        if row is None or self.stream not in row.streams:
            raise unknown_operation(name)
        self._identity.check(self.stream, element)
        return row

    def _built(
        self,
        side: Side,
        decided: _Decided,
        takes_code: Callable[[str], bool],
        refusals: Refusals,
        graphs: GraphFailures | None,
    ) -> Any:
        """Return the element for Dask to handle, or None if there is none."""
        element, judged, instead = decided
        if judged is None:
            return instead
        try:
            if element["op"] in RENEWALS:
                self._renew(side, element)
                return None
            message = build(judged)
        except SafeserError as error:
            return self._refused(element, error, refusals, graphs).instead
        return self._translated(element, message, takes_code, refusals, graphs)

    def _translated(
        self,
        element: dict[str, Any],
        message: dict[str, Any],
        takes_code: Callable[[str], bool],
        refusals: Refusals,
        graphs: GraphFailures | None,
    ) -> Any:
        """Return *message*, which was built of *element*, as Dask handles it, or None."""
        try:
            message, refused = translate.incoming_element(
                self.reads, element["op"], message, takes_code=takes_code
            )
        except SafeserError as error:
            return self._refused(element, error, refusals, graphs).instead
        for refusal in refused:
            refusals.note(refusal, element)
        return message

    def _renew(self, side: Side, element: Mapping[str, Any]) -> None:
        """Store the renewed statement in *element*, for which Dask has no handler."""
        assert side.statements is not None
        current = side.statements.renew(renewed_in(element["statement"]))
        if current is not None and self._renewed is not None:
            self._renewed(current)

    def _takes_code(self, side: Side, operation: str) -> bool:
        """Tell whether the peer may send code to this side, and this side is willing to load it."""
        if side.requested is not None and "cloudpickle" not in side.requested:
            return False
        context = self.link.inbound(Kind.DATA, operation)
        return self.link.policy.decide(context, "cloudpickle").permitted

    def _unrecorded(
        self,
        decided: _Decided,
        error: SafeserError,
        refusals: Refusals,
        graphs: GraphFailures | None,
    ) -> _Decided:
        """Refuse what passed and could not be recorded; what was refused stays so."""
        if decided.judged is None:
            return decided
        return self._refused(decided.element, error, refusals, graphs)

    def _refused(
        self,
        element: dict[str, Any],
        error: SafeserError,
        refusals: Refusals,
        graphs: GraphFailures | None,
    ) -> _Decided:
        """Note the refusal of *element*, and return it with its replacement, if it has one."""
        if element["op"] == "update-graph" and graphs is not None:
            refusals.note(error, element, heard=True)
            graphs.add(element.get("keys"), error)
            return _Decided(element, None)
        if self.reads is Server.SCHEDULER and error.rule in _NOT_PERMITTED:
            refusals.note(error, element)
            return _Decided(element, None)
        instead = element_instead(self.row_of(element), element, error, local=self.link.local)
        # A type that is left out is no error that its reader would hear of.
        fails = instead is not None and not instead.keys().isdisjoint(("exception", "run_spec"))
        refusals.note(error, element, heard=fails)
        return _Decided(element, None, instead)

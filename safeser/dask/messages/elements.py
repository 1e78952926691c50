"""The stream elements of a peer: each is decided by itself, all of a batch before any is built.

The one rule: a refused element is replaced by what its handler can bear, or left out; it never ends
a stream that others share.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from safeser.operations import Channel, Operation, Server, lookup
from safeser.policy import Policy
from safeser.values import Kind

__all__ = ["STREAMS", "Elements", "Heard"]

logger = logging.getLogger("safeser.dask")

#: Which table the elements of a stream belong to: (what the server reads, what it writes).
STREAMS = {
    "client-stream": (Server.SCHEDULER, Server.CLIENT),
    "worker-stream": (Server.SCHEDULER, Server.WORKER),
}

#: Rules by which a sender may not say this at all, so that no other form of it passes either.
_NOT_ITS_WORD = frozenset({"context.none", "operation.not-granted"})

#: Rules that refuse what is no element of any stream.
_STRANGE = frozenset({"operation.missing", "operation.unknown"})


class Heard(NamedTuple):
    """What came of one batch.

    :param elements: for Dask to handle, in order.
    :param told: elements that tell the peer of graphs that were refused.
    """

    elements: tuple[Any, ...]
    told: list[dict[str, Any]]


class _Decided(NamedTuple):
    """One element, decided.

    :param instead: what is handled in its place if it was refused, or None to leave it out.
    """

    element: Any
    judged: Judged | None
    instead: dict[str, Any] | None = None


class Elements:
    """The incoming half of one stream.

    :param stream: the state of the connection, as the table of operations names it.
    :param reads: whose table the elements are of.
    :param answers_clients: whether the peer is a client, which is told of its refused graphs.
    :param renewed: is told, by any thread, of each statement that the peer renewed.
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
        # How elements without payloads were admitted, by their rows, under which policy.
        self._repeated: dict[str, Admitted] = {}
        self._repeated_under: Policy | None = None

    def receive(self, side: Side, message: Message, refusals: Refusals) -> Heard:
        """Decide each element, record all of them, and build what may come."""
        if self.reads is Server.WORKER:
            message = message.with_calls(self._kept, self.link.policy.limits)
        elements = message.body if isinstance(message.body, tuple) else (message.body,)
        graphs = GraphFailures()
        decided: list[_Decided] = []
        try:
            with self.link.recorded_together() as records:
                side = side._replace(records=records)
                decided += self._judged(side, elements, message, refusals, graphs)
        except AuditError as error:
            # What is not recorded is not loaded; what was refused anyway stays refused.
            decided = [
                each
                if each.judged is None
                else self._refused(each.element, error, refusals, graphs)
                for each in decided
            ]
        kept = [self._built(each, refusals, graphs) for each in decided]
        return Heard(tuple([each for each in kept if each is not None]), graphs.elements())

    def _judged(
        self,
        side: Side,
        elements: Sequence[Any],
        message: Message,
        refusals: Refusals,
        graphs: GraphFailures,
    ) -> Iterator[_Decided]:
        """Decide each of *elements*; the rest is left out where many are no elements at all."""
        strange = 0
        for each in elements:
            if strange == MOST_STRANGE:
                logger.warning("The rest of this message from %s is left out", self.link.peer)
                return
            try:
                row = self.row_of(each)
            except SafeserError as error:
                # Nothing stands in for what its sender may not even begin to say.
                strange += error.rule in _STRANGE
                refusals.note(error, each)
                continue
            try:
                judged = self._judge(side, row, each, message)
            except SafeserError as error:
                yield self._refused(each, error, refusals, graphs)
            else:
                yield _Decided(each, judged)

    def _judge(
        self, side: Side, row: Operation, element: dict[str, Any], message: Message
    ) -> Judged:
        policy = self.link.policy
        judged = self._again(side, row, element, message, policy)
        if judged is None:
            judged = judge_operation(side, row, element, message)
            self._repeat(row, judged, policy)
        return judged

    def _again(
        self,
        side: Side,
        row: Operation,
        element: dict[str, Any],
        message: Message,
        policy: Policy,
    ) -> Judged | None:
        """Decide *element* as the one before it with the same row, if nothing else can come of it.

        Most elements of a stream are of few rows and carry no payloads: what is left to ask of
        those is whether their fields have the shapes that their handler takes.
        """
        if message.rows or policy is not self._repeated_under:
            return None
        admitted = self._repeated.get(row.name)
        if admitted is None:
            return None
        check_fields(row, element, payloads=False)
        if not self.link.admit_again(message.verified, admitted, policy, side.records):
            return None
        return Judged(side, admitted.admission.context, element, admitted)

    def _repeat(self, row: Operation, judged: Judged, policy: Policy) -> None:
        """Keep how *judged* was admitted, if that was under *policy* and asks for no authority."""
        if not (row.plain and judged.admitted.is_plain) or row.name in RENEWALS:
            return
        if policy is not self._repeated_under:
            self._repeated, self._repeated_under = {}, policy
        if policy is self.link.policy:  # it has not been replaced meanwhile
            self._repeated[row.name] = judged.admitted

    def row_of(self, element: Any) -> Operation:
        """Return the row of the table that describes *element*.

        :raises SafeserError: if there is none, or the peer may not speak as the element does.
        """
        name = operation_of(element)
        row = lookup(self.reads, Channel.STREAM, name, element)
        if row is None or self.stream not in row.streams:
            raise unknown_operation(name)
        self._identity.check(self.stream, element)
        return row

    def _built(self, decided: _Decided, refusals: Refusals, graphs: GraphFailures) -> Any:
        """Return what Dask handles, or None where nothing is left to handle."""
        element, judged = decided.element, decided.judged
        if judged is None:
            return decided.instead
        try:
            if element["op"] in RENEWALS:
                self._renew(judged.side, element)
                return None
            message = build(judged)
            takes_code = partial(self._takes_code, element["op"], judged.side.willing)
            name = element["op"]
            translated = translate.incoming_element(
                self.reads, name, message, takes_code=takes_code
            )
        except SafeserError as error:
            return self._refused(element, error, refusals, graphs).instead
        for refusal in translated.refused:
            refusals.note(refusal, element)
        return translated.message

    def _renew(self, side: Side, element: Mapping[str, Any]) -> None:
        """Take the statement in *element*, which was judged; Dask has no handler for it."""
        assert side.statements is not None
        current = side.statements.renew(renewed_in(element["statement"]))
        if current is not None and self._renewed is not None:
            self._renewed(current)

    def _takes_code(self, operation: str, willing: Sequence[str] | None) -> bool:
        """Tell whether the peer may hand code to this side, which is willing to run it."""
        if willing is not None and "cloudpickle" not in willing:
            return False
        context = self.link.inbound(Kind.DATA, operation)
        return self.link.policy.decide(context, "cloudpickle").permitted

    def _refused(
        self,
        element: dict[str, Any],
        error: SafeserError,
        refusals: Refusals,
        graphs: GraphFailures,
    ) -> _Decided:
        """Return a refused element with what Dask handles in its place, if anything."""
        refusals.note(error, element)
        if element["op"] == "update-graph" and self._answers_clients:
            graphs.add(element.get("keys"), error)
            return _Decided(element, None)
        if self.reads is Server.SCHEDULER and error.rule in _NOT_ITS_WORD:
            return _Decided(element, None)
        instead = element_instead(self.row_of(element), element, error, local=self.link.local)
        return _Decided(element, None, instead)

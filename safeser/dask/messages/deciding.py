"""Decide one message and its payloads, independent of the state of its connection.

The one rule: a verified message becomes a :class:`Message`; that becomes a :class:`Judged` when
every payload in it, wrapped ones included, is decided and recorded; and only a :class:`Judged`
becomes an object (:mod:`safeser.dask.messages.building`). All of it is one pass: payloads are found
once (``wire/fields.py``), and each is read, decided and checked once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import starmap
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from safeser.channel import Admitted, Arrived, Link, PendingRecords, Permitted, Received
from safeser.dask.messages import translate
from safeser.dask.messages.pending import Pending
from safeser.dask.sealed import requests
from safeser.dask.sealed.arrival import received, require_sealed
from safeser.dask.sealed.call import Call, Kept
from safeser.dask.sealed.requests import Raw
from safeser.dask.sealed.value import Requests
from safeser.dask.wire.codec import PayloadRow
from safeser.dask.wire.fields import (
    DECLARED,
    FAILURE,
    WHOLE,
    WRAPPED,
    Plan,
    Slot,
    find,
    holds_reference,
    pickled,
    plan,
    select,
    transform,
)
from safeser.dask.wire.reader import Reference
from safeser.dask.wire.shapes import Later, check_fields, check_inner
from safeser.dask.wire.structure import MOST_STRUCTURE, too_much
from safeser.dask.wire.task_key import task_of
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.gate.refusals import legible
from safeser.gate.values import HARMLESS, Context, Kind, Limits
from safeser.operations import Channel, Encoding, Operation, Server, lookup
from safeser.policy import Policy

#: Requests that a worker serves for its scheduler alone: they set, read and free its values and
#: shards. Relayed, they would arrive as the scheduler's: a client that may scatter could read any
#: value, or store one under the key of another's task, which the worker would take for its result.
_NEVER_RELAYED = frozenset(
    {
        *("update_data", "gather", "get_data", "free_keys"),
        *("shuffle_receive", "shuffle_inputs_done"),
    }
)


class Part(NamedTuple):
    """One payload of a message that may be loaded.

    :param number: index of *row* in the payload table, by which the body refers to it.
    :param opened: whether this side opens the payload; otherwise it relays it.
    """

    permitted: Permitted
    number: int
    row: PayloadRow
    opened: bool


class Side(NamedTuple):
    """How one side of a connection decides messages, and what it does with their payloads.

    :param requested: families that this side asked for; narrows what policy permits.
    :param opens: whether payloads are opened here; otherwise all but eager ones are relayed.
    :param taken: signed requests that this server has accepted; None where functions are relayed.
    """

    link: Link
    requested: Sequence[str] | None
    opens: bool = True
    taken: Requests | None = None


class Message(NamedTuple):
    """A verified message, parsed and not yet decided: *body* holds references, not objects.

    :param policy: the policy in force when it was parsed, whose limits applied.
    :param asked: the request that it answers; empty unless it is a reply.
    """

    verified: Arrived
    body: Any
    rows: tuple[PayloadRow, ...]
    policy: Policy
    asked: Mapping[str, Any] = MappingProxyType({})

    def with_calls(self, kept: Kept, limits: Limits) -> Message:
        """Return this stream message with each sealed task read, or with the error that refuses it.

        Call it once for each message, in the order in which they arrived.
        """
        if not any(row.is_sealed for row in self.rows):
            return self
        rows = (
            replace(row, call=_call(row, kept, limits)) if row.is_sealed else row
            for row in self.rows
        )
        return self._replace(rows=tuple(rows))

    def within_structure(self) -> Message:
        """Return this stream message with an error in place of graphs beyond one message's.

        Each of them could hold as much, and those that are admitted are there together.
        """
        if not any(row.is_sealed for row in self.rows):
            return self
        rows, taken = [], 0
        for row in self.rows:
            taken += row.structure
            if row.structure and taken > MOST_STRUCTURE:
                error = too_much("the sealed graphs of one message have", MOST_STRUCTURE)
                row = replace(row, call=error)  # noqa: PLW2901 - what stands in its place
            rows.append(row)
        return self._replace(rows=tuple(rows))


def _call(row: PayloadRow, kept: Kept, limits: Limits) -> Call | SafeserError:
    try:
        return kept.call(row.frames, limits)
    except SafeserError as error:
        return error.without_frames()


class Judged(NamedTuple):
    """One request, reply or stream element, permitted with all that is in it, not yet built.

    :param parts: its payloads that may be loaded.
    :param wrapped: paths of the fields whose handler unpickles bytes.
    :param left_out: rows that are not loaded because the message is complete without them.
    :param later: fields whose shapes can be checked only after they are built.
    :param refused: payloads that were refused alone: index of the row, and the error.
    """

    side: Side
    context: Context
    body: Any
    admitted: Admitted
    parts: tuple[Part, ...] = ()
    wrapped: tuple[str, ...] = ()
    left_out: frozenset[int] = frozenset()
    later: tuple[Later, ...] = ()
    refused: tuple[tuple[int, SafeserError], ...] = ()


def judge_operation(
    side: Side,
    row: Operation,
    body: dict[str, Any],
    message: Message,
    records: PendingRecords | None = None,
) -> Judged:
    """Decide a request or stream element under its row of the table of operations.

    :param body: the request, or one element of those in *message*.
    :param records: collects the records of a batch; None where each record is written at once.
    :raises PolicyDenied: for the operation, an operation inside it, a field, or a payload.
    """
    link, payloads = side.link, bool(message.rows)
    context = link.inbound(row.kind, row.name)
    try:
        later = check_fields(row, body, payloads=payloads)
    except SafeserError:
        # A sender that may not ask for the operation at all is told only that.
        link.permit_named(context, where="op")
        raise
    require_sealed(link, context, body, message.rows)
    if row.plain:
        if not payloads:
            admitted = link.admit(message.verified, context, records=records)
            return Judged(side, context, body, admitted)
        plan = _plan(row, ())
        return _judge(side, context, body, message, records, plan=plan, later=later)
    return _judge_opened(side, row, body, message, later, records=records)


def _judge_opened(
    side: Side,
    row: Operation,
    body: dict[str, Any],
    message: Message,
    later: list[Later],
    *,
    records: PendingRecords | None,
) -> Judged:
    """Decide a message with fields that a handler unpickles or that are requests themselves."""
    link = side.link
    wrapped = tuple(p for p, encoding in row.fields.items() if encoding is Encoding.WRAPPED)
    if wrapped:
        body, message = _with_bare_pickles(wrapped, body, message)
    raw = _raw_fields(row, body)
    opened_at = [] if row.server is Server.SCHEDULER else [each.where for each in raw]
    kinds = [row.kind]
    inside: list[tuple[str, Operation]] = []
    for path, inner, known in nested(row, body):
        for one in known:
            # A relay must not carry a request that its sender may not make directly.
            link.permit_named(link.inbound(one.kind, one.name), where=f"{path}.op")
            raw += [each for each in _raw_fields(one, inner) if each not in raw]
            inside.append((path, one))
            kinds.append(one.kind)
        later += check_inner(known, path, inner, payloads=bool(message.rows))
    if raw:
        kinds.append(Kind.CONTROL)
    judged = _judge(
        side,
        link.inbound(Kind.strongest(kinds), row.name),
        body,
        message,
        records,
        plan=_plan(row, tuple(inside)),
        raw=raw,
        wrapped=wrapped,
        later=later,
        opened_at=opened_at,
    )
    # The record of a relay does not say what was asked of the policy about the request inside it.
    for context in dict.fromkeys(link.inbound(one.kind, one.name) for _, one in inside):
        link.note_plain(message.verified, context, records)
    return judged


@lru_cache(maxsize=1024)  # the table has fewer rows
def _plan(row: Operation, inside: tuple[tuple[str, Operation], ...]) -> Plan:
    """Return the plan that finds the payloads of a message of *row* and of requests *inside* it."""
    paths = [(path, role) for path, encoding in row.fields.items() for role in _ROLES[encoding]]
    paths += [
        (path, WHOLE)
        for path, encoding in row.fields.items()
        if encoding is Encoding.ERROR and path.endswith("traceback")
    ]
    paths += [
        (f"{at}.{path}", DECLARED)
        for at, one in inside
        for path, encoding in one.fields.items()
        if DECLARED in _ROLES[encoding]
    ]
    return plan(paths)


#: The roles of payloads in a field, by the encoding of the field.
_ROLES = {
    Encoding.MARKED: (DECLARED,),
    Encoding.WRAPPED: (DECLARED, WRAPPED),
    Encoding.ERROR: (FAILURE,),
    Encoding.RAW: (),
    Encoding.NESTED: (),
}


def judge_reply(
    side: Side, asked: Pending, message: Message, records: PendingRecords | None = None
) -> Judged:
    """Decide a reply, which names no operation, as the reply to the request *asked*."""
    body, fields = message.body, asked.fields
    if asked.known is not None and isinstance(body, dict) and not body.keys() <= asked.known:
        raise PayloadError(
            "the reply has a field that no reply to this request has", rule="reply.field"
        )
    raw: list[Raw] = []
    if fields.raw:
        body = requests.without_refused(side.link, body, fields.raw)
        raw = [each for path in fields.raw for each in _replied(body, path)]
    context = side.link.inbound(Kind.CONTROL if raw else Kind.DATA if message.rows else Kind.ADMIN)
    message = message._replace(asked=asked.message)
    return _judge(
        side, context, body, message, records, plan=fields.plan, raw=raw, opened_at=fields.raw
    )


def _replied(body: Any, path: str) -> Iterator[Raw]:
    """Yield the bare pickles at *path* of a reply, with the purpose that plugins are signed for."""
    bare = [each for at, value in select(body, path) for each in _bare(value, at)]
    plugins = list(requests.plugins_in(body, path))
    if not plugins:
        yield from starmap(Raw, bare)
    for where, data, purpose in plugins:
        for at, each in pickled(data, where):
            yield Raw(at, each, purpose if each is data else "")


#: The plan that finds the values in a reply to ``get_data``.
_VALUES = plan([("data", DECLARED)])


def judge_values(
    side: Side, values: Mapping[Any, Any], message: Message, records: PendingRecords
) -> Judged:
    """Decide the values of a reply to ``get_data``; its other fields are decided apart from them.

    A refused payload does not affect the others.
    """
    context, body = side.link.inbound(Kind.DATA), {"data": values}
    return _judge(side, context, body, message, records, plan=_VALUES, each=True)


def _judge(
    side: Side,
    context: Context,
    body: Any,
    message: Message,
    records: PendingRecords | None,
    *,
    plan: Plan,
    raw: Sequence[Raw] = (),
    wrapped: tuple[str, ...] = (),
    later: Sequence[Later] = (),
    opened_at: Sequence[str] = (),
    each: bool = False,
) -> Judged:
    """Find the payloads in *body*, and read, decide, check and record each; see :class:`Slot`.

    :param each: whether a refused payload is refused alone; otherwise it refuses the message.
    """
    # Every reference stands for a row: without rows there is no payload to find.
    slots = find(body, plan) if message.rows else []
    if slots and context.kind is Kind.ADMIN:
        context = side.link.inbound(Kind.DATA, context.operation)
    link = side.link
    wholes = _wholes(slots) if True in [slot.role.whole for slot in slots] else frozenset[int]()
    payloads: list[Received] = []
    places: list[tuple[int, bool]] = []  # of payloads: index of the row, and whether it is opened
    left_out: list[int] = []
    refused: list[tuple[int, SafeserError]] = []
    for slot in slots:
        where, reference, role = slot
        number, graph = reference.index, is_graph(context, where)
        # A relay that kept any other payload unopened would send it with unrelated answers: metrics
        # of one worker that no client can open, say, with each answer about the cluster.
        kept = role.declared or role.failure or context.operation is None
        opens = not graph and (side.opens or reference.eager or not kept)
        try:
            payload = _payload(side, context, body, message, slot, relayed=not opens and not graph)
        except SafeserError as error:
            if not each:
                raise
            refused.append((number, error.without_frames()))
            continue
        if number in wholes:
            # The same failure is in the message as data, so dropping its pickle loses nothing.
            if message.rows[number].failed or not link.permits_part(
                context, payload, side.requested
            ):
                left_out.append(number)
                continue
        elif not role.declared and payload.family not in HARMLESS:
            _refuse_undeclared(side, context, payload)
        payloads.append(payload)
        places.append((number, opens))
    # Dask's handlers give bare pickles to an unpickler without restrictions.
    bare = requests.received(link, message.verified, context, raw) if raw else []
    admitted = link.admit(
        message.verified,
        context,
        [*payloads, *bare],
        requested=side.requested,
        records=records,
        each=each,
    )
    parts = []
    for (number, opens), outcome in zip(places, admitted.outcomes, strict=False):
        if isinstance(outcome, SafeserError):
            refused.append((number, outcome.without_frames()))
        else:
            parts.append(Part(outcome, number, message.rows[number], opens))
    if bare:
        body = requests.opened(body, bare, opened_at, side.taken)
    return Judged(
        side,
        context,
        body,
        admitted,
        tuple(parts),
        wrapped,
        frozenset(left_out),
        tuple(later),
        tuple(refused),
    )


def _payload(
    side: Side, context: Context, body: Any, message: Message, slot: Slot, *, relayed: bool
) -> Received:
    """Read the payload in *slot*.

    :raises SafeserError: if there is no valid one.
    """
    link, row = side.link, message.rows[slot.reference.index]
    if row.is_sealed:
        at = (link, message.verified, context, slot.where, row)
        return received(*at, body=body, asked=message.asked)
    return link.payload(
        message.verified,
        context,
        slot.where,
        row.header,
        row.frames,
        author=row.author,
        wraps=slot.role.wrapped and not row.failed,
        relayed=relayed,
        takes_own=side.opens,  # a scheduler, which has no program of its own, opens no values
        policy=message.policy,
        **(task_of(body) if isinstance(body, dict) and "key" in body else {}),
    )


def _refuse_undeclared(side: Side, context: Context, payload: Received) -> NoReturn:
    """Refuse a pickle in a field that declares none; Dask's own decoder would open it there."""
    if context.operation is None:  # a denied family is the more useful reason
        side.link.permit_payload(context, payload, side.requested)
    side.link.refuse(
        context,
        "operation.field",
        "this operation has no pickled payload in that field",
        payload=payload,
    )


def _with_bare_pickles(
    wrapped: Sequence[str], body: dict[str, Any], message: Message
) -> tuple[dict[str, Any], Message]:
    """Turn bare bytes that a handler unpickles into payloads, so that they are decided."""
    rows = list(message.rows)

    def listed(value: Any) -> Any:
        if not isinstance(value, bytes):
            return value
        rows.append(PayloadRow(translate.PICKLE_HEADER, (value,)))
        return Reference(len(rows) - 1, eager=True)

    for path in wrapped:
        body = transform(body, path, listed)
    return body, message._replace(rows=tuple(rows))


def is_graph(context: Context, where: str) -> bool:
    """Tell whether the payload at *where* is a submitted graph."""
    return context.operation == "update-graph" and where == "expr_ser"


def _raw_fields(row: Operation, body: dict[str, Any]) -> list[Raw]:
    """Return the bare pickles of a message of *row*."""
    if row.plain:
        return []
    return [
        Raw(where, data, requests.purpose_of(row, path, body))
        for path, encoding in row.fields.items()
        if encoding is Encoding.RAW and not row.reports(path)
        for at, value in select(body, path)
        for where, data in _bare(value, at)
    ]


def _wholes(slots: Sequence[Slot]) -> frozenset[int]:
    """Return the rows that hold failures as their process pickled them, see translate.outgoing.

    A row that is also used in another slot is not among them: there it is an ordinary payload.
    """
    used = Counter(slot.reference.index for slot in slots)
    found = [slot.reference.index for slot in slots if slot.role.whole]
    return frozenset(number for number in found if used[number] == 1)


def _bare(value: Any, where: str) -> Iterator[tuple[str, bytes]]:
    """Yield the bare pickles of a field whose handler unpickles any bytes in it."""
    if holds_reference(value):
        # Plain bytes in a payload of family msgpack would be judged as data and run as code.
        raise PayloadError(
            "a payload stands where only bare bytes can", rule="raw.payload", where=where
        )
    return pickled(value, where)


def nested(
    row: Operation, body: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any], list[Operation]]]:
    """Yield each request that a relay carries: its field, its body, and its rows by server."""
    for path, encoding in row.fields.items():
        if encoding is not Encoding.NESTED:
            continue
        inner = body.get(path)
        name = inner.get("op") if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or not isinstance(name, str):
            raise PayloadError(
                "a relayed request must name its operation", rule="operation.missing", where=path
            )
        servers = (Server.WORKER, Server.NANNY)
        rows = [lookup(server, Channel.RPC, name, inner) for server in servers]
        known = [one for one in rows if one is not None]
        if not known:
            raise unknown_operation(name)
        if name in _NEVER_RELAYED:
            raise PolicyDenied(
                f"no relay carries {name}: workers would take it for their scheduler's own request",
                rule="operation.relayed",
                where=f"{path}.op",
                fix="Use the scheduler's own operations to scatter and gather data.",
            )
        yield path, inner, known


def unknown_operation(name: Any) -> PolicyDenied:
    """Return the refusal of an operation that the table does not have at this place."""
    return PolicyDenied(
        f"operation {legible(str(name), 64)!r} is not one that this connection knows",
        rule="operation.unknown",
        fix="Use a version of distributed that this version of safeser supports.",
    )


def names_operation(message: Any) -> bool:
    """Tell whether *message*, which this side writes, is a request or stream element."""
    return isinstance(message, dict) and "op" in message


def operation_of(body: Any) -> str:
    """Return the operation that a peer's request or stream element names, or refuse it."""
    name = body.get("op") if isinstance(body, dict) else None
    if not isinstance(name, str):
        raise PayloadError("a message must name its operation", rule="operation.missing")
    return name

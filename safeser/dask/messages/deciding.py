"""Deciding what a message holds: everything about it that needs no state of a connection.

The one rule: a verified message becomes a :class:`Message`, this a :class:`Judged` when every
payload in it, the wrapped ones included, is decided and recorded, and only this an object, see
:mod:`safeser.dask.messages.building`. Each is made by the step before it, in one pass: payloads are
found once (``wire/slots.py``), and each of them is read, decided and checked once.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import starmap
from typing import Any, NamedTuple, NoReturn

from safeser.channel import Admitted, Arrived, Link, PendingRecords, Permitted, Received
from safeser.dask.messages import translate
from safeser.dask.messages.pending import Pending
from safeser.dask.sealed import requests
from safeser.dask.sealed.arrival import received, require_sealed
from safeser.dask.sealed.call import Call, Kept
from safeser.dask.sealed.renewal import RENEWALS, Statements, require_renewal
from safeser.dask.sealed.requests import Raw
from safeser.dask.sealed.value import Requests
from safeser.dask.wire.ceilings import CeilingOf
from safeser.dask.wire.codec import PayloadRow, Reference, parse, parse_apart
from safeser.dask.wire.fields import pickled, references, select, transform
from safeser.dask.wire.shapes import Later, check_fields, check_inner
from safeser.dask.wire.slots import (
    DECLARED,
    FAILURE,
    WHOLE,
    WRAPPED,
    Plan,
    Slot,
    find,
    plan,
)
from safeser.envelope import Verified
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.operations import Channel, Encoding, Operation, Server, lookup
from safeser.policy import Policy
from safeser.policy.rules import HARMLESS
from safeser.values import Context, Kind, Limits

__all__ = [
    "Judged",
    "Message",
    "Part",
    "Side",
    "is_graph",
    "judge_operation",
    "judge_reply",
    "judge_values",
    "names_operation",
    "nested",
    "operation_of",
    "read",
    "read_apart",
    "unknown_operation",
]


#: What a worker does for its scheduler alone: which values it has, by which keys, and whose shards.
#: Relayed, it would arrive as the scheduler's: a client that may scatter could put a value of its
#: own under the key of another's task, which the worker then takes for its result, or read any.
_NEVER_RELAYED = frozenset(
    {
        *("update_data", "gather", "get_data", "free_keys"),
        *("shuffle_receive", "shuffle_inputs_done"),
    }
)


class Part(NamedTuple):
    """One payload of a message that may be loaded.

    :param number: of *row* in the payload table, by which the body refers to it.
    :param opened: whether this side opens it; otherwise it is passed on.
    """

    permitted: Permitted
    number: int
    row: PayloadRow
    opened: bool


class Side(NamedTuple):
    """What one side of a connection decides by, and what it does with what it decided.

    :param willing: families that this side asked for; narrows what policy permits.
    :param opens: whether payloads are opened here, or passed on unless they are eager.
    :param taken: signed requests that this server has taken; None where functions are passed on.
    :param statements: of the sealed graphs that there are, for elements of a stream.
    :param records: gets the records of all elements of a batch; None where each is written at once.
    """

    link: Link
    willing: Sequence[str] | None
    opens: bool = True
    taken: Requests | None = None
    statements: Statements | None = None
    records: PendingRecords | None = None


class Message(NamedTuple):
    """A verified message, parsed and not yet decided: *body* holds references, not objects.

    :param policy: that was in force when it was parsed, by whose limits it was.
    """

    verified: Arrived
    body: Any
    rows: tuple[PayloadRow, ...]
    policy: Policy

    def with_calls(self, kept: Kept, limits: Limits) -> Message:
        """Return this message of a stream with its sealed tasks read, or why each cannot be.

        To be called once for each message, in the order in which they came.
        """
        if not any(row.is_sealed for row in self.rows):
            return self
        rows = (
            replace(row, call=_call(row, kept, limits)) if row.is_sealed else row
            for row in self.rows
        )
        return self._replace(rows=tuple(rows))


def _call(row: PayloadRow, kept: Kept, limits: Limits) -> Call | SafeserError:
    try:
        return kept.call(row.frames, limits)
    except SafeserError as error:
        return error.without_frames()


def read(verified: Verified, policy: Policy, ceiling_of: CeilingOf | None = None) -> Message:
    """Parse *verified* as one message; raise PayloadError if it is none.

    :param ceiling_of: of the operations one of which this asks for, if it is a request.
    """
    body, rows = parse(verified.frames, policy.limits, ceiling_of)
    return Message(verified, body, rows, policy)


def read_apart(
    verified: Verified, policy: Policy, ceiling_of: CeilingOf
) -> tuple[Message, list[SafeserError]]:
    """Parse *verified* as a batch of which some elements are refused; return why they are."""
    (body, rows), errors = parse_apart(verified.frames, policy.limits, ceiling_of)
    return Message(verified, body, rows, policy), errors


class Judged(NamedTuple):
    """One request, reply or stream element, permitted with all that is in it, not yet built.

    :param parts: its payloads that may be loaded.
    :param wrapped: paths of the fields whose handler unpickles bytes.
    :param left_out: rows that are not loaded, and that the message loses nothing without.
    :param later: fields whose shapes are known when they are built.
    :param refused: payloads that were refused alone, by their rows, and why.
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


def judge_operation(side: Side, row: Operation, body: dict[str, Any], message: Message) -> Judged:
    """Decide a request or stream element under the row of the table that its name stands for.

    :param body: the request, or one element of those in *message*.
    :raises PolicyDenied: for the operation, an operation inside it, a field, or a payload.
    """
    link, payloads = side.link, bool(message.rows)
    context = link.inbound(row.kind, row.name)
    try:
        later = check_fields(row, body, payloads=payloads)
    except SafeserError:
        # A sender that may not ask for it at all hears that, and no more.
        link.permit_named(context, where="op")
        raise
    require_sealed(link, context, body, message.rows)
    if row.name in RENEWALS and side.statements is not None:
        require_renewal(link, context, body.get("statement"), side.statements)
    if row.plain:
        if not payloads:
            admitted = link.admit(message.verified, context, records=side.records)
            return Judged(side, context, body, admitted)
        return _judge(side, context, body, message, plan=_plan(row, ()), later=later)
    return _judge_opened(side, row, body, message, later)


def _judge_opened(
    side: Side, row: Operation, body: dict[str, Any], message: Message, later: list[Later]
) -> Judged:
    """Decide what has fields that a handler unpickles, or that are requests of their own."""
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
            # A relay must not carry what its sender may not ask for directly.
            link.permit_named(link.inbound(one.kind, one.name), where=f"{path}.op")
            raw += [each for each in _raw_fields(one, inner) if each not in raw]
            inside.append((path, one))
            kinds.append(one.kind)
        later += check_inner(known, path, inner, payloads=bool(message.rows))
    if raw:
        kinds.append(Kind.CONTROL)
    return _judge(
        side,
        link.inbound(Kind.strongest(kinds), row.name),
        body,
        message,
        plan=_plan(row, tuple(inside)),
        raw=raw,
        wrapped=wrapped,
        later=later,
        opened_at=opened_at,
    )


@lru_cache(maxsize=1024)  # of rows of the table, of which there are fewer
def _plan(row: Operation, inside: tuple[tuple[str, Operation], ...]) -> Plan:
    """Return what finds the payloads of a message of *row*, and of what it relays *inside*."""
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


#: What the table says of payloads in a field of a message, by how they stand there.
_ROLES = {
    Encoding.MARKED: (DECLARED,),
    Encoding.WRAPPED: (DECLARED, WRAPPED),
    Encoding.ERROR: (FAILURE,),
    Encoding.RAW: (),
    Encoding.NESTED: (),
}


def judge_reply(side: Side, asked: Pending, message: Message) -> Judged:
    """Decide a reply. It names no operation; it is read as one to the request *asked*."""
    body, fields = message.body, asked.fields
    if asked.known is not None and isinstance(body, dict) and not body.keys() <= asked.known:
        raise PayloadError(
            "the reply has a field that Dask's replies to this do not have", rule="reply.field"
        )
    raw: list[Raw] = []
    if fields.raw:
        body = requests.without_refused(side.link, body, fields.raw)
        raw = [each for path in fields.raw for each in _replied(body, path)]
    context = side.link.inbound(Kind.CONTROL if raw else Kind.DATA if message.rows else Kind.ADMIN)
    return _judge(side, context, body, message, plan=fields.plan, raw=raw, opened_at=fields.raw)


def _replied(body: Any, path: str) -> Iterator[Raw]:
    """Yield the bare pickles at *path* of a reply, with what plugins must be signed for."""
    bare = [each for at, value in select(body, path) for each in _bare(value, at)]
    plugins = list(requests.plugins_in(body, path))
    if not plugins:
        yield from starmap(Raw, bare)
    for where, data, purpose in plugins:
        for at, each in pickled(data, where):
            yield Raw(at, each, purpose if each is data else "")


#: What finds the values of a reply to ``get_data``.
_VALUES = plan([("data", DECLARED)])


def judge_values(side: Side, values: Mapping[Any, Any], message: Message) -> Judged:
    """Decide the values of a reply to ``get_data``, whose other fields are decided without them.

    A payload that is refused takes no other with it.
    """
    context, body = side.link.inbound(Kind.DATA), {"data": values}
    return _judge(side, context, body, message, plan=_VALUES, each=True)


def _judge(
    side: Side,
    context: Context,
    body: Any,
    message: Message,
    *,
    plan: Plan,
    raw: Sequence[Raw] = (),
    wrapped: tuple[str, ...] = (),
    later: Sequence[Later] = (),
    opened_at: Sequence[str] = (),
    each: bool = False,
) -> Judged:
    """Find the payloads in *body*, and decide, check and record them.

    :param each: whether a payload that is refused takes no other with it.
    """
    # Every reference stands for a row: without rows there is nothing to look for.
    slots = find(body, plan) if message.rows else []
    if slots and context.kind is Kind.ADMIN:
        context = side.link.inbound(Kind.DATA, context.operation)
    found = _payloads(side, context, body, message, slots, each=each) if slots else _Found()
    # Dask's handlers give bare pickles to an unpickler without restrictions.
    bare = requests.received(side.link, message.verified, context, raw) if raw else []
    admitted = side.link.admit(
        message.verified,
        context,
        [*found.payloads, *bare],
        willing=side.willing,
        records=side.records,
        each=each,
    )
    parts, refused = [], [*found.refused]
    for (slot, use), outcome in zip(found.slots, admitted.outcomes, strict=False):
        number = slot.reference.index
        if isinstance(outcome, SafeserError):
            refused.append((number, outcome.without_frames()))
        else:
            parts.append(Part(outcome, number, message.rows[number], use is _Use.OPENED))
    if bare:
        body = requests.opened(body, bare, opened_at, side.taken)
    return Judged(
        side,
        context,
        body,
        admitted,
        tuple(parts),
        wrapped,
        frozenset(found.left_out),
        tuple(later),
        tuple(refused),
    )


class _Found(NamedTuple):
    """The payloads that stand in the slots of a message, not yet decided.

    :param slots: those of *payloads*, with what this side does with each.
    :param left_out: rows that are not loaded, and that the message loses nothing without.
    :param refused: rows that hold no payload, and why.
    """

    payloads: Sequence[Received] = ()
    slots: Sequence[tuple[Slot, _Use]] = ()
    left_out: Sequence[int] = ()
    refused: Sequence[tuple[int, SafeserError]] = ()


def _payloads(
    side: Side, context: Context, body: Any, message: Message, slots: Sequence[Slot], *, each: bool
) -> _Found:
    """Read the payload in each slot; refuse what no field of the message has.

    :param each: whether what cannot be read is refused alone.
    """
    payloads: list[Received] = []
    used: list[tuple[Slot, _Use]] = []
    left_out: list[int] = []
    refused: list[tuple[int, SafeserError]] = []
    wholes: frozenset[int] | None = None
    for slot in slots:
        number, use = slot.reference.index, _use(side, context, slot)
        payload = _payload(side, context, body, message, slot, relayed=use is _Use.RELAYED)
        if isinstance(payload, SafeserError):
            if not each:
                raise payload
            refused.append((number, payload.without_frames()))
            continue
        if slot.role.whole and wholes is None:
            wholes = _wholes(slots)
        if wholes is not None and number in wholes:
            # The failure itself stands beside it as data, so that nothing is lost with it.
            failed = message.rows[number].failed
            if failed or not side.link.permits_part(context, payload, side.willing):
                left_out.append(number)
                continue
        elif not slot.role.declared and payload.family not in HARMLESS:
            _refuse_undeclared(side, context, payload)
        payloads.append(payload)
        used.append((slot, use))
    return _Found(payloads, used, left_out, refused)


class _Use(enum.Enum):
    """What this side does with a payload."""

    OPENED = "opened here"
    SUBMITTED = "handed to Dask's scheduler as the graph that it is"
    RELAYED = "passed on"


def _use(side: Side, context: Context, slot: Slot) -> _Use:
    if is_graph(context, slot.where):
        return _Use.SUBMITTED
    if side.opens or slot.reference.eager:
        return _Use.OPENED
    # What a relay kept there unopened would go to each that asks it for anything else: one worker's
    # metrics, say, that nothing can open, with each answer about the cluster.
    kept = slot.role.declared or slot.role.failure or context.operation is None
    return _Use.RELAYED if kept else _Use.OPENED


def _refuse_undeclared(side: Side, context: Context, payload: Received) -> NoReturn:
    """Refuse a pickle in a field that has none; Dask's own decoder opens one in any field."""
    if context.operation is None:  # that it may not pass at all says more to its recipient
        side.link.permit_payload(context, payload, side.willing)
    side.link.refuse(
        context,
        "operation.field",
        "this operation has no pickled payload in that field",
        payload=payload,
    )


def _payload(
    side: Side, context: Context, body: Any, message: Message, slot: Slot, *, relayed: bool
) -> Received | SafeserError:
    """Return the payload in *slot*, or why what stands there is none."""
    row, where = message.rows[slot.reference.index], slot.where
    try:
        if row.is_sealed:
            return received(side.link, message.verified, context, where, row, body=body)
        return side.link.payload(
            message.verified,
            context,
            where,
            row.header,
            row.frames,
            author=row.author,
            wraps=slot.role.wrapped and not row.failed,
            relayed=relayed,
            policy=message.policy,
        )
    except SafeserError as error:
        return error


def _with_bare_pickles(
    wrapped: Sequence[str], body: dict[str, Any], message: Message
) -> tuple[dict[str, Any], Message]:
    """Make bytes that stand bare where a handler unpickles them payloads like all others."""
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
    """Tell whether the payload at *where* is a graph that is submitted."""
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

    No row counts that stands elsewhere too: there it is a payload like all others.
    """
    used = Counter(slot.reference.index for slot in slots)
    found = [slot.reference.index for slot in slots if slot.role.whole]
    return frozenset(number for number in found if used[number] == 1)


def _bare(value: Any, where: str) -> Iterator[tuple[str, bytes]]:
    """Yield the bare pickles of a field whose handler unpickles whatever bytes it finds there."""
    if any(True for _ in references(value)):
        # Plain bytes in a payload of family msgpack would be judged as data and run as code.
        raise PayloadError(
            "a payload stands where only bare bytes can", rule="raw.payload", where=where
        )
    return pickled(value, where)


def nested(
    row: Operation, body: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any], list[Operation]]]:
    """Yield what a relay carries, at which field, and as each server it may reach knows it."""
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
                f"no relay carries {name}: workers would take it for their scheduler's own word",
                rule="operation.relayed",
                where=f"{path}.op",
                fix="Scatter data, and gather it, by the scheduler's own operations.",
            )
        yield path, inner, known


def unknown_operation(name: Any) -> PolicyDenied:
    """Return the refusal of an operation that the table does not have at this place."""
    shown = "".join(c for c in str(name)[:64] if c.isprintable())
    return PolicyDenied(
        f"operation {shown!r} is not one that this connection knows",
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

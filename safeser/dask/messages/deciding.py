"""Deciding what a message holds: everything about it that needs no state of a connection.

The one rule: a verified message becomes a :class:`Message`, this a :class:`Judged` when every
payload in it, the wrapped ones included, is decided and recorded, and only this an object, see
:mod:`safeser.dask.messages.building`. Each is made by the step before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import starmap
from typing import Any, NamedTuple, TypeAlias

from safeser.channel import Admitted, Arrived, Link, Received
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
from safeser.policy.rules import HARMLESS
from safeser.values import Context, Kind, Limits

__all__ = [
    "Judged",
    "Message",
    "Part",
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

#: One payload, where it stands, and its row of the payload table.
Part: TypeAlias = tuple[Received, Reference, PayloadRow]


class Message(NamedTuple):
    """A verified message, parsed and not yet decided: *body* holds references, not objects."""

    verified: Arrived
    body: Any
    rows: tuple[PayloadRow, ...]

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


def read(verified: Verified, limits: Limits, ceiling_of: CeilingOf | None = None) -> Message:
    """Parse *verified* as one message; raise PayloadError if it is none.

    :param ceiling_of: of the operations one of which this asks for, if it is a request.
    """
    parsed = parse(verified.frames, limits, ceiling_of)
    return Message(verified, parsed.body, parsed.rows)


def read_apart(
    verified: Verified, limits: Limits, ceiling_of: CeilingOf
) -> tuple[Message, list[SafeserError]]:
    """Parse *verified* as a batch of which some elements are refused; return why they are."""
    parsed, errors = parse_apart(verified.frames, limits, ceiling_of)
    return Message(verified, parsed.body, parsed.rows), errors


class Judged(NamedTuple):
    """One request, reply or stream element, permitted with all that is in it, not yet built."""

    link: Link
    context: Context
    body: Any
    admitted: Admitted
    parts: tuple[Part, ...] = ()
    wrapped: tuple[str, ...] = ()
    left_out: frozenset[int] = frozenset()
    later: tuple[Later, ...] = ()
    statements: Statements | None = None


def judge_operation(
    link: Link,
    row: Operation,
    body: dict[str, Any],
    message: Message,
    willing: Sequence[str] | None,
    *,
    opens: bool = True,
    taken: Requests | None = None,
    statements: Statements | None = None,
) -> Judged:
    """Decide a request or stream element under the row of the table that its name stands for.

    :param body: the request, or one element of those in *message*.
    :param willing: families that this side asked for; narrows what policy permits.
    :param opens: whether payloads are opened here, or passed on unless they are eager.
    :param taken: signed requests that this server has taken; None where functions are passed on.
    :param statements: of the sealed graphs that there are, for elements of a stream.
    :raises PolicyDenied: for the operation, an operation inside it, a field, or a payload.
    """
    payloads = bool(message.rows)
    try:
        later = check_fields(row, body, payloads=payloads)
    except SafeserError:
        # Who may not ask for it at all hears that, and no more.
        link.permit_named(link.inbound(row.kind, row.name), where="op")
        raise
    require_sealed(link, link.inbound(row.kind, row.name), body, message.rows)
    if row.name in RENEWALS and statements is not None:
        said = body.get("statement")
        require_renewal(link, link.inbound(row.kind, row.name), said, statements)
    if not payloads and row.plain:
        context = link.inbound(row.kind, row.name)
        return Judged(link, context, body, link.admit(message.verified, context))
    wrapped: tuple[str, ...] = ()
    if not row.plain:
        wrapped = tuple(p for p, encoding in row.fields.items() if encoding is Encoding.WRAPPED)
    if wrapped:
        body, message = _with_bare_pickles(wrapped, body, message)
    raw = _raw_fields(row, body)
    opened_at = [] if row.server is Server.SCHEDULER else [each.where for each in raw]
    kinds = [row.kind]
    inside: list[tuple[str, Operation]] = []
    for path, inner, known in () if row.plain else nested(row, body):
        for one in known:
            # A relay must not carry what its sender may not ask for directly.
            link.permit_named(link.inbound(one.kind, one.name), where=f"{path}.op")
            raw += [each for each in _raw_fields(one, inner) if each not in raw]
            inside.append((path, one))
            kinds.append(one.kind)
        later += check_inner(known, path, inner, payloads=payloads)
    kinds += [Kind.CONTROL] if raw else []
    # Every reference stands for a row: without rows there is nothing to look for.
    slots = find(body, _plan(row, tuple(inside))) if message.rows else []
    kinds += [Kind.DATA] if slots else []
    context = link.inbound(Kind.strongest(kinds), row.name)
    return _judge(
        link,
        context,
        body,
        message,
        slots=slots,
        raw=raw,
        willing=willing,
        wrapped=wrapped,
        later=tuple(later),
        opens=opens,
        opened_at=opened_at,
        taken=taken,
        statements=statements,
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


def judge_reply(
    link: Link,
    asked: Pending,
    message: Message,
    willing: Sequence[str] | None,
    *,
    opens: bool = True,
) -> Judged:
    """Decide a reply. It names no operation; it is read as one to the request *asked*."""
    body, rows, fields = message.body, message.rows, asked.fields
    if asked.known is not None and isinstance(body, dict) and not body.keys() <= asked.known:
        raise PayloadError(
            "the reply has a field that Dask's replies to this do not have", rule="reply.field"
        )
    raw: list[Raw] = []
    if fields.raw:
        body = requests.without_refused(link, body, fields.raw)
        raw = [each for path in fields.raw for each in _replied(body, path)]
    return _judge(
        link,
        link.inbound(Kind.CONTROL if raw else Kind.DATA if rows else Kind.ADMIN),
        body,
        message,
        slots=find(body, fields.plan) if rows else [],
        raw=raw,
        willing=willing,
        opens=opens,
        opened_at=fields.raw,
    )


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


def judge_values(
    link: Link,
    values: Mapping[Any, Any],
    message: Message,
    willing: Sequence[str] | None,
    *,
    opens: bool,
    failed: Callable[[int, SafeserError], None],
) -> Judged:
    """Decide the values of a reply to ``get_data``, whose other fields are decided without them.

    :param failed: is told of each payload that is refused by itself, and why.
    """
    body = {"data": values}
    return _judge(
        link,
        link.inbound(Kind.DATA),
        body,
        message,
        slots=find(body, _VALUES),
        raw=(),
        willing=willing,
        opens=opens,
        failed=failed,
    )


def _judge(
    link: Link,
    context: Context,
    body: Any,
    message: Message,
    *,
    slots: Sequence[Slot],
    raw: Sequence[Raw],
    willing: Sequence[str] | None,
    wrapped: tuple[str, ...] = (),
    later: tuple[Later, ...] = (),
    opens: bool,
    failed: Callable[[int, SafeserError], None] | None = None,
    opened_at: Sequence[str] = (),
    taken: Requests | None = None,
    statements: Statements | None = None,
) -> Judged:
    verified = message.verified
    wholes = _wholes(slots)
    parts = []
    left_out = set()
    for where, found, role in slots:
        reference, row = found, message.rows[found.index]
        if context.operation is not None and not (role.declared or role.failure):
            # What a relay kept there unopened would go to everybody who asks it for anything else:
            # one worker's metrics, say, that nobody can open, with each answer about the cluster.
            reference = replace(found, eager=True)
        try:
            payload = _payload(
                link,
                verified,
                context,
                where,
                row,
                body=body,
                wraps=role.wrapped and not row.failed,
                relayed=not (opens or reference.eager or is_graph(context, where)),
            )
        except SafeserError as error:
            if failed is None:
                raise
            failed(reference.index, error)
            continue
        if reference.index in wholes:
            # The failure itself stands beside it as data, so that nothing is lost with it.
            if row.failed or not link.permits_part(context, payload, willing):
                left_out.add(reference.index)
                continue
            parts.append((payload, reference, row))
            continue
        if not role.declared and payload.family not in HARMLESS:
            # Dask's own decoder would open a pickle in any field of any message. That it may not
            # pass at all says more to whom it was to reach.
            if context.operation is None:
                link.permit_payload(context, payload, willing)
            link.refuse(
                context,
                "operation.field",
                "this operation has no pickled payload in that field",
                payload=payload,
            )
        parts.append((payload, reference, row))
    # Dask's handlers give bare pickles to an unpickler without restrictions.
    bare = requests.received(link, verified, context, raw) if raw else []
    payloads = [part[0] for part in parts] + bare
    apart: list[tuple[Received, SafeserError]] | None = None if failed is None else []
    admitted = link.admit(verified, context, payloads, willing=willing, apart=apart)
    if failed is not None and apart:
        refused = {id(payload): error for payload, error in apart}
        for payload, reference, _ in parts:
            if id(payload) in refused:
                failed(reference.index, refused[id(payload)])
        parts = [part for part in parts if id(part[0]) not in refused]
    left = frozenset(left_out)
    if bare:
        body = requests.opened(body, bare, opened_at, taken)
    return Judged(link, context, body, admitted, tuple(parts), wrapped, left, later, statements)


def _payload(
    link: Link,
    verified: Arrived,
    context: Context,
    where: str,
    row: PayloadRow,
    *,
    body: Any,
    wraps: bool,
    relayed: bool,
) -> Received:
    if row.is_sealed:
        return received(link, verified, context, where, row, body=body)
    return link.payload(
        verified,
        context,
        where,
        row.header,
        row.frames,
        author=row.author,
        wraps=wraps,
        relayed=relayed,
    )


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
    found = [slot.reference.index for slot in slots if slot.role.whole]
    if not found:
        return frozenset()
    used = Counter(slot.reference.index for slot in slots)
    return frozenset(index for index in found if used[index] == 1)


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

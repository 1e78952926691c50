"""Encode the messages that Dask writes, each value by a family that policy permits.

The one rule: a value leaves only by a permitted family and only within the receiver's limits, since
a refused one would be requested again. A request that holds any other value is refused here; in a
reply or stream element, the reason replaces the value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from distributed.comm.utils import OFFLOAD_THRESHOLD
from distributed.metrics import context_meter
from distributed.protocol.serialize import Pickled, Serialize, Serialized, ToPickle
from distributed.sizeof import safe_sizeof

from safeser import families
from safeser.channel import Link
from safeser.dask.contents import failures
from safeser.dask.contents.failures import Failure, Relayed
from safeser.dask.messages import translate
from safeser.dask.messages.author_statements import stated
from safeser.dask.messages.deciding import nested
from safeser.dask.sealed import requests
from safeser.dask.sealed.call import HEADER, Call, Sent
from safeser.dask.sealed.graph import is_sealed
from safeser.dask.sealed.node import Sealed
from safeser.dask.wire.ceilings import CeilingOf, ceilings_of
from safeser.dask.wire.codec import Encoder, Leaf, PayloadRow
from safeser.dask.wire.reader import check_header, check_readable
from safeser.dask.wire.structure import MOST_STRUCTURE, structure_of
from safeser.errors import PayloadError, SafeserError
from safeser.gate.decision import SUBMIT
from safeser.gate.format import byte_count, check_payload, too_large
from safeser.gate.values import ELEMENT, SEALED, Context, Grant, Kind, Limits, Payload
from safeser.operations import Channel, Operation, Server, lookup
from safeser.policy import Policy

logger = logging.getLogger("safeser.dask")

#: Families for a stray leaf of an otherwise plain message, such as a NumPy integer in a key.
_STRAY = ("msgpack", "dask")

#: Bytes by which the payload table may grow where values are replaced by failures.
_SLACK = 1 << 12

#: Bytes of plain data in one frame: msgpack reads no more than four times as many.
_MOST_PLAIN = 1 << 30

#: Values of a message that are measured here before Dask's slower sizeof is called.
_FEW = 200

#: Requests by which a worker or nanny joins its cluster; their replies hand over plugins.
REGISTERING = frozenset({"register-worker", "register_nanny"})

_SCALARS = frozenset({int, float, bool, type(None)})
_CONTAINERS = frozenset({dict, list, tuple, set})


def encode_plain(elements: Sequence[Any], limits: Limits, *, listed: bool = False) -> list[Any]:
    """Return the frames of messages that hold only plain data and failures."""
    encoder = Encoder(limits)
    for element in elements:
        encoder.add(translate.outgoing(element), _failures_only)
    return _checked(encoder.frames(listed=listed), limits)


def encode_message(
    link: Link,
    message: Any,
    row: Operation | None,
    *,
    serializers: Sequence[str] | None,
    fails: bool,
    answers: Operation | None = None,
) -> list[Any]:
    """Return the frames of one request (*row* given) or reply.

    :param serializers: families that Dask or its user asked for; narrows what policy permits.
    :param answers: the request that this is the reply to.
    :param fails: send the reason in place of a value that may not leave, instead of raising.
    """
    policy = link.policy
    encoder = Encoder(policy.limits)
    values = _Values(link, policy, serializers, fails=fails)
    values.operation = row
    ceiling_of = None
    if row is not None:
        ceiling_of = ceilings_of(link, row.server, row.channel, outbound=True)
    told = translate.outgoing(message, takes_code=values.take_code, answers=answers)
    if answers is not None and answers.name in REGISTERING:
        told = requests.without_unaccepted(link, told, answers.reply.keys())
    encoder.add(told, values, ceiling_of)
    frames = encoder.frames(listed=False)
    if not is_overfull(frames, policy.limits):  # as nearly all
        return frames
    if fails:
        frames = _without_large_values(encoder, link.peer, policy.limits, listed=False)
    return _checked(frames, policy.limits)


def encode_request(
    link: Link, row: Operation, message: dict[str, Any], serializers: Sequence[str] | None
) -> tuple[dict[str, Any], list[Any]]:
    """Return a request with the statements that its author signs, and its frames.

    :raises PolicyDenied: if this side may not make it, or the request that it relays.
    """
    link.permit_operation(link.outbound(row.kind, row.name))
    rows = [("", row)]
    for path, _, known in nested(row, message):
        rows.append((path, known[0]))
        for inner in known:
            link.permit_operation(link.outbound(inner.kind, inner.name))
    message = requests.signed(link, stated(message), rows)
    requests.permit_pickles(link, message, rows)
    return message, encode_message(link, message, row, serializers=serializers, fails=False)


class ElementWriter:
    """The outgoing half of one stream.

    :param server: whose table describes the elements.
    :param sent: definitions of sealed tasks that the peer keeps from this connection.
    """

    def __init__(self, link: Link, server: Server, sent: Sent) -> None:
        self.link = link
        self.server = server
        self._sent = sent
        self._ceiling_of = ceilings_of(link, server, Channel.STREAM, outbound=True)
        self._encoder: Encoder | None = None  # for the next message; None while it encodes one

    def frames(self, elements: Sequence[Any], *, listed: bool) -> list[Any]:
        """Return the frames of *elements*; those that the table does not know are left out.

        Several elements together may exceed the limits of one message, see :func:`is_overfull`.
        """
        policy, encoder = self.link.policy, self._encoder
        limits, self._encoder = policy.limits, None
        if encoder is None or encoder.limits is not limits:
            encoder = Encoder(limits)
        added = self._add_all(encoder, policy, elements)
        if not added:
            return Encoder().frames(listed=True)
        frames = encoder.frames(listed=listed or added > 1)
        small = len(frames) == 1 and encoder.is_small  # as most are
        if not small and added == 1 and is_overfull(frames, limits):
            frames = self._reduced(encoder, limits, listed=listed)
        encoder.clear()
        self._encoder = encoder
        return frames

    def _add_all(self, encoder: Encoder, policy: Policy, elements: Sequence[Any]) -> int:
        """Add *elements* to *encoder*; return how many it has."""
        link, server, sent, ceiling_of = self.link, self.server, self._sent, self._ceiling_of
        values = _Values(link, policy, None, fails=True, sent=sent)
        take_code, of_tasks, added = values.take_code, self._of_tasks, 0
        for element in elements:
            name = element.get("op") if isinstance(element, dict) else None
            row = lookup(server, Channel.STREAM, name, element) if isinstance(name, str) else None
            if row is None:
                logger.error("Not sent to %s: operation %r is not known", link.peer, name)
                continue
            # An element that cannot be sent is left out, since an error would end the whole stream.
            mark = len(sent.undo)
            values.operation = row
            try:
                element = translate.outgoing(  # noqa: PLW2901 - what is sent in its place
                    element, takes_code=take_code, of_tasks=of_tasks
                )
                if row.splits:
                    added += _add_or_split(encoder, element, row.splits, values, ceiling_of)
                else:
                    encoder.add(element, values, ceiling_of)
                    added += 1
            except SafeserError as error:
                sent.rollback(mark)
                logger.error("Not sent: %r: %s", name, error)  # noqa: TRY400 - one line
        return added

    def _of_tasks(self) -> bool:
        """Tell whether failures in elements are of tasks, whose submitter may see all of them."""
        if self.server is Server.SCHEDULER:
            return True
        # A peer that may submit code here: failures show only its own code.
        rule = self.link.policy.match(self.link.inbound(Kind.TASK, SUBMIT))
        return rule is not None and rule.submission == "code"

    def _reduced(self, encoder: Encoder, limits: Limits, *, listed: bool) -> list[Any]:
        """Return the frames of the one element in *encoder*, without values that are too large."""
        sent, rows = self._sent, list(encoder.rows)
        try:
            frames = _checked(
                _without_large_values(encoder, self.link.peer, limits, listed=listed), limits
            )
        except SafeserError as error:
            sent.rollback()
            logger.error("Not sent: %s", error)  # noqa: TRY400 - one line
            return Encoder().frames(listed=True)
        if rows != encoder.rows:
            pairs = zip(rows, encoder.rows, strict=True)
            if any(row is not left and row.is_sealed for row, left in pairs):
                sent.rollback()  # a replaced row held definitions for the peer to keep
        return frames


def _add_or_split(
    encoder: Encoder, element: Any, splits: str, values: Leaf, ceiling_of: CeilingOf
) -> int:
    """Add *element*, split if it is over its ceiling and may be split; return how many parts."""
    try:
        encoder.add(element, values, ceiling_of)
    except PayloadError as error:
        many = element.get(splits)
        if error.rule != "limit.operation" or not isinstance(many, list | tuple) or len(many) < 2:
            raise
        middle = len(many) // 2
        halves = ({**element, splits: part} for part in (many[:middle], many[middle:]))
        return sum(_add_or_split(encoder, half, splits, values, ceiling_of) for half in halves)
    return 1


def is_overfull(frames: Sequence[Any], limits: Limits) -> bool:
    """Tell whether *frames* might hold more than one message may.

    A byte of msgpack stands for at most two elements: one container, as itself and in another.
    """
    if len(frames) > limits.max_frames or byte_count(frames) > limits.max_bytes:
        return True
    longest = max(map(len, frames[:2]))
    return 2 * longest * ELEMENT > limits.max_memory or longest > _MOST_PLAIN


def has_much_structure(elements: Sequence[Any]) -> bool:
    """Tell whether the sealed graphs among *elements* are more than one message may hold."""
    said: Any = [each.get("expr_ser") for each in elements if isinstance(each, dict)]
    taken = [structure_of(each.header, each.frames) for each in said if is_sealed(each)]
    return sum(taken) > MOST_STRUCTURE


def may_be_large(message: Any) -> bool:
    """Tell whether encoding *message* may block the event loop for long.

    Most are a few plain values and frames, for which Dask's sizeof takes longer than encoding them.
    """
    if _is_small(message):
        return False
    size = safe_sizeof(message, default_size=-1)
    return bool(size == -1 or size > OFFLOAD_THRESHOLD)


def _is_small(message: Any) -> bool:
    """Tell whether the texts, bytes and frames of *message* are few; False if that is unknown."""
    found, size = [message], 0
    for value in found:
        kind = value.__class__
        if kind is str or kind is bytes:
            size += len(value)
        elif kind in _CONTAINERS:
            if len(found) + len(value) > _FEW:
                return False
            found += value.values() if kind is dict else value
            found += value if kind is dict else ()
        elif kind is Serialized:
            size += byte_count(value.frames)
        elif kind is ToPickle or kind is Serialize:
            found.append(value.data)
        elif kind not in _SCALARS:
            return False
    return bool(size <= OFFLOAD_THRESHOLD)


def _checked(frames: list[Any], limits: Limits) -> list[Any]:
    """Return *frames* if they are within the limits of one message.

    :raises PayloadError: with the rule of the exceeded limit.
    """
    if byte_count(frames) > limits.max_bytes:
        raise too_large("a message", "max_bytes", byte_count(frames), limits)
    if len(frames) > limits.max_frames:
        raise too_large("the number of a message's frames", "max_frames", len(frames), limits)
    if max(map(len, frames[:2])) > _MOST_PLAIN:
        raise PayloadError(
            f"the plain data of a message is over {_MOST_PLAIN} bytes",
            rule="limit.frame",
            fix="Send large data as a value: scatter it, or wrap it in to_serialize.",
        )
    if len(frames) > 1 and 2 * len(frames[1]) * ELEMENT > limits.max_memory:
        check_readable(frames[1], limits)
    return frames


def _without_large_values(
    encoder: Encoder, peer: str, limits: Limits, *, listed: bool
) -> list[Any]:
    """Return the frames, with values replaced by an error, largest first, until they fit."""
    frames = encoder.frames(listed=listed)
    size = byte_count(frames)
    weighs: list[tuple[str, int, Callable[[PayloadRow], int]]] = [
        ("max_bytes", size, lambda row: byte_count(row.frames)),
        ("max_frames", len(frames), lambda row: len(row.frames)),
    ]
    for limit, total, weigh in weighs:
        over = total - getattr(limits, limit)
        if over <= 0:
            continue
        over += _SLACK if limit == "max_bytes" else 0
        error = too_large("the message with this value", limit, total, limits)
        logger.warning("Not all sent to %s: %s", peer, error)
        instead = _failure_row(failures.failure_of(error), failed=True)
        weights = [weigh(row) for row in encoder.rows]
        for index in sorted(range(len(weights)), key=weights.__getitem__, reverse=True):
            gain = weights[index] - weigh(instead)
            if over <= 0 or gain <= 0:
                break
            encoder.rows[index] = instead
            over -= gain
        frames = encoder.frames(listed=listed)
    return frames


def _failures_only(leaf: Any) -> tuple[PayloadRow, bool]:
    if isinstance(leaf, Failure):
        return _failure_row(leaf), False
    raise PayloadError("this message can hold plain data only", rule="payload.unsendable")


def _failure_row(failure: Failure, *, failed: bool = False) -> PayloadRow:
    header, frames = failures.serialize_failure(failure)
    return PayloadRow(header, tuple(frames), None, failed)


#: Leaves that a relay passes on unopened.
_OPAQUE = (Serialize, Serialized)


class _Values:
    """Turns each leaf of one outgoing message into a payload row, as *policy* allows.

    :ivar operation: of the message, or of the element that is encoded now; None for a reply.
    """

    operation: Operation | None = None
    # Computed on first use, for the operation beside it: most messages have no values.
    _made: tuple[Operation | None, Context | None] = (None, None)
    _granted: tuple[Operation | None, Grant | None] = (None, None)

    def __init__(
        self,
        link: Link,
        policy: Policy,
        serializers: Sequence[str] | None,
        *,
        fails: bool,
        sent: Sent | None = None,
    ) -> None:
        self._link = link
        self._policy = policy
        self._sent = sent
        self._serializers = serializers
        self._fails = fails

    @property
    def _context(self) -> Context:
        row, made = self._made
        if made is None or row is not self.operation:
            row = self.operation
            kind = Kind.DATA if row is None or row.kind is Kind.ADMIN else row.kind
            made = self._link.outbound(kind, None if row is None else row.name)
            self._made = row, made
        return made

    @property
    def _grant(self) -> Grant:
        row, grant = self._granted
        if grant is None or row is not self.operation:
            grant = self._link.allowed(self._context, self._serializers)
            self._granted = self.operation, grant
        return grant

    def __call__(self, leaf: Any) -> tuple[PayloadRow, bool]:
        if isinstance(leaf, Failure):
            return _failure_row(leaf, failed=leaf.failed), False
        eager = not isinstance(leaf, _OPAQUE)
        try:
            return self._row(leaf), eager
        except SafeserError as error:
            if not self._fails:
                raise
            logger.info("Not sent to %s: %s", self._link.peer, error)  # who waits for it is told
            return _failure_row(failures.failure_of(error), failed=True), eager

    def take_code(self) -> bool:
        """Tell whether code may be sent to the peer."""
        return "cloudpickle" in self._grant.families

    def _serialize(self, x: Any, grant: Grant) -> tuple[dict[str, Any], list[Any]]:
        # A worker sends results of classes that only the client may have registered.
        start = perf_counter()
        made = self._link.serialize(x, grant, context=self._context, unregistered=True)
        # Dask's fine performance metric. Its context manager takes as long as a small value.
        context_meter.digest_metric("serialize", perf_counter() - start, "seconds")
        return made

    def _row(self, leaf: Any) -> PayloadRow:
        author, failed = None, False
        if isinstance(leaf, ToPickle) and isinstance(leaf.data, Sealed):
            return self._sealed_task(leaf.data.call)
        if isinstance(leaf, Serialized) and leaf.header.get("serializer") == SEALED:
            self._permit_sealed(leaf.header, tuple(leaf.frames), self._link.local)
            check_payload(leaf.frames, self._policy.limits)
            return PayloadRow(dict(leaf.header), tuple(leaf.frames))
        if isinstance(leaf, Serialize | ToPickle):
            header, frames = self._serialize(leaf.data, self._grant)
        elif isinstance(leaf, Relayed):
            header, frames = leaf.sealed_header, leaf.frames
            author, failed = leaf.author, leaf.failed
        elif isinstance(leaf, Serialized):
            header, frames = translate.from_dask_pickle(leaf.header, leaf.frames)
        elif isinstance(leaf, Pickled):
            raise PayloadError("bytes that Dask pickled are not relayed", rule="payload.pickled")
        else:
            grant = self._grant.narrowed(_STRAY)
            header, frames = self._serialize(leaf, grant)
        family = self._family(header)
        if family == "pickle" and "cloudpickle" in self._grant.families:
            family = "cloudpickle"  # its strongest reading, which is granted as well
        payload = Payload("", family, header, tuple(frames), author or self._link.local)
        self._link.permit_sending(self._context, payload)
        limits = self._policy.limits
        check_payload(payload.frames, limits)
        check_header(header, limits)
        return PayloadRow(header, payload.frames, author, failed)

    def _sealed_task(self, call: Call) -> PayloadRow:
        # A reply to its author has none: no definitions are kept.
        sent = Sent() if self._sent is None else self._sent
        mark = len(sent.undo)
        frames = tuple(sent.frames(call))
        author = call.signed.statement.author
        # One decision for all tasks of an author: the policy is the same, and no date has passed.
        row = self.operation
        allowed, asked = (
            sent.allowed_under(self._policy),
            (None if row is None else row.name, author),
        )
        try:
            if asked not in allowed or self._link.over is not None:
                self._permit_sealed(HEADER, frames, author)
                allowed.add(asked)
            check_payload(frames, self._policy.limits)
            # A worker that cannot read the first frame keeps no definitions of those behind it, and
            # numbers all later ones otherwise than this side, those of other graphs included.
            check_readable(frames[0], self._policy.limits)
        except SafeserError:
            sent.rollback(mark)  # an error replaces it, so the peer keeps no definitions
            raise
        return PayloadRow(HEADER, frames)

    def _permit_sealed(self, header: dict[str, Any], frames: tuple[Any, ...], author: str) -> None:
        self._link.permit_sending(self._context, Payload("", SEALED, header, frames, author))

    def _family(self, header: dict[str, Any]) -> str:
        family = header["serializer"]
        # One pickle without children: its header claims all that it can be.
        if family == "cloudpickle" and "sub-headers" not in header:
            return "cloudpickle"
        return families.claimed(header, declared=self._policy.families)

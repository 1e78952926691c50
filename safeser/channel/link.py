"""One connection: decide, record and load what its peer sends; decide and seal what it sends.

The one rule: sealed -> verified -> received -> admitted -> loaded, each made only by the step
before it (DESIGN, invariants 2, 5 and 9). A value leaves by a family that policy grants, and a
pickle only if the receiver would accept it, since a refused value would be requested again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from safeser import families as serialization
from safeser.channel.admitted import Admitted
from safeser.channel.events import Described, PendingRecords
from safeser.channel.receiving import Receiving
from safeser.channel.records import CONTEXTS_MAX, FLOOR, is_asked_for, is_own_reply
from safeser.errors import EnvelopeError, PayloadError, SafeserError
from safeser.families.registered.own import before_typed
from safeser.families.tree import PLAIN
from safeser.gate import canonical
from safeser.gate.format import PRELUDE_SIZE, all_flat, check_payload
from safeser.gate.session import SessionClosed, Verified
from safeser.gate.values import Context, Grant, Kind, Payload
from safeser.pickles.advice import NEVER

__all__ = ["Link", "ordered"]


@lru_cache(maxsize=256)
def ordered(families: tuple[str, ...]) -> tuple[str, ...]:
    """Return in which order to try *families*.

    The order is the policy's, but families without code come before pickles: a value that they can
    carry needs none. Of these dask is first, since it leaves large buffers uncopied and packs plain
    values as msgpack does. Families of one's own that the policy lists before dask are asked before
    it, for values that dask would carry too, but not for errors.
    """
    own = before_typed(families)
    ordered = [*(["error", *own] if own else ()), *(["dask"] if "dask" in families else ())]
    ordered += [family for family in FLOOR if family not in ordered]
    # The writer of family cloudpickle tries plain pickle itself, except for classes of __main__,
    # which must not go by name alone to a process that has another __main__.
    skipped = {"pickle"} if "cloudpickle" in families else set()
    return (*ordered, *(f for f in families if f not in ordered and f not in skipped))


class Link(Receiving):
    """One authenticated connection between this process and one peer, under one policy.

    Made by :meth:`Channel.link` from an established session. Dask's comm decides and loads the
    payloads of its messages one by one; a program's own messages are one payload each.
    """

    def permit_operation(self, context: Context) -> None:
        """Raise :class:`PolicyDenied` unless this side may ask for *context*'s operation."""
        self.require_open(context)
        decision = self.channel.policy.decide(context, "msgpack", sealing=True)
        if not decision.permitted:
            self.refuse(context, decision.rule, decision.reason, fix=decision.fix)

    def allowed(self, context: Context, serializers: Sequence[str] | None = None) -> Grant:
        """Return the grant for sending in *context*, narrowed to *serializers*."""
        self.permit_operation(context)
        grant = self.channel.policy.grant(context, sealing=True)
        if serializers is None:
            return grant
        return grant.narrowed([f for f in grant.families if is_asked_for(f, serializers)])

    def serialize(
        self,
        obj: Any,
        grant: Grant,
        *,
        iterate_collection: bool | None = None,
        context: Context | None = None,
        unregistered: bool = False,
    ) -> tuple[dict[str, Any], list[Any]]:
        """Turn *obj* into a header and frames by the first granted family that can.

        :param context: passed to registered functions that take it.
        :param unregistered: whether to write classes that only the reader may have registered.
        """
        return serialization.serialize(
            obj,
            ordered(grant.families),
            limits=self.channel.policy.limits,
            iterate_collection=iterate_collection,
            context=context,
            types=grant.types,
            reads=grant if unregistered else None,
        )

    def permit_sending(self, context: Context, payload: Described) -> None:
        """Raise :class:`PolicyDenied` unless *payload* may leave in *context*."""
        self.require_open(context)
        if is_own_reply(context, payload, self.peer):
            return  # it returns to the principal that signed it
        author = None if payload.author == self.local else payload.author
        decision = self.channel.policy.decide(context, payload.family, sealing=True, author=author)
        if not decision.permitted:
            self.refuse(context, decision.rule, decision.reason, payload=payload, fix=decision.fix)
        if payload.family == "pickle":
            self._judge_own(context, payload)

    def _judge_own(self, context: Context, payload: Described) -> None:
        """Refuse a pickle that the receiver would refuse and then request again."""
        grant = self.channel.policy.grant(context, sealing=True)
        frames = list(payload.frames)
        try:
            serialization.judge(payload.header, frames, grant, limits=self.channel.policy.limits)
        except SafeserError as error:
            otherwise = f" Or else: {error.fix}" if not error.fix.startswith(NEVER) else ""
            self.refuse(
                context,
                error.rule,
                f"the value takes a pickle that the other side refuses: {error.message}",
                payload=payload,
                fix="Convert it to numbers, text, arrays or frames, which need no pickle."
                f"{otherwise}",
            )

    def seal(self, obj: Any, context: Context) -> list[Any]:
        """Return the buffers of one sealed message that carries *obj*.

        :raises PolicyDenied: if policy lets no family that can carry *obj* leave in *context*.
        :raises PayloadError: if it is larger than the policy's limits.
        """
        if context.sender != self.local or context.recipient != self.peer:
            self.refuse(
                context, "context.session", f"this link goes from {self.local} to {self.peer}"
            )
        context = self.placed(context)
        grant = self.allowed(context)
        header, frames = self.serialize(obj, grant, context=context)
        family = serialization.claimed(header)
        self.permit_sending(context, Payload("message", family, header, tuple(frames), self.local))
        check_payload(frames, self.policy.limits)
        words = [header, context.kind.value, context.operation]
        return self.session.seal(canonical.pack(words), frames)

    def verify(self, frames: Sequence[Any]) -> Verified:
        """Verify the buffers of one sealed message, as :meth:`seal` made or a socket gave them.

        :raises EnvelopeError: if it is not the next message that the peer sealed; it is recorded.
        """
        buffers = all_flat(frames)
        message = buffers[0] if len(buffers) == 1 else memoryview(b"".join(buffers))
        try:
            prelude = self.session.prelude(message[:PRELUDE_SIZE])
            end = PRELUDE_SIZE + prelude.block
            arrival = self.session.arrival(prelude, message[PRELUDE_SIZE:end])
            return arrival.whole(message[end:])
        except SessionClosed:
            raise  # the peer said so
        except EnvelopeError as error:
            self.note_unauthenticated(error)
            raise

    def admit_message(
        self, verified: Verified, context: Context, *, records: PendingRecords | None = None
    ) -> Admitted:
        """Decide a verified library message under *context*.

        The kind and operation that the sender sealed must be those of *context*: the recipient
        chooses them, not the message.
        """
        context = self.placed(context)
        known = self._headers.get(verified.header)
        try:
            header, kind, operation = known or parse(verified.header)
        except PayloadError as error:
            self.note_refusal(context, error)
            raise
        if (kind, operation) != (context.kind.value, context.operation):
            self.refuse(
                context,
                "context.mismatch",
                "the message was sealed for another kind or operation",
                fix="Open it by the kind and operation for which its sender sealed it.",
            )
        try:
            payload = self.payload(verified, context, "message", header, verified.frames)
        except SafeserError as error:
            self.note_refusal(context, error)
            raise
        admitted = self.admit(verified, context, [payload], records=records)
        if known is None and header == PLAIN:  # whose values nothing can change
            if len(self._headers) >= CONTEXTS_MAX:
                self._headers.clear()
            self._headers[verified.header] = LibraryMessage(header, kind, operation)
        return admitted


# --- the header of a library message: a family header, a kind and an operation --------------------
# The one rule: a header has the exact form of ``docs/reference/envelope.md``, section 10, or is
# refused. Kind and operation that it claims decide nothing: the recipient expects its own.

_MAX_OPERATION = 128
_KINDS = frozenset(kind.value for kind in Kind)


class LibraryMessage(NamedTuple):
    """The parsed header of a library message, not yet decided."""

    header: dict[str, Any]
    kind: str
    operation: str | None


def parse(data: bytes) -> LibraryMessage:
    """Parse the header of a library message.

    :raises PayloadError: if :meth:`Link.seal` could not have made it. Of the family header only the
        encoding is checked here.
    """
    try:
        words = canonical.unpack(data)
    except ValueError:
        raise _malformed("is not canonical MessagePack") from None
    match words:
        case [dict() as header, str() as kind, operation]:
            if kind not in _KINDS:
                raise _malformed("names no kind")
            named = type(operation) is str and len(operation) <= _MAX_OPERATION
            if operation is not None and not named:
                raise _malformed("names no operation")
            return LibraryMessage(header, kind, operation)
    raise _malformed("is no list of a family header, a kind and an operation")


def _malformed(problem: str) -> PayloadError:
    return PayloadError(
        f"the message's header {problem}",
        rule="payload.header",
        fix="Seal messages with safeser.Channel, or as docs/reference/envelope.md says.",
    )

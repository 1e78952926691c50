"""One connection: what its peer sent is decided, recorded and loaded, what this side sends decided.

The one rule: sealed -> verified -> received -> admitted -> loaded, each made only by the step
before it. A payload is decided and recorded before a byte of it is deserialized, and every payload
of a message is decided before any of them is read (DESIGN, invariants 2, 5 and 9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from safeser import families as serialization
from safeser.channel import library
from safeser.channel.admitted import MADE_BY_ADMIT, MADE_BY_PAYLOAD, Admitted, Arrived, Received
from safeser.channel.budgets import UNUSED
from safeser.channel.lists import FLOOR, is_asked_for, ordered, unread
from safeser.channel.records import Recording, event
from safeser.envelope import (
    PRELUDE_SIZE,
    Sealed,
    Verified,
    check_payload,
)
from safeser.errors import EnvelopeError, PayloadError, PolicyDenied, SafeserError
from safeser.policy import Policy
from safeser.values import SEALED, Context, Decision, Grant, Kind, Payload

__all__ = ["Link"]

_PICKLES = ("pickle", "cloudpickle")

#: The header of bytes that are one pickle, where nothing says so.
_BARE_PICKLE: dict[str, Any] = {"serializer": "pickle", "writeable": []}

#: What may pass where no context matches.
_NOTHING = Grant(context="", families=())

#: What a message without payloads needs.
_PLAIN = Grant(context="", families=FLOOR)


class Link(Recording):
    """One authenticated connection between this process and one peer, under one policy.

    Made by :meth:`Channel.link` from an established session.
    """

    # --- receiving -----------------------------------------------------------------------------

    def payload(
        self,
        verified: Arrived,
        context: Context,
        where: str,
        header: Mapping[str, Any],
        frames: Sequence[Any],
        *,
        author: str | None = None,
        wraps: bool = False,
        relayed: bool = False,
    ) -> Received:
        """Return a payload of *verified*, whose family is derived from its content.

        Only its shape is read, and the names inside a pickle: nothing is decoded or imported, since
        nothing is decided yet. Where reading a pickle could not change the answer, it is not read:
        it counts as ``cloudpickle``, the most that it can be, if *context* grants that, and as
        ``pickle``, the least, if *context* grants neither and so denies both.

        :param wraps: bytes that it may hold are unpickled by whoever handles them.
        :param relayed: this process passes it on and never opens it.
        :raises PayloadError: if its shape is not one that a payload has.
        """
        own = dict(header)
        policy, author = self.policy, author or self.peer
        bound = _bound(policy, context).written_by(author, sender=self.peer)
        denials: list[PolicyDenied] = []
        limits = policy.limits
        try:
            nodes = serialization.alone(own, frames, limits=limits)
            family = serialization.derive(
                own,
                frames,
                limits=limits,
                unread=unread(bound),
                allow=bound.allow,
                budget=self.budgets.of(verified)[0],
                denials=denials,
                declared=policy.families,
                nodes=nodes,
            )
        except SafeserError as error:
            error.where = error.where or where
            raise
        return Received(
            where,
            family,
            own,
            tuple(frames),
            author,
            verified=verified,
            wraps=wraps,
            relayed=relayed,
            denial=denials[0] if denials else None,
            nodes=nodes,
            _proof=MADE_BY_PAYLOAD,
        )

    def signed(
        self,
        verified: Arrived,
        where: str,
        header: Mapping[str, Any],
        frames: Sequence[Any],
        *,
        author: str,
        sealed: Any,
    ) -> Received:
        """Return a payload of *verified* that its author signed, whichever peer hands it over.

        :param author: whose signature was verified.
        :param sealed: what it was parsed to.
        """
        return Received(
            where,
            SEALED,
            dict(header),
            tuple(frames),
            author,
            verified=verified,
            sealed=sealed,
            _proof=MADE_BY_PAYLOAD,
        )

    def code(self, verified: Arrived, where: str, data: bytes) -> Received:
        """Return bytes of *verified* that their handler unpickles as they are.

        They count as code, whatever is in them: that unpickler knows no restrictions. What the
        caller is willing to deserialize is another matter: Dask says msgpack there and unpickles.
        """
        return Received(
            where,
            "cloudpickle",
            _BARE_PICKLE,
            (data,),
            self.peer,
            verified=verified,
            bare=True,
            _proof=MADE_BY_PAYLOAD,
        )

    def admit(
        self,
        verified: Arrived,
        context: Context,
        payloads: Sequence[Received] = (),
        *,
        willing: Sequence[str] | None = None,
        apart: list[tuple[Received, SafeserError]] | None = None,
    ) -> Admitted:
        """Decide one message and all of its payloads, record it, and return what may be loaded.

        :param willing: families that the caller asked for; takes away from what policy permits.
        :param apart: gets each payload that is refused, and why, where that takes no other one with
            it; without it the first refusal is that of the message.
        :raises PolicyDenied: if the operation or any payload is refused. The refusal is recorded.
        :raises PayloadError: if a payload is not what its family allows. It is recorded too.
        :raises AuditError: if the decision cannot be recorded; then nothing may be loaded.
        """
        # 1. The message: it came from this link's peer, and so did all that is said to be in it.
        self.require_open(context)
        self._check_origin(verified, context, payloads)
        # 2. The operation: authority is not a matter of families. All of the message is decided by
        # one policy, though another may take its place meanwhile.
        policy = self.policy
        decision = policy.decide(context, "msgpack")
        if not decision.permitted:
            self._refuse_operation(context, decision)
        if not payloads:
            self._record_plain(context)
            return Admitted(context, (), _PLAIN, policy.limits, UNUSED[2], MADE_BY_ADMIT)
        # 3. Every payload by its family; nothing of any of them is decoded before all passed.
        decide = partial(self._decide, policy, context, willing=willing)
        payloads = _sound(payloads, decide, apart)
        # 4. Pickles that are the bytes of a payload, before those are handed to anybody.
        inside = self._unwrap(policy, context, payloads)
        for payload in inside.values():
            decide(payload)
        # 5. What they hold, without building or importing anything.
        grant = policy.grant(context)
        _, budget, loading = self.budgets.of(verified)
        check = partial(self._check, policy, context, grant, budget=budget)
        payloads = _sound(payloads, check, apart)
        for payload in inside.values():
            check(payload)
        every = (*payloads, *inside.values())
        # 6. The record, before the load.
        self._permitted([event("admit", context, each, "permit", True) for each in every])
        return Admitted(
            context, tuple(payloads), grant, policy.limits, loading, MADE_BY_ADMIT, inside
        )

    def admit_again(self, verified: Arrived, admitted: Admitted, policy: Policy) -> bool:
        """Admit one more message without payloads, in the same context as *admitted*.

        What was decided under *policy* is not decided again, only counted.

        :returns: whether that could be; otherwise it is to be decided like the first.
        """
        if self.policy is not policy or self.over is not None:
            return False
        if verified.session_id != self.session.id or not admitted.is_plain:
            return False
        self._permitted_plain(admitted.context)
        return True

    def _record_plain(self, context: Context) -> None:
        """Record a message without payloads, or count it where it needs no authority."""
        if context.kind is Kind.TASK or context.kind is Kind.CONTROL:
            # Authority needs no payload: restart, terminate and upload_file are plain msgpack.
            self._permitted([event("admit", context, None, "permit", True)])
        else:
            self._permitted_plain(context)

    def _check_origin(
        self, verified: Arrived, context: Context, payloads: Sequence[Received]
    ) -> None:
        if not self.is_own(context):
            if context.sender != self.peer or context.recipient != self.local:
                self.refuse(
                    context, "context.session", "the session proved another sender or recipient"
                )
            self.placed(context)
        if verified.session_id != self.session.id:
            self.refuse(context, "context.session", "another session verified the message")
        for payload in payloads:
            if payload.verified is not verified:
                raise TypeError("a payload of another message")

    def _decide(
        self, policy: Policy, context: Context, payload: Received, willing: Sequence[str] | None
    ) -> None:
        # A caller's list is about values; a task runs, and is no value that arrives.
        if not payload.bare and payload.family != SEALED:
            self.narrow(context, payload, willing)
        author = None if payload.author == self.peer else payload.author
        if author is not None and self.voices.is_silenced(author):
            self.refuse(
                context,
                "author.retired",
                f"its author is {author}, whose keys are all retired or over",
                payload=payload,
                fix="Submit it again as a principal with an active key.",
            )
        if is_own_reply(context, payload, self.local):
            return  # what this principal signed and asked for
        decision = policy.decide(context, payload.family, author=author)
        if not decision.permitted:
            reason, fix = decision.reason, decision.fix
            if payload.denial is not None and decision.rule == "context.family":
                named = serialization.as_code(payload.denial, reason, where=payload.where)
                reason, fix = named.message, named.fix
            self.refuse(context, decision.rule, reason, payload=payload, fix=fix)

    def _unwrap(
        self, policy: Policy, context: Context, payloads: Sequence[Received]
    ) -> dict[int, Received]:
        """Return the pickles that payloads hold as nothing but bytes, by the identity of those.

        Bytes that are inside anything else come to light when that is loaded; whoever loads it must
        refuse them then.
        """
        found: dict[int, Received] = {}
        limits = policy.limits
        for payload in payloads:
            if not payload.wraps:
                continue
            try:
                data = serialization.bytes_in(payload.header, payload.frames, limits=limits)
                if data is not None:
                    found[id(payload)] = self.payload(
                        payload.verified,
                        context,
                        payload.where,
                        _BARE_PICKLE,
                        [data],
                        author=payload.author,
                    )
            except SafeserError as error:
                self._note_failure("refuse", context, payload, error)
                raise
        return found

    def _check(
        self,
        policy: Policy,
        context: Context,
        grant: Grant,
        payload: Received,
        budget: serialization.Budget,
    ) -> None:
        """Refuse what cannot be loaded, and a pickle whose globals the profiles do not list."""
        if payload.family == SEALED:  # it was verified and parsed where it was made
            return
        limits = policy.limits
        header, frames = payload.header, payload.frames
        grant = grant.written_by(payload.author, sender=self.peer)
        try:
            if header["serializer"] not in _PICKLES:  # the shape of those was read already
                serialization.check(
                    header,
                    frames,
                    limits=limits,
                    budget=budget,
                    grant=grant,
                    relayed=payload.relayed,
                    declared=policy.families,
                    nodes=payload.nodes,
                )
            if payload.family == "pickle":
                serialization.judge(
                    header, frames, grant, limits=limits, budget=budget, nodes=payload.nodes
                )
        except SafeserError as error:
            self._note_failure("refuse", context, payload, error)
            raise

    def permits_part(
        self, context: Context, payload: Received, willing: Sequence[str] | None
    ) -> bool:
        """Tell whether *payload* may pass, where its message loses nothing without it.

        A refusal is recorded. What may pass is decided again with the whole message.
        """
        try:
            self.permit_payload(context, payload, willing)
        except PolicyDenied:
            return False
        return True

    def permit_payload(
        self, context: Context, payload: Received, willing: Sequence[str] | None
    ) -> None:
        """Refuse *payload* if it may not pass at all, wherever it stands."""
        self._decide(self.policy, context, payload, willing)

    def permit_named(self, context: Context, *, where: str) -> None:
        """Refuse an operation that the sender may not ask for, whatever comes with it.

        :param where: the field that names it; a relay carries one operation inside another.
        """
        decision = self.policy.permits_operation(context)
        if not decision.permitted:
            self._refuse_operation(context, decision, where=where)

    def _refuse_operation(self, context: Context, decision: Decision, *, where: str = "") -> None:
        """Refuse with the words by which whoever keeps the policy finds the place in it."""
        reason = f"{decision.reason} of policy {self.policy.name!r}"
        self.refuse(context, decision.rule, reason, where=where, fix=decision.fix)

    def narrow(
        self, context: Context, payload: Payload, deserializers: Sequence[str] | None
    ) -> None:
        """Refuse *payload* if its family is not among those that the caller asked for.

        A caller's list takes away from what policy permits; it never adds to it.
        """
        if deserializers is not None and not is_asked_for(payload.family, deserializers):
            self.refuse(
                context,
                "caller.deserializers",
                f"family {payload.family!r} is not among the deserializers asked for",
                payload=payload,
                fix="Convert the value on the other side, or ask for that family.",
            )

    def load(self, admitted: Admitted) -> list[Any]:
        """Rebuild the admitted payloads, in order.

        :raises PayloadError: if one of them is not what its family allows.
        """
        return [self.load_one(admitted, payload) for payload in admitted.payloads]

    def load_one(self, admitted: Admitted, payload: Received) -> Any:
        """Rebuild one of the admitted payloads; a relay opens some and passes on the others."""
        if not admitted.has(payload) or payload.relayed:
            raise TypeError("that payload was not admitted, or only to be passed on")
        if self._unwritten is not None:
            raise TypeError("what admitted that payload is not recorded yet")
        try:
            return serialization.deserialize(
                payload.header,
                payload.frames,
                admitted.grant.written_by(payload.author, sender=self.peer),
                limits=admitted.limits,
                budget=admitted.budget,
                context=admitted.context,
                nodes=payload.nodes,
            )
        except SafeserError as error:
            self._note_failure("load", admitted.context, payload, error)
            raise

    def sealed_in(self, admitted: Admitted, payload: Received) -> Any:
        """Return the graph or task that an admitted payload of family ``sealed`` is."""
        if not admitted.has(payload) or payload.sealed is None or self._unwritten is not None:
            raise TypeError("that payload was not admitted, or is not sealed")
        return payload.sealed

    # --- sending -------------------------------------------------------------------------------

    def permit_operation(self, context: Context) -> None:
        """Raise :class:`PolicyDenied` unless this side may ask for *context*'s operation."""
        self.require_open(context)
        decision = self.policy.decide(context, "msgpack", sealing=True)
        if not decision.permitted:
            self._refuse_operation(context, decision)

    def allowed(self, context: Context, serializers: Sequence[str] | None = None) -> Grant:
        """Return what this side may send in *context*, cut to *serializers*."""
        self.permit_operation(context)
        grant = self.policy.grant(context, sealing=True)
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

        :param context: handed to registered functions that take it.
        :param unregistered: whether classes that only the reader may have registered are written.
        """
        return serialization.serialize(
            obj,
            ordered(grant.families),
            limits=self.policy.limits,
            iterate_collection=iterate_collection,
            context=context,
            types=grant.types,
            reads=grant if unregistered else None,
        )

    def permit_sending(self, context: Context, payload: Payload) -> None:
        """Raise :class:`PolicyDenied` unless *payload* may leave in *context*."""
        self.require_open(context)
        if is_own_reply(context, payload, self.peer):
            return  # it goes back to who signed it
        author = None if payload.author == self.local else payload.author
        decision = self.policy.decide(context, payload.family, sealing=True, author=author)
        if not decision.permitted:
            self.refuse(context, decision.rule, decision.reason, payload=payload, fix=decision.fix)
        if payload.family == "pickle":
            self._judge_own(context, payload)

    def _judge_own(self, context: Context, payload: Payload) -> None:
        """Refuse here a pickle that the other side would refuse: it would ask for it again."""
        grant = self.policy.grant(context, sealing=True)
        frames = list(payload.frames)
        try:
            serialization.judge(payload.header, frames, grant, limits=self.policy.limits)
        except SafeserError as error:
            self.refuse(
                context,
                error.rule,
                f"the value takes a pickle that the other side refuses: {error.message}",
                payload=payload,
                fix="Convert it to numbers, text, arrays or frames, which need no pickle. Or else:"
                f" {error.fix}",
            )

    # --- library messages ----------------------------------------------------------------------

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
        return self.session.seal(*library.pack(header, frames, context))

    def verify(self, frames: Sequence[Any]) -> Verified:
        """Verify the buffers of one sealed message, as :meth:`seal` made or a socket gave them.

        :raises EnvelopeError: if it is not the next message that the peer sealed; it is recorded.
        """
        try:
            return self._verify(frames)
        except EnvelopeError as error:
            self.note_unauthenticated(error)
            raise

    def _verify(self, frames: Sequence[Any]) -> Verified:
        # One copy, in which frames of suite 2 are decrypted.
        joined = memoryview(bytearray().join(frames))
        if len(joined) < PRELUDE_SIZE:
            raise EnvelopeError("the message is shorter than its prelude", rule="envelope.format")
        prelude = self.session.prelude(joined[:PRELUDE_SIZE])
        at = PRELUDE_SIZE + prelude.start_length
        start = self.session.start(prelude, joined[PRELUDE_SIZE:at])
        if len(joined) != prelude.message_length:
            raise EnvelopeError("the message is not as long as it says", rule="envelope.format")
        parts = []
        for length in start.sealed_lengths:
            parts.append(joined[at : at + length])
            at += length
        return self.session.verify(Sealed(start, parts, joined[at:]))

    def admit_message(self, verified: Verified, context: Context) -> Admitted:
        """Decide a verified library message under *context*.

        The sender's words about kind and operation must be the recipient's: the recipient knows
        what it expects, the message does not choose it.
        """
        context = self.placed(context)
        try:
            header, kind, operation, frames = library.parse(verified)
        except PayloadError as error:
            self.note_refusal(context, error)
            raise
        if (kind, operation) != (context.kind.value, context.operation):
            self.refuse(
                context, "context.mismatch", "the message was sealed for another kind or operation"
            )
        try:
            payload = self.payload(verified, context, "message", header, frames)
        except SafeserError as error:
            self.note_refusal(context, error)
            raise
        return self.admit(verified, context, [payload])


def _bound(policy: Policy, context: Context) -> Grant:
    """Return the most that may pass in *context*, which may be nothing; refuses nothing yet."""
    try:
        return policy.grant(context)
    except PolicyDenied:
        return _NOTHING


def is_own_reply(context: Context, payload: Payload, principal: str) -> bool:
    """Tell whether *payload* is a task that *principal* signed, and the reply to its request.

    What stands beside others in a reply, as plugins do when a worker registers, is none.
    """
    signed = payload.family == SEALED and payload.author == principal
    return signed and context.operation is None and payload.where == ""


def _sound(
    payloads: Sequence[Received],
    check: Callable[[Received], None],
    apart: list[tuple[Received, SafeserError]] | None,
) -> Sequence[Received]:
    """Return those of *payloads* that *check* does not refuse; of the others *apart* hears."""
    if apart is None:
        for payload in payloads:
            check(payload)
        return payloads
    kept = []
    for payload in payloads:
        try:
            check(payload)
        except SafeserError as error:
            apart.append((payload, error))
        else:
            kept.append(payload)
    return kept

"""Decide, check and record the messages of one connection's peer, and only then load them.

The one rule: verified -> received -> admitted -> loaded, each made only by the step before it. A
payload is decided and recorded before a byte of it is deserialized, and every payload of a message
is decided before any of them is decoded (DESIGN, invariants 5 and 9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from safeser import families as serialization
from safeser.channel.admitted import (
    UNUSED,
    Admission,
    Admitted,
    Arrived,
    MessageBudgets,
    Permitted,
    Received,
    is_counted,
    make_admitted,
    make_permitted,
    make_received,
)
from safeser.channel.events import Described, PendingRecords
from safeser.channel.records import Recording, is_asked_for, is_own_reply
from safeser.channel.shadow import note_shadow
from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.values import SEALED, Context, Grant, Kind
from safeser.policy import Policy
from safeser.policy.questions.shadow import PERMIT, shadow_rule

__all__ = ["Receiving"]

#: A permitted payload, and the pickle in its bytes if its handler unpickles them.
_Decided = tuple[Received, Received | None]

#: The header of a pickle that arrives as bare bytes.
_BARE_PICKLE: dict[str, Any] = {"serializer": "pickle", "writeable": []}

_WRAPS = attrgetter("wraps")


class Receiving(Recording):
    """The receiving half of one authenticated connection; the base of :class:`Link`."""

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
        takes_own: bool = True,
        policy: Policy | None = None,
        task: str = "",
        task_author: str = "",
    ) -> Received:
        """Return a payload of *verified*, whose family is derived from its content.

        Only its shape is read, and the names inside a pickle: nothing is decoded or imported, since
        nothing is decided yet. A pickle is not read where reading it could not change the decision:
        it counts as ``cloudpickle``, the strongest it can be, if *context* grants that, and as
        ``pickle``, the weakest, if *context* grants neither and so denies both.

        :param wraps: whether its handler unpickles bytes that it may hold.
        :param relayed: whether this process relays it and never opens it.
        :param takes_own: whether classes of this process's program may be rebuilt under *policy*.
        :param policy: the policy that decides its message; without it the one in force.
        :param task: key of the task that its message is about, and *task_author* whose task that
            is, as the peer states; for the log.
        :raises PayloadError: if it does not have the shape of a payload.
        """
        own, policy = dict(header), policy or self.channel.policy
        author = author or self.peer
        grant = policy.bound(context).written_by(author, sender=self.peer)
        if grant.own and not takes_own:
            grant = replace(grant, own=frozenset())
        unread = _unread(grant)
        if unread == "cloudpickle" and policy.written is not None:
            # Code passes while the file is only observed. The log has the family that enforcing it
            # would derive, which would have to read the pickle as well.
            enforced = policy.written.bound(context).written_by(author, sender=self.peer)
            if _unread(enforced) is None:
                with suppress(SafeserError):
                    serialization.judge(
                        own, frames, enforced, limits=policy.limits, declared=policy.families
                    )
                    unread = "pickle"
        try:
            reading = serialization.read(
                own,
                frames,
                limits=policy.limits,
                unread=unread,
                allow=grant.allow,
                budget=MessageBudgets.of(verified, self.limits).reading if unread is None else None,
                declared=policy.families,
            )
        except SafeserError as error:
            error.where = error.where or where
            raise
        return make_received(
            where,
            reading.family,
            own,
            tuple(frames),
            author,
            verified,
            task=task,
            task_author=task_author,
            policy=policy,
            context=context,
            grant=grant,
            reading=[reading],
            denial=reading.denial,
            wraps=wraps,
            relayed=relayed,
            again=partial(
                self.payload,
                verified,
                where=where,
                header=own,
                frames=frames,
                author=author,
                wraps=wraps,
                relayed=relayed,
                takes_own=takes_own,
                task=task,
                task_author=task_author,
            ),
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
        task: str = "",
        digest: str = "",
    ) -> Received:
        """Return a payload of *verified* that its author signed, whichever peer relays it.

        :param author: the principal whose signature was verified.
        :param sealed: the parsed graph or task.
        :param task: key of the task, and *digest* that of its definition or graph, for the log.
        """
        said = (where, SEALED, dict(header), tuple(frames), author, verified)
        return make_received(*said, task=task, digest=digest, sealed=sealed)

    def code(self, verified: Arrived, where: str, data: bytes) -> Received:
        """Return bytes of *verified* that their handler unpickles itself.

        They count as code, whatever is in them, since that unpickler has no restrictions. The
        caller's list of deserializers does not apply: Dask passes msgpack there and unpickles.
        """
        said = (where, "cloudpickle", _BARE_PICKLE, (data,), self.peer, verified)
        return make_received(*said, bare=True)

    def admit(
        self,
        verified: Arrived,
        context: Context,
        payloads: Sequence[Received] = (),
        *,
        requested: Sequence[str] | None = None,
        records: PendingRecords | None = None,
        each: bool = False,
    ) -> Admitted:
        """Decide one message and all of its payloads, record it, and return what may be loaded.

        :param requested: families that the caller asked for; narrows what policy permits.
        :param records: collects the records, which the caller writes.
        :param each: whether a refused payload is refused alone; otherwise the first refusal
            refuses the message.
        :raises PolicyDenied: if the operation or any payload is refused. The refusal is recorded.
        :raises PayloadError: if a payload is malformed for its family. It is recorded too.
        :raises AuditError: if the decision cannot be recorded; then nothing may be loaded.
        """
        # 1. The message: it and its payloads came from this link's peer.
        if self.over is not None:
            self.require_open(context)
        self._check_origin(verified, context, payloads)
        # 2. The operation, which needs authority whatever the families. One policy decides all
        # of the message, even if another is adopted meanwhile.
        policy = self.channel.policy
        decision = policy.decide(context, "msgpack")
        if not decision.permitted:
            said = (decision.rule, decision.reason)
            self.refuse(context, *said, fix=decision.fix, message=verified.sequence)
        if not payloads:
            if context.kind is Kind.ADMIN:  # as most
                self._permitted_plain(context, records)
            else:
                self.note_plain(verified, context, records)
            admission = Admission(context, policy, UNUSED, records)
            return make_admitted(admission, ())
        # 3. Every payload by its family; none is decoded before all have passed.
        # 4. Pickles in payloads of bytes, since their handler would unpickle them.
        # 5. The contents, without building or importing anything.
        budgets = MessageBudgets.of(verified, self.limits)
        admission = Admission(context, policy, budgets, records)
        steps: list[Callable[[Any], Any]] = [partial(self._decided, policy, context, requested)]
        if any(map(_WRAPS, payloads)):
            steps.append(partial(self._unwrapped, policy, context, requested))
        steps.append(partial(self._permit, admission))
        outcomes: list[Any] = [*payloads]
        for step in steps:
            for at, one in enumerate(outcomes):
                if not isinstance(one, SafeserError):
                    outcomes[at] = one = step(one)  # noqa: PLW2901 - what becomes of it
                    if isinstance(one, SafeserError) and not each:
                        raise one
        # 6. The record, before the load.
        admitted = make_admitted(admission, tuple(outcomes))
        self._record_payloads(admitted)
        return admitted

    def note_plain(
        self, verified: Arrived, context: Context, records: PendingRecords | None = None
    ) -> None:
        """Count or record a permitted operation without payloads; one inside a relay as well.

        :raises AuditError: if it cannot be recorded.
        """
        if is_counted(context):
            self._permitted_plain(context, records)
            return
        # Authority needs no payload: restart, terminate and upload_file are plain msgpack.
        made = self.event("admit", context, None, PERMIT, True, message=verified.sequence)
        rule = shadow_rule(self.channel.shadow, context)
        if rule:
            made["shadow_rule"] = rule
        self._permitted([made], records)

    def holds_again(self, verified: Arrived, policy: Policy) -> bool:
        """Tell whether what *policy* decided of messages without payloads holds for *verified*.

        If not, decide it with :meth:`admit`.
        """
        if self.channel.policy is not policy or self.over is not None or policy.has_passed:
            return False
        return verified.session_id == self.session.id

    def count_again(self, admitted: Admitted, times: int = 1) -> None:
        """Count messages that pass by the decision on *admitted*, see :meth:`holds_again`.

        :raises AuditError: if the log takes no count; none of them may be handled then.
        """
        context = admitted.admission.context
        if admitted.outcomes or not is_counted(context):
            raise TypeError("a message with payloads or authority is decided each time")
        self._permitted_plain(context, None, times)

    def _record_payloads(self, admitted: Admitted) -> None:
        """Record each payload that may be loaded, and after all of them the pickles inside some."""
        context, shadow = admitted.admission.context, self.channel.shadow
        payloads: list[Received] = []
        inside: list[Received] = []
        for outcome in admitted.outcomes:
            if isinstance(outcome, Permitted):
                payloads.append(outcome.payload)
                if outcome.inside is not None:
                    inside.append(outcome.inside.payload)
        payloads += inside
        events = []
        for each in payloads:
            scope = None if each.grant is None else each.grant.context
            number = each.verified.sequence
            events.append(
                self.event("admit", context, each, PERMIT, True, message=number, scope=scope)
            )
        if shadow is not None and payloads:
            note_shadow(
                shadow,
                context,
                payloads,
                events,
                peer=self.peer,
                local=self.local,
                allowance=admitted.admission.budgets.allowance,
            )
        self._permitted(events, admitted.admission.records)

    def _check_origin(
        self, verified: Arrived, context: Context, payloads: Sequence[Received]
    ) -> None:
        own = self._contexts.get((True, context.kind, context.operation))
        if own is not context:  # another than inbound() returned
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

    def _decided(
        self, policy: Policy, context: Context, requested: Sequence[str] | None, payload: Received
    ) -> _Decided | SafeserError:
        """Return *payload* if it may pass, or its refusal."""
        try:
            if payload.again is not None and (
                payload.policy is not policy
                or (payload.context is not context and payload.context != context)
            ):
                # Read in another context, or the policy has been replaced since: it has the family
                # and the grant that it has here.
                payload = payload.again(context=context, policy=policy)
            return self._refusal(policy, context, payload, requested) or (payload, None)
        except SafeserError as error:  # it cannot be read, or its refusal cannot be recorded
            return error

    def _refusal(
        self, policy: Policy, context: Context, payload: Received, requested: Sequence[str] | None
    ) -> PolicyDenied | None:
        """Record and return why *payload* may not pass, or return None if it may."""
        # A caller's list restricts values, not bare pickles or sealed tasks.
        if not payload.bare and payload.family != SEALED:
            refusal = self.caller_refusal(context, payload, requested)
            if refusal is not None:
                return refusal
        author = None if payload.author == self.peer else payload.author
        if author is not None and self.channel.is_silenced(author):
            return self.refusal(
                context,
                "author.retired",
                f"its author is {author}, whose keys are all retired or over",
                payload=payload,
                fix="Submit it again as a principal with an active key.",
            )
        if payload.family == SEALED and is_own_reply(context, payload, self.local):
            return None  # this principal signed and requested it
        decision = policy.decide(context, payload.family, author=author)
        if decision.permitted:
            return None
        reason, fix, subject = decision.reason, decision.fix, ""
        if payload.denial is not None and decision.rule == "context.family":
            named = serialization.as_code(payload.denial, reason, where=payload.where)
            reason, fix, subject = named.message, named.fix, named.subject
        return self.refusal(
            context, decision.rule, reason, payload=payload, fix=fix, subject=subject
        )

    def _unwrapped(
        self, policy: Policy, context: Context, requested: Sequence[str] | None, decided: _Decided
    ) -> _Decided | SafeserError:
        """Return a decided payload with the pickle in its bytes, if it is plainly bytes.

        The pickle is decided as well. Bytes deeper inside a value appear only when it is loaded;
        the caller that loads it must refuse them then.
        """
        payload, _ = decided
        if not payload.wraps:
            return decided
        try:
            data = serialization.bytes_in(payload.header, payload.frames, limits=policy.limits)
            if data is None:
                return decided
            inside = self.payload(
                payload.verified,
                context,
                payload.where,
                _BARE_PICKLE,
                [data],
                author=payload.author,
                policy=policy,
                task=payload.task,
                task_author=payload.task_author,
            )
        except SafeserError as error:
            self._note_failure("refuse", context, payload, error)
            return error
        return self._refusal(policy, context, inside, requested) or (payload, inside)

    def _permit(self, admission: Admission, decided: _Decided) -> Permitted | SafeserError:
        """Check a decided payload without building it; return a :class:`Permitted` or the error."""
        payload, within = decided
        try:
            checked = self._checked(admission, payload)
            inside = None
            if within is not None:
                found = self._checked(admission, within)
                inside = make_permitted(within, admission, found, None)
        except SafeserError as error:
            return error
        return make_permitted(payload, admission, checked, inside)

    def _checked(self, admission: Admission, payload: Received) -> list[serialization.Checked]:
        """Refuse what cannot be loaded, and a pickle whose globals the profiles do not list."""
        if payload.reading is None or payload.grant is None:
            return []  # sealed: verified and parsed already; bare: its handler opens it
        limits = admission.policy.limits
        try:
            # A message that is admitted twice is read twice.
            try:
                reading = payload.reading.pop()
            except IndexError:
                reading = serialization.read(
                    payload.header,
                    payload.frames,
                    limits=limits,
                    unread=payload.family,
                    declared=() if payload.policy is None else payload.policy.families,
                )
            checked = serialization.check_reading(
                reading,
                payload.grant,
                limits=limits,
                budget=admission.budgets.checking,
                relayed=payload.relayed,
            )
        except SafeserError as error:
            self._note_failure("refuse", admission.context, payload, error)
            raise
        return [] if payload.relayed or checked.typed is None else [checked]

    def permits_part(
        self, context: Context, payload: Received, requested: Sequence[str] | None
    ) -> bool:
        """Tell whether *payload* may pass in *context*, in any field.

        A refusal is recorded. A payload that may pass is decided again with its message.
        """
        return self._refusal(self.channel.policy, context, payload, requested) is None

    def permit_payload(
        self, context: Context, payload: Received, requested: Sequence[str] | None
    ) -> None:
        """Refuse *payload* if it may not pass in *context*, in any field."""
        refusal = self._refusal(self.channel.policy, context, payload, requested)
        if refusal is not None:
            raise refusal

    def permit_named(self, context: Context, *, where: str) -> None:
        """Refuse an operation that the sender may not ask for, without looking at payloads.

        :param where: the field that names it; a relay carries one operation inside another.
        """
        decision = self.channel.policy.permits_operation(context)
        if not decision.permitted:
            said = (decision.rule, decision.reason)
            self.refuse(context, *said, fix=decision.fix, where=where)

    def caller_refusal(
        self, context: Context, payload: Described, deserializers: Sequence[str] | None
    ) -> PolicyDenied | None:
        """Return why *payload* is refused, if its family is not one that the caller asked for.

        A caller's list narrows what policy permits; it never adds to it.
        """
        if deserializers is None or is_asked_for(payload.family, deserializers):
            return None
        return self.refusal(
            context,
            "caller.deserializers",
            f"family {payload.family!r} is not among the deserializers asked for",
            payload=payload,
            fix="Convert the value on the other side, or ask for that family.",
        )

    def load(self, admitted: Admitted) -> list[Any]:
        """Rebuild the admitted payloads, in order.

        :raises PayloadError: if one of them cannot be built.
        """
        return [self.load_one(permitted) for permitted in admitted.permitted]

    def load_one(self, permitted: Permitted) -> Any:
        """Rebuild one of the admitted payloads; a relay opens some and relays the others.

        The first call builds from the checked nodes. Any further call reads and checks anew. Both
        objects may use the memory of the message's frames, so that a change of one array in place
        shows in the other.
        """
        payload = self._recorded(permitted)
        admission, grant = permitted.admission, payload.grant
        if payload.relayed or grant is None:
            raise TypeError("that payload was admitted for its handler or to be relayed")
        try:
            checked = permitted.checked.pop()  # by one thread alone
        except IndexError:
            checked = None
        try:
            if checked is not None:
                return serialization.build(
                    checked, budget=admission.budgets.loading, context=admission.context
                )
            return serialization.deserialize(
                payload.header,
                payload.frames,
                grant,
                limits=admission.policy.limits,
                budget=admission.budgets.loading,
                context=admission.context,
            )
        except SafeserError as error:
            self._note_failure("load", admission.context, payload, error)
            raise

    def sealed_in(self, permitted: Permitted) -> Any:
        """Return the graph or task that an admitted payload of family ``sealed`` is."""
        payload = self._recorded(permitted)
        if payload.sealed is None:
            raise TypeError("that payload is not sealed")
        return payload.sealed

    @staticmethod
    def _recorded(permitted: Permitted) -> Received:
        """Return the admitted payload; raise if its record is not written yet."""
        if type(permitted) is not Permitted:
            raise TypeError("that payload was not admitted")
        records = permitted.admission.records
        if records is not None and not records.written:
            raise TypeError("that payload is not recorded yet")
        return permitted.payload


def _unread(bound: Grant) -> str | None:
    """Return the family of an unread pickle where *bound* may pass; None if it must be read.

    Reading the opcodes of a few megabytes takes seconds, which a sender that may send no pickle
    at all must not cause.
    """
    if "cloudpickle" in bound.families:
        return "cloudpickle"
    return None if "pickle" in bound.families else "pickle"

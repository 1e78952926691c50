"""Contexts of one connection, and the audit records of its permissions and refusals.

The one rule: a refusal is recorded where it is raised, once, and a log that cannot be written never
turns a refusal into a permission.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from safeser.audit import SessionFacts
from safeser.audit.names import policy_text
from safeser.channel.events import (
    AuditSink,
    Counted,
    Described,
    KeepingSink,
    PendingRecords,
    RefusalRecords,
    counted,
    event,
    is_code,
    short_reason,
)
from safeser.channel.standing import Ending
from safeser.errors import AuditError, EnvelopeError, PolicyDenied, SafeserError
from safeser.gate.handshake import Handshake
from safeser.gate.key_pairs import PublicKey
from safeser.gate.session import Session
from safeser.gate.values import SEALED, UNKNOWN, Context, Kind, Limits
from safeser.policy import Policy
from safeser.policy.questions.readable import readable
from safeser.policy.questions.shadow import PERMIT, shadow_rule

if TYPE_CHECKING:
    from safeser.channel.door import Channel
    from safeser.channel.link import LibraryMessage

__all__ = [
    "ID_LENGTH",
    "PATIENCE",
    "SINGLE_REFUSALS",
    "Recording",
    "logged_failures",
    "note_refusal",
]

logger = logging.getLogger("safeser.channel")

#: Seconds, counted in calls of tend(), that a new key waits for sessions to be renewed with
#: it: a peer that does not respond must not delay it for longer.
PATIENCE = 10

#: What records say of each session. Version 1 of the envelope had two suites, and the form of the
#: log does not change together with that of messages.
_SUITE = "encrypt"

#: Characters of an id in a record: 48 bits to name a session.
ID_LENGTH = 12

#: Contexts that one link caches: more than there are operations.
CONTEXTS_MAX = 512

#: Refusals of one message that have a record each. The others are counted together, since a message
#: of two megabytes can hold three hundred thousand.
SINGLE_REFUSALS = 100


#: The link whose peer's message is read in this thread or task now, and the records of what is
#: refused of it. What the link refuses meanwhile elsewhere is not of that message.
READING: ContextVar[tuple[Any, Any]] = ContextVar("reading", default=(None, None))


#: Families that need no grant of their own: they cannot reach code and carry no types of a library.
FLOOR = ("msgpack", "error")


def is_asked_for(family: str, families: Sequence[str]) -> bool:
    """Tell whether a caller's list covers *family*; Dask's ``pickle`` includes cloudpickle."""
    if family in FLOOR or family in families:
        return True
    return family == "cloudpickle" and "pickle" in families


def is_own_reply(context: Context, payload: Described, principal: str) -> bool:
    """Tell whether *payload* is a task that *principal* signed, and the reply to its request.

    A payload among others in a reply, such as a plugin for a worker that registers, is not one.
    """
    signed = payload.family == SEALED and payload.author == principal
    return signed and context.operation is None and payload.where == ""


class Recording:
    """One authenticated connection, the policy that decides on it, and the log of what was decided.

    The base of :class:`safeser.channel.link.Link`.

    :param own_key: the key with which this side authenticated; None where it did not.
    :param stated_policy: the hash of the policy that this side stated when it began the session.
    :param channel: the source of policy, identity and roster, which may change meanwhile.
    :param transport: how its messages travel, as this process measured it.
    :param same_host: whether its other end is on this machine, as this process measured it.
    :param address: of its other end, for the log.
    """

    def __init__(
        self,
        *,
        session: Session,
        own_key: PublicKey | None = None,
        stated_policy: str = "",
        channel: Channel,
        audit: AuditSink,
        transport: str = "library",
        same_host: bool | None = None,
        address: str = "",
    ) -> None:
        self.transport = transport
        self.same_host = same_host
        self._addresses: tuple[str, str] | None = None
        self.address = address
        self.session = session
        self.own_key = own_key
        self.stated_policy = stated_policy
        self.channel = channel
        self.audit = audit
        #: Of messages that arrive from now on.
        self.limits = channel.policy.limits
        self.local = session.local
        self.peer = session.peer
        #: Whether its connection stays open while the two processes work together, and so is
        #: renewed; other connections are closed when idle.
        self.lasts = False
        #: Whether the peer registered as a client on this connection.
        self.is_client = False
        #: Whether the peer asked for a renewal.
        self.stale = False
        self._when_stale: Callable[[], None] | None = None
        #: Why this link is over, once it is: nothing is decided for its peer any more.
        self.over: Ending | None = None
        self._when_over: Callable[[Ending], None] | None = None
        self._contexts: dict[tuple[bool, Kind, str | None], Context] = {}
        # The count of a message that the policy permits, by context, and that policy.
        self._permits: dict[Context, Counted] = {}
        self._under: Policy | None = None
        # Parsed headers of library messages that passed, by their bytes.
        self._headers: dict[bytes, LibraryMessage] = {}
        self.facts = self._session_facts()

    @property
    def policy(self) -> Policy:
        """The policy in force now."""
        return self.channel.policy

    def place(self, local: str, peer: str) -> None:
        """Tell registered functions the addresses of this connection's ends, in Dask's form."""
        self._addresses = local, peer
        self._contexts.clear()

    def inbound(self, kind: Kind, operation: str | None = None) -> Context:
        """Return the context of a message from the peer, whose sender is the authenticated one."""
        key = (True, kind, operation)
        return self._contexts.get(key) or self._made_context(key)

    def outbound(self, kind: Kind, operation: str | None = None) -> Context:
        key = (False, kind, operation)
        return self._contexts.get(key) or self._made_context(key)

    def _made_context(self, key: tuple[bool, Kind, str | None]) -> Context:
        """Make and keep a context of this link; messages of one operation share it."""
        inbound, kind, operation = key
        pair = (self.peer, self.local) if inbound else (self.local, self.peer)
        addresses = self._addresses
        context = Context(
            *pair,
            kind,
            operation,
            transport=self.transport,
            same_host=self.same_host,
            addresses=addresses[::-1] if addresses and inbound else addresses,
        )
        if len(self._contexts) >= CONTEXTS_MAX:
            self._contexts.clear()
        self._contexts[key] = context
        return context

    def _session_facts(self) -> SessionFacts:
        """Return what every record of the present session says alike."""
        session, claims = self.session, self.session.peer_claims
        # Replaying takes what is not said for safeser.
        way = {} if self.transport == "safeser" else {"transport": self.transport}
        return SessionFacts(
            session.id.hex()[:ID_LENGTH],
            {
                "address": self.address,
                "key": session.peer_key.fingerprint,
                "peer": session.peer,
                "peer_states": policy_text(claims.policy, claims.revision, claims.sha256),
                "suite": _SUITE,
                **way,
            },
        )

    def event(
        self,
        name: str,
        context: Context,
        payload: Described | None,
        rule: str,
        permitted: bool,
        *,
        where: str = "",
        message: int | None = None,
        subject: str = "",
        task: str = "",
        scope: str | None = None,
        reason: str = "",
    ) -> dict[str, Any]:
        """Return the event of one decision on this connection.

        :param message: number of the message in the session; without it that of *payload*.
        :param subject: the refused global.
        :param task: key of the task that the message is about, if *payload* does not say so.
        :param scope: name of the policy's context, where the caller knows it.
        :param reason: why it is refused.
        """
        said = event(name, context, payload, rule, permitted, where=where)
        said["session"] = self.facts
        if message is None and payload is not None:
            message = payload.message
        scope = self._counts(context)[-1] if scope is None else scope
        if message is not None:
            said["message"] = message
        if scope:
            said["context"] = scope
        if subject:
            said["global"] = subject
        if task:
            said["task"] = task
        if reason:
            said["reason"] = short_reason(reason)
        return said

    def placed(self, context: Context) -> Context:
        """Return *context* as this link has it: with its transport, which a caller may leave out.

        :raises PolicyDenied: if *context* has another transport than this process measured.
        """
        inbound = context.sender == self.peer
        own = (self.inbound if inbound else self.outbound)(context.kind, context.operation)
        if own is context or own == context:
            return own
        measured = (self.transport, self.same_host)
        if (context.transport, context.same_host) not in ((None, None), measured):
            self.refuse(context, "context.session", "this link travels another way")
        if (context.sender, context.recipient) != (own.sender, own.recipient):
            return replace(context, transport=self.transport, same_host=self.same_host)
        return own

    def limit(self, limits: Limits) -> None:
        """Apply *limits* to messages that arrive from now on."""
        if limits != self.limits:
            self.limits = limits
            self.session.limit(limits)

    # --- its end ---------------------------------------------------------------------------------

    def when_over(self, close: Callable[[Ending], None]) -> None:
        """Register *close*, called once by any thread when this link ends; it ends the session.

        It must not keep this link alive. Without it, the session ends at once.
        """
        self._when_over = close

    def when_stale(self, renew: Callable[[], None]) -> None:
        """Register *renew*, called by any thread at each :meth:`tend` until the session is renewed.

        It must not keep this link alive.
        """
        self._when_stale = renew

    def tend(self, own_key: PublicKey, policy: Policy) -> None:
        """Renew the session if it is old, or was begun with another key or, if it lasts, policy."""
        current = self.stated_policy in (policy.sha256, "") or not self.lasts
        fresh = current and not (self.stale or self.session.is_aged)
        if own_key == self.own_key and fresh:
            return
        if self._when_stale is not None and self.over is None:
            self._when_stale()

    def handshake(self, *, initiator: bool) -> Handshake:
        """Return a handshake that renews the session with the same peer."""
        return self.channel.renewing(self, initiator=initiator)

    def renewed(self, handshake: Handshake) -> None:
        """Receive messages by the session of *handshake* from now on, in place of the old one."""
        self.session.receive_as(handshake.session())
        self.own_key, self.stated_policy = handshake.local_key, handshake.stated_policy
        self.facts = self._session_facts()
        self.stale = False
        self.channel.inspect(self)
        self.note_session()
        self.note_drift()

    def finish(self, ending: Ending) -> None:
        """Refuse all further messages of the peer, record why, and end the session; thread-safe."""
        if self.over is not None or self.session.ended:
            return
        self.over = ending
        level = self.channel.level_of_end(self.peer, ending)
        logger.log(level, "Ending the session with %s: %s", self.peer, ending)
        with logged_failures():  # a full disk must not keep a thief connected
            said = ("end", self.inbound(Kind.ADMIN), None, ending.rule, False)
            self.audit.record(self.event(*said, reason=str(ending)))
        if self._when_over is None:
            self.session.end(str(ending))
        else:
            self._when_over(ending)

    def require_open(self, context: Context) -> None:
        """Refuse *context* if this link is over.

        :raises PolicyDenied: with the rule that ended it.
        """
        if self.over is not None:
            self.refuse(context, self.over.rule, f"the session is over: {self.over}")

    # --- permissions -----------------------------------------------------------------------------

    def recorded_together(self) -> PendingRecords:
        """Return a context manager that writes the records of a block of messages at its end.

        Nothing that they permit is loaded inside the block.

        :raises AuditError: at the end, if they cannot be written; nothing may be loaded then.
        """
        return PendingRecords(self._count, self._record_all)

    def note_reading(self, context: Context, authors: Iterable[str], where: str = "keys") -> None:
        """Record that the sender of *context* may read values of other *authors*, one by one.

        :raises AuditError: if it cannot be recorded; it may read none of them then.
        """
        events = []
        for author in sorted(authors):
            made = self.event("read", context, None, PERMIT, True, where=where)
            made["author"] = author
            shadow = self.channel.shadow
            if shadow is not None and author not in readable(shadow, context):
                made["shadow_rule"] = "values.author"
            events.append(made)
        if events:
            self._permitted(events, None)

    def _count(self, decision: Counted, times: int = 1) -> None:
        """Count *decision*, or keep the count where the policy lets its messages pass meanwhile.

        :raises AuditError: if it is neither counted nor kept.
        """
        scope, kind = decision[6], decision[5]
        audit, count = self.audit, self.audit.count
        passing = scope in self.channel.policy.audit_failures and kind != Kind.CONTROL.value
        if passing and isinstance(audit, KeepingSink):
            count = audit.count_anyway
        count(*decision[:5], times=times, kind=kind)

    def _record_all(self, events: Sequence[dict[str, Any]]) -> None:
        """Record *events*, or keep them where the policy lets their messages pass meanwhile.

        :raises AuditError: if they are neither recorded nor kept; their messages are refused.
        """
        passing = self.channel.policy.audit_failures
        if passing and isinstance(self.audit, KeepingSink):
            # Code is refused whatever its context says.
            answers = [
                passing[each["context"]]
                for each in events
                if each.get("context") in passing and not is_code(each)
            ]
            if len(answers) == len(events):
                self.audit.record_or_keep(events, answers)
                return
        self.audit.record_all(events)

    def _permitted(self, events: list[dict[str, Any]], records: PendingRecords | None) -> None:
        levels = self.channel.policy.audit_levels
        if levels:
            events = self._of_level(levels, events, records)
        if records is None:
            self._record_all(events)
        else:
            records.events += events

    def _of_level(
        self,
        levels: Mapping[str, str],
        events: list[dict[str, Any]],
        records: PendingRecords | None,
    ) -> list[dict[str, Any]]:
        """Return those of *events* that the policy wants a record of; count the others."""
        kept, count = [], self._count if records is None else records.count
        for each in events:
            level = levels.get(each.get("context", ""), "all")
            if level == "all" or (level == "refusals" and is_code(each)):
                kept.append(each)
            else:
                count(counted(each))
        return kept

    def _record_refusal(
        self, name: str, context: Context, payload: Described | None, rule: str, **said: Any
    ) -> None:
        """Record a refusal, or count it where the policy says so or its message has many."""
        link, records = READING.get()
        if link is self and context.sender == self.peer:
            if records.single == SINGLE_REFUSALS:
                decision = self._counts(context, rule, False)
                records.counts[decision] = records.counts.get(decision, 0) + 1
                return
            records.single += 1
        made = self.event(name, context, payload, rule, False, **said)
        if self.channel.policy.audit_levels.get(made.get("context", "")) == "counts":
            self._count(counted(made))
        else:
            self._record_all((made,))

    def count_refused(self, records: RefusalRecords) -> None:
        """Count the refusals of one message that have no record of their own."""
        with logged_failures("count"):
            for decision, times in records.counts.items():
                self._count(decision, times)

    def _permitted_plain(
        self, context: Context, records: PendingRecords | None, times: int = 1
    ) -> None:
        """Count messages that were permitted and need no authority."""
        decision, shadow = self._counts(context), self.channel.shadow
        if shadow is not None and (rule := shadow_rule(shadow, context)):
            # What a shadow refuses is told apart.
            decision = self._counts(context, f"shadow.{rule}")
        (self._count if records is None else records.count)(decision, times)

    # --- refusals --------------------------------------------------------------------------------

    def refuse(self, context: Context, rule: str, reason: str, **said: Any) -> NoReturn:
        """Record a refusal and raise it as :class:`PolicyDenied`, see :meth:`refusal`."""
        raise self.refusal(context, rule, reason, **said)

    def refusal(
        self,
        context: Context,
        rule: str,
        reason: str,
        *,
        payload: Described | None = None,
        where: str = "",
        fix: str = "",
        message: int | None = None,
        subject: str = "",
    ) -> PolicyDenied:
        """Record a refusal and return it; see :meth:`event`."""
        where = payload.where if payload is not None else where
        self._record_refusal(
            *("refuse", context, payload, rule),
            where=where,
            message=message,
            subject=subject,
            reason=reason,
        )
        error = PolicyDenied(f"{context}: {reason}", rule=rule, where=where, fix=fix)
        error.recorded = True
        self.attribute(error)
        return error

    def attribute(self, error: SafeserError) -> None:
        """State in *error*, unless it says so already, that this process decided it."""
        policy = self.channel.policy.title if isinstance(error, PolicyDenied) else ""
        error.decided_by(policy, self.local)

    def note_refusal(
        self,
        context: Context,
        error: SafeserError,
        *,
        where: str = "",
        message: int | None = None,
        task: str = "",
    ) -> None:
        """Record a refusal raised elsewhere, such as a malformed message; see :meth:`event`."""
        self.attribute(error)
        with logged_failures():  # the event loop that reads messages goes on
            self._record_refusal(
                *("refuse", context, None, error.rule),
                where=where or error.where,
                message=message,
                subject=error.subject,
                task=task,
                reason=error.message,
            )

    def note_unauthenticated(self, error: EnvelopeError) -> None:
        """Record bytes that do not authenticate, under an unknown sender."""
        self.note_refusal(Context(UNKNOWN, self.local, Kind.ADMIN), error)

    def note_session(self) -> None:
        """Count the session."""
        with logged_failures("count"):
            self.audit.count(
                sender=self.peer,
                recipient=self.local,
                operation="handshake",
                rule=f"suite.{_SUITE}",
                permitted=True,
            )

    def note_drift(self) -> None:
        """Record that the peer states another policy than the one in force here.

        The peer's statement is for operators who roll a policy out; it decides nothing.
        """
        claims, policy = self.session.peer_claims, self.channel.policy
        theirs = (claims.policy, claims.revision, claims.sha256)
        if theirs == (policy.name, policy.revision, policy.sha256):
            return
        names = ("peer_policy", "peer_revision", "peer_sha256")
        drift = self.event("drift", self.inbound(Kind.ADMIN), None, "policy.drift", True)
        with logged_failures():
            self.audit.record({**drift, **dict(zip(names, theirs, strict=True))})

    def _note_failure(
        self, name: str, context: Context, payload: Described, error: SafeserError
    ) -> None:
        """Record what refuses *payload* alone; the caller raises it."""
        error.where = error.where or payload.where
        self.attribute(error)
        said = (name, context, payload, error.rule)
        self._record_refusal(*said, subject=error.subject, reason=error.message)
        error.recorded = True

    def _counts(self, context: Context, rule: str = PERMIT, permitted: bool = True) -> Counted:
        """Return the count of a message of *context* that *rule* decided.

        Its last item is the name of the policy's context, or empty.
        """
        policy = self.channel.policy
        if policy is not self._under or len(self._permits) >= CONTEXTS_MAX:
            self._permits, self._under = {}, policy
        said = self._permits.get(context)
        if said is None:
            match = policy.match(context)
            names = (context.sender, context.recipient, context.operation or "", PERMIT, True)
            said = *names, context.kind.value, "" if match is None else match.name
            self._permits[context] = said
        return said if rule == PERMIT else (*said[:3], rule, permitted, *said[5:])


def note_refusal(
    audit: AuditSink, context: Context, error: SafeserError, *, where: str = ""
) -> None:
    """Record a refusal without a connection; *where* replaces the place that the error names."""
    said = event("refuse", context, None, error.rule, False, where=where or error.where)
    said["reason"] = short_reason(error.message)
    with logged_failures():
        audit.record(said)


@contextmanager
def logged_failures(what: str = "record") -> Iterator[None]:
    """Log that the audit log does not take a *what*; what was refused stays refused."""
    try:
        yield
    except AuditError as failure:
        logger.error("The audit log refuses a %s: %s", what, failure)  # noqa: TRY400 - one line

"""The one door: what a process seals, verifies, decides, records and loads all goes through here.

The one rule: sealed -> verified -> admitted -> loaded, each made only by the step before it. A
payload is decided and recorded before a byte of it is deserialized, and every payload of a message
is decided before any of them is loaded (DESIGN, invariants 2, 5 and 9).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import msgpack

from safeser import families as serialization
from safeser.audit import AuditLog
from safeser.envelope import (
    PRELUDE_SIZE,
    Buffer,
    Handshake,
    Sealed,
    Session,
    Verified,
    check_payload,
    join,
    split,
)
from safeser.errors import (
    AuditError,
    AuthenticationError,
    ConfigError,
    EnvelopeError,
    PayloadError,
    PolicyDenied,
    SafeserError,
)
from safeser.keys import Identity, Roster
from safeser.policy import Policy
from safeser.values import UNKNOWN, Context, Grant, Kind, Payload

__all__ = ["Admitted", "AuditSink", "Channel", "Link", "Received"]

#: Families that need no grant of their own: they cannot reach code and carry no types of a library.
_FLOOR = ("msgpack", "error")

_PICKLES = ("pickle", "cloudpickle")

#: Contexts that one link keeps: more than there are operations, whatever a caller asks for.
_CONTEXTS_MAX = 512

_PREFIX = 8  # one length of the frame-length table, bytes


class AuditSink(Protocol):
    """Where decisions are written; :class:`safeser.audit.AuditLog` is the one that ships."""

    def record(self, event: Mapping[str, Any], /) -> None: ...

    def count(
        self, sender: str, recipient: str, operation: str, rule: str, permitted: bool
    ) -> None: ...


logger = logging.getLogger("safeser.channel")

_MADE_BY_PAYLOAD = object()
_MADE_BY_ADMIT = object()

#: The header of bytes that are one pickle, where nothing says so.
_BARE_PICKLE: dict[str, Any] = {"serializer": "pickle", "writeable": []}

#: What may pass where no context matches.
_NOTHING = Grant(context="", families=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Payload):
    """One payload of a verified message, of which only the shape was read; not yet decided.

    Only a :class:`Link` makes one.

    :param verified: the message that it came in.
    :param wraps: whoever handles it unpickles the bytes that it may hold.
    :param bare: whoever handles it unpickles it, and nobody is asked by which family.
    """

    verified: Verified = field(repr=False, compare=False)
    wraps: bool = False
    bare: bool = False
    _proof: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._proof is not _MADE_BY_PAYLOAD:
            raise TypeError("only a Link makes a Received")


@dataclass(frozen=True, slots=True)
class Admitted:
    """Payloads of one message that policy permits and the log has recorded; not yet loaded.

    Only :meth:`Link.admit` makes one.
    """

    context: Context
    payloads: tuple[Received, ...]
    grant: Grant
    #: What all of them together may take when they are loaded.
    budget: serialization.Budget = field(repr=False, compare=False)
    _proof: object = field(repr=False)
    _inside: Mapping[int, Received] = field(default_factory=dict, repr=False)
    _known: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self._proof is not _MADE_BY_ADMIT:
            raise TypeError("only Link.admit makes an Admitted")
        # Identities hold as long as this value does, since it keeps the payloads.
        known = frozenset(map(id, (*self.payloads, *self._inside.values())))
        object.__setattr__(self, "_known", known)

    def has(self, payload: Received) -> bool:
        """Tell whether *payload* is one of those admitted: the very object, not an equal one."""
        return id(payload) in self._known

    def inside(self, payload: Received) -> Received | None:
        """Return the pickle that *payload* holds as bytes and that was admitted with it, if any."""
        return self._inside.get(id(payload))


class Link:
    """One authenticated connection between this process and one peer, under one policy.

    Made by :meth:`Channel.link` from an established session.
    """

    def __init__(self, *, session: Session, policy: Policy, audit: AuditSink) -> None:
        self.session = session
        self.policy = policy
        self.audit = audit
        self.local = session.local
        self.peer = session.peer
        self._contexts: dict[tuple[bool, Kind, str | None], Context] = {}

    def inbound(self, kind: Kind, operation: str | None = None) -> Context:
        """Return the context of a message that the peer sent; the sender is who proved it."""
        return self._context(True, kind, operation)

    def outbound(self, kind: Kind, operation: str | None = None) -> Context:
        return self._context(False, kind, operation)

    def _context(self, inbound: bool, kind: Kind, operation: str | None) -> Context:
        """Return a context of this link; they are values, and each message asks for one."""
        key = (inbound, kind, operation)
        context = self._contexts.get(key)
        if context is None:
            pair = (self.peer, self.local) if inbound else (self.local, self.peer)
            context = Context(*pair, kind, operation)
            if len(self._contexts) >= _CONTEXTS_MAX:
                self._contexts.clear()
            self._contexts[key] = context
        return context

    # --- receiving -----------------------------------------------------------------------------

    def payload(
        self,
        verified: Verified,
        context: Context,
        where: str,
        header: Mapping[str, Any],
        frames: Sequence[Any],
        *,
        author: str | None = None,
        wraps: bool = False,
    ) -> Received:
        """Return a payload of *verified*, whose family is derived from its content.

        Only its shape is read, and the names inside a pickle: nothing is decoded or imported, since
        nothing is decided yet. Where *context* grants cloudpickle, reading a pickle to derive its
        family could not change the answer: it counts as ``cloudpickle``, the most that it can be.

        :param wraps: bytes that it may hold are unpickled by whoever handles them.
        :raises PayloadError: if its shape is not one that a payload has.
        """
        own = dict(header)
        bound = self._bound(context)
        family = serialization.derive(
            own,
            frames,
            limits=self.policy.limits,
            code="cloudpickle" in bound.families,
            allow=bound.allow,
        )
        return Received(
            where,
            family,
            own,
            tuple(frames),
            author or self.peer,
            verified=verified,
            wraps=wraps,
            _proof=_MADE_BY_PAYLOAD,
        )

    def code(self, verified: Verified, where: str, data: bytes) -> Received:
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
            _proof=_MADE_BY_PAYLOAD,
        )

    def _bound(self, context: Context) -> Grant:
        """Return the most that may pass in *context*, which may be nothing; refuses nothing yet."""
        try:
            return self.policy.grant(context)
        except PolicyDenied:
            return _NOTHING

    def admit(
        self,
        verified: Verified,
        context: Context,
        payloads: Sequence[Received] = (),
        *,
        willing: Sequence[str] | None = None,
    ) -> Admitted:
        """Decide one message and all of its payloads, record it, and return what may be loaded.

        :param willing: families that the caller asked for; takes away from what policy permits.
        :raises PolicyDenied: if the operation or any payload is refused. The refusal is recorded.
        :raises PayloadError: if a payload is not what its family allows. It is recorded too.
        :raises AuditError: if the decision cannot be recorded; then nothing may be loaded.
        """
        # 1. The message: it came from this link's peer, and so did all that is said to be in it.
        self._check_origin(verified, context, payloads)
        # 2. The operation: authority is not a matter of families.
        decision = self.policy.decide(context, "msgpack")
        if not decision.permitted:
            self.refuse(context, decision.rule, decision.reason, fix=decision.fix)
        # 3. Every payload by its family; nothing of any of them is decoded before all passed.
        for payload in payloads:
            self._decide(context, payload, willing)
        # 4. Pickles that are the bytes of a payload, before those are handed to anybody.
        inside = self._unwrap(context, payloads)
        for payload in inside.values():
            self._decide(context, payload, willing)
        every = (*payloads, *inside.values())
        # 5. What they hold, without building or importing anything.
        budget = serialization.Budget(self.policy.limits)
        for payload in every:
            self._check(context, payload, budget)
        grant = self.policy.grant(context) if payloads else Grant(context="", families=_FLOOR)
        # 6. The record, before the load.
        for payload in every:
            self.audit.record(_event("admit", context, payload, "permit", True))
        if not payloads and context.kind in (Kind.TASK, Kind.CONTROL):
            # Authority needs no payload: restart, terminate and upload_file are plain msgpack.
            self.audit.record(_event("admit", context, None, "permit", True))
        elif not payloads:
            self._count(context, "permit", True)
        loading = serialization.Budget(self.policy.limits)
        return Admitted(context, tuple(payloads), grant, loading, _MADE_BY_ADMIT, inside)

    def _check_origin(
        self, verified: Verified, context: Context, payloads: Sequence[Received]
    ) -> None:
        if context.sender != self.peer or context.recipient != self.local:
            self.refuse(
                context, "context.session", "the session proved another sender or recipient"
            )
        if verified.session_id != self.session.id:
            self.refuse(context, "context.session", "another session verified the message")
        for payload in payloads:
            if payload.verified is not verified:
                raise TypeError("a payload of another message")

    def _decide(self, context: Context, payload: Received, willing: Sequence[str] | None) -> None:
        if not payload.bare:
            self.narrow(context, payload, willing)
        author = None if payload.author == self.peer else payload.author
        decision = self.policy.decide(context, payload.family, author=author)
        if not decision.permitted:
            self.refuse(context, decision.rule, decision.reason, payload=payload, fix=decision.fix)

    def _unwrap(self, context: Context, payloads: Sequence[Received]) -> dict[int, Received]:
        """Return the pickles that payloads hold as nothing but bytes, by the identity of those.

        Bytes that are inside anything else come to light when that is loaded; whoever loads it must
        refuse them then.
        """
        found: dict[int, Received] = {}
        limits = self.policy.limits
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

    def _check(self, context: Context, payload: Received, budget: serialization.Budget) -> None:
        """Refuse what cannot be loaded, and a pickle whose globals the profiles do not list."""
        limits = self.policy.limits
        header, frames = payload.header, payload.frames
        try:
            if header["serializer"] not in _PICKLES:  # the shape of those was read already
                serialization.check(header, frames, limits=limits, budget=budget)
            if payload.family == "pickle":
                grant = self.policy.grant(context)
                serialization.judge(header, frames, grant, limits=limits, budget=budget)
        except SafeserError as error:
            self._note_failure("refuse", context, payload, error)
            raise

    def _note_failure(
        self, event: str, context: Context, payload: Payload, error: SafeserError
    ) -> None:
        """Record what refuses *payload* alone; whoever calls raises it."""
        error.where = error.where or payload.where
        self.audit.record(_event(event, context, payload, error.rule, False))
        error.recorded = True

    def permit_inner(self, context: Context) -> None:
        """Refuse an operation that a relay would carry for a sender who may not ask for it."""
        decision = self.policy.permits_operation(context)
        if not decision.permitted:
            self.refuse(context, decision.rule, decision.reason, where="msg.op", fix=decision.fix)

    def narrow(
        self, context: Context, payload: Payload, deserializers: Sequence[str] | None
    ) -> None:
        """Refuse *payload* if its family is not among those that the caller asked for.

        A caller's list takes away from what policy permits; it never adds to it.
        """
        if deserializers is not None and not _willing(payload.family, deserializers):
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
        if not admitted.has(payload):
            raise TypeError("that payload was not admitted")
        try:
            return serialization.deserialize(
                payload.header,
                payload.frames,
                admitted.grant,
                limits=self.policy.limits,
                budget=admitted.budget,
            )
        except SafeserError as error:
            self._note_failure("load", admitted.context, payload, error)
            raise

    def refuse(
        self,
        context: Context,
        rule: str,
        reason: str,
        *,
        payload: Payload | None = None,
        where: str = "",
        fix: str = "",
    ) -> NoReturn:
        """Record a refusal and raise it as :class:`PolicyDenied`."""
        where = payload.where if payload is not None else where
        self.audit.record(_event("refuse", context, payload, rule, False, where=where))
        error = PolicyDenied(f"{context}: {reason}", rule=rule, where=where, fix=fix)
        error.recorded = True
        raise error

    def note_refusal(self, context: Context, error: SafeserError, *, where: str = "") -> None:
        """Record a refusal that something else raised, such as a malformed message."""
        event = _event("refuse", context, None, error.rule, False, where=where or error.where)
        try:
            self.audit.record(event)
        except AuditError as failure:
            # The message is refused already; that its refusal cannot be recorded changes nothing
            # about it, and must not end the event loop of whoever reads.
            logger.error("The audit log refuses a record: %s", failure)  # noqa: TRY400 - one line

    def note_unauthenticated(self, error: EnvelopeError) -> None:
        """Record bytes that nobody vouches for: they came on this link, but not from its peer."""
        self.note_refusal(Context(UNKNOWN, self.local, Kind.ADMIN), error)

    def note_drift(self) -> None:
        """Record that the peer says to decide by another policy than this process does.

        It is the peer's own word, for operators who roll a policy out: it decides nothing.
        """
        claims, policy = self.session.peer_claims, self.policy
        theirs = (claims.policy, claims.revision, claims.sha256)
        if theirs == (policy.name, policy.revision, policy.sha256):
            return
        names = ("peer_policy", "peer_revision", "peer_sha256")
        event = _event("drift", self.inbound(Kind.ADMIN), None, "policy.drift", True)
        try:
            self.audit.record({**event, **dict(zip(names, theirs, strict=True))})
        except AuditError as failure:
            logger.error("The audit log refuses a record: %s", failure)  # noqa: TRY400 - one line

    def count_refusal(self, context: Context, error: SafeserError) -> None:
        """Count a refusal where one message has so many that records of each would be an attack."""
        try:
            self._count(context, error.rule, False)
        except AuditError as failure:
            logger.error("The audit log refuses a count: %s", failure)  # noqa: TRY400 - one line

    # --- sending -------------------------------------------------------------------------------

    def permit_operation(self, context: Context) -> None:
        """Raise :class:`PolicyDenied` unless this side may ask for *context*'s operation."""
        decision = self.policy.decide(context, "msgpack", sealing=True)
        if not decision.permitted:
            self.refuse(context, decision.rule, decision.reason, fix=decision.fix)

    def allowed(self, context: Context, serializers: Sequence[str] | None = None) -> Grant:
        """Return what this side may send in *context*, cut to *serializers*."""
        self.permit_operation(context)
        grant = self.policy.grant(context, sealing=True)
        if serializers is None:
            return grant
        return grant.narrowed([f for f in grant.families if _willing(f, serializers)])

    def serialize(
        self, obj: Any, grant: Grant, *, iterate_collection: bool | None = None
    ) -> tuple[dict[str, Any], list[Any]]:
        """Turn *obj* into a header and frames by the first granted family that can."""
        # The order is the policy's, but the families that carry no code come first: what they can
        # carry needs no pickle, whatever the policy would also allow. Of those, dask leaves large
        # buffers uncopied and packs plain values as msgpack does.
        ordered = [*(f for f in grant.families if f == "dask"), *_FLOOR]
        # Writing for family cloudpickle tries plain pickle first by itself, and knows better: a
        # class of __main__ must not go by name alone to a process that has another __main__.
        skipped = {"pickle"} if "cloudpickle" in grant.families else set()
        ordered += [f for f in grant.families if f not in ordered and f not in skipped]
        return serialization.serialize(
            obj, ordered, limits=self.policy.limits, iterate_collection=iterate_collection
        )

    def permit_sending(self, context: Context, payload: Payload) -> None:
        """Raise :class:`PolicyDenied` unless *payload* may leave in *context*."""
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
                fix="Convert it to numbers, text, arrays or frames, which need no pickle.",
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
        grant = self.allowed(context)
        header, frames = self.serialize(obj, grant)
        family = serialization.claimed(header)
        self.permit_sending(context, Payload("message", family, header, tuple(frames), self.local))
        check_payload(frames, self.policy.limits)
        parts, counts = split(frames)
        words = [header, context.kind.value, context.operation]
        return self.session.seal(msgpack.packb([*words, counts] if counts else words), parts)

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
        joined = memoryview(b"".join(frames))
        if len(joined) < PRELUDE_SIZE:
            raise EnvelopeError("the message is shorter than its prelude", rule="envelope.format")
        prelude = self.session.prelude(joined[:PRELUDE_SIZE])
        header_end = PRELUDE_SIZE + prelude.header_length
        table_end = header_end + _PREFIX * prelude.frame_count
        lengths = self.session.lengths(prelude, joined[header_end:table_end])
        if len(joined) != table_end + sum(lengths):
            raise EnvelopeError("the message is not as long as it says", rule="envelope.format")
        parts, start = [], table_end
        for length in lengths:
            parts.append(joined[start : start + length])
            start += length
        return self.session.verify(Sealed(prelude, joined[PRELUDE_SIZE:header_end], tuple(parts)))

    def admit_message(self, verified: Verified, context: Context) -> Admitted:
        """Decide a verified library message under *context*.

        The sender's words about kind and operation must be the recipient's: the recipient knows
        what it expects, the message does not choose it.
        """
        try:
            header, kind, operation, frames = _library_message(verified)
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

    def _count(self, context: Context, rule: str, permitted: bool) -> None:
        self.audit.count(
            sender=context.sender,
            recipient=context.recipient,
            operation=context.operation or "",
            rule=rule,
            permitted=permitted,
        )


class Channel:
    """One process's side of every connection: its identity, its policy and its log.

    :param identity: this process's private key.
    :param policy: the policy that both decides and lists principals.
    :param audit: the log; required, since a decision that is not recorded lets nothing through.
    :param roster: public keys beyond those that the policy lists itself.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        policy: Policy,
        audit: AuditLog | AuditSink,
        roster: Roster | None = None,
    ) -> None:
        self.identity = identity
        self.policy = policy
        self.audit = audit
        self.roster = policy.roster if roster is None else policy.roster.merged(roster)
        self._links: dict[str, Link] = {}
        self._lock = threading.Lock()
        listed = self.roster.principal_of(identity.public)
        if listed != identity.principal:
            raise ConfigError(
                f"the key of {identity.principal!r} is not listed for that principal",
                rule="config.identity",
                fix=f"Add the line that 'safeser keys fingerprint' prints for it, "
                f"{identity.public.text}, to the roster, or use the identity that is listed.",
            )
        if identity.principal not in policy.principals:
            raise ConfigError(
                f"policy {policy.name!r} lists no principal {identity.principal!r}",
                rule="config.principal",
                fix=f"Add it under 'principals:', or use one of {', '.join(policy.principals)}.",
            )

    def handshake(self, *, initiator: bool, expected_peer: str | None = None) -> Handshake:
        """Return a fresh handshake that admits only principals whom the policy lets us meet."""
        return Handshake(
            initiator=initiator,
            identity=self.identity,
            principal_of=self._principal_of,
            policy=(self.policy.name, self.policy.revision, self.policy.sha256),
            expected_peer=expected_peer,
            limits=self.policy.limits,
        )

    def _principal_of(self, public: Any) -> str | None:
        principal = self.roster.principal_of(public)
        if principal is None or principal not in self.policy.principals:
            return None
        # Nobody with whom there is no context, in either direction, gets a session: an insider
        # who took over an address would otherwise be talked to, if only to be refused.
        if principal not in self.policy.counterparts(self.identity.principal):
            return None
        return principal

    def refuse_submission(self, context: Context) -> NoReturn:
        """Record and raise that this principal may submit no graph to anybody."""
        rule = "submission.none"
        self.audit.record(_event("refuse", context, None, rule, False))
        raise PolicyDenied(
            f"{self.identity.principal} may not submit tasks under policy {self.policy.name!r}",
            rule=rule,
            fix="Ask the operator for 'submission: code' in the context towards the scheduler;"
            " it lets you run code there.",
        )

    def link(self, handshake: Handshake, *, shared: bool = True) -> Link:
        """Return the link of a completed handshake.

        :param shared: whether this channel's own calls find it by its peer. A connection that
            somebody else reads and writes must not be used by them: its messages are numbered.
        """
        if not handshake.complete:
            raise AuthenticationError("the handshake is not complete")
        link = Link(session=handshake.session(), policy=self.policy, audit=self.audit)
        link.note_drift()
        if shared:
            with self._lock:
                self._links[link.peer] = link
        return link

    def _linked(self, principal: str) -> Link:
        with self._lock:
            link = self._links.get(principal)
        if link is None:
            raise ConfigError(
                f"there is no session with {principal!r} yet",
                rule="channel.no-session",
                fix="Complete a handshake with that peer first.",
            )
        return link

    def seal(self, obj: Any, context: Context) -> list[Any]:
        """Serialize *obj* as policy allows in *context* and seal it for the recipient.

        :raises PolicyDenied: if policy lets it leave by no family that can carry it.
        :raises ConfigError: if there is no session with the recipient.
        """
        return self._linked(context.recipient).seal(obj, context)

    def admit(self, frames: Sequence[Any], context: Context) -> Admitted:
        """Verify *frames* and decide them; nothing is deserialized yet."""
        link = self._linked(context.sender)
        return link.admit_message(link.verify(frames), context)

    def load(self, admitted: Admitted) -> Any:
        """Rebuild the object of an admitted message."""
        return self._linked(admitted.context.sender).load(admitted)[0]

    def open(self, frames: Sequence[Any], context: Context) -> Any:
        """Verify, decide and load one message: :meth:`admit`, then :meth:`load`."""
        return self.load(self.admit(frames, context))


def _willing(family: str, families: Sequence[str]) -> bool:
    """Tell whether a caller's list covers *family*; Dask's ``pickle`` includes cloudpickle."""
    if family in _FLOOR or family in families:
        return True
    return family == "cloudpickle" and "pickle" in families


def _library_message(
    verified: Verified,
) -> tuple[dict[str, Any], str, str | None, Sequence[Buffer]]:
    """Return header, kind, operation and whole frames of what :meth:`Link.seal` made."""
    try:
        words = msgpack.unpackb(verified.header, use_list=True, strict_map_key=True)
    except (ValueError, TypeError, msgpack.UnpackException):
        words = None
    match words:
        case [dict() as header, str() as kind, (str() | None) as operation]:
            return header, kind, operation, verified.frames
        case [dict() as header, str() as kind, (str() | None) as operation, counts]:
            return header, kind, operation, join(verified.frames, counts)
    raise PayloadError("the message's header is malformed", rule="payload.header")


def _event(
    event: str,
    context: Context,
    payload: Payload | None,
    rule: str,
    permitted: bool,
    *,
    where: str = "",
) -> dict[str, Any]:
    return {
        "event": event,
        "sender": context.sender,
        "recipient": context.recipient,
        "kind": context.kind.value,
        "operation": context.operation or "",
        "family": payload.family if payload is not None else "",
        "author": payload.author if payload is not None else "",
        "where": where or (payload.where if payload is not None else ""),
        "bytes": payload.nbytes if payload is not None else 0,
        "rule": rule,
        "permitted": permitted,
    }

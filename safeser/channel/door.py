"""One process's side of every connection: which peers it accepts, and its own library calls.

The one rule: a peer gets a session only if the roster lists its key, and a context of the policy
names its principal together with this process's.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, NoReturn, overload
from weakref import WeakSet

from safeser.audit import AuditLog
from safeser.channel.admitted import Admitted
from safeser.channel.dialing import shaken
from safeser.channel.events import AuditSink, event, short_reason
from safeser.channel.link import Link
from safeser.channel.records import PATIENCE, Recording, logged_failures
from safeser.channel.standing import Ending, Standing, require_listed
from safeser.errors import AuditError, AuthenticationError, ConfigError, PolicyDenied, SafeserError
from safeser.families.registered.own import own_families
from safeser.gate.handshake import Handshake
from safeser.gate.key_pairs import PublicKey
from safeser.gate.noise import HandshakeRefused
from safeser.gate.values import UNKNOWN, Context, Kind
from safeser.identity import Identity, Roster, VerifyingKey, today
from safeser.policy import Policy

__all__ = ["Channel"]

logger = logging.getLogger("safeser.channel")


#: Seconds in which all sessions end that rest on one key.
_OTHERS_END = 30.0


class Channel:
    """One process's side of every connection: its identity, its policy and its log.

    Identity, policy and roster are one value, which :meth:`adopt` replaces: links decide their next
    messages by the new one, and sessions that it does not allow end.

    :param identity: this process's private key.
    :param policy: the policy that both decides and lists principals.
    :param audit: the log; required, since nothing is loaded whose decision is not recorded.
    :param roster: public keys beyond those that the policy lists itself.
    :param shadow: a policy whose refusals are recorded and refuse nothing.
    :param today: the day that dates of the roster are compared with.
    :param inherited: the state of the process that this one was forked from, in place of a new one:
        what was retired there stays so.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        policy: Policy,
        audit: AuditLog | AuditSink,
        roster: Roster | None = None,
        shadow: Policy | None = None,
        today: Callable[[], datetime.date] = today,
        inherited: Standing | None = None,
    ) -> None:
        self.audit = audit
        self._stand(inherited or Standing(identity, policy, roster or Roster(), shadow=shadow))
        self._today = today
        self._links: dict[str, Link] = {}
        self._live: WeakSet[Link] = WeakSet()
        self._lock = threading.Lock()
        self._adopting = threading.RLock()
        self._coming: Identity | None = None  # the new key, to which sessions are being renewed
        self._waited = 0  # calls of tend() since the new key came
        own_families.look_for(policy.families)
        self._declare_families(policy)
        if inherited is None:
            require_listed(self._standing, on=today())
        self._is_settled: Callable[[], bool] = lambda: True
        self._ends: dict[tuple[str, str], float] = {}
        self._told: list[Callable[[frozenset[str]], None]] = []
        self._reviewed = (self._standing, today())
        self._silenced = self._standing.silenced(today())
        self._note_observing()

    def _stand(self, standing: Standing) -> None:
        self._standing = standing
        #: The policy in force, which each message asks for several times.
        self.policy = standing.policy
        shadow = standing.shadow
        written = standing.policy.written if shadow is None else shadow.written
        #: The policy whose refusals are recorded: the shadow, or what an observing policy says.
        self.shadow = written or shadow

    @property
    def standing(self) -> Standing:
        """Identity, policy and roster, which belong together."""
        return self._standing

    @property
    def identity(self) -> Identity:
        return self._standing.identity

    @property
    def roster(self) -> Roster:
        """The keys of policy and roster file together."""
        return self._standing.roster

    def is_silenced(self, principal: str) -> bool:
        """Tell whether *principal* had keys, each of which is retired, expired or removed."""
        return principal in self._silenced

    def author_of(self, key: VerifyingKey) -> str | None:
        """Return the principal whose signatures *key* verifies today, or None."""
        return self.roster.author_of(key, on=self._today())

    def owner_of(self, key: PublicKey) -> str | None:
        """Return the principal that the roster lists with *key*, in any state, or None."""
        entry = self.roster.entry_of(key)
        return None if entry is None else entry.principal

    # --- changes ---------------------------------------------------------------------------------

    def adopt(
        self,
        *,
        identity: Identity | None = None,
        policy: Policy | None = None,
        roster: Roster | None = None,
        shadow: Policy | None = None,
    ) -> bool:
        """Replace the given parts of the standing at once; return whether anything changed.

        This thread ends sessions that the new state does not allow; links decide their next
        messages by the new policy. A new identity takes effect once lasting sessions are renewed.

        :raises ConfigError: if the new state may not follow the present one; nothing changes then.
        """
        with self._adopting:
            old = new = self._standing
            if policy is not None:
                new = new.with_policy(policy)
            if roster is not None and roster != new.listed:
                new = new.with_roster(roster)
            if shadow is not None and shadow is not new.shadow:
                new = replace(new, shadow=shadow)
            if identity is not None:
                coming = new.with_identity(identity).identity
                self._coming = None if coming is new.identity else coming
            changed = new is not old or (identity is not None and self._coming is not None)
            if new is not old:
                if new.policy is not old.policy:
                    own_families.look_for(new.policy.families)
                    self._declare_families(new.policy)
                self._stand(new)
                self._note_adopted(old, new)
                self.review()
            self.tend()
            return changed

    def tend(self) -> None:
        """Renew sessions that are old, or that were begun with an earlier key or policy.

        New sessions use a new key only after the lasting ones are renewed with it, so that peers
        learn the new key on a connection that they know.
        """
        with self._adopting:
            standing, coming = self._standing, self._coming
            key = (coming or standing.identity).public
            links = self.live_links()
            for link in links:
                link.tend(key, standing.policy)
            self._waited += 1
            if coming is None:
                self._waited = 0
            elif self._waited > PATIENCE or not any(
                link.lasts and link.own_key != key for link in links
            ):
                self._go_over(standing, coming)

    def _go_over(self, standing: Standing, coming: Identity) -> None:
        self._coming, self._waited = None, 0
        try:
            new = standing.with_identity(coming)
        except ConfigError as error:  # the key was retired meanwhile
            self.note_refused("identity", "", error)
            return
        self._stand(new)
        self._note_adopted(standing, new)
        self.review()

    def review(self) -> None:
        """End the sessions that roster, dates or policy no longer allow."""
        with self._adopting:
            self._follow_dates()
            state = (self._standing, self._today())
            if state == self._reviewed:
                return
            standing, day = state
            before, self._silenced = self._silenced, standing.silenced(day)
            for tell in self._told if self._silenced - before else ():
                tell(self._silenced)
            for link in self.live_links():
                link.limit(standing.policy.limits)
                ending = self._end_of(link, standing, day)
                if ending is not None:
                    link.finish(ending)
            self._reviewed = state  # last, so that the next call resumes after an error

    def _follow_dates(self) -> None:
        """Replace the policies of which a context has ended, so that nothing rests on it."""
        old = self._standing
        policy = old.policy.renewed()
        shadow = None if old.shadow is None else old.shadow.renewed()
        if policy is old.policy and shadow is old.shadow:
            return
        self._stand(replace(old, policy=policy, shadow=shadow))
        for rule in old.policy.passed():
            own = self.identity.principal
            logger.warning("%s: context %r of %s has ended", own, rule.name, _named(policy))
            with logged_failures():  # what rested on it must end all the same
                self._note_file("policy", rule.name, "policy.ended", permitted=True)

    def settled_by(self, is_settled: Callable[[], bool]) -> None:
        """Set the function, called by any thread, that tells whether no file change is pending."""
        self._is_settled = is_settled

    @property
    def is_settled(self) -> bool:
        """Whether identity, policy and roster are those of the files, judged by file status.

        A change takes effect after a second or two; a caller that needs it asks again then.
        """
        return self._is_settled()

    def when_silenced(self, tell: Callable[[frozenset[str]], None]) -> None:
        """Register *tell*, called by any thread with all silenced principals when one is added."""
        self._told.append(tell)

    def inspect(self, link: Recording) -> None:
        """End the session of *link*, just begun or renewed, if it is no longer allowed."""
        ending = self._end_of(link, self._standing, self._today())
        if ending is not None:
            link.finish(ending)

    def level_of_end(self, peer: str, why: object) -> int:
        """Return the level of the line that a session with *peer* ends: a warning for the first.

        The others of the two processes end for the same reason in the seconds that follow.
        """
        now, about = monotonic(), (peer, str(why))
        self._ends = {each: at for each, at in self._ends.items() if now - at < _OTHERS_END}
        level = logging.DEBUG if about in self._ends else logging.WARNING
        self._ends[about] = now
        return level

    @staticmethod
    def _end_of(link: Recording, standing: Standing, day: datetime.date) -> Ending | None:
        peer_key = link.session.peer_key
        return standing.end_of(own_key=link.own_key, peer_key=peer_key, peer=link.peer, on=day)

    def live_links(self) -> list[Link]:
        """Return the links whose sessions have not ended."""
        with self._lock:
            links = list(self._live)
        return [link for link in links if not link.session.ended]

    def _note_adopted(self, old: Standing, new: Standing) -> None:
        own, policy = new.identity, new.policy
        changed = {
            "identity": old.identity is not own and f"key {own.public.fingerprint}",
            "policy": old.policy is not policy and _named(policy),
            "shadow": new.shadow is not None
            and old.shadow is not new.shadow
            and _named(new.shadow),
            "roster": old.listed is not new.listed and f"SHA-256 {new.listed.sha256[:12]}",
        }
        with logged_failures():  # sessions that rest on a withdrawn key or grant must end anyway
            if old.policy is not policy and isinstance(self.audit, AuditLog):
                self.audit.use_policy((policy.name, policy.revision, policy.sha256))
            for what, now in changed.items():
                if now:
                    logger.info("%s: the new %s is in force: %s", own.principal, what, now)
                    self._note_file(what, "", f"{what}.adopted", permitted=True)
            if changed["policy"]:
                self._note_observing()

    def _declare_families(self, policy: Policy) -> None:
        if isinstance(self.audit, AuditLog):
            self.audit.activity.declare(policy.families)

    def _note_observing(self) -> None:
        """Record that this process enforces nothing but the floors, where that is so."""
        policy = self.policy
        if policy.observes and isinstance(self.audit, AuditLog):
            logger.warning("%s: policy %s only observes", self.identity.principal, policy.name)
            own = self.identity.principal
            context = Context(own, own, Kind.ADMIN)
            self.audit.record(event("observe", context, None, "policy.observe", True))

    def note_refused(self, what: str, where: str, error: SafeserError) -> None:
        """Log and record that a changed identity, policy or roster file is refused."""
        own = self.identity.principal
        logger.error("%s: the %s file is not taken, nothing changes: %s", own, what, error)
        with logged_failures():
            self._note_file(what, where, error.rule, permitted=False, reason=error.message)

    def _note_file(
        self, what: str, where: str, rule: str, *, permitted: bool, reason: str = ""
    ) -> None:
        own = self.identity.principal
        context = Context(own, own, Kind.ADMIN)
        said = event("reload", context, None, rule, permitted, where=where or what)
        if reason:
            said["reason"] = short_reason(reason)
        self.audit.record(said)

    def write_counts(self) -> None:
        """Have the log write the counts that are due; a message does so as well, if one comes."""
        if isinstance(self.audit, AuditLog):
            with suppress(AuditError):  # the next message is refused for it, or says so
                self.audit.write_counts()

    # --- connections -----------------------------------------------------------------------------

    def handshake(
        self,
        *,
        initiator: bool,
        expected_peer: str | None = None,
    ) -> Handshake:
        """Return a fresh handshake that admits only principals with which the policy has contexts.

        :raises AuthenticationError: if the roster does not let this process's own key speak.
        """
        standing = self._standing
        return self._handshake(
            standing, standing.identity, initiator=initiator, expected_peer=expected_peer
        )

    def renewing(self, link: Recording, *, initiator: bool) -> Handshake:
        """Return a handshake that renews the session of *link*, by the newest key of this process.

        :raises AuthenticationError: if the roster does not let that key speak.
        """
        standing, expected = self._standing, link.peer if initiator else None
        return self._handshake(
            standing,
            self._coming or standing.identity,
            initiator=initiator,
            expected_peer=expected,
            only=link.peer,
        )

    def _handshake(
        self,
        standing: Standing,
        identity: Identity,
        *,
        initiator: bool,
        expected_peer: str | None,
        only: str | None = None,
    ) -> Handshake:
        policy = standing.policy
        self._require_speaking(standing, identity)
        return Handshake(
            initiator=initiator,
            identity=identity,
            principal_of=partial(self._principal_of, only=only),
            policy=(policy.name, policy.revision, policy.sha256),
            expected_peer=expected_peer,
            limits=policy.limits,
        )

    def require_speaking(self) -> None:
        """Raise AuthenticationError if this process's own key may not open sessions."""
        standing = self._standing
        self._require_speaking(standing, standing.identity)

    def _require_speaking(self, standing: Standing, identity: Identity) -> None:
        own = standing.end_of_key(identity.public, identity.principal, self._today())
        if own is not None:
            raise AuthenticationError(
                f"this process may not open sessions: {own}",
                rule=own.rule,
                fix="Give it a key that the roster lists as active.",
            )

    def _principal_of(self, public: PublicKey, *, only: str | None = None) -> str | None:
        standing = self._standing
        principal = standing.roster.principal_of(public, on=self._today())
        if principal is None or principal not in standing.policy.principals:
            return None
        if only not in (None, principal):
            return None
        # A principal without a context, in either direction, gets no session: otherwise this
        # process would exchange messages with an insider that took over an address.
        if principal not in standing.policy.counterparts(standing.identity.principal):
            return None
        return principal

    def note_unlisted_key(self, key: str, address: str) -> None:
        """Record a peer that proved a key which the roster does not let speak here.

        :param key: fingerprint of the key.
        """
        context = Context(UNKNOWN, self.identity.principal, Kind.ADMIN, "handshake")
        said = event("refuse", context, None, "authentication.key", False)
        self.audit.record({**said, "address": address, "key": key})

    def refuse_submission(self, context: Context) -> NoReturn:
        """Record and raise that this principal may submit no graph to any scheduler."""
        rule = "submission.none"
        self.audit.record(event("refuse", context, None, rule, False))
        raise PolicyDenied(
            f"{self.identity.principal} may not submit tasks",
            rule=rule,
            policy=self.policy.title,
            process=self.identity.principal,
            fix="Ask the operator for 'submission: sealed' in the context towards the scheduler.",
        )

    def link(
        self,
        handshake: Handshake,
        *,
        shared: bool = True,
        transport: str = "library",
        same_host: bool | None = None,
        address: str = "",
    ) -> Link:
        """Return the link of a completed handshake.

        :param shared: whether :meth:`seal`, :meth:`open` and the like use it for its peer. They
            must not use a connection that other code reads and writes, since messages are numbered.
        :param transport: how its messages travel, for contexts that name a transport.
        :param same_host: whether its other end is on this machine, as this process measured it.
        :param address: of its other end, for the log.
        :raises AuthenticationError: if the handshake is not complete, or if its peer has lost its
            right to a session since the handshake began.
        """
        if not handshake.complete:
            raise AuthenticationError("the handshake is not complete")
        session = handshake.session()
        link = Link(
            session=session,
            own_key=handshake.local_key,
            stated_policy=handshake.stated_policy,
            channel=self,
            audit=self.audit,
            transport=transport,
            same_host=same_host,
            address=address,
        )
        # Add it to the live links before inspecting it: a concurrent change of the roster either
        # finds it there or is seen by this inspection.
        with self._lock:
            self._live.add(link)
        self.inspect(link)
        if link.over is not None:
            raise HandshakeRefused(f"since the handshake began, {link.over}")
        link.note_session()
        link.note_drift()
        if shared:
            self.share(link)
        return link

    def share(self, link: Link) -> None:
        """Have :meth:`seal`, :meth:`open` and the like use *link* for its peer."""
        with self._lock:
            self._links[link.peer] = link

    @overload
    def dial(
        self,
        send: Callable[[bytes], Awaitable[Any]],
        recv: Callable[[], Awaitable[Any]],
        *,
        peer: str | None = None,
        address: str = "",
    ) -> Awaitable[Link]: ...
    @overload
    def dial(
        self,
        send: Callable[[bytes], Any],
        recv: Callable[[], Any],
        *,
        peer: str | None = None,
        address: str = "",
    ) -> Link: ...
    def dial(
        self,
        send: Callable[[bytes], Any],
        recv: Callable[[], Any],
        *,
        peer: str | None = None,
        address: str = "",
    ) -> Link | Awaitable[Link]:
        """Return the link to the process that answers, after a handshake by whole messages.

        :param send: sends one message; it may be asynchronous, as *recv* then is.
        :param recv: returns the next message. Deadlines are the socket's.
        :param peer: the principal that must be at the other end.
        :raises AuthenticationError: if either side refuses the other.
        """
        return shaken(self, send, recv, initiator=True, peer=peer, address=address)

    @overload
    def answer(
        self,
        send: Callable[[bytes], Awaitable[Any]],
        recv: Callable[[], Awaitable[Any]],
        *,
        address: str = "",
    ) -> Awaitable[Link]: ...
    @overload
    def answer(
        self, send: Callable[[bytes], Any], recv: Callable[[], Any], *, address: str = ""
    ) -> Link: ...
    def answer(
        self, send: Callable[[bytes], Any], recv: Callable[[], Any], *, address: str = ""
    ) -> Link | Awaitable[Link]:
        """Return the link to a peer that dials, see :meth:`dial`."""
        return shaken(self, send, recv, initiator=False, address=address)

    def _linked(self, principal: str) -> Link:
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


def _named(policy: Policy) -> str:
    return f"{policy.name} revision {policy.revision} (SHA-256 {policy.sha256[:12]})"

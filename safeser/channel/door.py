"""One process's side of every connection: with whom it speaks at all, and its own library calls.

The one rule: nobody gets a session whom the roster does not list, or with whom no context of the
policy has anything to do.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from safeser.audit import AuditLog
from safeser.channel.admitted import Admitted
from safeser.channel.link import Link
from safeser.channel.records import AuditSink, event
from safeser.envelope import Handshake, SuiteRefused
from safeser.errors import AuthenticationError, ConfigError, PolicyDenied
from safeser.families.registered.own import own_families
from safeser.keys import Identity, Roster
from safeser.policy import Policy
from safeser.values import Context

__all__ = ["Channel"]


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
        own_families.look_for(policy.families)
        listed = self.roster.principal_of(identity.public)
        if listed != identity.principal:
            state = self._state_of(identity)
            if state is not None:
                # To list it anew could be to let a thief in again.
                raise ConfigError(
                    f"the key of {identity.principal!r} is {state} in the roster",
                    rule="config.identity",
                    fix="Use that principal's active key; 'safeser keys list' shows which it is."
                    " One that is retired stays so: make another with 'safeser keys new'.",
                )
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

    def _state_of(self, identity: Identity) -> str | None:
        """Return what the roster says of this very key, if it lists it for that principal."""
        same = (identity.public, identity.principal)
        found = (e for e in self.roster.entries if (e.public, e.principal) == same)
        entry = next(found, None)
        return None if entry is None else entry.state.value

    def handshake(
        self,
        *,
        initiator: bool,
        expected_peer: str | None = None,
        transport: str = "library",
        same_host: bool | None = None,
    ) -> Handshake:
        """Return a fresh handshake that admits only principals whom the policy lets us meet.

        An initiator proposes the suite that the policy requires with *expected_peer* or, where it
        expects none, the strictest that it requires with any principal that it may meet this way.

        :param transport: how messages of the session will travel, and *same_host* whether its other
            end is on this machine, as in :meth:`link`.
        """
        local = self.identity.principal
        suite = partial(self.policy.suite, local, transport=transport, same_host=same_host)
        return Handshake(
            initiator=initiator,
            identity=self.identity,
            principal_of=self._principal_of,
            required=suite,
            suite=suite(expected_peer) if initiator else None,
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
        self.audit.record(event("refuse", context, None, rule, False))
        raise PolicyDenied(
            f"{self.identity.principal} may not submit tasks under policy {self.policy.name!r}",
            rule=rule,
            fix="Ask the operator for 'submission: approved' in the context towards the scheduler,"
            " which lets you run listed functions there, or for 'submission: code'.",
        )

    def link(
        self,
        handshake: Handshake,
        *,
        shared: bool = True,
        transport: str = "library",
        same_host: bool | None = None,
    ) -> Link:
        """Return the link of a completed handshake.

        :raises AuthenticationError: if its session is not of the suite that the policy requires
            between these principals, on this transport.

        :param shared: whether this channel's own calls find it by its peer. A connection that
            somebody else reads and writes must not be used by them: its messages are numbered.
        :param transport: how its messages travel, for contexts that ask for it.
        :param same_host: whether its other end is on this machine, as this process measured it.
        """
        if not handshake.complete:
            raise AuthenticationError("the handshake is not complete")
        session = handshake.session()
        required = self.policy.suite(
            session.local, session.peer, transport=transport, same_host=same_host
        )
        if session.suite < required:
            raise SuiteRefused(session.peer, suite=session.suite, required=required)
        link = Link(
            session=session,
            policy=self.policy,
            audit=self.audit,
            transport=transport,
            same_host=same_host,
        )
        link.note_suite()
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

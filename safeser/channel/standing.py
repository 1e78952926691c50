"""The identity, policy and roster of a process, held as one immutable value.

The one rule: a standing never changes. A changed file makes a new one, and code that reads two
fields reads both from one standing.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from safeser.errors import ConfigError
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import check_principal
from safeser.identity import Identity, KeyState, Roster, RosterEntry, VerifyingKey
from safeser.policy import Policy

__all__ = ["SENTENCES", "Ending", "Standing", "require_own_signing_key"]

#: The sentence that explains why a session ends, by rule.
SENTENCES = {
    "key.retired": "the key of {whose} is retired in the roster",
    "key.pending": "the key of {whose} is pending in the roster",
    "key.verify-only": "the key of {whose} is verify-only in the roster and opens no sessions",
    "key.expired": "the last day of the key of {whose} (not_after) is over",
    "key.unlisted": "the roster lists the key of {whose} no more",
    "policy.no-context": "the policy has no context with {whose} any more",
}

_STATES = {
    KeyState.RETIRED: "key.retired",
    KeyState.PENDING: "key.pending",
    KeyState.VERIFY_ONLY: "key.verify-only",
}


class Ending(NamedTuple):
    """Why a session ends: a rule of :data:`SENTENCES`, and the principal concerned."""

    rule: str
    whose: str

    def __str__(self) -> str:
        return SENTENCES[self.rule].format(whose=self.whose)

    @classmethod
    def named(cls, rule: str, whose: str) -> Ending | None:
        """Return the ending that a peer names; None if there is no such rule or principal."""
        try:
            return cls(rule, check_principal(whose)) if rule in SENTENCES else None
        except ConfigError:
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """One state of a channel.

    :param roster: the keys of the policy and of the roster file together.
    :param listed: the roster file alone.
    :param known: principals that any roster of this process has listed so far.
    :param retired: keys that were retired at any time; no later file may list one again in another
        state, alone or beside another key.
    :param shadow: the policy whose refusals are only recorded.
    :raises ConfigError: if policy and roster contradict each other, or list a retired key again.
    """

    identity: Identity
    policy: Policy
    listed: Roster
    known: frozenset[str] = frozenset()
    retired: frozenset[PublicKey | VerifyingKey] = frozenset()
    shadow: Policy | None = None
    roster: Roster = field(init=False)

    def __post_init__(self) -> None:
        roster = self.policy.roster.merged(self.listed)
        for entry in roster.entries:
            back = [key for key in entry.keys if key in self.retired]
            if back and entry.state is not KeyState.RETIRED:
                raise _brought_back(entry, back[0])
        names = {entry.principal for entry in roster.entries}
        lines = (entry for entry in roster.entries if entry.state is KeyState.RETIRED)
        gone = {key for entry in lines for key in entry.keys}
        object.__setattr__(self, "roster", roster)
        object.__setattr__(self, "known", self.known | names)
        object.__setattr__(self, "retired", self.retired | gone)

    def silenced(self, on: datetime.date) -> frozenset[str]:
        """Return the principals that had keys, each of which is retired, expired or removed.

        Payloads that they wrote are refused even if another process relays them. A principal that
        no roster of this process has listed is not among them: rosters need not list authors. Nor
        is one with verify-only keys: its queued work goes on until those are retired or expired.
        """
        heard = {
            entry.principal
            for entry in self.roster.entries
            if entry.state is not KeyState.RETIRED and not entry.ended(on)
        }
        return self.known - heard

    def end_of_key(self, key: PublicKey, principal: str, on: datetime.date) -> Ending | None:
        """Return why sessions of *key*, of *principal*, end on the day *on*, if they do.

        ``not_before`` is not checked: a clock that is set back ends no session.
        """
        entry = self.roster.entry_of(key)
        if entry is None or entry.principal != principal:
            return Ending("key.unlisted", principal)
        if entry.state is not KeyState.ACTIVE:
            return Ending(_STATES[entry.state], principal)
        return Ending("key.expired", principal) if entry.ended(on) else None

    def end_of(
        self, *, own_key: PublicKey | None, peer_key: PublicKey, peer: str, on: datetime.date
    ) -> Ending | None:
        """Return why a session between these two keys ends on the day *on*, if it does."""
        own = self.identity.principal
        ending = self.end_of_key(peer_key, peer, on)
        if ending is None and own_key is not None:
            ending = self.end_of_key(own_key, own, on)
        if ending is None and peer not in self.policy.counterparts(own):
            return Ending("policy.no-context", peer)
        return ending

    # --- allowed successors ----------------------------------------------------------------------

    def with_policy(self, policy: Policy) -> Standing:
        """Return this standing with *policy*, whose revision must be higher.

        :raises ConfigError: if it is not; otherwise an old file that a deployment tool puts back
            would grant again what was withdrawn.
        """
        now = self.policy
        if policy.sha256 == now.sha256:
            return self
        if policy.revision <= now.revision:
            older = policy.revision < now.revision
            raise ConfigError(
                f"policy {policy.name!r} has revision {policy.revision} and"
                f" {'is older' if older else 'another text'} than {now.name!r} revision"
                f" {now.revision}, which stays in force",
                rule="policy.older" if older else "policy.same-revision",
                fix=f"Give it revision {now.revision + 1} or more; a rollback is the old text under"
                " a higher revision.",
            )
        return replace(self, policy=policy)

    def with_roster(self, listed: Roster) -> Standing:
        """Return this standing with the roster file *listed*.

        Any roster is accepted that lists a key and does not list a retired one again. A roster has
        no revision, so that an operator can remove a stolen key without raising a number.

        :raises ConfigError: if it brings back a retired key, or lists none.
        """
        if not listed.entries:
            raise ConfigError(
                "the roster lists no key",
                rule="roster.empty",
                fix="Write the whole roster; replace the file by renaming a complete one over it.",
            )
        return replace(self, listed=listed)

    def with_identity(self, identity: Identity) -> Standing:
        """Return this standing with another key of the same principal.

        :raises ConfigError: if it is another principal's, or the roster does not let it speak.
        """
        own = self.identity.principal
        keys = (identity.public, identity.verifying)
        if keys == (self.identity.public, self.identity.verifying) and identity.principal == own:
            return self
        if identity.principal != own:
            raise ConfigError(
                f"the identity file holds a key of {identity.principal!r} now, and this process is"
                f" {own!r}",
                rule="identity.principal",
                fix="Restart the process to make it another principal.",
            )
        if self.roster.principal_of(identity.public) != own:
            raise ConfigError(
                f"the identity file holds the key {identity.public.fingerprint}, which the roster"
                f" here does not list as active for {own!r}",
                rule="identity.unlisted",
                fix="List the new key in every roster first, then replace the key file.",
            )
        require_own_signing_key(identity, self.roster)
        return replace(self, identity=identity)


def require_listed(standing: Standing, *, on: datetime.date) -> None:
    """Raise unless roster and policy list this process's own key and principal."""
    identity, policy = standing.identity, standing.policy
    entry = standing.roster.entry_of(identity.public)
    if entry is None or entry.principal != identity.principal:
        raise ConfigError(
            f"the key of {identity.principal!r} is not listed for that principal",
            rule="config.identity",
            fix=f"Add the line that 'safeser keys fingerprint' prints for it, "
            f"{identity.public_text}, to the roster, or use the identity that is listed.",
        )
    if entry.state is not KeyState.ACTIVE:
        # Advice to list it again could readmit a thief.
        raise ConfigError(
            f"the key of {identity.principal!r} is {entry.state.value} in the roster",
            rule="config.identity",
            fix="Use that principal's active key; 'safeser keys list' shows which it is."
            " One that is retired stays so: make another with 'safeser keys new'.",
        )
    if not entry.speaks(on):
        early = not entry.ended(on)
        raise ConfigError(
            f"the key of {identity.principal!r} is valid"
            f" {f'from {entry.not_before} on' if early else f'until {entry.not_after}'}, and today"
            f" is {on}",
            rule="config.identity",
            fix="Use a key whose dates in the roster include today, or correct the clock.",
        )
    require_own_signing_key(identity, standing.roster)
    if identity.principal not in policy.principals:
        raise ConfigError(
            f"policy {policy.name!r} lists no principal {identity.principal!r}",
            rule="config.principal",
            fix=f"Add it under 'principals:', or use one of {', '.join(policy.principals)}.",
        )


def require_own_signing_key(identity: Identity, roster: Roster) -> None:
    """Raise :class:`ConfigError` if *roster* lists another's signing key behind *identity*'s key.

    The owner of that signing key could sign as this principal: an attacker may have changed the
    public text on its way to the operator. A line without a signing key is valid; signatures by
    *identity* do not verify then.
    """
    entry = roster.entry_of(identity.public)
    listed = None if entry is None else entry.verifying
    if listed is not None and listed != identity.verifying:
        raise ConfigError(
            f"the roster lists the signing key {listed.fingerprint} for the key of"
            f" {identity.principal!r}, whose identity file holds"
            f" {identity.verifying.fingerprint if identity.verifying else 'none'}",
            rule="identity.signing",
            fix="If the roster is wrong, another key may sign as this principal: retire that line"
            " and list a new key, whose fingerprints 'safeser keys fingerprint' prints.",
        )


def _brought_back(entry: RosterEntry, key: PublicKey | VerifyingKey) -> ConfigError:
    return ConfigError(
        f"the key {key.fingerprint}, which was retired here, is listed as"
        f" {entry.state.value} for {entry.principal!r}",
        rule="roster.retired-again",
        fix="A retired key stays so: list a new one, or deploy the newer roster. Only a process"
        " that is started again forgets what was retired.",
    )

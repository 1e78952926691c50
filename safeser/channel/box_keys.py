"""Whose keys count for a box: those of a roster, which follows its files, or a shared secret.

The one rule: a key counts if it counts now. What a message says of the time when it was sealed
rescues no key that was retired since.
"""

from __future__ import annotations

import datetime
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from safeser.audit import AuditLog, SessionFacts
from safeser.channel.admitted import Received, Unsealed
from safeser.channel.door import Channel
from safeser.channel.events import AuditSink, NoLog
from safeser.channel.link import Link
from safeser.channel.records import ID_LENGTH, logged_failures, note_refusal
from safeser.channel.reload import LiveFiles
from safeser.channel.standing import Standing
from safeser.channel.unauthenticated import FixedPolicy
from safeser.channel.watcher import unwatch, watch
from safeser.errors import AuthenticationError, ConfigError, EnvelopeError, SafeserError
from safeser.gate.detached import (
    NO_KEY,
    PAIR,
    READERS,
    SHARED,
    SIGNED,
    TWO_ENDS,
    Ends,
    Facts,
    Message,
    Sealed,
    Verify,
    direction,
)
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import UNKNOWN, Context, Kind
from safeser.identity import Identity, KeyState, Roster, RosterEntry, VerifyingKey
from safeser.identity.secret import Secret
from safeser.policy import Policy

__all__ = ["AnyLog", "BoxKeys", "Hop", "RosterKeys", "SecretKeys"]

logger = logging.getLogger("safeser.channel")

#: The one principal of all who have a shared secret.
SHARED_PRINCIPAL = "shared"
_NO_WAY = (SHARED_PRINCIPAL, SHARED_PRINCIPAL)

#: Hops and directions that a box keeps. X25519 takes 30 us, and each link some kilobytes.
_MOST_HOPS = 1024

_DAY = 86_400

#: A log, or a folder with the key of one.
AnyLog = AuditSink | str | os.PathLike[str]


class _Pair:
    """Stands for the session of a link: two principals, and an id of their keys."""

    def __init__(self, ends: Ends, *, local: str, peer: str) -> None:
        self.id = ends.id
        self.local = local
        self.peer = peer


class BoxLink(Link):
    """Decides and records what one principal seals for another, which no session carries."""

    def __init__(
        self, ends: Ends, *, local: str, peer: str, channel: Any, audit: AuditSink, key: str
    ) -> None:
        session: Any = _Pair(ends, local=local, peer=peer)
        self._key = key
        super().__init__(session=session, channel=channel, audit=audit, transport="box")
        self._heard = 0

    def _session_facts(self) -> SessionFacts:
        return SessionFacts(
            self.session.id.hex()[:ID_LENGTH],
            {"key": self._key, "peer": self.peer, "transport": self.transport},
        )

    def heard(self, message: Message) -> Unsealed:
        """Return a verified message as one of this link."""
        self._heard += 1
        return Unsealed(message, self.session.id, self._heard)

    def event(
        self,
        name: str,
        context: Context,
        payload: Any,
        rule: str,
        permitted: bool,
        *,
        message_id: bytes = b"",
        **said: Any,
    ) -> dict[str, Any]:
        made = super().event(name, context, payload, rule, permitted, **said)
        if isinstance(payload, Received) and isinstance(payload.verified, Unsealed):
            message_id = payload.verified.facts.id
        return {**made, "id": message_id.hex()} if message_id else made

    def note_message(self, context: Context, error: SafeserError, facts: Facts) -> None:
        """Record the refusal of a verified message before its payload is decided."""
        self.attribute(error)
        said = ("refuse", context, None, error.rule)
        with logged_failures():
            self._record_refusal(
                *said, where=error.where, reason=error.message, message_id=facts.id
            )
        error.recorded = True


class Hop(NamedTuple):
    """The keys of messages in one direction, and the link that decides and records them.

    :param verify: tells whether a signature is the sender's; None where it has no signing key.
    """

    ends: Ends
    link: BoxLink
    verify: Verify | None = None


def _kept(kept: dict[Any, Hop], key: object, hop: Hop) -> Hop:
    if len(kept) >= _MOST_HOPS:
        kept.clear()
    kept[key] = hop
    return hop


class BoxKeys(Protocol):
    """What a box asks: which keys there are now, and who decides about what they seal."""

    clock: Callable[[], float]
    channel: Any
    principal: str

    def sealing(self, to: str | None, about: str, *, signed: bool) -> Hop:
        """Return the hop by which this process seals for *to*.

        :raises ConfigError: if there is none.
        """

    def opening(self, sealed: Sealed, about: str) -> Hop:
        """Return the hop by which the message *sealed*, not authentic yet, may be opened.

        :raises EnvelopeError: if none of the keys that count makes such messages for this process.
        """

    def opened(self, about: str) -> None:
        """Note that a message about *about* was verified."""

    def sign(self, data: bytes) -> bytes:
        """Return this process's signature."""

    def note_unauthenticated(self, error: EnvelopeError) -> None:
        """Record the refusal of bytes that prove no sender."""

    def close(self) -> None:
        """Close what was opened for the box."""


class _Keys:
    """What both ways to know keys have in common: a log, and a clock that a test can set."""

    def __init__(self, principal: str, audit: AnyLog | None, policy: Policy) -> None:
        self.clock: Callable[[], float] = time.time
        self.principal = principal
        self.audit, self._own_log = _open_log(audit, principal, policy)

    def opened(self, about: str) -> None:
        """Note nothing: a roster says who seals and who opens."""

    def note_unauthenticated(self, error: EnvelopeError) -> None:
        """Record the refusal of bytes that prove no sender."""
        error.decided_by("", self.principal)
        note_refusal(self.audit, Context(UNKNOWN, self.principal, Kind.ADMIN), error)
        error.recorded = True

    def close(self) -> None:
        """Close the log, if it was opened for the box."""
        if self._own_log is not None:
            self._own_log.close()


class _Known(NamedTuple):
    """The hops of one state of the files, on one day."""

    standing: Standing
    day: int
    date: datetime.date
    sealing: dict[tuple[str | None, bool], Hop]
    opening: dict[tuple[int, bytes], Hop]


def _require_own_key(known: _Known, what: str) -> None:
    """Refuse to *what* by an own key that is not active: its thief forges what is sealed for it."""
    identity = known.standing.identity
    ending = known.standing.end_of_key(identity.public, identity.principal, known.date)
    if ending is not None:
        raise AuthenticationError(
            f"this process may not {what}: {ending}",
            rule=ending.rule,
            fix="Give it a key that the roster lists as active.",
        )


class RosterKeys(_Keys):
    """One identity, the keys of a roster, and a policy, in files that may change.

    :param folder: has ``<principal>.key``, ``roster`` and, unless *policy* says which, a policy.
    """

    def __init__(
        self,
        folder: Path,
        principal: str,
        *,
        policy: str | os.PathLike[str] | None,
        audit: AnyLog | None,
    ) -> None:
        identity_path, roster_path = folder / f"{principal}.key", folder / "roster"
        identity = Identity.load(identity_path)
        if identity.principal != principal:
            raise ConfigError(
                f"{identity_path} is the key of {identity.principal!r}, not of {principal!r}",
                rule="config.identity",
                fix="Name the principal whose key it is.",
            )
        self._paths = (
            identity_path,
            os.fspath(folder / "policy.yaml" if policy is None else policy),
            roster_path,
        )
        loaded = Policy.load(self._paths[1])
        if audit is None and (folder / "audit.key").exists():
            audit = folder
        super().__init__(principal, audit, loaded)
        self._follow(identity, loaded, Roster.load(roster_path))

    def _follow(
        self, identity: Identity, policy: Policy, roster: Roster, inherited: Standing | None = None
    ) -> None:
        """Follow the files from now on, in this process."""
        identity_path, policy_path, roster_path = self._paths
        self.channel = Channel(
            identity=identity, policy=policy, audit=self.audit, roster=roster, inherited=inherited
        )
        self._files = LiveFiles(
            self.channel, identity=identity_path, policy=policy_path, roster=roster_path
        )
        self._known: _Known | None = None
        if inherited is not None:
            self._files.look()
        self._process = os.getpid()
        watch(self._files)

    def _state(self) -> _Known:
        """Return what is known of the files that are in force; another state knows nothing yet."""
        if self._process != os.getpid():
            # A fork has neither the thread that looks at the files, nor may it wait for its locks.
            before = self.channel.standing
            self._follow(before.identity, before.policy, before.listed, before)
        known, day = self._known, int(self.clock() // _DAY)
        if known is None or known.standing is not self.channel.standing or known.day != day:
            date = datetime.datetime.fromtimestamp(day * _DAY, datetime.UTC).date()
            known = self._known = _Known(self.channel.standing, day, date, {}, {})
        return known

    # --- sealing -----------------------------------------------------------------------------

    def sealing(self, to: str | None, about: str, *, signed: bool) -> Hop:
        """Return the hop by which this process seals for *to*; see :class:`BoxKeys`."""
        known = self._state()
        hop = known.sealing.get((to, signed))
        if hop is None:
            hop = _kept(known.sealing, (to, signed), self._sealing(known, to, signed))
        return hop

    def _sealing(self, known: _Known, to: str | None, signed: bool) -> Hop:
        identity, standing = known.standing.identity, known.standing
        _require_own_key(known, "seal")
        if signed:
            self._require_listed_signing(standing, identity)
        if to is None:
            if not signed:
                raise ConfigError(
                    "a message needs a recipient",
                    rule="box.recipient",
                    fix="Name the principal that opens it: to=...; or sign it for all readers:"
                    " signed=True.",
                )
            ends = Ends(
                READERS,
                sender=identity.principal,
                recipient="",
                sender_key=identity.require_verifying().raw,
                recipient_key=NO_KEY,
                secret=b"",
            )
            return self._hop(ends, identity.principal, identity.public)
        entries = [
            each
            for each in standing.roster.entries
            if each.principal == to and each.speaks(known.date)
        ]
        if not entries:
            raise ConfigError(
                f"the roster lists no active key of {to!r}",
                rule="box.recipient",
                fix="List its key, or name another recipient.",
            )
        # Several while a key is replaced: the process has the newest, or is about to.
        newest = max(entries, key=lambda each: each.created).public
        ends = Ends(
            SIGNED if signed else PAIR,
            sender=identity.principal,
            recipient=to,
            sender_key=identity.public.raw,
            recipient_key=newest.raw,
            secret=identity.exchange(newest),
        )
        return self._hop(ends, to, identity.public)

    @staticmethod
    def _require_listed_signing(standing: Standing, identity: Identity) -> None:
        entry = standing.roster.entry_of(identity.require_verifying())
        if entry is None or entry.principal != identity.principal:
            raise ConfigError(
                f"the roster lists no signing key of {identity.principal!r}",
                rule="box.signing",
                fix="Add the line that 'safeser keys fingerprint' prints for its key file.",
            )

    def sign(self, data: bytes) -> bytes:
        """Return this process's signature over *data*."""
        return self.channel.identity.sign(data)

    # --- opening -----------------------------------------------------------------------------

    def opening(self, sealed: Sealed, about: str) -> Hop:
        """Return the hop by which *sealed* may be opened; see :class:`BoxKeys`."""
        known = self._state()
        if sealed.mode == SHARED:
            raise EnvelopeError(
                "a message that a shared secret sealed is opened where a roster says who may",
                rule="box.kind",
                fix="Open it with Box.shared; such a secret proves no sender.",
            )
        own = known.standing.identity.public.raw
        if sealed.recipient_key != (NO_KEY if sealed.mode == READERS else own):
            raise self._not_for_us(known, sealed)
        hop = known.opening.get((sealed.mode, sealed.sender_key))
        if hop is None:
            made = self._opening(known, sealed)
            hop = _kept(known.opening, (sealed.mode, sealed.sender_key), made)
        return hop

    def _opening(self, known: _Known, sealed: Sealed) -> Hop:
        _require_own_key(known, "open")
        entry = self._entry(known, sealed)
        identity, verifying = known.standing.identity, entry.verifying
        readers = sealed.mode == READERS
        ends = Ends(
            sealed.mode,
            sender=entry.principal,
            recipient="" if readers else identity.principal,
            sender_key=sealed.sender_key,
            recipient_key=sealed.recipient_key,
            secret=b"" if readers else identity.exchange(entry.public),
        )
        hop = self._hop(ends, entry.principal, entry.public)
        return hop._replace(verify=None if verifying is None else verifying.verify)

    def _entry(self, known: _Known, sealed: Sealed) -> RosterEntry:
        """Return the line of the roster whose key sealed it, if that key counts today.

        A signature counts for as long as signatures by its key do, verify-only too. Without one,
        the key has to be active.
        """
        signed = sealed.mode in (SIGNED, READERS)
        make = VerifyingKey if sealed.mode == READERS else PublicKey
        try:
            entry = known.standing.roster.entry_of(make(sealed.sender_key))
        except ConfigError:  # no key at all
            entry = None
        if entry is None:
            raise AuthenticationError(
                "the roster does not list the key that sealed a message",
                rule="key.unlisted",
                fix="List the key of its sender; or it was sealed for readers of another roster.",
            )
        ending = known.standing.end_of_key(entry.public, entry.principal, known.date)
        if ending is not None and signed and entry.state is KeyState.VERIFY_ONLY:
            ending = None if not entry.ended(known.date) else ending
        if ending is not None:
            raise AuthenticationError(f"a message is not opened: {ending}", rule=ending.rule)
        if not entry.owner.has_on(known.date):
            raise AuthenticationError(
                f"the key of {entry.principal} that sealed a message is valid from"
                f" {entry.not_before} on",
                rule="key.pending",
            )
        return entry

    @staticmethod
    def _not_for_us(known: _Known, sealed: Sealed) -> EnvelopeError:
        mine = ""
        try:
            entry = known.standing.roster.entry_of(PublicKey(sealed.recipient_key))
            if entry is not None and entry.principal == known.standing.identity.principal:
                mine = ", by an earlier or later key of it"
        except ConfigError:
            pass
        return EnvelopeError(
            f"a message was sealed for another recipient than this one{mine}",
            rule="box.recipient",
            fix="Seal it again, for the key that the recipient has now." if mine else "",
        )

    def _hop(self, ends: Ends, peer: str, public: PublicKey) -> Hop:
        key = public.fingerprint
        own, channel, audit = self.principal, self.channel, self.audit
        link = BoxLink(ends, local=own, peer=peer, channel=channel, audit=audit, key=key)
        return Hop(ends, link)

    def close(self) -> None:
        """Stop looking at the files, and close the log if it was opened for the box."""
        unwatch(self._files)
        super().close()


class SecretKeys(_Keys):
    """One secret, or two while it is replaced, and the policy of all who have it.

    :param secrets: the first one seals, each opens.
    """

    def __init__(
        self,
        secrets: Sequence[Secret],
        *,
        policy: Policy | str | os.PathLike[str],
        audit: AnyLog | None,
    ) -> None:
        loaded = policy if isinstance(policy, Policy) else Policy.load(policy)
        _refuse_code(loaded)
        super().__init__(SHARED_PRINCIPAL, audit, loaded)
        self.channel = FixedPolicy(loaded)
        self._secrets = {each.id: each for each in secrets}
        self._first = secrets[0]
        self._hops: dict[tuple[bytes, tuple[str, str]], Hop] = {}
        #: Whether this box seals or opens, by direction.
        self._ways: dict[tuple[str, str], str] = {}

    def sealing(self, to: str | None, about: str, *, signed: bool) -> Hop:
        """Return the hop by which this process seals about *about*; see :class:`BoxKeys`."""
        if to is not None or signed:
            raise ConfigError(
                "a shared secret has one principal, and signs nothing",
                rule="box.recipient",
                fix="Leave out to= and signed=; or give each process a key, and use Box.at.",
            )
        way = direction(about) or _NO_WAY
        self._claim(way, "seal")
        return self._hop(self._first, way)

    def opening(self, sealed: Sealed, about: str) -> Hop:
        """Return the hop by which *sealed* may be opened; see :class:`BoxKeys`."""
        if sealed.mode != SHARED:
            raise EnvelopeError(
                "a message that a principal's key sealed is opened by a shared secret",
                rule="box.kind",
                fix="Open it with Box.at.",
            )
        secret = self._secrets.get(sealed.sender_key)
        if secret is None or sealed.recipient_key != NO_KEY:
            raise EnvelopeError(
                "a message was sealed by another secret",
                rule="box.secret",
                fix="Give this box the secret of its sender; two of them while it is replaced.",
            )
        return self._hop(secret, direction(about) or _NO_WAY)

    def opened(self, about: str) -> None:
        """Open in the direction of *about* alone from now on, and do not seal in it."""
        self._claim(direction(about) or _NO_WAY, "open")

    def _claim(self, way: tuple[str, str], what: str) -> None:
        """Do one thing alone in the direction *way*, as long as this box lives.

        :raises EnvelopeError: if it does the other, or has as many directions as it remembers.
        """
        if way[0] == way[1]:  # none is named
            return
        if len(self._ways) >= _MOST_HOPS and way not in self._ways:
            raise EnvelopeError(
                f"a box remembers {_MOST_HOPS:,} directions, and no more",
                rule="box.direction",
                fix="Give each peer a box of its own.",
            )
        if self._ways.setdefault(way, what) != what:
            both = "sealed, and is opened by the same box" if what == "open" else "opened by a box"
            raise EnvelopeError(
                f"what goes from {way[0]} to {way[1]} is {both}",
                rule="box.reflected",
                fix=TWO_ENDS,
            )

    def _hop(self, secret: Secret, way: tuple[str, str]) -> Hop:
        hop = self._hops.get((secret.id, way))
        if hop is None:
            ends = Ends(
                SHARED,
                sender=way[0],
                recipient=way[1],
                sender_key=secret.id,
                recipient_key=NO_KEY,
                secret=secret.exchange(),
            )
            link = BoxLink(
                ends,
                local=SHARED_PRINCIPAL,
                peer=SHARED_PRINCIPAL,
                channel=self.channel,
                audit=self.audit,
                key=secret.fingerprint,
            )
            hop = _kept(self._hops, (secret.id, way), Hop(ends, link))
        return hop

    def sign(self, data: bytes) -> bytes:
        raise ConfigError("a shared secret signs nothing", rule="box.recipient")


def _refuse_code(policy: Policy) -> None:
    """Refuse a policy that would let all who have a secret run code as each other, or nothing."""
    own = Context(SHARED_PRINCIPAL, SHARED_PRINCIPAL, Kind.DATA, transport="box")
    for grant in (policy.bound(own, sealing=sealing) for sealing in (True, False)):
        if "cloudpickle" in grant.families or grant.submission != "none":
            raise ConfigError(
                f"context {grant.context!r} grants code, and a shared secret proves no sender",
                rule="box.code",
                fix="Take cloudpickle and submission out of it; or give each process a key, and"
                " use Box.at.",
            )
        if not grant.families:
            raise ConfigError(
                f"policy {policy.name!r} has no context from {SHARED_PRINCIPAL!r} to itself",
                rule="box.policy",
                fix="Begin with a copy of the ready policy 'shared'.",
            )


def _open_log(
    audit: AnyLog | None, principal: str, policy: Policy
) -> tuple[AuditSink, AuditLog | None]:
    """Return the log of a box, and again if it was opened for the box.

    :raises ConfigError: if the policy wants one, and there is none.
    """
    if isinstance(audit, str | os.PathLike):
        folder = Path(audit)
        named = (policy.name, policy.revision, policy.sha256)
        key = folder / "audit.key"
        log = AuditLog.open(folder / "audit", key=key, principal=principal, policy=named)
        return log, log
    if audit is not None:
        return audit, None
    if policy.audit != "none":
        raise ConfigError(
            f"policy {policy.name!r} wants a log, and there is no key of one",
            rule="box.audit",
            fix="Pass audit= a folder that has audit.key, which 'safeser keys init' makes; or say"
            " 'audit: none' in the policy.",
        )
    logger.warning("%s: this box has no log: nothing that it decides is recorded", principal)
    return NoLog(), None

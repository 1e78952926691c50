"""The state of a log in memory, which matches its records, and the changes of one call to it.

The one rule: the present state does not change while a call prepares its records; the new state
holds once they are in the file, and the old one if they are not.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from safeser.audit.names import Names
from safeser.audit.outputs.activity import Seen, see
from safeser.audit.record import printable
from safeser.audit.tally import Tally, Throttle, note_refusal
from safeser.audit.writing.templates import Templates
from safeser.audit.writing.waiting import Told, Waiting
from safeser.errors import ConfigError
from safeser.gate.event import MAX_INT, Field, SessionFacts, clean

#: Name, revision and SHA-256 (64 hexadecimal digits) of a policy.
PolicyName: TypeAlias = tuple[str, int, str]

Fields: TypeAlias = dict[str, object]

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class State(NamedTuple):
    """What holds after the last record of a log's file.

    :param policy: the policy by which it decides; the last record that names it says so.
    :param names: numbers of sessions and cases that the file defines.
    :param tally: decisions that are counted and not written yet.
    :param throttle: how many refusals of each sender and rule are still written one by one.
    :param refusals: how often the process refused, by rule.
    :param templates: of the cases that *names* has.
    :param told: what the file has of the records that waited for it.
    :param ended: whether the closing record is written, and *rotated* whether the log goes on in
        another file after it.
    :param begun: when the file was begun, in microseconds since 1970.
    """

    policy: PolicyName
    names: Names
    tally: Tally
    throttle: Throttle
    refusals: dict[str, int]
    templates: Templates
    ended: bool = False
    rotated: bool = False
    begun: int = 0
    told: Told = Told()

    def in_new_file(self, now: int) -> State:
        """Return the state of the next file at its beginning; names count within one file."""
        fresh = self._replace(names=Names(), templates=Templates())
        return fresh._replace(ended=False, rotated=False, begun=now)


def initial_state(policy: PolicyName) -> State:
    """Return the state of a process that has recorded and counted nothing."""
    return State(policy, Names(), Tally(), Throttle(), {}, Templates())


def checked_policy(policy: PolicyName) -> PolicyName:
    """Return *policy* as records name it.

    :raises ConfigError: if it is not a name, a revision and a SHA-256.
    """
    name, revision, digest = policy
    if not isinstance(name, str) or not isinstance(revision, int) or isinstance(revision, bool):
        raise ConfigError("a policy has a name and a revision", rule="config.audit-policy")
    if not 0 <= revision <= MAX_INT or not _SHA256.match(digest):
        raise ConfigError(
            "a policy has a revision from 0 and the SHA-256 of its text in 64 lower-case"
            " hexadecimal digits",
            rule="config.audit-policy",
        )
    return (printable(name, 64), revision, digest)


class Draft:
    """The records that one call writes, and the state once they are written.

    :param now: time of the call, microseconds since 1970.
    :param first: number of its first record in the file.
    :ivar records: their fields, or bytes of those that are encoded already.
    :ivar seen: what metrics count of its events.
    """

    __slots__ = ("_before", "first", "now", "records", "seen", "state")

    def __init__(self, state: State, now: int, *, first: int) -> None:
        self._before = state
        self.now = now
        self.first = first
        self.state = state
        self.records: list[Fields | bytes] = []
        self.seen: Seen = ({}, [])

    def add(self, kind: str, fields: Fields) -> None:
        """Add one record of type *kind*; *fields* becomes a part of it."""
        fields["time"] = self.now
        if kind != "event":  # nine records of ten
            fields["type"] = kind
        self.records.append(fields)

    def add_events(self, events: Sequence[Mapping[str, Field]], *, plain: bool) -> None:
        """Add a record of each of *events*.

        :param plain: as fields, which outputs beside the file need.
        :raises AuditError: if the log does not know a field's name or type.
        """
        counts, records = self.seen[0], self.records
        now, first = self.now, self.first
        encoded, sessions = self.state.templates.encoded, self.state.names.sessions
        for event in events:
            ready = None if plain else encoded(event, sessions, now, first + len(records))
            if ready is not None:
                body, decided = ready
                counts[decided] = counts.get(decided, 0) + 1
                records.append(body)
                continue
            fields = clean(event)
            see(self.seen, fields)  # before fields are taken out of them
            self._add_event(fields)
            if not plain and "case" in fields:
                self.state.templates.learn(event, fields["case"], self.state.names.permitted)
            # The event may have replaced names and templates.
            encoded, sessions = self.state.templates.encoded, self.state.names.sessions

    def _add_event(self, fields: Fields) -> None:
        """Add a record of an event, unless it is one of a flood of refusals, which are counted."""
        if fields.get("permitted") is False:
            self._own_refusals()
            note_refusal(self.state.refusals, fields.get("rule"))
            sender, rule = fields.get("sender"), fields.get("rule")
            write, last = self.state.throttle.admit(sender, rule, self.now)
            if not write:
                return
            if last:
                fields["then"] = "counted"
        session = fields.pop("session", None)
        if isinstance(session, SessionFacts):
            fields["s"] = self._session(session)
        if "message" in fields:
            fields["n"] = fields.pop("message")
        names = self.state.names.named(fields)
        if names is not self.state.names:
            known = names.permitted is self.state.names.permitted
            templates = self.state.templates if known else Templates()
            self.state = self.state._replace(names=names, templates=templates)
        self.add("event", fields)

    def _session(self, facts: SessionFacts) -> int:
        """Return the number of a session, for which a record is added where it is new."""
        number = self.state.names.sessions.get(facts)
        if number is None:
            names = self.state.names.with_session(facts)
            number = names.sessions[facts]
            self.state = self.state._replace(names=names)
            self.add("session", {**facts.fields, "id": facts.id, "s": number})
        return number

    def add_waiting(self, waiting: Waiting) -> None:
        """Add the next records that waited for the log, and how many waited and are lost."""
        told = self.state.told
        if waiting.is_told(told):
            return
        kept, lost = waiting.kept - told.kept, waiting.lost - told.lost
        if kept or lost:
            said = {"kept": kept, "lost": lost, "reason": waiting.reason, "since": waiting.since}
            self.add("gap", said)
        written = told.written
        for time, fields in waiting.next(told):
            fields["delayed"] = max(0, self.now - time)
            self._add_event(fields)
            written += 1
        self.state = self.state._replace(told=Told(waiting.kept, waiting.lost, written))

    def add_counts(self, *, everything: bool) -> None:
        """Add the counts and summaries whose time has come, or all that there are."""
        tally, throttle = self.state.tally, self.state.throttle
        if tally.pending and (everything or tally.due(self.now)):
            self.add("counts", {"counts": tally.rows(), "since": tally.since})
            self.state = self.state._replace(tally=Tally())
        if throttle.pending and (everything or throttle.due(self.now)):
            self._own_refusals()
            while self.state.throttle.pending:
                self.add("suppressed", {"suppressed": self.state.throttle.take()})

    def add_policy(self, policy: PolicyName) -> None:
        """Add the record of a new policy, which this record and all later ones name."""
        self.state = self.state._replace(policy=policy)
        self.add("policy", policy_fields(policy))

    def add_end(self, *, rotated: bool = False) -> None:
        """Add the closing record; *rotated* if the log goes on in another file."""
        self.state = self.state._replace(ended=True, rotated=rotated)
        self.add("close", {"then": "rotated"} if rotated else {})

    def _own_refusals(self) -> None:
        """Make sure that this draft's throttle and refusals are copies, and free to be changed."""
        before = self._before
        if self.state.throttle is before.throttle:
            self.state = self.state._replace(
                throttle=before.throttle.copy(), refusals=before.refusals.copy()
            )


def policy_fields(policy: PolicyName) -> Fields:
    """Return the fields of a record that name *policy* in full."""
    name, revision, digest = policy
    return {"policy_name": name, "policy_revision": revision, "policy_sha256": digest}


def process_fields() -> Fields:
    """Return the fields of a first record that say which process writes the file."""
    return {
        "host": printable(socket.gethostname(), 64),
        "pid": os.getpid(),
        "program": printable(os.path.basename(sys.argv[0] if sys.argv else ""), 64),
    }

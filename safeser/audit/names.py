"""What many records of one file say alike, written once and named by number afterwards.

The one rule: a number means what the last record before it that defines the number says, in the
same file; a file can be read without any other, and a reader that misses the definition says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from safeser.audit.record import Parts, Record
from safeser.audit.record import parts as record_parts
from safeser.errors import AuditError
from safeser.gate.event import Field, SessionFacts

#: The version of a file, in its first record. In version 1 each record had all of its fields.
VERSION: Final = 2

#: Fields of an event that together take few values in a file: who, what, and by which rule.
CASE_FIELDS: Final = (
    *("event", "sender", "recipient", "kind", "operation"),
    *("context", "family", "author", "task_author", "rule", "permitted", "reason", "where"),
)

# A cluster has some forty cases. Above the bound an event is written in full, so that a peer that
# chooses operations or rules makes records longer and costs no memory. Refused events have a table
# of their own: what is refused cannot take the numbers of what is permitted.
MAX_CASES = 512
# Sessions that a file refers to at a time; the oldest gets another number where it comes again.
MAX_SESSIONS = 4_096

# A longer place, or one inside a value, names keys of a peer's.
_MAX_WHERE = 32

_PLAIN = frozenset({str, bool, type(None), tuple})  # the last is that of _ABSENT and _OWN alone

Case = tuple[Field, ...]


class Names(NamedTuple):
    """The numbers of one file at one moment; changes give another value.

    :param begun: sessions that were given a number so far.
    """

    sessions: Mapping[SessionFacts, int] = {}
    permitted: Mapping[Case, int] = {}
    refused: Mapping[Case, int] = {}
    begun: int = 0

    def with_session(self, facts: SessionFacts) -> Names:
        """Return these names and a number for *facts*; the oldest session gives way to it."""
        sessions = dict(self.sessions)
        if len(sessions) >= MAX_SESSIONS:
            del sessions[next(iter(sessions))]
        sessions[facts] = self.begun
        return self._replace(sessions=sessions, begun=self.begun + 1)

    def named(self, fields: dict[str, object]) -> Names:
        """Put a number in place of the fields of a case, or define one; return the new names."""
        case = case_of(fields)
        if case is None:
            return self
        refused = fields.get("permitted") is False
        table = self.refused if refused else self.permitted
        if case not in table and len(table) >= MAX_CASES // 2:
            case = _without_reason(case)
        number = table.get(case)
        if number is not None:
            for name, value in zip(CASE_FIELDS, case, strict=True):
                if value is not _ABSENT and value is not _OWN:
                    del fields[name]
            fields["case"] = number
            return self
        if len(table) >= MAX_CASES:
            return self
        # The event that defines a case is written in full, with the number beside it.
        fields["case"] = number = len(self.permitted) + len(self.refused)
        table = {**table, case: number}
        return self._replace(refused=table) if refused else self._replace(permitted=table)


#: Stands for a field that an event does not have; no event has a tuple as a value.
_ABSENT: Final = ("absent",)

#: Stands for a place that each event of the case states itself.
_OWN: Final = ("own",)


def case_of(fields: Mapping[str, object]) -> Case | None:
    """Return the case of an event, or None where it is written in full."""
    if "event" not in fields:
        return None
    case = [fields.get(name, _ABSENT) for name in CASE_FIELDS]
    if not _PLAIN.issuperset(map(type, case)):
        return None  # 1 would have the number of True
    if has_own_place(case[-1]):
        case[-1] = _OWN
    return tuple(case)  # type: ignore[arg-type]  # of the values that were looked at


def has_own_place(where: object) -> bool:
    """Tell whether an event with the place *where* states it itself, whatever its case is."""
    return isinstance(where, str) and (len(where) > _MAX_WHERE or "." in where or "[" in where)


def _without_reason(case: Case) -> Case:
    """Return *case* for events that state their reasons themselves.

    A peer may choose names in a reason: what it invents takes half of the table.
    """
    if case[-2] is _ABSENT:
        return case
    return (*case[:-2], _OWN, case[-1])


class Resolver:
    """Restores, record by record, what the records of one file leave out.

    It reads files of every version: those of version 1 leave nothing out.
    """

    def __init__(self) -> None:
        #: The version that the first record states; until then the present one.
        self.version = VERSION
        self._policy = ""
        self._sessions: dict[object, dict[str, object]] = {}
        self._cases: dict[object, dict[str, object]] = {}
        self._shared: dict[tuple[object, object], dict[str, object]] = {}

    def resolve(self, record: Record) -> Record:
        """Return *record* with all of its fields; records come in the order of their file.

        :raises AuditError: if it names a session or case that no record before it defines.
        """
        parts = record.sequence, record.time, record.type, dict(record.fields), record.mac
        return self._resolved(parts)

    def read(self, raw: bytes) -> Record:
        """Return the record of one line with all of its fields; lines come in their order.

        :raises AuditError: if it is no record, or as :meth:`resolve`.
        """
        return self._resolved(record_parts(raw))

    def _resolved(self, parts: Parts) -> Record:
        sequence, time, kind, fields, mac = parts
        if kind == "event":
            if self.version != 1:
                fields = self._event(fields)
        elif kind == "session":
            self._define(self._sessions, MAX_SESSIONS, fields)
            self._shared.clear()
        elif kind in ("genesis", "policy"):
            stated = Record(*parts)
            name, digest = stated.text("policy_name"), stated.text("policy_sha256")
            self._policy = policy_text(name, stated.number("policy_revision"), digest)
            self._shared.clear()
            self.version = stated.number("version") if kind == "genesis" else self.version
        if "policy" not in fields:
            fields["policy"] = self._policy
        return Record(sequence, time, kind, fields, mac)

    def _event(self, own: dict[str, object]) -> dict[str, object]:
        """Return *own*, which is changed, and what its session and case say."""
        case = own.pop("case", None)
        if case is not None and "event" in own:  # it defines the case, and has all of its fields
            if type(case) is int and len(self._cases) < 2 * MAX_CASES:
                self._cases[case] = {name: own[name] for name in CASE_FIELDS if name in own}
                self._shared.clear()
            case = None
        return self.completed(own, self.alike(own.get("s"), case))

    @staticmethod
    def completed(own: dict[str, object], shared: Mapping[str, object]) -> dict[str, object]:
        """Return all fields of an event: *own*, which is changed, and those that it shares."""
        session = own.pop("s", None)
        if "n" in own:
            own["message"] = own.pop("n")
        if session is None or "message" not in own:
            return {**shared, **own}
        return {**shared, "decision": f"{shared['session']}-{own['message']}", **own}

    def alike(self, session: object, case: object) -> Mapping[str, object]:
        """Return what all events of a session and case say alike.

        :raises AuditError: if the file does not define one of them before.
        """
        # True would be the key of 1.
        if type(session) not in _NUMBER or type(case) not in _NUMBER:
            raise _undefined()
        found = self._shared.get((session, case))
        if found is None:
            found = {"policy": self._policy}
            if session is not None:
                found.update(_found(self._sessions, session))
            if case is not None:
                found.update(_found(self._cases, case))
            if len(self._shared) >= MAX_SESSIONS:
                self._shared.clear()
            self._shared[session, case] = found
        return found

    @staticmethod
    def _define(
        table: dict[object, dict[str, object]], limit: int, fields: Mapping[str, object]
    ) -> None:
        number = fields.get("s")
        if type(number) is not int:
            return
        said = {name: value for name, value in fields.items() if name not in ("s", "id", "policy")}
        table[number] = {**said, "session": fields.get("id")}
        if len(table) > limit:
            del table[next(iter(table))]


_NUMBER = (int, type(None))


def _found(table: Mapping[object, dict[str, object]], number: object) -> dict[str, object]:
    found = table.get(number) if type(number) is int else None
    if found is None:
        raise _undefined()
    return found


def _undefined() -> AuditError:
    return AuditError(
        "a record refers to a session or case that the file does not define before it",
        rule="audit.record",
    )


def policy_text(name: str, revision: int, digest: str) -> str:
    """Return the text by which records name a policy: name, revision, and start of its hash."""
    return f"{name}/{revision}/{digest[:16]}"

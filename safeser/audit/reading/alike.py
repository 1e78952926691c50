"""Read an event that is spelled like an earlier one of its file by that one's form.

The one rule: what this returns is what parsing and resolving the line give. A line of which its
form does not say everything takes that way, and so does each that is no record.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from safeser.audit.names import CASE_FIELDS, Resolver
from safeser.audit.record import MAX_LINE, Record, own_fields
from safeser.gate.event import MAX_FIELDS

__all__ = ["EventFields", "Form", "Forms", "copied_fields", "shared_of"]

#: Forms of one file that are tried; a cluster writes some four.
MAX_FORMS: Final = 8

#: Fields of an event at most: its own, and number, time, session and case.
_MOST_FIELDS: Final = MAX_FIELDS + 4

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")

# What the log writes, and less than JSON allows: no fraction, no sign, nothing above 2**53, no
# escape. Texts with escapes are read the other way.
_INT = rb"(0|[1-9][0-9]{0,14}|[1-8][0-9]{15})"
_TEXT = rb'"([ !#-\[\]-~]*)"'

#: What makes a line another record than an event that refers to a case, or is restored otherwise.
_OTHERS: Final = frozenset({"decision", "event", "message", "policy", "session", "type"})


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How the events of a shape are spelled.

    :param names: of the fields, in their order; their values are the groups of *pattern* after the
        first, which is the MAC.
    :param texts: whether each of those is a text; others are integers.
    :param own: names that an event has and its session and case do not decide.
    :param is_of_case: whether none of these belongs to a case.
    """

    pattern: re.Pattern[bytes]
    names: tuple[str, ...]
    texts: tuple[bool, ...]
    own: frozenset[str]
    is_of_case: bool
    case: int
    session: int
    sequence: int
    time: int

    def record(self, found: re.Match[bytes], shared: Mapping[str, object]) -> Record:
        """Return the event whose line *found* matched."""
        return Record(
            int(found[self.sequence]),
            int(found[self.time]),
            "event",
            EventFields(self, found, shared),
            unhexlify(found[1]),
        )


class EventFields(Mapping[str, object]):
    """The fields of an event, of which those that many events share are not copied.

    :param form: how its line is spelled.
    :param found: the match of the form with the line.
    :param shared: what all events of its session and case say alike; the same object for each.
    """

    __slots__ = ("_whole", "form", "found", "shared")

    def __init__(self, form: Form, found: re.Match[bytes], shared: Mapping[str, object]) -> None:
        self.form = form
        self.found = found
        self.shared = shared
        self._whole: dict[str, object] | None = None

    def get(self, name: str, default: object = None) -> object:
        """Return the field *name*."""
        if name in self.form.own:
            return self._all().get(name, default)
        return self.shared.get(name, default)

    def _all(self) -> dict[str, object]:
        whole = self._whole
        if whole is None:
            form = self.form
            _, *values = self.found.groups()
            own: dict[str, object] = {
                name: value.decode("ascii") if text else int(value)
                for name, text, value in zip(form.names, form.texts, values, strict=True)
            }
            for name in ("case", "seq", "time"):
                del own[name]
            whole = self._whole = Resolver.completed(own, self.shared)
        return whole

    def __getitem__(self, name: str) -> object:
        return self._all()[name]

    def __contains__(self, name: object) -> bool:
        return name in self._all() if name in self.form.own else name in self.shared

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


def copied_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of *fields*, faster than ``dict`` makes one of a mapping."""
    return dict(fields._all() if type(fields) is EventFields else fields)


def shared_of(fields: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return what many events say alike, the same object for each, if that decides their cases."""
    return fields.shared if type(fields) is EventFields and fields.form.is_of_case else None


class Forms:
    """The forms of one file.

    :param resolver: restores what its records leave out.
    """

    __slots__ = ("_forms", "_resolver")

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._forms: list[Form] = []

    def read(self, raw: bytes) -> Record:
        """Return the record of one line with all of its fields; lines come in their order.

        :raises AuditError: if it is no record, or refers to what the file does not define.
        """
        known = self._forms if self._resolver.version != 1 and len(raw) <= MAX_LINE else ()
        for form in known:
            found = form.pattern.fullmatch(raw)
            if found is not None:
                break
        else:
            record = self._resolver.read(raw)
            if record.type == "event" and len(self._forms) < MAX_FORMS:
                self._learn(raw)
            return record
        if form is not self._forms[0]:
            self._forms.remove(form)
            self._forms.insert(0, form)
        session = None if form.session < 0 else int(found[form.session])
        shared = self._resolver.alike(session, int(found[form.case]))
        return form.record(found, shared)

    def _learn(self, raw: bytes) -> None:
        """Keep the form of an event that parses, if its lines can be read by it."""
        fields = own_fields(raw)
        if self._resolver.version == 1 or "case" not in fields or not _OTHERS.isdisjoint(fields):
            return
        if type(fields.get("n", 0)) is not int or len(fields) > _MOST_FIELDS:
            return  # no log that safeser writes has such an event
        kinds = set(map(type, fields.values()))
        if not kinds <= {str, int} or not all(map(_NAME.match, fields)):
            return
        inner = b",".join(
            b'"%b":%b' % (name.encode("ascii"), _TEXT if type(value) is str else _INT)
            for name, value in fields.items()
        )
        pattern = re.compile(rb'\{"mac":"([0-9a-f]{64})","record":\{' + inner + rb"\}\}")
        if pattern.fullmatch(raw) is None:
            return
        names = tuple(fields)
        at = {name: group for group, name in enumerate(names, 2)}
        self._forms.append(
            Form(
                pattern,
                names,
                texts=tuple(type(value) is str for value in fields.values()),
                own=frozenset({*names, "message", "decision"}) - {"case", "seq", "time"},
                is_of_case=not fields.keys() & set(CASE_FIELDS),
                case=at["case"],
                session=at.get("s", -1),
                sequence=at["seq"],
                time=at["time"],
            )
        )

"""Encode an event that is like an earlier one with that one's text.

The one rule: the bytes are those that cleaning, naming and encoding the event give. An event of
which this is not certain at a glance takes that way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii as quoted
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from safeser.audit.names import CASE_FIELDS, Case, case_of, has_own_place
from safeser.audit.outputs.activity import Decided, labels_of
from safeser.gate.event import MAX_CHARS, MAX_INT, MAX_TEXT, SessionFacts, checked_body

__all__ = ["Templates"]

#: Sets of fields that events have; the names come from code, which has some ten sets.
MAX_SHAPES: Final = 64

#: Fields that a record spells otherwise than its event.
_SPELLED: Final = {"message": "n", "session": "s"}

#: Fields that a case has, and no template: refusals have reasons, and are seldom.
_NEVER: Final = frozenset({"reason", "then"})

_Values = Callable[[Mapping[str, object]], tuple[object, ...]]


#: The canonical bytes of a record, and what metrics count its event by.
_Encoded: TypeAlias = tuple[bytes, Decided]


class _Template(NamedTuple):
    """What the events of one case and shape say alike.

    :param text: a record with a ``%s`` for each value that is not of the case.
    :param room: characters that the texts of an event may have together beside those of the case.
    """

    text: str
    room: int
    decided: Decided


@dataclass(frozen=True, slots=True)
class _Shape:
    """Events that have the same fields.

    :param case: gives the values of those that are of the case.
    :param own: gives the other ones, as a record has them in order, the session left out.
    :param session: where the number of the session stands among them; -1 without a session.
    :param sequence: where the number of the record stands after that, and *time* the time.
    """

    case: _Values
    own: _Values
    session: int
    sequence: int
    time: int
    slots: tuple[str, ...]
    templates: dict[tuple[object, ...], _Template] = field(default_factory=dict)


class Templates:
    """Templates of the cases that one file has defined, all of them of permitted events.

    A file that defines another case begins with no templates: they belong to the value that one
    assignment replaces once the records are in the file, so none refers to a case that is not.
    """

    __slots__ = ("_own_place", "_shapes")

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], _Shape] = {}
        #: Of events that state a place of their own.
        self._own_place: dict[tuple[str, ...], _Shape] = {}

    def encoded(
        self,
        event: Mapping[str, object],
        sessions: Mapping[SessionFacts, int],
        now: int,
        sequence: int,
    ) -> _Encoded | None:
        """Return the record of *event*, or None if it must be cleaned, named and encoded.

        :param sessions: the numbers that the file has given to sessions.
        :param now: microseconds since 1970.
        :param sequence: number of the record in its file.
        """
        found = self._template_of(event)
        if found is None:
            return None
        shape, (text, room, decided) = found
        values: list[object] = []
        for value in shape.own(event):
            if type(value) is str:
                room -= len(value)
                if room < 0 or len(value) > MAX_TEXT:
                    return None
                values.append(quoted(value))
            elif type(value) is int and -MAX_INT <= value <= MAX_INT:
                values.append(value)
            else:
                return None
        if shape.session >= 0:
            facts = event["session"]
            number = sessions.get(facts) if type(facts) is SessionFacts else None
            if number is None:
                return None
            values.insert(shape.session, number)
        values.insert(shape.sequence, sequence)
        values.insert(shape.time, now)
        return checked_body(text % tuple(values)), decided

    def _template_of(self, event: Mapping[str, object]) -> tuple[_Shape, _Template] | None:
        """Return the shape and the template of *event*, if it has one."""
        try:
            # All values of a case but this one are texts, to which nothing but a text is equal.
            if event["permitted"] is not True:
                return None
            names = tuple(event)
            shape = self._shapes.get(names)
            found = None if shape is None else shape.templates.get(shape.case(event))
            # A hit needs no look at the place: no event of these has one of its own.
            if shape is None or found is None:
                if not has_own_place(event.get("where")):
                    return None
                shape = self._own_place[names]
                found = shape.templates[shape.case(event)]
        except (KeyError, TypeError):  # a list is no part of a case
            return None
        return shape, found

    def learn(self, event: Mapping[str, object], number: object, cases: Mapping[Case, int]) -> None:
        """Keep a template of *event*, of which the file has a record.

        :param number: of its case in the file, if it has one.
        :param cases: the cases of permitted events that the file defines.
        """
        case = case_of(event)
        # What was cut before it was named is another case than what *event* says.
        if type(event) is not dict or case is None or cases.get(case) != number:
            return
        if event.get("permitted") is not True or not _NEVER.isdisjoint(event):
            return
        own_place = has_own_place(event.get("where"))
        shapes = self._own_place if own_place else self._shapes
        shape = shapes.get(tuple(event))
        if shape is None:
            if len(shapes) >= MAX_SHAPES:
                return
            shape = _shape(event, own_place=own_place)
        values = shape.case(event)
        texts = [value for value in values if type(value) is str]
        if len(texts) != len(values):
            return
        text = ",".join(
            f'"{name}":{number}' if name == "case" else f'"{name}":%s' for name in shape.slots
        )
        room = MAX_CHARS - sum(map(len, texts))
        shape.templates[values] = _Template(f"{{{text}}}", room, labels_of(True, event))
        shapes[tuple(event)] = shape


def _shape(event: Mapping[str, object], *, own_place: bool) -> _Shape:
    of_case = set(CASE_FIELDS) - ({"where"} if own_place else set())
    names = {_SPELLED.get(name, name): name for name in event if name not in of_case}
    slots = tuple(sorted([*names, "case", "seq", "time"]))
    valued = [slot for slot in slots if slot != "case"]
    own = [names[slot] for slot in slots if slot in names and slot != "s"]
    return _Shape(
        case=_values([name for name in event if name in of_case and name != "permitted"]),
        own=_values(own),
        session=valued.index("s") if "s" in valued else -1,
        sequence=valued.index("seq"),
        time=valued.index("time"),
        slots=slots,
    )


def _values(names: list[str]) -> _Values:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda event: tuple([event[name] for name in names])

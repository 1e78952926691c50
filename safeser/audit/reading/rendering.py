"""Renders records one after another; what many events have in common is rendered once.

The one rule: a text is what the renderer gives for its record. A pattern is taken from a sample of
random values, and used only if it gives the text of a second sample as well.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from safeser.audit.reading.alike import EventFields, Form
from safeser.audit.reading.search import Found
from safeser.audit.report import stamp

__all__ = ["Rendering"]

#: Patterns that are kept at a time: one for each form, session and case.
MAX_PATTERNS: Final = 1_024

#: Events that are rendered one by one before a pattern is made, which costs as much as a hundred: a
#: log whose patterns soon stop holding takes at most twice the time.
_FIRST: Final = 100

#: Longer texts may be cut where they are shown.
_LONGEST: Final = 100

#: Bytes of a pattern; the texts of a longer one are rendered one by one.
_LONGEST_PATTERN: Final = 4_096

# No peer can foresee what the first sample holds: a value is found only where it was put.
_random = random.SystemRandom()
_LETTERS: Final = string.ascii_lowercase.encode("ascii")
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_PRINTABLE: Final = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))


class _Pattern(NamedTuple):
    """The text of the events of a form, session and case, with a place for each further value.

    :param shared: what the events have in common; the same object as theirs.
    :param text: a format with ``%b`` for each value; None where their texts have no pattern.
    :param groups: of the form's match, in the order of their places; two or more.
    :param texts: places of values that are texts.
    :param time: the place that shows the time; -1 where none does.
    """

    shared: Mapping[str, object]
    text: bytes | None = None
    groups: tuple[int, ...] = ()
    texts: tuple[int, ...] = ()
    time: int = -1


class Rendering:
    """The texts of records; those of one file have one log.

    :param render: returns the text of one record.
    :param when: how it shows times.
    :param spelled: how it shows the text of a field, given 1 to 100 printable ASCII characters
        without quotation marks and backslashes; without it, as it is.
    """

    def __init__(
        self,
        render: Callable[[Found], str],
        *,
        when: Callable[[int], str] = stamp,
        spelled: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._render = render
        self._when = when
        self._spelled = spelled
        self._patterns: dict[tuple[Form, bytes, bytes], _Pattern] = {}
        self._seen: dict[tuple[Form, bytes, bytes], int] = {}

    def __call__(self, found: Found) -> str:
        """Return the text of *found*."""
        fields = found.record.fields
        if type(fields) is not EventFields or not fields.form.is_of_case:
            return self._render(found)
        form, match = fields.form, fields.found
        key = form, match[form.case], match[form.session] if form.session > 0 else b""
        pattern = self._patterns.get(key)
        if pattern is None or pattern.shared is not fields.shared:
            if pattern is not None and _is_same(pattern.shared, fields.shared):
                self._patterns[key] = pattern = pattern._replace(shared=fields.shared)
            else:
                pattern = self._learned(key, found, fields)
        text = None if pattern is None else self._filled(pattern, match, found.record.time)
        return self._render(found) if text is None else text

    def _filled(self, pattern: _Pattern, match: re.Match[bytes], time: int) -> str | None:
        """Return the text of an event, or None where its values must be looked at."""
        if pattern.text is None:
            return None
        values = list(match.group(*pattern.groups))
        for place in pattern.texts:
            text = values[place]
            if not 0 < len(text) <= _LONGEST:
                return None
            if self._spelled is not None:
                values[place] = self._spelled(text)
        if pattern.time >= 0:
            values[pattern.time] = self._when(time).encode("ascii")
        return (pattern.text % tuple(values)).decode("ascii")

    def _learned(
        self, key: tuple[Form, bytes, bytes], found: Found, fields: EventFields
    ) -> _Pattern | None:
        """Return a new pattern for events such as *found*, once there were some of them."""
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if len(self._seen) > MAX_PATTERNS:
            self._seen.clear()
            self._patterns.clear()
        if seen < _FIRST:
            return None
        self._seen[key] = 0  # where its session or case is defined anew, it is learned anew
        pattern = self._pattern_of(found.log, fields)
        sample = _sample(fields, _PRINTABLE, range(1, _LONGEST + 1), digits=16)
        record = fields.form.record(sample, fields.shared)
        if self._filled(pattern, sample, record.time) != self._render(Found(found.log, record)):
            pattern = _Pattern(fields.shared)
        self._patterns[key] = pattern
        return pattern

    def _pattern_of(self, log: str, fields: EventFields) -> _Pattern:
        form = fields.form
        match = _sample(fields, _LETTERS, range(24, 25), digits=15)
        record = form.record(match, fields.shared)
        text = self._render(Found(log, record))
        if not text.isascii() or len(text) > _LONGEST_PATTERN:
            return _Pattern(fields.shared)
        places = {match[group]: group for group in _varied(form)}
        places[self._when(record.time).encode("ascii")] = form.time
        parts = re.split(b"(%b)" % b"|".join(map(re.escape, places)), text.encode("ascii"))
        groups = tuple(places[part] for part in parts[1::2])
        parts[0::2] = [part.replace(b"%", b"%%") for part in parts[0::2]]
        parts[1::2] = [b"%b"] * len(groups)
        if groups.count(form.time) > 1 or len(groups) < 2:
            return _Pattern(fields.shared)
        texts = tuple(at for at, group in enumerate(groups) if form.texts[group - 2])
        time = groups.index(form.time) if form.time in groups else -1
        return _Pattern(fields.shared, b"".join(parts), groups, texts, time)


def _is_same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Tell whether two mappings surely have the same text: True is not 1, but equal to it."""
    kinds = [*map(type, one.values())]
    return (
        list(one.items()) == list(other.items())
        and kinds == [*map(type, other.values())]
        and _PLAIN.issuperset(kinds)
    )


def _varied(form: Form) -> list[int]:
    """Return the groups of *form* whose values the session and case do not decide."""
    groups = range(2, 2 + len(form.names))
    return [group for group in groups if group not in (form.case, form.session)]


def _sample(fields: EventFields, letters: bytes, lengths: range, *, digits: int) -> re.Match[bytes]:
    """Return the match of a line like that of *fields*, with random values.

    :param digits: of numbers, at most 16; as times, they are of the years 1973 to 2033.
    """
    line, end, parts = fields.found.string, 0, []
    for group in _varied(fields.form):
        if fields.form.texts[group - 2]:
            value = bytes(_random.choices(letters, k=_random.choice(lengths)))
        else:
            value = b"%d" % _random.randrange(10 ** (digits - 1), 2 * 10 ** (digits - 1))
        parts += [line[end : fields.found.start(group)], value]
        end = fields.found.end(group)
    match = fields.form.pattern.fullmatch(b"".join(parts) + line[end:])
    if match is None:
        raise AssertionError("a form does not match its own line")
    return match

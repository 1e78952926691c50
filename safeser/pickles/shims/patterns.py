"""Patterns that approved tasks may look for: what the worst text can cost is known beforehand.

The one rule: a pattern is bounded by the steps that Python's ``re`` can take over the longest of
the texts that it is given, before it is given one. ``(a*)*b`` takes two to the power of their
length, and keeps the interpreter to itself all the while: the worker is lost with its task.

The bound is of what backtracking can do: the ways in which each part may match, times what comes
after it. A part that repeats has one way where what follows begins with none of what it repeats,
as in ``\\w+\\s`` or ``[^,]*,``; then whoever goes back fails at its first character, and what is
looked at before that is counted each time: boundaries, and parts that may be missing.

Patterns that look ahead or behind, refer to a group, or keep what they took are not counted, but
refused: what they cost depends on more than what stands beside them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from re import _constants as codes  # type: ignore[attr-defined]  # the parser's own names
from re import _parser as parser  # type: ignore[attr-defined]  # what re itself reads patterns with
from typing import Any, NamedTuple

from safeser.errors import PolicyDenied
from safeser.pickles.names import shown
from safeser.pickles.shims.whole import refuse

__all__ = ["check_replaced", "check_texts"]

#: Steps over one text: some seconds.
_MAX_STEPS = 210_000_000
_MAX_PATTERN = 1000

#: Methods of ``.str`` that take patterns, of which some do at each place of a text.
_SEARCHING = frozenset(
    ("contains", "count", "extract", "extractall", "findall", "replace", "split")
)
_WHOLE = frozenset(("fullmatch",))
_PATTERNS = _SEARCHING | _WHOLE | {"match"}

#: What a text is made of, as bits: ASCII, then any further digit, letter, space and other
#: character, then its end.
_DIGIT, _LETTER, _SPACE, _OTHER, _END = (1 << at for at in range(128, 133))
_ASCII = (1 << 128) - 1
_ANY = _END - 1
_LINE = 1 << ord("\n")


class _Cost(NamedTuple):
    """What a part of a pattern costs from one place on.

    :param ways: in how many ways it may match there, what follows being tried after each.
    :param steps: for all of them.
    :param first: what it may begin with.
    :param fail: steps, at most, until it fails where none of these is.
    :param empty: whether it may match nothing.
    """

    ways: int
    steps: int
    first: int
    fail: int
    empty: bool


class _Follow(NamedTuple):
    """What comes after a part: what it may begin with, and in how many steps it fails if not."""

    first: int
    fail: int

    def after(self, first: int, fail: int, *, empty: bool) -> _Follow:
        """Return what follows a part before which this one comes."""
        if not empty:
            return _Follow(first, fail)
        return _Follow(first | self.first, min(fail + self.fail, _MOST))


#: Nothing comes after it: there it has matched.
_NOTHING = _Follow(0, 0)


def check_texts(texts: Any, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Refuse to call *method* of the accessor of *texts* if its pattern may take too long.

    :return: of how many texts at a time it is to be called, 0 if of all: pandas lets nobody else
        have the interpreter between those of ``findall``.
    :raises PolicyDenied: with the pattern.
    """
    if method not in _PATTERNS:
        return 0
    kind: Any = type(texts.str)
    named = _signature(kind, method).bind(texts, *args, **kwargs).arguments
    pattern = named.get("pat")
    if not _is_pattern(method, pattern, named.get("regex")):
        return 0
    case: Any = named.get("case", True)
    flags = _number(named.get("flags", 0)) | (0 if case in (True, None) else re.IGNORECASE)
    longest, most = _longest(texts), 1
    for each in pattern if isinstance(pattern, dict) else (pattern,):
        search, whole = method in _SEARCHING, method in _WHOLE
        most = max(most, _check(each, flags, longest, search=search, whole=whole))
    at_once = _MAX_STEPS // most
    return max(at_once, 1) if method == "findall" and at_once < len(texts) else 0


def check_replaced(frame: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """The same for ``frame.replace``, which takes patterns in lists and mappings, too."""
    kind: Any = type(frame)
    named = _signature(kind, "replace").bind(frame, *args, **kwargs).arguments
    asked, regex = named.get("to_replace"), named.get("regex", False)
    found = list(_patterns_in((asked, regex), text=regex is not False))
    if found:
        columns = (
            [frame.iloc[:, at] for at in range(frame.shape[1])] if frame.ndim == 2 else [frame]
        )
        longest = max(map(_longest, columns), default=0)
        for each in found:
            _check(each, 0, longest, search=True, whole=False)


@cache
def _signature(kind: type, method: str) -> inspect.Signature:
    return inspect.signature(inspect.unwrap(getattr(kind, method)))


def _number(flags: Any) -> int:
    return flags if isinstance(flags, int) else 0  # pandas says that no flag is missing


def _is_pattern(method: str, pattern: Any, regex: Any) -> bool:
    """Tell whether pandas takes what *method* is asked for as a pattern."""
    if isinstance(pattern, re.Pattern):
        return True
    if method == "split":
        return pattern is not None and (bool(regex) or (regex is None and len(pattern) != 1))
    return bool(regex) if method == "replace" else regex is not False


def _patterns_in(values: Iterable[Any], *, text: bool) -> Iterator[Any]:
    """Yield what pandas may take as patterns, wherever it may look for them."""
    for value in values:
        if isinstance(value, re.Pattern) or (text and isinstance(value, str)):
            yield value
        elif isinstance(value, Iterator):
            raise refuse("the pattern", value)  # whoever looks at it has had it
        elif hasattr(value, "keys"):
            keys = list(value.keys())
            yield from _patterns_in((*keys, *(value[key] for key in keys)), text=text)
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
            yield from _patterns_in(value, text=text)


def _longest(texts: Any) -> int:
    try:
        found = texts.str.len().max()
    except AttributeError:  # pandas' word for: these are none
        return 0
    return int(found) if found > 0 else 0  # of none it is NaN


def _check(pattern: Any, flags: int, longest: int, *, search: bool, whole: bool) -> int:
    """Return how many steps *pattern* may take over one text, or refuse it."""
    if isinstance(pattern, re.Pattern):
        pattern, flags = pattern.pattern, pattern.flags
    if type(pattern) is not str:
        raise refuse("the pattern", pattern)
    if len(pattern) > _MAX_PATTERN:
        raise _refused(pattern, f"it is longer than {_MAX_PATTERN} characters")
    # Rounded up, so that one pattern is looked at for few lengths.
    rounded = 1 << max(longest - 1, 0).bit_length()
    try:
        steps = _steps(pattern, int(flags), rounded, search=search, whole=whole)
    except _NotCounted:
        raise _refused(
            pattern, "it looks ahead or behind, refers to a group, or keeps what it took"
        ) from None
    if steps > _MAX_STEPS:
        raise _refused(pattern, f"it may take too long on a text of {longest} characters")
    return steps


def _refused(pattern: str, why: str) -> PolicyDenied:
    return PolicyDenied(
        f"the pattern {shown(pattern)} is not one that an approved task may look for: {why}",
        rule="submission.pattern",
        fix="Repeat nothing that repeats, and say what ends each repetition, as in '[^,]*,'; or put"
        " the call into a function of your own, which the policy lists by name.",
    )


class _NotCounted(Exception):
    """A pattern has a part whose cost nobody counts here."""


@lru_cache(maxsize=1024)
def _steps(pattern: str, flags: int, longest: int, *, search: bool, whole: bool) -> int:
    """Return how many steps *pattern* may take over a text of *longest* characters.

    :raises _NotCounted: if that cannot be told.
    """
    try:
        parsed = parser.parse(pattern, flags)
        walk = _Walk(longest, parsed.state.flags)
        once = not search or _begins_there(parsed, parsed.state.flags)
        # Nothing comes after the end, but for a match that must be all of the text. Where it begins
        # at one place alone, what it takes is paid for by no other place.
        cost = walk.sequence(parsed, _Follow(_END, 1) if whole else _NOTHING, last=not once)
    except RecursionError:
        return _MOST
    except (re.error, OverflowError, ValueError):
        return 0  # re says what is wrong with it
    # Where it took nothing, one that takes something is looked for at the same place.
    twice = search and (cost.empty or cost.first & _END)
    steps = cost.steps * 2 if twice else cost.steps
    return steps + longest if once else steps * (longest + 1)


def _begins_there(parsed: Any, flags: int) -> bool:
    """Tell whether a pattern matches nowhere but where the text begins."""
    first = parsed[0] if len(parsed) else None
    return first == (codes.AT, codes.AT_BEGINNING_STRING) or (
        first == (codes.AT, codes.AT_BEGINNING) and not flags & re.MULTILINE
    )


#: No more ways or steps are counted.
_MOST = 1 << 60


class _Walk:
    """What the parts of a pattern cost over a text of so many characters."""

    def __init__(self, longest: int, flags: int) -> None:
        self._longest = longest
        self._flags = flags

    def sequence(self, items: Iterable[Any], follow: _Follow, *, last: bool) -> _Cost:
        """Return what *items* cost together.

        :param follow: what comes after them.
        :param last: whether the pattern has matched after them, so that nothing is tried again.
        """
        parts: list[_Cost] = []
        begin, empty = _NOTHING, True
        for item in reversed(list(items)):
            part = self._item(item, follow.after(*begin, empty=empty), last=last)
            parts.append(part)
            begin = begin.after(part.first, part.fail, empty=part.empty)
            empty = empty and part.empty
            last = False
        ways, steps = 1, 0
        for part in reversed(parts):
            steps = min(steps + ways * part.steps, _MOST)
            ways = min(ways * part.ways, _MOST)
        return _Cost(ways, steps, *begin, empty)

    def _item(self, item: Any, follow: _Follow, *, last: bool) -> _Cost:
        code, value = item
        if code in _REPEATS:
            return self._repeated(value, follow, last=last)
        if code is codes.BRANCH:
            return self._branches(value[1], follow, last=last)
        if code is codes.SUBPATTERN:
            cost = self._within(value).sequence(value[3], follow, last=last)
            return _marked(cost) if value[0] is not None else cost
        return self._fixed(code, value)

    def _within(self, group: Any) -> _Walk:
        return _Walk(self._longest, (self._flags | group[1]) & ~group[2])

    def _fixed(self, code: Any, value: Any) -> _Cost:
        """Return what an item costs that matches in one way, if at all."""
        if code is codes.AT:
            # The end is a thing of its own, before which a text may have a line's.
            end = value in (codes.AT_END, codes.AT_END_STRING)
            return _Cost(1, 1, _END | _LINE if end else 0, 1, empty=not end)
        if code not in _CHARACTERS:
            raise _NotCounted
        steps = _compared(value) if code is codes.IN else 1
        return _Cost(1, steps, self._characters(code, value), steps, empty=False)

    def _branches(self, branches: Sequence[Any], follow: _Follow, *, last: bool) -> _Cost:
        costs = [self.sequence(branch, follow, last=last) for branch in branches]
        begin = [cost.first | follow.first if cost.empty else cost.first for cost in costs]
        ways = [cost.ways for cost in costs]
        return _Cost(
            # Where they begin with different characters, all but one fail at their first.
            max(ways) if _are_apart(begin) else min(sum(ways), _MOST),
            min(len(costs) + sum(cost.steps for cost in costs), _MOST),
            _union(cost.first for cost in costs),
            min(len(costs) + sum(cost.fail for cost in costs), _MOST),
            any(cost.empty for cost in costs),
        )

    def _repeated(self, value: Any, follow: _Follow, *, last: bool) -> _Cost:
        least, most, body = value
        begin, nothing = self._first(body)
        inside = self.sequence(body, follow.after(*begin, empty=True), last=False)
        turns = min(int(most), self._longest + 1)
        apart = _are_apart((begin.first, follow.first))
        if inside.empty or inside.ways > 1:
            ways = _power(inside.ways + (inside.empty or not least), turns)
            steps = ways * (inside.steps + 1) * (turns + 1)
        else:
            ways = 1 if apart else max(turns - least, 0) + 1
            # What comes last takes what it can, and the next search begins behind that.
            steps = ((least if last else turns) + 1) * (inside.steps + 1)
        if not last and follow.fail > 1:
            steps += (turns + 1) * (follow.fail - 1)  # of one step each turn has been charged
        empty = nothing or not least
        return _Cost(min(ways, _MOST), min(steps, _MOST), begin.first, begin.fail + 1, empty)

    def _first(self, items: Iterable[Any]) -> tuple[_Follow, bool]:
        """Return what *items* may begin with, and whether they may match nothing."""
        begin = _NOTHING
        for code, value in items:
            if code in _REPEATS:
                found, empty = self._first(value[2])
                found = _Follow(found.first, found.fail + 1)
                empty = empty or not value[0]
            elif code is codes.BRANCH:
                each = [self._first(branch) for branch in value[1]]
                fail = len(each) + sum(one.fail for one, _ in each)
                found = _Follow(_union(one.first for one, _ in each), min(fail, _MOST))
                empty = any(nothing for _, nothing in each)
            elif code is codes.SUBPATTERN:
                found, empty = self._within(value)._first(value[3])
                found = _Follow(found.first, found.fail + (value[0] is not None))
            else:
                _, _, *known, empty = self._fixed(code, value)
                found = _Follow(*known)
            begin = found.after(*begin, empty=True)
            if not empty:
                return begin, False
        return begin, True

    # -- of characters ----------------------------------------------------------------------------

    def _characters(self, code: Any, value: Any) -> int:
        """Return what a character may be that matches; never less."""
        if code is codes.IN and value[0][0] is codes.NEGATE:
            return _ANY & ~_union(self._surely(*item) for item in value[1:])
        if code is codes.IN:
            return _union(self._characters(*item) for item in value)
        if code is codes.NOT_LITERAL:
            return _ANY & ~self._surely(codes.LITERAL, value)
        if code is codes.ANY:
            return _ANY if self._flags & re.DOTALL else _ANY & ~_LINE
        if code is codes.LITERAL and value > 127:
            return self._cased(_kind(value))
        found = self._surely(code, value)
        if code is codes.RANGE and value[1] > 127:
            found |= _ANY & ~_ASCII
        return self._cased(found) if code in (codes.LITERAL, codes.RANGE) else found

    def _surely(self, code: Any, value: Any) -> int:
        """Return what a character may be and then matches for sure; never more."""
        if code is codes.LITERAL:
            return 1 << value if value < 128 else 0
        if code is codes.RANGE:
            return _union(1 << at for at in range(value[0], min(value[1], 127) + 1))
        assert code is codes.CATEGORY
        found = _CATEGORIES[value]
        if not self._flags & re.ASCII:
            return found
        beyond = found & _OTHER  # of what is none of the three, as are then all beyond ASCII
        return found & _ASCII | (_ANY & ~_ASCII if beyond else 0)

    def _cased(self, found: int) -> int:
        if not self._flags & re.IGNORECASE:
            return found
        for letter in range(26):
            both = 1 << (65 + letter) | 1 << (97 + letter)
            # Some letters beyond ASCII are small or capital ones of it, such as the Kelvin.
            if found & (both | _LETTER):
                found |= both
        return found | _LETTER if found & _LETTERS else found


_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)
_CHARACTERS = (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY)


def _marked(cost: _Cost) -> _Cost:
    """Return what a group costs whose beginning and end are kept."""
    return cost._replace(steps=min(cost.steps + 2, _MOST), fail=min(cost.fail + 1, _MOST))


def _compared(items: Sequence[Any]) -> int:
    """Return with how many of *items* a character may be compared.

    One table holds those below; what is beyond is compared one by one, and so are categories.
    """
    beyond = 0
    for code, value in items:
        if code is codes.CATEGORY:
            beyond += 1
        elif code is codes.LITERAL:
            beyond += value > _TABLE
        elif code is codes.RANGE:
            beyond += value[1] > _TABLE
    return max(beyond, 1)


#: The last character that ``re`` keeps in a table.
_TABLE = 0xFFFF


def _are_apart(masks: Iterable[int]) -> bool:
    seen = 0
    for mask in masks:
        if seen & mask:
            return False
        seen |= mask
    return True


def _union(masks: Iterable[int]) -> int:
    made = 0
    for mask in masks:
        made |= mask
    return made


def _power(ways: int, turns: int) -> int:
    return int(min(ways ** min(turns, 64), _MOST))


def _kind(point: int) -> int:
    """Return the bit of a character beyond ASCII."""
    char = chr(point)
    if char.isdecimal():
        return _DIGIT
    if char.isspace():
        return _SPACE
    return _LETTER if char.isalnum() else _OTHER


def _of_ascii(pattern: str) -> int:
    return _union(1 << at for at in range(128) if re.match(pattern, chr(at)))


_LETTERS = _of_ascii("[A-Za-z]")
_DIGITS = _of_ascii(r"\d") | _DIGIT
_WORDS = _of_ascii(r"\w") | _DIGIT | _LETTER
_SPACES = _of_ascii(r"\s") | _SPACE
_CATEGORIES = {
    codes.CATEGORY_DIGIT: _DIGITS,
    codes.CATEGORY_NOT_DIGIT: _ANY & ~_DIGITS,
    codes.CATEGORY_WORD: _WORDS,
    codes.CATEGORY_NOT_WORD: _ANY & ~_WORDS,
    codes.CATEGORY_SPACE: _SPACES,
    codes.CATEGORY_NOT_SPACE: _ANY & ~_SPACES,
}

"""Make the error for a fault in a policy: file, line, column, message, and nearest spelling.

The one rule: errors show text from the file only short and printable.
"""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from safeser.errors import ConfigError
from safeser.gate.refusals import shortened

__all__ = ["Place", "UndefinedName", "did_you_mean", "fault", "shown", "together"]

_SHOWN_MAX = 40  # enough to recognize a name; a log line stays one line

#: Names that a misspelt one is compared with: each takes up to a tenth of a millisecond.
_COMPARED_MAX = 200


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in the text of a policy, counted from 1 as editors do.

    :param source: the file, where it is not the one that the policy was read from.
    """

    line: int
    column: int
    source: str = ""

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"

    @property
    def of_line(self) -> str:
        """The line, with the file that it is in where that is another one."""
        return f"line {self.line}{f' of {self.source}' if self.source else ''}"


def shown(text: str) -> str:
    """Return *text* in quotes, printable ASCII and short, for an error message."""
    return ascii(shortened(text, _SHOWN_MAX))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the *known* spelling nearest to *name*, or with the first known ones.

    Only short names near *name* in the alphabet are compared.
    """
    names = sorted(set(known))
    wanted = name[:_SHOWN_MAX]
    near = difflib.get_close_matches(wanted, _comparable(wanted, names), n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    if not names:
        return ""
    few = names[:12]
    more = ", ..." if len(names) > len(few) else ""
    return f"Known here: {', '.join(few)}{more}."


def _comparable(wanted: str, names: Sequence[str]) -> Sequence[str]:
    """Return the entries of the sorted *names* that are near *wanted* in the alphabet."""
    short = [name for name in names if len(name) <= _SHOWN_MAX]
    at = bisect.bisect(short, wanted)
    first = max(0, min(at - _COMPARED_MAX // 2, len(short) - _COMPARED_MAX))
    return short[first : first + _COMPARED_MAX]


class UndefinedName(ConfigError):
    """A name that the policy does not define.

    The nearest spelling is looked up when it is needed: a file may have thousands of such names, of
    which only the first is reported.

    :param known: returns the defined names.
    """

    def __init__(
        self, message: str, *, rule: str, name: str, known: Callable[[], Iterable[str]]
    ) -> None:
        super().__init__(message, rule=rule)
        self.nearest: Callable[[], str] = lambda: did_you_mean(name, known())


def fault(
    message: str, *, source: str, place: Place | None, rule: str, fix: str = ""
) -> ConfigError:
    """Return the error for a fault at *place* of *source*."""
    source = place.source if place is not None and place.source else source
    name = source if source.isprintable() else ascii(source)
    where = f"{name}, {place}" if place else name
    return ConfigError(message, rule=rule, where=where, fix=fix)


def together(faults: Sequence[ConfigError]) -> ConfigError:
    """Return the first of *faults* with the others beside it."""
    first, *others = faults
    first.others = tuple(others)
    return first

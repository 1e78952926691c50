"""How this room says that a policy is wrong: file, line, column, what, and the nearest spelling.

The one rule: text from the file is shown printable and short, or not at all.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from safeser.errors import ConfigError

__all__ = ["Place", "did_you_mean", "fault", "shown"]

_SHOWN_MAX = 40  # enough to recognize a name; a log line stays one line


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in the text of a policy, counted from 1 as editors do."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


def shown(text: str) -> str:
    """Return *text* in quotes, printable ASCII and short, for an error message."""
    cut = text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
    return ascii(cut)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the *known* spelling nearest to *name*, or with all, if few."""
    names = sorted(set(known))
    near = difflib.get_close_matches(name[:_SHOWN_MAX], names, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    if not names:
        return ""
    few = names[:12]
    more = ", ..." if len(names) > len(few) else ""
    return f"Known here: {', '.join(few)}{more}."


def fault(
    message: str, *, source: str, place: Place | None, rule: str, fix: str = ""
) -> ConfigError:
    """Return the error to raise for what is wrong at *place* of *source*."""
    name = source if source.isprintable() else ascii(source)
    where = f"{name}, {place}" if place else name
    return ConfigError(message, rule=rule, where=where, fix=fix)

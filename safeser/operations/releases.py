"""Releases of distributed: which one is installed, and whether it has a row or a field.

The one rule: a difference between releases is stated by the row or the field that differs, as
``since`` and ``until``, and nowhere else.
"""

from __future__ import annotations

import re
from typing import TypeAlias

__all__ = ["FIRST", "NEWEST", "Release", "is_between", "release"]

#: The numbers of a release: ``2026.8.0`` is ``(2026, 8, 0)``, and so is what is built after it.
Release: TypeAlias = tuple[int, ...]

#: The oldest release that the table was compared with; safeser refuses to start on older ones.
FIRST: Release = (2025, 5, 1)

#: Stands for the newest release where none is installed: it is in every range without an end.
NEWEST: Release = (1 << 31,)

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def release(text: str) -> Release:
    """Return the numbers that the version *text* begins with.

    :raises ValueError: if it begins with none.
    """
    found = _NUMBERS.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no release")
    return tuple(map(int, found[0].split(".")))


def is_between(given: Release, since: str, until: str) -> bool:
    """Tell whether *given* is *since* or later, and earlier than *until*; empty is without end."""
    return (not since or given >= release(since)) and (not until or given < release(until))

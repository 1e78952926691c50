"""Sets of names as text, for ``policy show`` and ``policy explain``."""

from __future__ import annotations

from collections.abc import Iterable

from safeser.operations import GROUPS
from safeser.operations.groups import PARTS, WHOLE

__all__ = ["granted", "groups_and_names", "joined", "phrase"]


def joined(names: Iterable[str]) -> str:
    """Return *names* in alphabetical order."""
    return ", ".join(sorted(names)) or "none"


def phrase(template: str, names: Iterable[str]) -> str:
    """Return *template* with *names* in it; nothing where there are none."""
    listed = sorted(names)
    return template.format(", ".join(listed)) if listed else ""


def granted(operations: frozenset[str]) -> str:
    """Return *operations* as the groups that they hold whole, and the names beyond those."""
    listed = ", ".join(groups_and_names(operations))
    return f"{listed} ({len(operations)} in all)" if listed else "none"


def groups_and_names(operations: frozenset[str]) -> list[str]:
    """Return the groups that *operations* hold whole, and the names beyond those."""
    whole = {group: names for group, names in GROUPS.items() if names <= operations}
    whole |= {
        part: names
        for part, names in PARTS.items()
        if names <= operations and WHOLE[part] not in whole
    }
    beyond = operations.difference(*whole.values())
    return [*whole, *sorted(beyond)]

"""Names of rules as labels of metrics, however many names peers invent.

The one rule: a label is a name that the code declares, or ``other``. An error that a peer sent may
name any rule, and a metric with a label of each would fill the memory of the process and of the
server that scrapes it.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Final

from safeser.audit.record import label

__all__ = ["OTHER", "KnownRules", "declared_rules"]

OTHER: Final = "other"

# The code composes some names, as in f"raw.{field}". So many of a process are told apart; more than
# one release composes.
MAX_COMPOSED = 128


@lru_cache(maxsize=1)
def declared_rules() -> frozenset[str]:
    """Return the rules that stand in the code; ``tests.audit.outputs.declared`` writes the file."""
    text = files("safeser.audit.outputs").joinpath("rules.txt").read_text(encoding="ascii")
    return frozenset(text.split())


@lru_cache(maxsize=1)
def _groups() -> frozenset[str]:
    return frozenset(rule.partition(".")[0] for rule in declared_rules())


class KnownRules:
    """The labels of rules that one process uses."""

    def __init__(self) -> None:
        self._composed: set[str] = set()

    def label(self, rule: object) -> str:
        """Return *rule* as a label."""
        if rule in declared_rules():
            return str(rule)
        name = label(rule)
        if name in self._composed:
            return name
        if name.partition(".")[0] not in _groups() or len(self._composed) >= MAX_COMPOSED:
            return OTHER
        self._composed.add(name)
        return name

"""What one process decided, as counts, for metrics.

The one rule: whatever peers send, memory and the number of labels are bounded. A label is a name
that the code or the policy declares, or ``other``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from safeser.audit.outputs.rules import OTHER, KnownRules
from safeser.gate.values import FAMILIES, SEALED, Kind

__all__ = ["HANDSHAKE", "Activity", "Decided", "Seen", "labels_of", "see"]

#: The operation by which sessions, and peers that got none, are counted.
HANDSHAKE: Final = "handshake"

# Distinct combinations, of some 400 rules, 4 kinds and 7 families; a cluster has about 60.
MAX_DECISIONS = 4_096

_KINDS = frozenset(kind.value for kind in Kind)

#: Whether it was permitted, the rule, the kind and the family.
Decided: TypeAlias = tuple[bool, str, str, str]


#: Of events that are about to be recorded: how many have which labels, and the rules by which peers
#: got no session.
Seen: TypeAlias = tuple[dict[Decided, int], list[object]]


class Activity:
    """Counts of one log since it was opened; the log calls it in one thread at a time.

    :ivar decisions: how often each outcome was decided, by rule, kind and family.
    :ivar handshakes: peers that got no session, by rule.
    :ivar failures: calls of the log that raised instead of writing.
    """

    def __init__(self) -> None:
        self.decisions: dict[Decided, int] = {}
        self.handshakes: dict[str, int] = {}
        self.failures = 0
        self._rules = KnownRules()
        self._families = frozenset({*FAMILIES, SEALED, ""})
        self._labels: dict[Decided, Decided] = {}

    def declare(self, families: Iterable[str]) -> None:
        """Let *families* of a policy be labels, too."""
        self._families = self._families.union(families)
        self._labels.clear()

    def add(self, seen: Seen) -> None:
        """Count what was recorded."""
        keys, handshakes = seen
        for key, times in keys.items():
            self._add(key, times)
        for rule in handshakes:
            self._refuse_handshake(rule, 1)

    def count(self, operation: str, rule: str, permitted: bool, *, kind: str, times: int) -> None:
        """Count a decision that the log counts as well."""
        self._add((bool(permitted), rule, kind, ""), times)
        if not permitted and operation == HANDSHAKE:
            self._refuse_handshake(rule, times)

    def _add(self, key: Decided, times: int) -> None:
        found = self._labels.get(key)
        if found is None:
            found = self._label(key)
        self.decisions[found] = self.decisions.get(found, 0) + times

    def _label(self, key: Decided) -> Decided:
        permitted, rule, kind, family = key
        found = (
            permitted,
            self._rules.label(rule),
            kind if kind in _KINDS else OTHER,
            family if family in self._families else OTHER,
        )
        if found not in self.decisions and len(self.decisions) >= MAX_DECISIONS:
            found = (permitted, OTHER, OTHER, OTHER)
        if found[1:] == key[1:]:  # a peer's own words are not kept
            self._labels[key] = found
        return found

    def _refuse_handshake(self, rule: object, times: int) -> None:
        name = self._rules.label(rule)
        self.handshakes[name] = self.handshakes.get(name, 0) + times


def see(seen: Seen, event: Mapping[str, object]) -> None:
    """Add to *seen* what :meth:`Activity.add` needs of *event*, if it is a decision."""
    permitted = event.get("permitted")
    if type(permitted) is not bool:
        return
    keys, handshakes = seen
    key = labels_of(permitted, event)
    keys[key] = keys.get(key, 0) + 1
    if not permitted and event.get("operation") == HANDSHAKE:
        handshakes.append(event.get("rule"))


def labels_of(permitted: bool, event: Mapping[str, object]) -> Decided:
    """Return what an event is counted by; a program's own may have fields of any type."""
    rule, kind, family = event.get("rule"), event.get("kind"), event.get("family")
    return (
        permitted,
        rule if isinstance(rule, str) else "",
        kind if isinstance(kind, str) else "",
        family if isinstance(family, str) else "",
    )

"""What one process decided, as counts and last refusals, for metrics and dashboards.

The one rule: whatever peers send, memory and the number of labels are bounded. A label is a name
that the code or the policy declares, or ``other``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from safeser.audit.outputs.rules import OTHER, KnownRules
from safeser.audit.record import printable
from safeser.audit.tally import SECOND
from safeser.gate.values import FAMILIES, SEALED, Kind

__all__ = ["HANDSHAKE", "Activity", "Decided", "Refusal", "Seen", "labels_of", "see"]

#: The operation by which sessions, and peers that got none, are counted.
HANDSHAKE: Final = "handshake"

#: Refusals that are kept, and the seconds that a dashboard looks back.
LAST, SECONDS = 100, 300

# Distinct combinations, of some 400 rules, 4 kinds and 7 families; a cluster has about 60.
MAX_DECISIONS = 4_096

#: Characters of one text of a refusal.
_TEXT = 120

_KINDS = frozenset(kind.value for kind in Kind)

#: Whether it was permitted, the rule, the kind and the family.
Decided: TypeAlias = tuple[bool, str, str, str]


class Refusal(NamedTuple):
    """One of the last refusals: printable ASCII, without a byte of the payload.

    :param time: microseconds since 1970, UTC.
    """

    time: int
    rule: str
    sender: str
    recipient: str
    operation: str
    family: str
    where: str
    reason: str


_TEXTS = Refusal._fields[1:]

#: Of events that are about to be recorded: how many have which labels, and those that are refused.
Seen: TypeAlias = tuple[dict[Decided, int], list[dict[str, object]]]


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
        self._refusals: deque[Refusal] = deque(maxlen=LAST)
        self._seconds: deque[tuple[int, int, int]] = deque(maxlen=SECONDS)
        self._rules = KnownRules()
        self._families = frozenset({*FAMILIES, SEALED, ""})
        self._labels: dict[Decided, Decided] = {}

    def declare(self, families: Iterable[str]) -> None:
        """Let *families* of a policy be labels, too."""
        self._families = self._families.union(families)
        self._labels.clear()

    def add(self, seen: Seen, now: int) -> None:
        """Count what was recorded at *now*."""
        keys, refused = seen
        total = 0
        for key, times in keys.items():
            self._add(key, times)
            total += times
        for event in refused:
            texts = [_text(event.get(name)) for name in _TEXTS]
            self._refusals.append(Refusal(now, *texts))
            if event.get("operation") == HANDSHAKE:
                self._refuse_handshake(event.get("rule"), 1)
        if total:
            self._tick(now, total - len(refused), len(refused))

    def count(
        self, operation: str, rule: str, permitted: bool, *, kind: str, times: int, now: int
    ) -> None:
        """Count a decision that the log counts as well."""
        self._add((bool(permitted), rule, kind, ""), times)
        if permitted:
            self._tick(now, times, 0)
            return
        if operation == HANDSHAKE:
            self._refuse_handshake(rule, times)
        self._tick(now, 0, times)

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

    def _tick(self, now: int, permitted: int, refused: int) -> None:
        second, seconds = now // SECOND, self._seconds
        last, before, after = seconds[-1] if seconds else (-1, 0, 0)
        if seconds and last >= second:  # a clock that went back counts on
            seconds[-1] = (last, before + permitted, after + refused)
        else:
            seconds.append((second, permitted, refused))

    # --- for readers, in any thread --------------------------------------------------------------

    @property
    def refusals(self) -> list[Refusal]:
        """The last refusals, the newest first."""
        return list(self._refusals)[::-1]

    def rates(self, now: int) -> list[tuple[int, int, int]]:
        """Return seconds since 1970, permitted and refused decisions of each of the last seconds.

        :param now: seconds since 1970; that second, which is not over, is left out.
        """
        known = {
            second: (permitted, refused) for second, permitted, refused in self._seconds.copy()
        }
        return [(at, *known.get(at, (0, 0))) for at in range(now - SECONDS, now)]


def see(seen: Seen, event: Mapping[str, object]) -> None:
    """Add to *seen* what :meth:`Activity.add` needs of *event*, if it is a decision."""
    permitted = event.get("permitted")
    if type(permitted) is not bool:
        return
    keys, refused = seen
    key = labels_of(permitted, event)
    keys[key] = keys.get(key, 0) + 1
    if not permitted:
        refused.append(dict(event))


def labels_of(permitted: bool, event: Mapping[str, object]) -> Decided:
    """Return what an event is counted by; a program's own may have fields of any type."""
    rule, kind, family = event.get("rule"), event.get("kind"), event.get("family")
    return (
        permitted,
        rule if isinstance(rule, str) else "",
        kind if isinstance(kind, str) else "",
        family if isinstance(family, str) else "",
    )


def _text(value: object) -> str:
    return printable(value, _TEXT) if isinstance(value, str) else ""

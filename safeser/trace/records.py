"""What a trace found: one record for each object, counts by process, and both as a table."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from types import FunctionType, MappingProxyType
from typing import NamedTuple

from safeser.trace.place import place_of_caller
from safeser.trace.probe import Action, Done

__all__ = ["Count", "Group", "Record", "Trace"]

#: Records that one trace keeps, some 30 MB; counts go on.
_MOST_RECORDS = 100_000

#: Lines of the table that tell objects apart.
_LINES = 15

_WIDTH = 80
_LONGEST_NAME = 200


class Group(NamedTuple):
    """What is counted together.

    :param process: ``this process``, ``scheduler``, or ``worker`` and its address.
    """

    process: str
    action: Action
    family: str


@dataclass(frozen=True, slots=True)
class Count:
    """How many objects there were, bytes of their frames, and seconds that they took."""

    number: int = 0
    size: int = 0
    seconds: float = 0.0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.number + other.number, self.size + other.size, self.seconds + other.seconds
        )


@dataclass(frozen=True, slots=True)
class Record:
    """One object that was serialized, deserialized or pickled for its key.

    :param type: ``module.qualname`` of its class; of a function or class its own.
    :param size: bytes of its frames.
    :param seconds: of an object that is deserialized, of building it from checked nodes.
    :param process: id of the process.
    :param thread: name of the thread.
    :param place: the place in the user's code; empty on the thread of an event loop.
    """

    action: Action
    type: str
    family: str
    size: int
    seconds: float
    process: int
    thread: str
    place: str


#: The process in which a trace was begun.
HERE = "this process"


@dataclass(eq=False)
class Trace:
    """What was serialized while a trace was active.

    :param records: of this process, in the order in which they ended.
    :param dropped: records beyond the first 100,000, which were only counted.
    :param missing: processes of the cluster that gave no counts, and why.
    :param seconds: how long the trace was active; 0 while it is.
    """

    records: list[Record] = field(default_factory=list)
    dropped: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    _counts: dict[Group, Count] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _begun: float = field(default_factory=perf_counter, repr=False)

    @property
    def counts(self) -> Mapping[Group, Count]:
        """Counts by process, action and family."""
        return MappingProxyType(self._counts)

    def number(
        self, action: Action, *, process: str | None = None, family: str | None = None
    ) -> int:
        """Return how often *action* was done, on all processes and in all families by default.

        :param process: the beginning of its name: ``worker`` is all workers.
        """
        return sum(
            count.number
            for group, count in self._counts.items()
            if group.action == action
            and group.process.startswith(process or "")
            and family in (None, group.family)
        )

    def note(self, action: Action, done: Done, seconds: float) -> None:
        """Record one object of this process."""
        place = place_of_caller()
        thread = threading.current_thread().name
        with self._lock:
            self._count(Group(HERE, action, done.family), Count(1, done.size, seconds))
            if len(self.records) >= _MOST_RECORDS:
                self.dropped += 1
                return
            kind = _name_of(done.obj)
            self.records.append(
                Record(action, kind, done.family, done.size, seconds, os.getpid(), thread, place)
            )

    def add_counts(self, counts: Mapping[Group, Count]) -> None:
        """Add the counts of another process."""
        with self._lock:
            for group, count in counts.items():
                self._count(group, count)

    def end(self) -> None:
        self.seconds = perf_counter() - self._begun

    def _count(self, group: Group, count: Count) -> None:
        if count.number:
            self._counts[group] = self._counts.get(group, Count()) + count

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if not self._counts and not self.missing:
            yield "Nothing was serialized."
            return
        yield f"{'process':<14}{'action':<13}{'family':<13}{'number':>8}{'bytes':>17}{'ms':>12}"
        for group, count in _by_role(self._counts):
            yield (
                f"{group.process:<14}{group.action:<13}{_short(group.family, 12):<13}"
                f"{count.number:>8,}{count.size:>17,}{count.seconds * 1e3:>12,.1f}"
            )
        for process, reason in self.missing.items():
            yield _short(f"no counts of {process}: {reason}", _WIDTH)
        if self.records:
            yield ""
            yield from _slowest(self.records)
        if self.dropped:
            yield f"{self.dropped:,} more were counted and not recorded."


def _by_role(counts: Mapping[Group, Count]) -> Iterator[tuple[Group, Count]]:
    """Yield *counts* with those of all workers together."""
    found: defaultdict[Group, Count] = defaultdict(Count)
    workers = {group.process for group in counts if group.process.startswith("worker ")}
    together = "1 worker" if len(workers) == 1 else f"{len(workers)} workers"
    for group, count in counts.items():
        shown = group._replace(process=together) if group.process in workers else group
        found[shown] += count
    yield from found.items()


def _slowest(records: Iterable[Record]) -> Iterator[str]:
    """Yield a line for each type and place, what took longest first."""
    found: defaultdict[tuple[str, str, str], Count] = defaultdict(Count)
    for each in records:
        found[each.action, each.type, each.place] += Count(1, each.size, each.seconds)
    ordered = sorted(found.items(), key=lambda pair: -pair[1].seconds)
    yield f"{'number':>8}{'bytes':>17}{'ms':>12}  what took longest in this process"
    for (action, kind, place), count in ordered[:_LINES]:
        yield _short(
            f"{count.number:>8,}{count.size:>17,}{count.seconds * 1e3:>12,.1f}  {action} {kind}",
            _WIDTH,
        )
        if place:
            yield _short(f"{'':>39}{place}", _WIDTH)
    if len(ordered) > _LINES:
        yield f"and {len(ordered) - _LINES:,} more types and places"


def _name_of(x: object) -> str:
    kind = x if isinstance(x, type | FunctionType) else type(x)
    name = f"{kind.__module__}.{kind.__qualname__}"[:_LONGEST_NAME]
    return "".join(char if char.isprintable() else "?" for char in name)


def _short(text: str, longest: int) -> str:
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."

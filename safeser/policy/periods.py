"""Determine which decision table of a policy is in force: contexts end on their dates.

The one rule: a date that has passed takes away and never gives. A context whose date has passed
still matches, and refuses: what it granted is not left to a broader context below it. It stays so
if the clock is set back.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from math import inf

from safeser.policy.decide import Table
from safeser.policy.source.context import Rule

__all__ = ["Clock", "Periods"]

#: Returns seconds since 1970, UTC.
Clock = Callable[[], float]


class Periods:
    """The decision table of one policy, replaced where the date of a context passes.

    :param written: the table in which no date has passed.
    """

    __slots__ = ("_clock", "_end", "_first", "_table", "written")

    def __init__(self, written: Table, clock: Clock) -> None:
        self.written = written
        self._clock = clock
        self._table, self._end = written, -inf
        self._first = self.table()

    def table(self) -> Table:
        """Return the table that is in force."""
        # A policy without dates has no end, and its clock is not read again.
        if self._end == inf:
            return self._table
        now = self._clock()
        return self._table if now < self._end else self._advance(now)

    @property
    def has_passed(self) -> bool:
        """Whether a date has passed since this was made."""
        return self.table() is not self._first

    def passed(self) -> list[Rule]:
        """Return the contexts that have ended since this was made."""
        each = zip(self._first.rules, self.table().rules, strict=True)
        return [now for before, now in each if now.ended and not before.ended]

    def at(self, moment: float) -> Periods:
        """Return the periods of the same table with a clock that stands at *moment*."""
        return Periods(self.written, lambda: moment)

    def renewed(self) -> Periods:
        """Return these periods, for which no date has passed since they were made."""
        made = copy(self)
        made._first = made.table()
        return made

    def _advance(self, now: float) -> Table:
        ends = [rule.end for rule in self.written.rules]
        if any(end <= now for end in ends):
            self._table = self.written.at(now)
        # Last: a thread that reads the old end comes here as well.
        self._end = min((end for end in ends if end > now), default=inf)
        return self._table

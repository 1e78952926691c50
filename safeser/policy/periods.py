"""The dates of contexts: which decision table of a policy is in force.

The one rule: a date that has passed takes away, and no clock that is set back gives it back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from copy import copy
from math import inf

from safeser.policy.compiled import Compiled
from safeser.policy.source.context import Rule

__all__ = ["Clock", "Periods", "forward_time"]

#: Returns seconds since 1970, UTC.
Clock = Callable[[], float]


class _Forward:
    latest = -inf


def forward_time() -> float:
    """Return the latest time that this process has seen.

    A clock that is set back gives nothing back, not even to a policy that is loaded afterwards.
    """
    _Forward.latest = max(_Forward.latest, time.time())
    return _Forward.latest


class Periods:
    """The decision table of one policy, replaced where the date of a context passes.

    A date that has passed takes away and never gives: its context still matches, and refuses, so
    that what it granted is not left to a broader one below. It stays so if the clock is set back.

    :param written: the contexts of which no date has passed.
    """

    __slots__ = ("_clock", "_compiled", "_end", "_first", "_lock", "lasting", "written")

    def __init__(self, written: Compiled, clock: Clock) -> None:
        self.written = written
        self._clock = clock
        self._compiled, self._end = written, -inf
        #: What is in force, where no date is left to pass; None where there is one.
        self.lasting: Compiled | None = None
        self._lock = threading.Lock()
        self._first = self.compiled()

    def compiled(self) -> Compiled:
        """Return the contexts and the table that are in force."""
        # A policy without dates has no end, and its clock is not read again.
        if self.lasting is not None:
            return self.lasting
        now = self._clock()
        if now != now:  # noqa: PLR0124 - a clock that says nothing lets no date pass unseen
            return self.written.at(inf)
        return self._compiled if now < self._end else self._advance(now)

    @property
    def has_passed(self) -> bool:
        """Whether a date has passed since this was made."""
        return (self.lasting or self.compiled()) is not self._first

    def passed(self) -> list[Rule]:
        """Return the contexts that have ended since this was made."""
        each = zip(self._first.rules, self.compiled().rules, strict=True)
        return [now for before, now in each if now.ended and not before.ended]

    def at(self, moment: float) -> Periods:
        """Return the periods of the same table with a clock that stands at *moment*."""
        return Periods(self.written, lambda: moment)

    def renewed(self) -> Periods:
        """Return these periods, for which no date has passed since they were made."""
        made = copy(self)
        made._first = made.compiled()
        return made

    def _advance(self, now: float) -> Compiled:
        ends = [rule.end for rule in self.written.rules]
        with self._lock:
            # A thread that read the clock later was here before this one.
            if now >= self._end:
                if any(end <= now for end in ends):
                    self._compiled = self.written.at(now)
                self._end = min((end for end in ends if end > now), default=inf)
                self.lasting = self._compiled if self._end == inf else None
            return self._compiled

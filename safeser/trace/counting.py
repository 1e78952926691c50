"""Counts of a server's serializations, kept while a client's trace asks for them.

The one rule: counts say how many, how large and how long, by action and family, and nothing of
whose objects they were. They end with the last trace, or when the time that it asked for is over.
"""

from __future__ import annotations

import secrets
import threading
from time import monotonic

from safeser.trace import probe
from safeser.trace.probe import Action, Done

__all__ = ["LONGEST", "Counting", "counting"]

#: Seconds for which a trace that is not heard of again is counted at most.
LONGEST = 3600.0

#: Traces of one principal at one time. One more takes the place of that principal's own trace that
#: would end first, so that no principal ends the trace of another.
_MOST_TRACES = 8

_LONGEST_FAMILY = 100


class Counting:
    """The counts of one process: totals that only grow, from which each trace takes differences."""

    def __init__(self) -> None:
        #: Tells a client whether it is in this process, and counts the same objects itself.
        self.process = secrets.token_hex(16)
        self._totals: dict[tuple[Action, str], list[float]] = {}
        self._until: dict[tuple[str, str], float] = {}
        self._ends = 0.0
        self._lock = threading.Lock()

    def ask(self, asker: str, trace: str, seconds: float) -> list[list[object]]:
        """Return the totals so far, and count for *seconds* from now on.

        :param asker: the principal that asks.
        :param trace: the name under which to count; it ends its own counting with 0 seconds.
        """
        now = monotonic()
        with self._lock:
            self._until = {each: end for each, end in self._until.items() if end > now}
            self._until.pop((asker, trace), None)
            if seconds > 0:
                own = [each for each in self._until if each[0] == asker]
                if len(own) >= _MOST_TRACES:
                    del self._until[min(own, key=self._until.__getitem__)]
                self._until[asker, trace] = now + min(seconds, LONGEST)
            self._ends = max(self._until.values(), default=0.0)
            found: list[list[object]] = [
                [action, family[:_LONGEST_FAMILY], int(number), int(size), took]
                for (action, family), (number, size, took) in self._totals.items()
            ]
        if self._ends:
            probe.add(self)
        else:
            probe.remove(self)
        return found

    def note(self, action: Action, done: Done, seconds: float) -> None:
        if monotonic() > self._ends:
            probe.remove(self)
            return
        with self._lock:
            total = self._totals.setdefault((action, done.family), [0, 0, 0.0])
            total[0] += 1
            total[1] += done.size
            total[2] += seconds


#: Of this process, which may host several servers.
counting = Counting()

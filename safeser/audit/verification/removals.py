"""Compares what the index says was removed with what was written down while it was there.

The one rule: a holder of the log's key can enter any removal. Against a head that is kept elsewhere
an entry proves nothing, unless the reader of the report knows by which rule files are removed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from safeser.audit.report import Mark, Problem, moment, shown
from safeser.audit.tally import SECOND
from safeser.audit.verification.registry import Registered, Removed

__all__ = ["Kept", "contradiction", "removal_note"]


@dataclass(frozen=True, slots=True)
class Kept:
    """What the reader of a report knows of the files that a log keeps.

    :param age: seconds for which each is kept at least; 0 where that is not known.
    :param now: microseconds since 1970.
    """

    age: int
    now: int

    def permits(self, entry: Registered, removed: Removed) -> bool:
        """Tell whether a file was so old when it was removed.

        A thief of the present key dates the end of a file that it closes, and neither its start nor
        the entries before that end.
        """
        end = max(entry.begun, entry.stated_end, entry.after)
        return bool(self.age) and end + self.age * SECOND <= removed.time <= self.now


def contradiction(
    entry: Registered,
    removed: Removed,
    *,
    marks: Sequence[Mark],
    places: Sequence[int],
    kept: Kept,
) -> Problem | None:
    """Return in what a removal contradicts heads that were written down elsewhere.

    :param marks: records of the file that they name.
    :param places: numbers of the entries of the index that they name as the last, in their order.
    """
    last = removed.count - 1
    for mark in marks if removed.count else ():
        if mark.sequence > last or (mark.sequence == last and mark.mac != removed.mac):
            text = f"it was removed with another end than {mark.source} names"
            return Problem(shown(entry.name), 0, -1, mark.kind, text)
    first = bisect_left(places, entry.line - 1)
    was_there = first < len(places) and places[first] < removed.line - 1
    # Where no head has both, its record was in a head of this file alone.
    was_there = was_there or (bool(marks) and first == len(places))
    if not was_there or kept.permits(entry, removed):
        return None
    text = (
        f"retention removed it ({shown(removed.why)}), says the index (line {removed.line}), after"
        " a head was written down that has it"
    )
    return Problem(shown(entry.name), 0, -1, "removed file", text)


def removal_note(entry: Registered, removed: Removed) -> str:
    """Return what the index says about the removal of a file that is not there."""
    when = moment(removed.time)
    end = f"it ended with record {removed.count - 1}, MAC {removed.mac.hex()}"
    if not removed.count:
        end = "its process had been killed, and where it ended was not verified"
    return (
        f"{shown(entry.name)}: removed by retention ({shown(removed.why)}) on"
        f" {'-' if when is None else f'{when:%Y-%m-%d %H:%M}'} UTC; {end}"
    )

"""Count how many slots CPython's dicts and sets probe for keys whose hashes a sender chooses.

The one rule: every insertion costs about the same. Keys of different hashes that are chosen to meet
in a table, so that each probes past all before it, took five seconds in 340 KB and twenty times
that in four times as many bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from safeser.gate.values import LEAST_WALK
from safeser.pickles.reading.layout import held_by

__all__ = ["WALK_FREE", "Slots", "holds_large", "spread_out"]

#: So few cannot walk far enough to matter.
WALK_FREE = 1024
_SHIFT = 5
_FULL_64 = (1 << 64) - 1
# A set looks at this many neighbours of a place before it goes elsewhere.
_NEIGHBOURS = 9
# What no hash of honest data is shared by. A Decimal takes a second to be compared with an integer
# of 64 KiB, which it converts each time: 32 of either, all of one hash, are a thousand pairs.
_LARGE_BITS = 1024
# Sets are compared member by member, each with all of the other that share its hash, and so are
# sets in them: of sets in sets in sets, all of one hash, 810 KB took 73 seconds.
_MANY_MEMBERS = 16


class Slots:
    """The hash table of one dict or set, reduced to which slots are taken.

    :param members: it is a set's.
    :param walk: how many others one may be compared with, on average. Random hashes take two or
        three; numbers that are all multiples of a large power of two, some ten.
    """

    __slots__ = ("_hashes", "_members", "_room", "_taken", "_walk", "_walked")

    def __init__(self, hashes: Iterable[int], *, members: bool, walk: int = LEAST_WALK) -> None:
        self._members = members
        self._walk = walk
        self._hashes: list[int] = []
        self._room = 0
        self._walked = 0
        self._taken = bytearray()
        self._grow()
        self.extend(list(hashes))

    def add(self, value: int) -> bool:
        """Insert a new hash; tell whether all insertions together probe too many slots."""
        return self.extend((value,))

    def extend(self, values: Sequence[int]) -> bool:
        """Insert *values* in order; tell whether all insertions together probe too many slots."""
        done = 0
        while done < len(values) and not self.too_far:
            if not self._room and not self._members:
                self._grow()
            part = values[done : done + self._room]
            self._hashes.extend(part)
            self._insert(part)
            done += len(part)
            if not self._room and self._members:
                # A dict grows when there is no room for another, a set when it has taken the last.
                self._grow()
        return self.too_far

    @property
    def too_far(self) -> bool:
        return self._walked > self._walk * (len(self._hashes) + WALK_FREE)

    def _grow(self) -> None:
        """Grow the table as CPython does, and insert its hashes again in order."""
        used, size = len(self._hashes), 8
        factor = 3 if not self._members else 2 if used > 50_000 else 4
        while size < used * factor + self._members:
            size <<= 1
        self._taken = bytearray(size)
        self._room = -(-(size - 1) * 3 // 5) if self._members else size * 2 // 3
        self._insert(self._hashes)

    def _insert(self, values: Sequence[int]) -> None:
        """Find a slot for each of *values*, which fit the table, until they probe too many."""
        taken, mask, members = self._taken, len(self._taken) - 1, self._members
        walked, most = self._walked, self._walk * (len(self._hashes) + WALK_FREE)
        for value in values:
            perturb = value & _FULL_64
            place = perturb & mask
            while taken[place]:
                walked += 1
                if members and place + _NEIGHBOURS <= mask:
                    free = taken.find(0, place, place + _NEIGHBOURS + 1)
                    if free >= 0:
                        place = free
                        break
                perturb >>= _SHIFT
                place = (place * 5 + perturb + 1) & mask
            taken[place] = 1
            if walked > most:
                break
        self._walked = walked
        self._room -= len(values)


def spread_out(keys: Sequence[int]) -> bool:
    """Tell whether a dict and a set of such integers take about the same time per integer."""
    if len(keys) <= WALK_FREE:
        return True
    # Those that follow each other have a place each, however large the table is.
    if all(map(int.__eq__, keys, range(keys[0], keys[0] + len(keys)))):
        return True
    return not any(
        any(map(Slots((), members=members).add, map(hash, keys))) for members in (False, True)
    )


def holds_large(key: Any) -> bool:
    """Tell whether it takes long to compare *key* with another that has the same hash."""
    todo, seen, members = [key], set(), 0
    while todo:
        part = todo.pop()
        if isinstance(part, int):
            if int.bit_length(part) > _LARGE_BITS:
                return True
        elif not isinstance(part, type) and id(part) not in seen:
            seen.add(id(part))
            members += len(part) if isinstance(part, frozenset) else 0
            if members > _MANY_MEMBERS:
                return True
            todo.extend(held_by(part))
    return False

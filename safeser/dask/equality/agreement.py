"""Equivalence classes of values while two graphs are compared, and the budget of the comparison.

The one rule: the work is bounded by the size of what arrived. Each pair of values either joins two
classes or is known already: two cycles of tasks, one of 1,451 and one of 1,399, would be two
million pairs otherwise, and 31 seconds of the scheduler's event loop for a message of 60 KB.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

__all__ = ["MAX_PAIRS", "Agreement", "Exhausted"]

#: Pairs of values that one comparison of a graph with existing tasks checks, in all.
MAX_PAIRS = 2_000_000

#: Pairs that it may look at for nothing: in definitions that turned out to differ, or because the
#: graph that is there is so much larger than the one that arrived.
_FREE = 50_000
_FOR_EACH = 20

#: More than that is forgotten between definitions.
_MAX_KEPT = 400_000
_MAX_HELD = 16 << 20
#: Bytes of a text or number that are compared at the cost of a pair.
_BYTES = 1 << 12


class Exhausted(Exception):
    """The comparison takes longer than what arrived is worth."""


class Agreement:
    """Classes of values that were found equal; those of a failed definition are taken back."""

    def __init__(self, most: int = MAX_PAIRS) -> None:
        self._left = most
        self._free = min(_FREE, most)
        self._forget()
        self._begun = 0

    def _forget(self) -> None:
        self._parents: dict[Hashable, Hashable] = {}
        self._sizes: dict[Hashable, int] = {}
        # Values are kept, so that no other object gets their addresses in the meantime.
        self._kept: dict[Hashable, Any] = {}
        self._joined: list[tuple[Hashable, Hashable]] = []
        self._arrived = self._pairs = self._held = 0

    def begin(self) -> None:
        """Begin with another definition."""
        if len(self._kept) > _MAX_KEPT or self._held > _MAX_HELD:
            self._forget()
        self._joined.clear()
        self._begun = self._pairs

    def take_back(self) -> None:
        """Forget what depended on the definition that turned out to differ."""
        self._free -= self._pairs - self._begun
        for child, root in reversed(self._joined):
            del self._parents[child]
            self._sizes[root] -= self._sizes.get(child, 1)
        self._joined.clear()

    def join(self, there: Any, here: Any, place_there: int, place_here: int, size: int) -> bool:
        """Record that the two are taken for equal; tell whether that follows from the others.

        :param place_there: what distinguishes the same object at two places.
        :param size: of what has to be compared at once, in bytes.
        :raises Exhausted: if that is more than may be checked.
        """
        first, second = (0, id(there), place_there), (1, id(here), place_here)
        if second not in self._kept:
            self._arrived += 1
        self._kept[first], self._kept[second] = there, here
        a, b = self._root(first), self._root(second)
        if a == b:
            return True
        self._held += size
        self._pairs += 1 + size // _BYTES
        self._left -= 1 + size // _BYTES
        spent = self._pairs - self._begun
        if self._left < 0 or min(spent, self._pairs - _FOR_EACH * self._arrived) > self._free:
            raise Exhausted
        if self._sizes.get(a, 1) > self._sizes.get(b, 1):
            a, b = b, a
        self._parents[a] = b
        self._sizes[b] = self._sizes.get(b, 1) + self._sizes.get(a, 1)
        self._joined.append((a, b))
        return False

    def _root(self, node: Hashable) -> Hashable:
        # Without shortening the way, so that a join can be taken back; it is short by their sizes.
        while node in self._parents:
            node = self._parents[node]
        return node

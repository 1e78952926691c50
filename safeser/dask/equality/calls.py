"""Compare two sealed tasks of one author under one key, by what that author states of them.

The one rule: an author's word about its own definitions counts against that author alone. Equal
bytes are the same task; otherwise calls are compared with canonical digests in place of
definitions, as Dask's schedulers may have them: fused or not, with inputs in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from dask._task_spec import GraphNode

from safeser.dask.equality.definitions import Comparison
from safeser.dask.equality.outline import Allowance, is_whole, outline, unopened
from safeser.dask.sealed.node import Sealed
from safeser.dask.sealed.writing import ACTOR
from safeser.dask.wire.reader import packed
from safeser.errors import PayloadError
from safeser.gate.values import Limits

__all__ = ["Sameness", "SealedComparison"]


class Sameness(Enum):
    """What is known of two tasks under one key."""

    SAME = "same"
    DIFFERENT = "different"
    #: A definition without a canonical form has other bytes, or there is too much to read.
    UNKNOWN = "unknown"


class SealedComparison:
    """Compares the sealed tasks of one graph that arrived with those that are there.

    :param there: what a key stands for in the graph that is there.
    :param here: what it stands for in the one that arrived.
    """

    def __init__(
        self, there: Callable[[Any], Any], here: Callable[[Any], Any], limits: Limits
    ) -> None:
        self._sides = (there, here)
        self._limits = limits
        self._allowance = Allowance()
        self._author = ""
        self._outlines: dict[tuple[int, int, bool], GraphNode | None] = {}
        self._comparisons: dict[bool, Comparison] = {}

    def compare(self, known: Sealed, node: Sealed) -> Sameness:
        """Return whether *known*, which exists, and *node*, which arrived, are the same."""
        if known.says_same(node):
            return Sameness.SAME
        first, second = known.graph.heads[known.index], node.graph.heads[node.index]
        # Both make an actor or neither, and both shuffle alike if they do.
        same_kind = not (first.flags ^ second.flags) & ACTOR
        if known.author != node.author or not (
            same_kind and packed(first.plan) == packed(second.plan)
        ):
            return Sameness.DIFFERENT
        self._author = node.author
        found = _by_digests(known, node)
        return self._by_outlines(known, node) if found is None else found

    def _by_outlines(self, known: Sealed, node: Sealed) -> Sameness:
        if self._same(known, node, doubted=False):
            return Sameness.SAME
        # What was pickled whole may be fused, of which nothing is seen, and not all may be read.
        hidden = is_whole(known) or is_whole(node) or self._allowance.is_spent
        if hidden or self._same(known, node, doubted=True):
            return Sameness.UNKNOWN
        return Sameness.DIFFERENT

    def _same(self, known: Sealed, node: Sealed, *, doubted: bool) -> bool:
        first, second = self._outline(known, doubted), self._outline(node, doubted)
        if first is None or second is None:
            return False
        comparison = self._comparisons.get(doubted)
        if comparison is None:
            there, here = (self._outlined(side, doubted) for side in self._sides)
            comparison = self._comparisons[doubted] = Comparison(there, here)
        return comparison.same(first, second)

    def _outlined(self, define: Callable[[Any], Any], doubted: bool) -> Callable[[Any], Any]:
        """Return the definition of a key, if the same author submitted it."""

        def found(key: Any) -> Any:
            node = define(key)
            if not isinstance(node, Sealed) or node.author != self._author:
                return None
            return self._outline(node, doubted)

        return found

    def _outline(self, task: Sealed, doubted: bool) -> GraphNode | None:
        place = (id(task.graph), task.index, doubted)
        if place not in self._outlines:
            try:
                made = outline(task, self._limits, self._allowance, doubted=doubted)
                self._outlines[place] = made
            except PayloadError:  # its author signed what is no task, or too many
                self._outlines[place] = None
        return self._outlines[place]


def _by_digests(known: Sealed, node: Sealed) -> Sameness | None:
    """Return what is known of two tasks that call alike; None if they may be fused differently."""
    first, second = known.graph.heads[known.index], node.graph.heads[node.index]
    trees = known.graph.leaves[known.index].tree, node.graph.leaves[node.index].tree
    if (
        trees[0] != trees[1]
        or packed(first.dependencies) != packed(second.dependencies)
        or len(first.digests) != len(second.digests)
    ):
        return None
    pairs = zip(unopened(known), unopened(node), strict=True)
    differing = [(a, b) for a, b in pairs if not a.says_same(b)]
    if any(a.canonical and b.canonical for a, b in differing):
        return Sameness.DIFFERENT
    return Sameness.UNKNOWN if differing else Sameness.SAME

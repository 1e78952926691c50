"""Decide whether two definitions of one task are equal, without running either.

The one rule: what is compared was loaded already, under the grant of its sender, or is a sealed
task, which is not opened. Parts are equal by their digests; what has none counts as different.

Identity proves nothing here: the same lambda that is submitted twice arrives as two functions, and
two pickles of equal objects differ by what they share. Nor would a digest of a whole definition do:
Dask fuses tasks, and whether it does depends on what else was asked for. The sum of an array is one
task by itself, another one with the array's own tasks inside, and has one key. So two tasks are
paired argument by argument, what is inside of one with what the other one's references stand for;
functions and data are equal by their digests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from dask._task_spec import GraphNode, Task, TaskRef

from safeser.dask.equality.difference import Difference, added_slots
from safeser.dask.equality.digests import MOST, Digests
from safeser.dask.equality.graph_side import LITERAL, NotComparableError, Side
from safeser.dask.equality.outline import Allowance, Unopened, is_whole, outline, unopened
from safeser.dask.sealed.node import Sealed
from safeser.dask.sealed.writing import ACTOR
from safeser.dask.wire.reader import packed
from safeser.errors import PayloadError
from safeser.families.plain import DEFAULTS
from safeser.gate.values import Limits
from safeser.tokens.graph import Exhausted

__all__ = ["Comparison"]

#: What a node that is not Dask's raises where it is looked at: a fused task that is not made as
#: Dask makes them, a key too deep, or fields that are none of Dask's.
_NOT_DASKS = (
    *(NotComparableError, Exhausted, AttributeError, LookupError),
    *(TypeError, ValueError, RecursionError),
)

#: What a pair of tasks costs beside its arguments.
_PAIR = 4
#: Items of containers that differ among which that which does is looked for, in all.
_SEARCH = 50_000


class _DoubtedError(Exception):
    """Two definitions are not opened, and one of them has no canonical form."""


def _require(same: bool) -> None:
    if not same:
        raise NotComparableError


#: Two values, the scopes in which their references are read, and which parts they are of what.
_Work = tuple[Any, Any, Any, Any, Difference | None, int]


class Comparison:
    """Compares the definitions of one submitted graph with those that are there.

    :param there: what a key stands for in the graph that is there.
    :param here: what it stands for in the one that arrived.
    :param limits: for the trees of sealed tasks.
    """

    def __init__(
        self,
        there: Callable[[Any], Any] = {}.get,
        here: Callable[[Any], Any] = {}.get,
        limits: Limits = DEFAULTS,
        *,
        most: int = MOST,
    ) -> None:
        self._there, self._here = (Side(self._opened(define)) for define in (there, here))
        self._limits = limits
        self._allowance = Allowance()
        self._author = ""
        self._outlines: dict[tuple[int, int], GraphNode | None] = {}
        self._digests = Digests(most)
        #: Pairs of tasks that were found equal, and tasks that arrived and are paid for, by their
        #: ids; they are kept, so that no other task gets these.
        self._equal: dict[tuple[int, ...], Any] = {}
        self._arrived: dict[int, Any] = {}
        self._searched = 0

    def compare(self, known: Any, node: Any, *, own: bool = True) -> Difference | None:
        """Return where *node* differs from *known*, both under one key; None if they are the same.

        Of sealed ones the scheduler knows bytes, by which alone those of two authors are the same,
        and what an author says of definitions, which counts against that author alone.

        :param known: None where it is not there.
        :param own: whether one principal submitted both.
        """
        if not isinstance(known, Sealed) and not isinstance(node, Sealed):
            return Difference(known, node) if known is None else self.find(known, node)
        sealed = isinstance(known, Sealed) and isinstance(node, Sealed)
        if sealed and known.says_same(node):
            return None
        if sealed and own and known.author == node.author:
            return self._compare_sealed(known, node)
        return _signed(known, node)

    # --- pairs -----------------------------------------------------------------------------------

    def find(self, first: Any, second: Any) -> Difference | None:
        """Return the first two parts that make *second* another definition than *first*.

        Parts of which it cannot be told, since they are not opened, come last.
        """
        doubted: Difference | None = None
        equal: dict[tuple[int, ...], Any] = {}
        work: list[_Work] = [(first, second, None, None, None, 0)]
        while work:
            pair = work.pop()
            x, y, scope_a, scope_b, whole, at = pair
            if x is y and (scope_a is scope_b or not isinstance(x, GraphNode | TaskRef)):
                continue
            try:
                work += self._parts(pair, equal)
            except _DoubtedError:
                doubted = doubted or Difference(x, y, whole, at, is_doubted=True)
            except _NOT_DASKS:
                return Difference(x, y, whole, at)
        if doubted is None:
            self._equal.update(equal)
        return doubted

    def _parts(self, pair: _Work, equal: dict[tuple[int, ...], Any]) -> Sequence[_Work]:
        """Return the pairs that have to be the same for *pair* to be, the first one last.

        :param equal: gets the tasks that are paired, by their ids.
        :raises NotComparableError: if they are not, whatever these are.
        """
        x, y, scope_a, scope_b, whole, at = pair
        a, scope_a = self._there.follow(x, scope_a)
        b, scope_b = self._here.follow(y, scope_b)
        refers = tuple(
            type(each) is TaskRef and scope is None for each, scope in ((a, scope_a), (b, scope_b))
        )
        if all(refers):
            _require(self._same(a.key, b.key))
            return ()
        if refers[0]:
            a, scope_a = self._there.expand(a)
        elif refers[1]:
            b, scope_b = self._here.expand(b)
        if scope_a is scope_b is LITERAL:
            return () if self._same(a, b) else self._items(a, b, Difference(a, b, whole, at))
        _require(LITERAL not in (scope_a, scope_b) and type(a) is type(b) and isinstance(a, Task))
        where = id(a), id(b), id(scope_a), id(scope_b)
        if where in equal or where in self._equal:
            return ()
        equal[where] = a, b, scope_a, scope_b
        named = scope_a is scope_b is None and not any(refers)
        these = Difference(x, y, whole, at, is_named=named)
        return self._arguments(a, b, scope_a, scope_b, these)

    def _same(self, a: Any, b: Any) -> bool:
        return self._digests.of(b, arrived=True) == self._digests.of(a, arrived=False)

    def _arguments(
        self, a: Task, b: Task, scope_a: Any, scope_b: Any, whole: Difference
    ) -> list[_Work]:
        if id(b) not in self._arrived:
            self._arrived[id(b)] = b
            self._digests.spend(_PAIR + len(b.args), arrived=True)
        self._digests.spend(_PAIR + len(a.args), arrived=False)
        _require(len(a.args) == len(b.args) and len(a.kwargs) == len(b.kwargs))
        names = [*a.kwargs], [*b.kwargs]
        _require(all(type(each) is str for each in chain(*names)) and names[0] == names[1])
        # Neither keys of tasks inside of tasks, which count up in each process, nor what is cached.
        # Of classes derived from Task, what they add: a shuffle's barrier says there what is
        # shuffled. References mean something as arguments, and nothing inside of one.
        own = ("func",) if type(a) is Task else ("func", *added_slots(type(a)))
        pairs: list[Any] = [(getattr(a, name), getattr(b, name), LITERAL, LITERAL) for name in own]
        values = zip(a.args, b.args, strict=True)
        pairs += [(x, y, scope_a, scope_b) for x, y in values]
        pairs += [(x, b.kwargs[name], scope_a, scope_b) for name, x in a.kwargs.items()]
        return [(*pair, whole, at) for at, pair in enumerate(pairs)][::-1]

    def _items(self, a: Any, b: Any, whole: Difference) -> list[_Work]:
        """Return the pairs of the items of two containers, if nothing but these differs."""
        pairs: Iterable[tuple[Any, Any]]
        if type(a) is type(b) in (list, tuple) and len(a) == len(b):
            pairs = zip(a, b, strict=True)
        elif type(a) is type(b) is dict and self._same([*a], [*b]):
            pairs = zip(a.values(), b.values(), strict=True)
        elif type(a) is type(b) is Unopened and not (a.canonical and b.canonical):
            raise _DoubtedError
        else:
            raise NotComparableError
        self._searched += len(a)
        _require(self._searched < _SEARCH)
        found: list[_Work] = [(*each, LITERAL, LITERAL, whole, at) for at, each in enumerate(pairs)]
        return found[::-1]

    # --- sealed tasks ----------------------------------------------------------------------------

    def _compare_sealed(self, known: Sealed, node: Sealed) -> Difference | None:
        first, second = known.graph.heads[known.index], node.graph.heads[node.index]
        # Both make an actor or neither, and both shuffle alike if they do.
        if (first.flags ^ second.flags) & ACTOR or packed(first.plan) != packed(second.plan):
            return _signed(known, node)
        trees = [each.graph.leaves[each.index].tree for each in (known, node)]
        alike = trees[0] == trees[1] and packed(first.dependencies) == packed(second.dependencies)
        parts = unopened(known), unopened(node)
        alike = alike and len(parts[0]) == len(parts[1])
        if alike and all(a.says_same(b) for a, b in zip(*parts, strict=True)):
            return None
        self._author = node.author
        opened = self._outline(known), self._outline(node)
        found = self.find(*opened) if all(opened) else _signed(known, node)
        if found is None:
            return None
        # What was pickled whole may be fused, of which nothing is seen, and not all may be read.
        if is_whole(known) or is_whole(node):
            found = _signed(known, node)._replace(is_doubted=found.is_doubted or not alike)
        return found._replace(is_doubted=found.is_doubted or self._allowance.is_spent)

    def _opened(self, define: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return what defines keys: of sealed tasks, by the outline of those of the same author."""

        def found(key: Any) -> Any:
            node = define(key)
            if not isinstance(node, Sealed):
                return node
            return self._outline(node) if node.author == self._author else None

        return found

    def _outline(self, task: Sealed) -> GraphNode | None:
        place = id(task.graph), task.index
        if place not in self._outlines:
            self._outlines[place] = None
            with suppress(PayloadError):  # its author signed what is no task, or too many
                self._outlines[place] = outline(task, self._limits, self._allowance)
        return self._outlines[place]


def _signed(known: Any, node: Any) -> Difference:
    """Return what is said of two tasks of which one is sealed, and of which no parts are seen."""
    if known is not None and known.dependencies != node.dependencies:
        return Difference(words="its dependencies")
    return Difference(words="what its author signed")

"""Calls of sealed tasks with their definitions unopened, as far as a scheduler can compare them.

The one rule: an outline is read from msgpack and nothing is unpickled for it. In the place of each
definition stands what its author says of it: the digest of its pickle and its canonical digest.
"""

from __future__ import annotations

from typing import Any

from dask._task_spec import GraphNode, Task, TaskRef, _execute_subgraph

from safeser import pickles
from safeser.dask.sealed import form
from safeser.dask.sealed.definitions import NO_DIGEST, digest
from safeser.dask.sealed.node import Sealed
from safeser.dask.sealed.opening import open_task
from safeser.dask.wire.reader import Reader
from safeser.errors import PayloadError
from safeser.families.keys import check_labels
from safeser.gate.values import Limits

__all__ = ["Allowance", "Unopened", "is_whole", "outline", "unopened"]


class Unopened:
    """A definition that is not opened.

    :param canonical: its author's canonical digest of it, or :data:`NO_DIGEST`.
    :param doubted: whether it may be the same as any other, where one has no canonical digest.
    """

    __slots__ = ("canonical", "digest", "doubted")

    def __init__(self, digest: bytes, canonical: bytes, *, doubted: bool = False) -> None:
        self.digest = digest
        self.canonical = canonical
        self.doubted = doubted

    def __hash__(self) -> int:
        return hash(self.canonical or self.digest)  # members of two sets come in one order

    def says_same(self, other: Unopened) -> bool:
        """Tell whether both are one definition, by the digests that their author stated."""
        if self.digest == other.digest:
            return True
        if self.canonical and other.canonical:
            return self.canonical == other.canonical
        return self.doubted


#: What Dask calls for a task into which it fused others: comparisons look into it.
_FUSED = digest(pickles.dumps(_execute_subgraph, code=True))


def is_whole(task: Sealed) -> bool:
    """Tell whether *task* was pickled as one definition, with all of its arguments."""
    return task.graph.leaves[task.index].tree[:2] == _WHOLE


#: How the tree of such a task begins: a list of two, of which the first says what it is.
_WHOLE = bytes((0x92, form.DEFINITION))


def unopened(task: Sealed, *, doubted: bool = False) -> list[Unopened]:
    """Return the definitions of *task*, in the order in which its call names them."""
    said = task.graph.canonical
    digests = task.graph.heads[task.index].digests
    return [Unopened(each, said.get(each, NO_DIGEST), doubted=doubted) for each in digests]


class Allowance:
    """What a scheduler spends on the trees of one graph that arrived.

    A byte of a tree costs 1. A list costs :data:`_LIST` more, for the object that it becomes, and a
    reference to a key 1 more for each level of lists around it: a task knows the keys that the
    tasks inside of it need.
    """

    def __init__(self) -> None:
        self._left = _MOST_SPENT

    @property
    def is_spent(self) -> bool:
        return self._left < 0

    def spend(self, cost: int) -> None:
        """Take *cost* from what is left.

        :raises PayloadError: if that is less.
        """
        self._left -= cost
        if self.is_spent:
            raise PayloadError("the trees of a graph take too long to read", rule="sealed.task")


_MOST_SPENT = 16 << 20
_LIST = 16


def outline(
    task: Sealed, limits: Limits, allowance: Allowance, *, doubted: bool = False
) -> GraphNode:
    """Return *task* as a node of Dask's that calls what is not opened.

    :raises PayloadError: if its tree spells no task, or was made to be slow.
    """
    head = task.graph.heads[task.index]
    parts = {each.digest: each for each in unopened(task, doubted=doubted)}
    packed = task.graph.leaves[task.index].tree
    allowance.spend(len(packed))
    tree = Reader(limits).read(packed)
    if is_whole(task) and len(head.digests) == 1:
        return Task(head.key, parts[head.digests[0]], *map(TaskRef, head.dependencies))
    check_labels(_examined(tree, allowance))

    def known(of: bytes) -> Any:
        return _execute_subgraph if of == _FUSED else parts[of]

    return open_task(head.key, head.dependencies, tree, head.digests, known)


def _examined(tree: Any, allowance: Allowance) -> list[Any]:
    """Return keys that *tree* names, of which a task makes a set, once its cost is spent."""
    named: list[Any] = []
    cost, level, lists = 0, 0, [tree] if type(tree) is tuple else []
    while lists:
        inner: list[Any] = []
        for each in lists:
            cost += _LIST
            inner += [part for part in each if type(part) is tuple]
            if each and each[0] in _NAMING:
                cost += level
                named += () if each[0] == form.DEPENDENCY else each[1:]
        lists, level = inner, level + 1
    allowance.spend(cost)
    return named


#: Tags of lists that refer to keys.
_NAMING = (form.DEPENDENCY, form.REFERENCE, form.ALIAS)

"""What the keys and the references of a graph stand for, as far as Dask would compute it.

The one rule: a node that is not what Dask makes is like no other. What it says of itself beside its
arguments decides when it runs, and arrives from its submitter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, Task, TaskRef, _execute_subgraph
from distributed.utils import iscoroutinefunction

__all__ = ["LITERAL", "NotComparableError", "Placed", "Side"]


class NotComparableError(Exception):
    """A node is not what Dask makes, or stands for what is not there."""


class _Scope:
    """What the references of a task inside of a fused one mean: its siblings, or its inputs."""

    __slots__ = ("inner", "inputs", "outer")

    def __init__(self, fused: Task, outer: _Scope | None) -> None:
        self.inner, last, names, *inputs = fused.args
        self.inputs = dict(zip(names, inputs, strict=True))
        self.outer = outer
        if (
            fused.kwargs
            or len(self.inputs) != len(names)
            or self._reached(last) != {*self.inner, *self.inputs}
        ):
            raise NotComparableError

    def _reached(self, last: Any) -> set[Any]:
        """Return the names that Dask computes something for, if one stands for one thing alone.

        Dask computes all that is in a fused task, and waits for all inputs: one that fails, or
        never comes, changes the result as well. An input goes before a task of that name.
        """
        if not self.inner.keys().isdisjoint(self.inputs):
            raise NotComparableError
        reached, work = {last}, [last]
        while work:
            node = self.inner.get(work.pop())
            if node is not None:
                found = node.dependencies - reached
                reached |= found
                work += found
        return reached


#: In place of a scope where a reference or a task is a value like others: Dask evaluates those that
#: are arguments of tasks, and nothing inside of lists, partials and what DataNode holds.
LITERAL = object()

#: A value with the scope in which its references are read; None is the graph itself.
Placed = tuple[Any, Any]

#: A chain of aliases longer than that is a circle.
_LONGEST_CHAIN = 100

_NOTHING = object()


class Side:
    """One of the two graphs: what its keys stand for."""

    def __init__(self, define: Callable[[Any], Any]) -> None:
        self.define = define
        self._scopes: dict[tuple[int, int], tuple[_Scope, Task]] = {}
        #: Nodes that were checked, by id: a task may refer to a large one as often as it likes.
        self._sound: dict[int, Any] = {}

    def follow(self, value: Any, scope: Any) -> Placed:
        """Return what *value* is once references within its task are followed.

        What comes back as a reference is one to another task of the graph.
        """
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(value, GraphNode | TaskRef) or scope is LITERAL:
                return value, LITERAL
            if id(value) not in self._sound:
                _check_sound(value)
                self._sound[id(value)] = value
            key = _referred(value)
            if key is _NOTHING:
                if type(value) is DataNode:
                    return value.value, LITERAL
                if not isinstance(value, Task) or value.func is not _execute_subgraph:
                    return value, scope
                where = (id(value), id(scope))
                found = self._scopes.get(where)
                if found is None:
                    found = self._scopes[where] = (_Scope(value, scope), value)
                scope, value = found[0], TaskRef(value.args[1])
            elif scope is None:
                return TaskRef(key), None
            elif key in scope.inner:
                value = scope.inner[key]
            elif key in scope.inputs:
                value, scope = scope.inputs[key], scope.outer
            else:
                break
        raise NotComparableError

    def expand(self, reference: TaskRef) -> Placed:
        """Return what another task of the graph is made of."""
        node = self.define(reference.key)
        if node is None or _referred(node) == reference.key:
            raise NotComparableError
        return self.follow(node, None)


def _check_sound(node: Any) -> None:
    """Refuse a node whose stated dependencies are not those of its arguments.

    Dependencies arrive beside the arguments. A task with more of them never runs, or when another
    client pleases; one with fewer fails, as does one that is awaited and is no coroutine.
    """
    if isinstance(node, Task):
        needed: set[Any] = set()
        for value in (*node.args, *node.kwargs.values()):
            if isinstance(value, TaskRef):
                needed.add(value.key)
            elif isinstance(value, GraphNode):
                needed |= value.dependencies
        known = node._is_coro
        if known is not None and known is not bool(iscoroutinefunction(node.func)):
            raise NotComparableError
    elif isinstance(node, GraphNode):
        needed = {node.target} if type(node) is Alias else set()
    else:
        return
    if node.dependencies != needed:
        raise NotComparableError


def _referred(value: Any) -> Any:
    """Return the key that *value* refers to, if it is a reference and nothing else."""
    cls = type(value)
    if cls is TaskRef:
        return value.key
    return value.target if cls is Alias else _NOTHING

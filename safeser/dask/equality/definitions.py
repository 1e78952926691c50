"""Decide whether two definitions of one task are equal, without running either.

The one rule: what is compared was loaded already, under the grant of its sender, and comparing
calls nothing of it but what pickling calls, which Dask's scheduler does with each task that it
hands to a worker. Values that cannot be compared count as different.

Identity proves nothing here: the same lambda that is submitted twice arrives as two functions, and
two pickles of equal objects differ by what they share. So values are compared by what they are made
of: builtins by value, functions by their code and what it can see, classes by identity or, where
they came by value, by their bodies, and all others by what ``__reduce_ex__`` says of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, Task, TaskRef, _execute_subgraph
from distributed.utils import iscoroutinefunction

from safeser.dask.equality.agreement import MAX_PAIRS, Agreement, Exhausted
from safeser.dask.equality.value_parts import PLAIN, is_small, parts_of

__all__ = ["Comparison"]


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
            raise _NotComparableError

    def _reached(self, last: Any) -> set[Any]:
        """Return the names that Dask computes something for, if one stands for one thing alone.

        Dask computes all that is in a fused task, and waits for all inputs: one that fails, or
        never comes, changes the result as well. An input goes before a task of that name.
        """
        if not self.inner.keys().isdisjoint(self.inputs):
            raise _NotComparableError
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
_LITERAL = object()

#: A value with the scope in which its references are read; None is the graph itself.
Placed = tuple[Any, Any]


class _Side:
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
            if not isinstance(value, GraphNode | TaskRef) or scope is _LITERAL:
                return value, _LITERAL
            if id(value) not in self._sound:
                _check_sound(value)
                self._sound[id(value)] = value
            key = _referred(value)
            if key is _NOTHING:
                if type(value) is DataNode:
                    return value.value, _LITERAL
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
        raise _NotComparableError

    def expand(self, reference: TaskRef) -> Placed:
        """Return what another task of the graph is made of."""
        node = self.define(reference.key)
        if node is None or _referred(node) == reference.key:
            raise _NotComparableError
        return self.follow(node, None)


class _NotComparableError(Exception):
    """One side holds a value that cannot be compared."""


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
            raise _NotComparableError
    elif isinstance(node, GraphNode):
        needed = {node.target} if type(node) is Alias else set()
    else:
        return
    if node.dependencies != needed:
        raise _NotComparableError


#: A chain of aliases longer than that is a circle.
_LONGEST_CHAIN = 100

_NOTHING = object()


def _referred(value: Any) -> Any:
    """Return the key that *value* refers to, if it is a reference and nothing else."""
    cls = type(value)
    if cls is TaskRef:
        return value.key
    return value.target if cls is Alias else _NOTHING


class Comparison:
    """Compares definitions for one submitted graph, and remembers what it found equal.

    :param there: what a key stands for in the graph that is there.
    :param here: what it stands for in the one that arrived.
    """

    def __init__(
        self,
        there: Callable[[Any], Any] = {}.get,
        here: Callable[[Any], Any] = {}.get,
        *,
        most: int = MAX_PAIRS,
    ) -> None:
        self._there, self._here = _Side(there), _Side(here)
        self._agreement = Agreement(most)

    def same(self, first: Any, second: Any) -> bool:
        """Tell whether two nodes under one key do the same with the same inputs.

        Dask fuses tasks, and whether it does depends on what else was asked for: the sum of an
        array is one task by itself, another one with the array's own tasks inside, and has one key.
        So what is inside of one is compared with what the other one's references stand for.
        """
        self._agreement.begin()
        try:
            same = self._same(first, second)
        except (_NotComparableError, Exhausted, KeyError, TypeError, ValueError, RecursionError):
            same = False  # a fused task that is not made as Dask makes them, or a key too deep
        except (AttributeError, IndexError):
            same = False  # a node whose fields are none of Dask's
        if not same:
            self._agreement.take_back()
        return same

    def _same(self, first: Any, second: Any) -> bool:
        work: list[tuple[Any, Any, Any, Any]] = [(first, second, None, None)]
        while work:
            a, b, scope_a, scope_b = work.pop()
            if a is b and (scope_a is scope_b or not isinstance(a, GraphNode | TaskRef)):
                continue
            a, scope_a = self._there.follow(a, scope_a)
            b, scope_b = self._here.follow(b, scope_b)
            # Each refers to a task of its own graph, unless it is a value.
            refers_a = type(a) is TaskRef and scope_a is not _LITERAL
            refers_b = type(b) is TaskRef and scope_b is not _LITERAL
            if refers_a is not refers_b:
                if refers_a:
                    a, scope_a = self._there.expand(a)
                else:
                    b, scope_b = self._here.expand(b)
            cls = type(a)
            if cls is not type(b):
                return False
            if cls in PLAIN and is_small(a):
                if a != b:
                    return False
                continue
            literal = scope_a is _LITERAL
            if literal is not (scope_b is _LITERAL):
                return False  # one is computed, and the other one the value itself
            size = sys.getsizeof(a) if cls in PLAIN else 0
            if self._agreement.join(a, b, id(scope_a), id(scope_b), size):
                continue
            if not isinstance(a, Task):
                scope_a = scope_b = _LITERAL
            work += [(x, y, scope_a, scope_b) for x, y in parts_of(a, b, cls)]
        return True

"""Whether two definitions of one task say the same, told without running what either of them holds.

The one rule: what is compared was loaded already, under the grant of whoever sent it, and comparing
calls nothing of it but what pickling calls, which Dask's scheduler does with each task that it
hands to a worker. Whatever cannot be compared counts as different.

Identity proves nothing here: the same lambda that is submitted twice arrives as two functions, and
two pickles of equal objects differ by what they share. So values are compared by what they are made
of: builtins by value, functions by their code and what it can see, classes by identity or, where
they came by value, by their bodies, and all others by what ``__reduce_ex__`` says of them.
"""

from __future__ import annotations

import copyreg
import importlib
import sys
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dask._task_spec import (
    Alias,
    DataNode,
    GraphNode,
    NestedContainer,
    Task,
    TaskRef,
    _execute_subgraph,
)
from distributed.utils import iscoroutinefunction

from safeser.dask.agreement import MAX_PAIRS, Agreement, Exhausted
from safeser.pickles.shims.calls import Method
from safeser.pickles.shims.standing import original
from safeser.pickles.shims.whole import Ufunc, Whole

__all__ = ["Comparison"]

_toolz: Any = importlib.import_module("toolz.functoolz")

#: What stands for a pair of values that differ.
_DIFFER: list[tuple[Any, Any]] = [(0, 1)]

_PLAIN = frozenset({int, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented)})

#: What a class says of itself that does not change what it does, or differs from copy to copy.
_NOT_A_BODY = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "_abc_impl"}
)

Pairs = list[tuple[Any, Any]]


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
            or self._reached(last)
            != {
                *self.inner,
                *self.inputs,
            }
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

    def follow(self, value: Any, scope: Any) -> Placed:
        """Return what *value* is once references within its task are followed.

        What comes back as a reference is one to another task of the graph.
        """
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(value, GraphNode | TaskRef) or scope is _LITERAL:
                return value, _LITERAL
            _check_sound(value)
            key = _referred(value)
            if key is _NOTHING:
                if type(value) is DataNode:
                    return value.value, _LITERAL
                if not isinstance(value, Task) or value.func is not _execute_subgraph:
                    return value, scope
                scope, value = self._within(value, scope), TaskRef(value.args[1])
            elif scope is None:
                return TaskRef(key), None
            elif key in scope.inner:
                value = scope.inner[key]
            elif key in scope.inputs:
                value, scope = scope.inputs[key], scope.outer
            else:
                break
        raise _NotComparableError

    def _within(self, fused: Task, outer: _Scope | None) -> _Scope:
        where = (id(fused), id(outer))
        found = self._scopes.get(where)
        if found is None:
            found = self._scopes[where] = (_Scope(fused, outer), fused)
        return found[0]

    def expand(self, reference: TaskRef) -> Placed:
        """Return what another task of the graph is made of."""
        node = self.define(reference.key)
        if node is None or _referred(node) == reference.key:
            raise _NotComparableError
        return self.follow(node, None)


class _NotComparableError(Exception):
    """One side says something of which it cannot be told what it means."""


def _check_sound(node: Any) -> None:
    """Refuse a node whose own word for what it waits for is not what it is made of.

    Those words arrive beside the arguments. A task that waits for more never runs, or when somebody
    else pleases; one that knows of less fails, as does one that is awaited and no coroutine.
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
            if cls in _MAY_STAND_IN or type(b) in _MAY_STAND_IN:
                a, b = original(a), original(b)
                cls = type(a)
            if cls is not type(b):
                return False
            if cls in _PLAIN and _is_small(a):
                if a != b:
                    return False
                continue
            literal = scope_a is _LITERAL
            if literal is not (scope_b is _LITERAL):
                return False  # one is computed, and the other one the value itself
            size = sys.getsizeof(a) if cls in _PLAIN else 0
            if self._agreement.join(a, b, id(scope_a), id(scope_b), size):
                continue
            if not isinstance(a, Task):
                scope_a = scope_b = _LITERAL
            work += [(x, y, scope_a, scope_b) for x, y in _parts(a, b, cls)]
        return True


#: What an approved graph holds in place of a function that another one calls as it is: it gives the
#: same result, or refuses to.
_MAY_STAND_IN = frozenset({Method, Ufunc, Whole, types.FunctionType})

#: Larger texts and numbers take time to compare, and one message may name the same one often.
_SMALL = 1 << 10


def _is_small(value: Any) -> bool:
    return sys.getsizeof(value) <= _SMALL


def _parts(a: Any, b: Any, cls: type) -> Pairs:
    """Return the pairs that must be the same for *a* and *b*, both of type *cls*, to be."""
    by_type = _BY_TYPE.get(cls)
    if by_type is not None:
        return by_type(a, b)
    if cls in _PLAIN:
        return _equal(a, b)
    if isinstance(a, Task):
        return _tasks(a, b)
    if isinstance(a, type):
        return _classes(a, b)
    return _reduced(a, b, cls)


def _equal(a: Any, b: Any) -> Pairs:
    return [] if a == b else _DIFFER


def _floats(a: float, b: float) -> Pairs:
    # By their text: no number is what -0.0 is to 0.0, and a NaN is itself.
    return [] if a.hex() == b.hex() else _DIFFER


def _sequences(a: Any, b: Any) -> Pairs:
    return list(zip(a, b, strict=True)) if len(a) == len(b) else _DIFFER


def _dicts(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> Pairs:
    # In their order, which is that of a frame's columns; Dask's keys are the same for any order.
    if len(a) != len(b):
        return _DIFFER
    if all(map(_is_plain, a)) and all(map(_is_plain, b)):
        return list(zip(a.values(), b.values(), strict=True)) if list(a) == list(b) else _DIFFER
    return list(zip(a.items(), b.items(), strict=True))


def _attributes(a: Any, b: Any) -> Pairs:
    """Return the pairs of what objects hold by name, in whatever order it was set.

    Of states that are something else, there is one pair.
    """
    if (
        type(a) is not dict
        or type(b) is not dict
        or not all(type(name) is str for name in (*a, *b))
    ):
        return [(a, b)]
    return [(value, b[name]) for name, value in a.items()] if a.keys() == b.keys() else _DIFFER


def _sets(a: Any, b: Any) -> Pairs:
    if all(map(_is_plain, a)) and all(map(_is_plain, b)):
        return _equal(a, b)
    return _sequences(a, b)


def _is_plain(value: Any) -> bool:
    """Tell whether hashing and comparing *value* runs the interpreter's code alone.

    Booleans and integers are equal to each other and stand for different things.
    """
    cls = type(value)
    if cls is tuple:
        return len(value) < 32 and all(type(x) is not tuple and _is_plain(x) for x in value)
    return cls in _PLAIN and cls is not bool and _is_small(value)


def _tasks(a: Any, b: Any) -> Pairs:
    # Neither keys of tasks inside of tasks, which count up in each process, nor what is cached.
    if len(a.args) != len(b.args) or list(a.kwargs) != list(b.kwargs):
        return _DIFFER
    named = [(value, b.kwargs[name]) for name, value in a.kwargs.items()]
    # Of classes derived from Task, what they add: a shuffle's barrier says there what is shuffled.
    added = [(getattr(a, slot), getattr(b, slot)) for slot in _added_slots(type(a))]
    # One by one, since references mean something as arguments, and nothing inside of one.
    return [(a.func, b.func), *zip(a.args, b.args, strict=True), *named, *added]


def _added_slots(cls: type) -> list[str]:
    return [name for name in cls.get_all_slots() if name not in _TASK_SLOTS]  # type: ignore[attr-defined]


_TASK_SLOTS = frozenset((*Task.get_all_slots(), *NestedContainer.get_all_slots()))


def _functions(a: Any, b: Any) -> Pairs:
    pairs: Pairs = [
        (a.__code__, b.__code__),
        (a.__defaults__, b.__defaults__),
        (a.__kwdefaults__, b.__kwdefaults__),
        (a.__closure__, b.__closure__),
        (a.__dict__, b.__dict__),
    ]
    if a.__globals__ is b.__globals__:
        return pairs
    if a.__builtins__ is not b.__builtins__:
        return _DIFFER  # which names that no module defines are looked up in
    missing = object()
    seen_a, seen_b = a.__globals__, b.__globals__
    for name in _names(a.__code__):
        pairs.append((seen_a.get(name, missing), seen_b.get(name, missing)))
    return pairs


def _names(code: types.CodeType) -> set[str]:
    """Return what a function may look up in its module, functions within it included."""
    names, work = set(code.co_names), list(code.co_consts)
    while work:
        inner = work.pop()
        if isinstance(inner, types.CodeType):
            names.update(inner.co_names)
            work += inner.co_consts
    return names


def _codes(a: types.CodeType, b: types.CodeType) -> Pairs:
    # Neither the file nor the lines: a cell of a notebook that is run again is another file.
    return [(getattr(a, name), getattr(b, name)) for name in _CODE]


_CODE = (
    "co_code",
    "co_consts",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_flags",
    "co_exceptiontable",
)


def _curried(a: Any, b: Any) -> Pairs:
    # Not what it knows of its signature, which it leaves out of a pickle as well. A pickle names
    # what it calls, where it can: a function that stands in place of another has no such name.
    seen_a, seen_b = ({**vars(x), "_sigspec": None} for x in (a, b))
    return _attributes(seen_a, seen_b)


def _cells(a: types.CellType, b: types.CellType) -> Pairs:
    try:
        return [(a.cell_contents, b.cell_contents)]
    except ValueError:  # one of them is empty
        return _DIFFER


def _classes(a: type, b: type) -> Pairs:
    if a is b:
        return []
    if _is_importable(a) or _is_importable(b) or a.__qualname__ != b.__qualname__:
        return _DIFFER  # one of them is the one that its module holds, the other one is not
    body_a, body_b = (
        {name: value for name, value in vars(cls).items() if name not in _NOT_A_BODY}
        for cls in (a, b)
    )
    return [(a.__bases__, b.__bases__), *_attributes(body_a, body_b)]


def _is_importable(cls: type) -> bool:
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return found is cls


def _reduced(a: Any, b: Any, cls: type) -> Pairs:
    reducer = copyreg.dispatch_table.get(cls)
    try:
        said_a, said_b = (reducer(x) if reducer else x.__reduce_ex__(4) for x in (a, b))
        if isinstance(said_a, str) or isinstance(said_b, str):
            # What a module holds under that name, and which module that is, it does not say.
            return [] if a is b else _DIFFER
        worked_out = _WORKED_OUT.get(cls.__module__.partition(".")[0])
        if worked_out is not None:
            said_a, said_b = (_without(worked_out, said) for said in (said_a, said_b))
        if len(said_a) != len(said_b):
            return _DIFFER
        pairs: Pairs = list(zip(said_a[:2], said_b[:2], strict=True))
        for state_a, state_b in zip(said_a[2:3], said_b[2:3], strict=True):
            pairs += _attributes(state_a, state_b)
        for items_a, items_b in zip(said_a[3:5], said_b[3:5], strict=True):
            pairs.append((_listed(items_a), _listed(items_b)))
    except Exception:  # a class's own code may raise anything, and then says nothing
        return _DIFFER
    return pairs


#: What objects of these libraries remember of what they hold, once somebody looked at it. Who may
#: not run code has no say in it: of theirs it is checked, or left out.
_WORKED_OUT = {
    "pandas": frozenset(("_cache",)),
    "scipy": frozenset(("_has_canonical_format", "_has_sorted_indices")),
}


def _without(worked_out: frozenset[str], said: Any) -> Any:
    """Return what an object says of itself, without what it has *worked_out* of that.

    An array of dates remembers it as soon as somebody looks at it, and says so in its pickle.
    """
    if len(said) < 3:
        return said
    maker, args, state, *rest = said
    if type(state) is tuple:
        parts = [_lacking(worked_out, part) if type(part) is dict else part for part in state]
        state = tuple(part for part in parts if type(part) is not dict or part)
    elif type(state) is dict:
        state = _lacking(worked_out, state)
    return (maker, args, state, *rest)


def _lacking(names: frozenset[str], state: dict[Any, Any]) -> dict[Any, Any]:
    return {name: value for name, value in state.items() if name not in names}


def _listed(items: Any) -> list[Any] | None:
    if items is None:
        return None
    listed = []
    for item in items:
        listed.append(item)
        if len(listed) > MAX_PAIRS:  # an iterator need not end
            raise OverflowError
    return listed


_BY_TYPE: dict[type, Callable[[Any, Any], Pairs]] = {
    float: _floats,
    complex: lambda a, b: [(a.real, b.real), (a.imag, b.imag)],
    tuple: _sequences,
    list: _sequences,
    dict: _dicts,
    types.MappingProxyType: _dicts,
    set: _sets,
    frozenset: _sets,
    bytearray: _equal,
    # Equal are those of the same numbers, whatever they say that they end at.
    range: lambda a, b: [(a.start, b.start), (a.stop, b.stop), (a.step, b.step)],
    slice: lambda a, b: [(a.start, b.start), (a.stop, b.stop), (a.step, b.step)],
    Task: _tasks,
    TaskRef: lambda a, b: [(a.key, b.key)],
    types.FunctionType: _functions,
    types.CodeType: _codes,
    types.CellType: _cells,
    types.MethodType: lambda a, b: [(a.__func__, b.__func__), (a.__self__, b.__self__)],
    types.BuiltinFunctionType: lambda a, b: [(a.__name__, b.__name__), (a.__self__, b.__self__)],
    types.ModuleType: lambda a, b: _DIFFER,
    types.MemberDescriptorType: lambda a, b: [(a.__name__, b.__name__)],
    staticmethod: lambda a, b: [(a.__func__, b.__func__)],
    classmethod: lambda a, b: [(a.__func__, b.__func__)],
    property: lambda a, b: [(a.fget, b.fget), (a.fset, b.fset), (a.fdel, b.fdel)],
    _toolz.curry: _curried,
    partial: lambda a, b: [
        (a.func, b.func),
        (a.args, b.args),
        (a.keywords, b.keywords),
        (vars(a), vars(b)),
    ],
}

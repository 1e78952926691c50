"""Pair the parts of two values of one type that must be equal for the values to be equal.

The one rule: nothing of a value is called but what pickling calls, and a value that cannot be taken
apart equals no other.
"""

from __future__ import annotations

import copyreg
import importlib
import sys
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dask._task_spec import NestedContainer, Task, TaskRef

from safeser.dask.equality.agreement import MAX_PAIRS
from safeser.dask.equality.outline import Unopened

__all__ = ["PLAIN", "is_small", "parts_of"]

_toolz: Any = importlib.import_module("toolz.functoolz")

#: What stands for a pair of values that differ.
_DIFFER: list[tuple[Any, Any]] = [(0, 1)]

PLAIN = frozenset({int, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented)})

#: What a class says of itself that does not change what it does, or differs from copy to copy.
_NOT_A_BODY = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "_abc_impl"}
)

Pairs = list[tuple[Any, Any]]


#: Larger texts and numbers take time to compare, and one message may name the same one often.
_SMALL = 1 << 10


def is_small(value: Any) -> bool:
    return sys.getsizeof(value) <= _SMALL


def parts_of(a: Any, b: Any, cls: type) -> Pairs:
    """Return the pairs that must be the same for *a* and *b*, both of type *cls*, to be."""
    by_type = _BY_TYPE.get(cls)
    if by_type is not None:
        return by_type(a, b)
    if cls in PLAIN:
        return _equal(a, b)
    if isinstance(a, Task):
        return _tasks(a, b)
    if isinstance(a, type):
        return _classes(a, b)
    return _reduced(a, b, cls)


def _equal(a: Any, b: Any) -> Pairs:
    return [] if a == b else _DIFFER


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
    """Return the pairs of attributes of two objects by name, in any order.

    Of states that are something else, there is one pair.
    """
    named = type(a) is type(b) is dict and all(type(name) is str for name in (*a, *b))
    if not named:
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
    return cls in PLAIN and cls is not bool and is_small(value)


def _tasks(a: Any, b: Any) -> Pairs:
    # Neither keys of tasks inside of tasks, which count up in each process, nor what is cached.
    if len(a.args) != len(b.args) or list(a.kwargs) != list(b.kwargs):
        return _DIFFER
    named = [(value, b.kwargs[name]) for name, value in a.kwargs.items()]
    # Of classes derived from Task, what they add: a shuffle's barrier says there what is shuffled.
    slots = [name for name in type(a).get_all_slots() if name not in _TASK_SLOTS]
    added = [(getattr(a, slot), getattr(b, slot)) for slot in slots]
    # One by one, since references mean something as arguments, and nothing inside of one.
    return [(a.func, b.func), *zip(a.args, b.args, strict=True), *named, *added]


_TASK_SLOTS = frozenset((*Task.get_all_slots(), *NestedContainer.get_all_slots()))


def _functions(a: Any, b: Any) -> Pairs:
    own = _by("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__dict__")
    pairs = own(a, b)
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


#: Neither the file nor the lines: a cell of a notebook that is run again is another file.
_CODE = (
    *("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_exceptiontable"),
)


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
            said_a, said_b = (_without_caches(worked_out, said) for said in (said_a, said_b))
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


#: Caches that objects of these libraries fill when they are used. A sender without code could
#: forge them: in its objects they are checked, or left out.
_WORKED_OUT = {
    "pandas": frozenset(("_cache",)),
    "scipy": frozenset(("_has_canonical_format", "_has_sorted_indices")),
}


def _without_caches(worked_out: frozenset[str], said: Any) -> Any:
    """Return the reduced form of an object without its caches, *worked_out*.

    An array of dates caches it at the first access, and its pickle holds the cache.
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


def _by(*names: str) -> Callable[[Any, Any], Pairs]:
    """Return the function that pairs these attributes."""
    return lambda a, b: [(getattr(a, name), getattr(b, name)) for name in names]


_BY_TYPE: dict[type, Callable[[Any, Any], Pairs]] = {
    # By their text: no number is what -0.0 is to 0.0, and a NaN is itself.
    float: lambda a, b: _equal(a.hex(), b.hex()),
    complex: _by("real", "imag"),
    tuple: _sequences,
    list: _sequences,
    dict: _dicts,
    types.MappingProxyType: _dicts,
    set: _sets,
    frozenset: _sets,
    bytearray: _equal,
    # Equal are those of the same numbers, whatever they say that they end at.
    range: _by("start", "stop", "step"),
    slice: _by("start", "stop", "step"),
    Task: _tasks,
    TaskRef: _by("key"),
    types.FunctionType: _functions,
    types.CodeType: _by(*_CODE),
    types.CellType: _cells,
    types.MethodType: _by("__func__", "__self__"),
    types.BuiltinFunctionType: _by("__name__", "__self__"),
    types.ModuleType: lambda a, b: _DIFFER,
    types.MemberDescriptorType: _by("__name__"),
    staticmethod: _by("__func__"),
    classmethod: _by("__func__"),
    property: _by("fget", "fset", "fdel"),
    Unopened: lambda a, b: [] if a.says_same(b) else _DIFFER,
    # Not what it knows of its signature, which it leaves out of a pickle as well.
    _toolz.curry: lambda a, b: _attributes(
        {**vars(a), "_sigspec": None}, {**vars(b), "_sigspec": None}
    ),
    partial: _by("func", "args", "keywords", "__dict__"),
}

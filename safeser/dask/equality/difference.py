"""Describe what differs between two definitions of one key: function, argument, or dependency.

The one rule: every client may be told the place of a difference, and only one that knows both
values is told the values. They are shown by their repr where its size is bounded, by their type
otherwise.
"""

from __future__ import annotations

import functools
import reprlib
import types
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dask._task_spec import Alias, DataNode, Dict, GraphNode, List, Task, TaskRef, Tuple

from safeser.dask.equality.definitions import Comparison
from safeser.dask.equality.outline import Allowance, Unopened, is_whole, outline
from safeser.dask.sealed.node import Sealed
from safeser.dask.wire.bounded_repr import has_bounded_repr, type_name
from safeser.errors import PayloadError
from safeser.families.plain import DEFAULTS
from safeser.gate.refusals import legible

__all__ = ["Difference", "find_difference"]

#: Characters of a value or name, and of a whole path, that a text shows.
_SHOWN, _PATH = 60, 120
#: Levels of containers that a path follows.
_LEVELS = 20
#: Pairs of values that the search compares. The scheduler searches once for each refused graph.
_PAIRS = 20_000


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two definitions differ first.

    :param place: ``function``, ``argument 2['a'][0]``, ``argument 1, dependency 'y' instead of
        'x'``; dependencies by their keys.
    :param values: what stands there in each, as ``4 instead of 3``, or nothing.
    """

    place: str
    values: str = ""

    def text(self, *, values: bool) -> str:
        """Return one line about it.

        :param values: whether its reader may see values of both definitions.
        """
        return f"{self.place}: {self.values}" if values and self.values else self.place


def find_difference(first: Any, second: Any) -> Difference:
    """Return where *second* differs from *first*, two tasks or data nodes of one key."""
    if isinstance(first, Sealed) or isinstance(second, Sealed):
        # A scheduler opens no sealed task, and compares those of one author that have parts.
        both = [each for each in (first, second) if isinstance(each, Sealed) and not is_whole(each)]
        if len(both) == 2 and both[0].author == both[1].author:
            with suppress(PayloadError):
                allowance = Allowance()
                nodes = [outline(each, DEFAULTS, allowance) for each in both]
                return _Search().tasks(*nodes)
        if first is not None and first.dependencies != second.dependencies:
            return Difference("its dependencies")
        return Difference("what its author signed")
    try:
        return _Search().tasks(first, second)
    except Exception:  # a peer's node may have any fields, and an object's own code may raise
        return Difference("its definition, of which the parts cannot be compared")


class _Search:
    """One search; its comparisons share a budget. A part that is too large counts as different."""

    def __init__(self) -> None:
        self._same = Comparison(most=_PAIRS).same

    def tasks(self, first: Any, second: Any) -> Difference:
        if first is None:
            return Difference("the key stood for data, or for a task whose inputs are lost")
        if _kind(first) != _kind(second):
            return Difference(f"{_kind(second)} instead of {_kind(first)}")
        if isinstance(first, Alias):
            return Difference(f"dependency {_referred(second)} instead of {_referred(first)}")
        if isinstance(first, DataNode):
            return self._inner_difference("value", first.value, second.value)
        if not self._same(first.func, second.func):
            return Difference("function", self._functions(first.func, second.func))
        return self._arguments(first, second) or Difference("the tasks that are fused in it")

    def _arguments(self, first: Task, second: Task) -> Difference | None:
        if len(first.args) != len(second.args):
            number = f"{len(second.args)} instead of {len(first.args)}"
            return Difference("number of positional arguments", number)
        if list(first.kwargs) != list(second.kwargs):
            values = f"{_listed(second.kwargs)} instead of {_listed(first.kwargs)}"
            return Difference("names or order of keyword arguments", values)
        pairs = [
            *((f"argument {n}", *pair) for n, pair in enumerate(_zip(first.args, second.args), 1)),
            *(
                (f"argument {legible(n, _SHOWN)}", v, second.kwargs[n])
                for n, v in first.kwargs.items()
            ),
        ]
        for place, a, b in pairs:
            if not self._same(a, b):
                return self._inner_difference(place, a, b)
        return None

    def _inner_difference(self, place: str, a: Any, b: Any, level: int = 0) -> Difference:
        """Return where *a* and *b* differ, which do; a path leads to it from *place*."""
        key_a, key_b = _referred(a), _referred(b)
        if key_a and key_b:
            return Difference(f"{place}, dependency {key_b} instead of {key_a}")
        if key_a or key_b:
            words = [f"dependency {key}" if key else "a value" for key in (key_b, key_a)]
            return Difference(f"{place}, {words[0]} instead of {words[1]}")
        if type(a) is type(b) and level < _LEVELS and len(place) < _PATH:
            for step, x, y in _parts(a, b):
                if not self._same(x, y):
                    return self._inner_difference(f"{place}{step}", x, y, level + 1)
            if type(a) in (dict, Dict) and _keys(a) != _keys(b):
                same = len(_keys(a)) == len(_keys(b)) and all(k in _keys(a) for k in _keys(b))
                what = "order of keys" if same else "keys"
                values = f"{_listed(_keys(b))} instead of {_listed(_keys(a))}"
                return Difference(f"{place}, {what}", values)
        if callable(a) and callable(b):
            return Difference(place, self._functions(a, b))
        known = Unopened not in (type(a), type(b))
        return Difference(place, _values(shown_value(a), shown_value(b)) if known else "")

    def _functions(self, a: Any, b: Any) -> str:
        """Return how two functions differ: by name, or else by what is in them."""
        if type(a) is Unopened and type(b) is Unopened:
            return ""
        names = _function_name(a), _function_name(b)
        if names[0] != names[1] or type(a) is not type(b):
            return f"{names[1]} instead of {names[0]}"
        if isinstance(a, functools.partial):
            for part in ("func", "args", "keywords"):
                x, y = getattr(a, part), getattr(b, part)
                if not self._same(x, y):
                    return self._inner_difference(f"{part} of the partial", x, y).text(values=True)
        if type(a) is types.FunctionType:
            for part, x, y in _parts_of_function(a, b):
                if not self._same(x, y):
                    return f"{part} of {names[0]}, {_values(shown_value(x), shown_value(y))}"
        return f"another {names[0]}"


def _kind(node: Any) -> str:
    if isinstance(node, Alias):
        return "another key's result"
    return "data" if isinstance(node, DataNode) else "a call"


def _parts(a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the pairs of items of two containers of one type, with the step to each."""
    if type(a) in (list, tuple) and len(a) == len(b):
        yield from ((f"[{at}]", *pair) for at, pair in enumerate(_zip(a, b)))
    elif type(a) in (List, Tuple) and len(a.args) == len(b.args):
        yield from ((f"[{at}]", *pair) for at, pair in enumerate(_zip(a.args, b.args)))
    elif type(a) is dict and list(map(type, a)) == list(map(type, b)) and list(a) == list(b):
        yield from ((f"[{shown_value(key)}]", a[key], b[key]) for key in a)
    elif type(a) is Dict and _keys(a) == _keys(b):
        pairs = _zip(_keys(a), _zip(a.args[1::2], b.args[1::2]))
        yield from ((f"[{shown_value(key)}]", *pair) for key, pair in pairs)
    elif type(a) is DataNode:
        yield ("", a.value, b.value)


def _keys(container: Any) -> list[Any]:
    """Return the plain keys of a dictionary: comparing others could run code of their class."""
    keys = container.args[::2] if type(container) is Dict else container
    return [key if type(key) in (str, int, bytes) else type_name(key) for key in keys]


def _parts_of_function(a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    yield "code", a.__code__.co_code, b.__code__.co_code
    yield "constants", a.__code__.co_consts, b.__code__.co_consts
    yield "names", a.__code__.co_names, b.__code__.co_names
    yield "default arguments", a.__defaults__, b.__defaults__
    yield "default arguments", a.__kwdefaults__, b.__kwdefaults__
    for name, x, y in zip(
        a.__code__.co_freevars, a.__closure__ or (), b.__closure__ or (), strict=False
    ):
        yield f"captured variable {name}", *_contents(x, y)
    for name in a.__code__.co_names:
        yield f"global {name}", a.__globals__.get(name), b.__globals__.get(name)


def _contents(x: types.CellType, y: types.CellType) -> tuple[Any, Any]:
    try:
        return x.cell_contents, y.cell_contents
    except ValueError:  # one of them is empty
        return x, y


def _zip(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    return zip(a, b, strict=True)


def _referred(value: Any) -> str:
    """Return the key that *value* refers to, as text, or nothing."""
    if type(value) is TaskRef:
        return legible(repr(value.key), _SHOWN)
    return legible(repr(value.target), _SHOWN) if type(value) is Alias else ""


def _listed(names: Any) -> str:
    return shown_value([name if type(name) is str else type_name(name) for name in names])


def _values(first: str, second: str) -> str:
    return f"{second} instead of {first}" if first != second else f"another {first}"


def _function_name(function: Any) -> str:
    named = function.func if isinstance(function, functools.partial) else function
    name = getattr(named, "__qualname__", None)
    return legible(name, _SHOWN) if isinstance(name, str) else type_name(function)


_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxlong = _shortened.maxother = _SHOWN


def shown_value(value: Any) -> str:
    """Return a short text of *value*, without what a terminal would obey."""
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return _function_name(value)
    if isinstance(value, GraphNode) or not has_bounded_repr(value):
        return type_name(value)
    return legible(_shortened.repr(value), _SHOWN)

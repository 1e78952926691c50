"""Describe what differs between two definitions of one key: function, argument, or dependency.

The one rule: every client may be told the place of a difference, and only one that knows both
values is told the values. They are shown by their repr where its size is bounded, by their type
otherwise.
"""

from __future__ import annotations

import functools
import reprlib
import types
from itertools import chain
from typing import Any, NamedTuple

from dask._task_spec import Alias, DataNode, Dict, GraphNode, List, NestedContainer, TaskRef, Tuple
from dask._task_spec import _execute_subgraph as execute_subgraph

from safeser.dask.equality.digests import Digests
from safeser.dask.equality.outline import Unopened
from safeser.dask.wire.bounded_repr import has_bounded_repr, type_name
from safeser.gate.refusals import legible
from safeser.tokens.graph import Exhausted

__all__ = ["Difference", "added_slots"]

#: Characters of a value or name, and of a whole path, that a text shows.
_SHOWN, _PATH = 60, 120
#: Parts of parts of a function that a text names, and what the search for them may cost.
_LEVELS, _SEARCH = 4, 20_000


_TASK_SLOTS = frozenset(NestedContainer.get_all_slots())


def added_slots(cls: Any) -> list[str]:
    """Return what *cls*, a class derived from Dask's tasks, adds to them."""
    return [name for name in cls.get_all_slots() if name not in _TASK_SLOTS]


class Difference(NamedTuple):
    """Two values that stand at one place of two definitions, and differ.

    :param whole: the two that they are parts of; None for the definitions themselves.
    :param at: which part of these they are.
    :param is_named: whether a text names parts of these two.
    :param is_doubted: whether it cannot be told that they differ.
    :param words: what a text says in place of all that.
    """

    first: Any = None
    second: Any = None
    whole: Difference | None = None
    at: int = 0
    is_named: bool = True
    is_doubted: bool = False
    words: str = ""

    def text(self, *, values: bool) -> str:
        """Return one line about it: ``argument 2['a'][0]: 4 instead of 3``.

        :param values: whether its reader may see values of both definitions.
        """
        try:
            place, shown_values = (self.words, "") if self.words else self._described()
        except Exception:  # a peer's node may have any fields, and an object's own code may raise
            return "its definition, of which the parts cannot be compared"
        return f"{place}: {shown_values}" if values and shown_values else place

    def _described(self) -> tuple[str, str]:
        way = [self]
        while way[-1].whole is not None:
            way.append(way[-1].whole)
        place, shown_pair = "", way.pop()
        while way and shown_pair.is_named and len(place) < _PATH:
            step = _step(shown_pair.first, way[-1].at, is_top=not place)
            if not step:
                break
            place, shown_pair = place + step, way.pop()
        first, second = shown_pair[:2]
        if not place:
            return _definitions(first, second)
        keys = _referred(second), _referred(first)
        if all(keys):
            return f"{place}, dependency {keys[0]} instead of {keys[1]}", ""
        if any(keys):
            words = [f"dependency {key}" if key else "a value" for key in keys]
            return f"{place}, {words[0]} instead of {words[1]}", ""
        return place, _values(first, second, Digests(_SEARCH))


def _step(whole: Any, at: int, *, is_top: bool) -> str:
    """Return how a text calls the way from *whole* to its part *at*, or nothing."""
    if type(whole) in (list, tuple, dict):
        step = f"[{_shown([*whole][at]) if type(whole) is dict else at}]"
        return f"value{step}" if is_top else step
    own = 1 + len(added_slots(type(whole)))
    at -= own
    if is_top:
        if at < 0:
            return ["function", *added_slots(type(whole))][at + own]
        names = range(1, len(whole.args) + 1), whole.kwargs
        return f"argument {legible(str([*chain(*names)][at]), _SHOWN)}"
    if type(whole) is Dict:
        return f"[{_shown(whole.args[at - 1])}]" if at % 2 else ", a key"
    return f"[{at}]" if type(whole) in (List, Tuple) else ""


def _definitions(first: Any, second: Any) -> tuple[str, str]:
    """Return how two definitions differ of which no part was found to."""
    if first is None:
        return "the key stood for data, or for a task whose inputs are lost", ""
    if _kind(first) != _kind(second):
        return f"{_kind(second)} instead of {_kind(first)}", ""
    if isinstance(first, Alias):
        return f"dependency {_referred(second)} instead of {_referred(first)}", ""
    if isinstance(first, DataNode):
        return "value", _values(first.value, second.value, Digests(_SEARCH))
    return _calls(first, second)


def _calls(first: Any, second: Any) -> tuple[str, str]:
    number, names = "number of positional arguments", "names or order of keyword arguments"
    if execute_subgraph not in (first.func, second.func):
        if len(first.args) != len(second.args):
            return number, f"{len(second.args)} instead of {len(first.args)}"
        if list(first.kwargs) != list(second.kwargs):
            return names, f"{_names(second.kwargs)} instead of {_names(first.kwargs)}"
    return "the tasks that are fused in it", ""


def _values(a: Any, b: Any, digests: Digests, level: int = 0) -> str:
    """Return how two values differ: by what they are, or else by what is in them."""
    if Unopened in (type(a), type(b)):
        return ""
    texts = _shown(a), _shown(b)
    if type(a) is type(b) is dict and _names(a) != _names(b):
        texts = f"keys {_names(a)}", f"keys {_names(b)}"
    if texts[0] != texts[1]:
        return f"{texts[1]} instead of {texts[0]}"
    try:
        part = digests.differing(a, b) if level < _LEVELS else None
    except Exhausted:
        part = None
    if part is None:
        return f"another {texts[0]}"
    return f"{part[0]} of {texts[0]}, {_values(*part[1:], digests, level + 1)}"


def _kind(node: Any) -> str:
    if isinstance(node, Alias):
        return "another key's result"
    return "data" if isinstance(node, DataNode) else "a call"


def _referred(value: Any) -> str:
    """Return the key that *value* refers to, as text, or nothing."""
    if type(value) is TaskRef:
        return legible(repr(value.key), _SHOWN)
    return legible(repr(value.target), _SHOWN) if type(value) is Alias else ""


def _names(names: Any) -> str:
    """Return the names or keys that are plain: a text of others could run code of their class."""
    return _shown([name if type(name) in (str, int, bytes) else type_name(name) for name in names])


_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxlong = _shortened.maxother = _SHOWN


def _shown(value: Any) -> str:
    """Return a short text of *value*, without what a terminal would obey."""
    named = value.func if isinstance(value, functools.partial) else value
    if isinstance(named, types.FunctionType | types.BuiltinFunctionType | type):
        return legible(named.__qualname__, _SHOWN)
    if isinstance(value, GraphNode) or not has_bounded_repr(value):
        return type_name(value)
    return legible(_shortened.repr(value), _SHOWN)

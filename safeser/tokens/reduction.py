"""Canonical forms of instances by pickle's protocol: what rebuilds them, and their state.

The one rule: what pickle would send decides, and what pickle cannot send has no canonical form.
"""

from __future__ import annotations

import copyreg
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from safeser.tokens.graph import Form, Group, Undetermined
from safeser.tokens.references import held, reference

__all__ = ["Unordered", "describe_reduced"]

#: With buffers apart, so that none is copied.
_PROTOCOL = 5

_STEPS = ("constructor", "arguments", "state", "items", "entries", "state setter", "class")
_NEW_STEPS = ("class", "arguments", "state")
_new_object = copyreg.__newobj__  # type: ignore[attr-defined]  # not in its stub
_mro_of = type.__dict__["__mro__"].__get__
_dict_of = type.__dict__["__dict__"].__get__


@dataclass(eq=False, slots=True)
class Unordered:
    """Objects whose order does not count, in place of a list that pickle makes of a set."""

    values: Sequence[Any]
    group: Group


def describe_reduced(value: Any, reduced: Any = None) -> Form:
    """Return the form of an instance, from its pickled reduction.

    :param reduced: that reduction, where it is known.
    """
    if reduced is None:
        reduced = _reduce(value)
    if type(reduced) is str:
        # An object that pickles by its name in a module, such as a special form of typing.
        module = getattr(value, "__module__", None)
        encoding = reference(value, module, reduced)
        if encoding is not None:
            return Form(b"global" + encoding)
        if type(module) is str and held(module, reduced) is value:
            return Form(b"global", [module, reduced])
        raise Undetermined(f"pickles as the name {reduced!r}, which stands for something else")
    if type(reduced) is not tuple or not 2 <= len(reduced) <= 6:
        raise Undetermined("has a __reduce__ that returns neither text nor a tuple")
    function, arguments, state, items, entries, setter = reduced + (None,) * (6 - len(reduced))
    if type(arguments) is not tuple:
        raise Undetermined("has a __reduce__ whose arguments are no tuple")
    cls = type(value)
    if type(state) is tuple or (type(state) is dict and not state):
        state = _merged(cls, state)
    if set in _mro_of(cls) or frozenset in _mro_of(cls):
        arguments = _without_order(cls, arguments)
    new = function is _new_object and arguments[:1] == (cls,)
    if new and items is None and entries is None and setter is None:
        return Form(b"new", (cls, arguments[1:], state), steps=_NEW_STEPS)
    if function is cls and state is None and items is None and entries is None:
        return Form(b"called", (cls, arguments), steps=_NEW_STEPS)
    items = None if items is None else list(items)
    values = (function, arguments, state, items, _entries(cls, entries), setter, cls)
    return Form(b"reduced", values, steps=_STEPS)


def _reduce(value: Any) -> Any:
    cls = type(value)
    # tblib's reducers of exceptions add their tracebacks, once something has imported it.
    table = {} if BaseException in _mro_of(cls) else copyreg.dispatch_table
    try:
        reducer = table.get(cls)
        return value.__reduce_ex__(_PROTOCOL) if reducer is None else reducer(value)
    except MemoryError:
        raise
    except Exception as error:  # whatever the class raises
        raise Undetermined(f"cannot be pickled ({type(error).__name__})") from error


def _definer(cls: type, name: str) -> type | None:
    return next((base for base in _mro_of(cls) if name in _dict_of(base)), None)


def _merged(cls: type, state: Any) -> Any:
    """Return attributes and slots as one dictionary, unless the class has a state of its own.

    cloudpickle rebuilds a class with slots as one whose instances have both. An exception without
    attributes gets an empty dictionary of them when it is asked for one.
    """
    names = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__")
    if any(_definer(cls, name) not in (object, BaseException, None) for name in names):
        return state
    attributes, slots = state if type(state) is tuple else (state, {})
    return {**(attributes or {}), **slots} or None


def _without_order(cls: type, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the members of a subclass of set without the order in which pickle lists them."""
    own = _definer(cls, "__reduce__") not in (set, frozenset)
    if own or _definer(cls, "__reduce_ex__") is not object:
        return arguments
    return (Unordered(arguments[0], Group.MEMBERS),)


def _entries(cls: type, entries: Any) -> Any:
    """Return keys and values; a dictionary's have no order, as for ``==``."""
    if entries is None:
        return None
    flat = [each for item in entries for each in item]
    unordered = dict in _mro_of(cls) and OrderedDict not in _mro_of(cls)
    return Unordered(flat, Group.PAIRS) if unordered else flat

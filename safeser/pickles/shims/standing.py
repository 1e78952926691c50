"""Which of the room's functions stand in place of which others, and by which names graphs say so.

The one rule: what stands in a graph for a function is looked up in one table, in either direction.
"""

from __future__ import annotations

import importlib
import operator
import types
from functools import cache, partial
from typing import Any

import numpy as np

from safeser.pickles.shims import calls
from safeser.pickles.shims.calls import (
    GUARDED,
    METHODS,
    REPLACED,
    STANDING,
    UNNAMED,
    Method,
    by_name,
    home,
)
from safeser.pickles.shims.rooms import not_installed
from safeser.pickles.shims.whole import Ufunc, Whole, refuse

__all__ = ["holds_functions", "is_unnamed", "name_of", "named", "original", "replaced"]

#: What makes arrays of whatever type a task tells.
_MAKERS = ("numpy", "dask.array.", "dask.dataframe.", "scipy.")


def _standing(name: str) -> Any:
    return getattr(importlib.import_module(home(name)), STANDING[name])


def replaced(function: Any) -> Any:
    """Return what is called in place of *function*, which is a listed one."""
    if type(function) is np.ufunc:
        return Ufunc(function)
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    if name in REPLACED:
        return _standing(name)
    return Whole(function) if name.startswith(_MAKERS) else function


def original(value: Any) -> Any:
    """Return what *value* is called in place of; *value* itself, if that is nothing.

    One that a graph brought may hold anything: what no graph's reader makes stands for itself.
    """
    kind = type(value)
    if kind is Whole:
        function = value.function
        kind_name = f"{type(function).__module__}:{type(function).__qualname__}"
        known = kind_name in _CALLABLE or isinstance(function, _FUNCTIONS) or is_unnamed(function)
        return function if known else value
    if kind is Ufunc:
        return value.ufunc if type(value.ufunc) is np.ufunc else value
    if kind is Method:
        listed = type(value.method) is str and value.method in METHODS
        return by_name("dask.utils:methodcaller")(value.method) if listed else value
    found = _stand_ins().get(value) if kind is types.FunctionType else None
    return value if found is None else by_name(found)


#: What a graph's reader takes for a function.
_FUNCTIONS = (
    type,
    partial,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    type(np.sum),
    np.ufunc,
    operator.attrgetter,
    operator.itemgetter,
    operator.methodcaller,
)
#: Of libraries that are not imported for it.
_CALLABLE = frozenset(
    (
        "dask.array.ufunc:da_frompyfunc",
        "dask.utils:itemgetter",
        "toolz.functoolz:Compose",
        "toolz.functoolz:curry",
    )
)


def holds_functions(value: Any) -> bool:
    """Tell whether *value* is a partial or the like, which calls other functions that it holds."""
    kind = type(value)
    return kind is partial or f"{kind.__module__}:{kind.__qualname__}" in _CALLABLE


@cache
def _stand_ins() -> dict[Any, str]:
    return {getattr(calls, own): name for name, own in STANDING.items()}


@cache
def _names() -> dict[Any, str]:
    return {by_name(name): name for name in (*UNNAMED, *GUARDED)}


@cache
def _unnamed() -> tuple[Any, ...]:
    return tuple(map(by_name, UNNAMED))


def is_unnamed(obj: Any) -> bool:
    """Tell whether *obj* is what a name of :data:`UNNAMED` stands for."""
    return any(obj is found for found in _unnamed())


def name_of(obj: Any) -> str | None:
    """Return the name by which :func:`named` finds what stands for *obj* in a graph, if it does."""
    kinds = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
    # Of others, hashing may be a matter of all that they hold: a task computes its token.
    if (
        isinstance(obj, kinds)
        or obj is filter
        or (type(obj).__module__, type(obj).__name__) == ("dask.utils", "Dispatch")
    ):
        return _names().get(obj)
    return None


def named(name: str) -> Any:
    """Return what stands for one of :data:`UNNAMED` or :data:`GUARDED` in a graph.

    :raises PayloadError: if its library is not installed here.
    """
    try:
        if name in GUARDED:
            return _standing(name)
        if name in UNNAMED:
            return by_name(name)
    except ImportError as error:
        missing = error.name or name
        raise not_installed(missing.partition(".")[0]) from None
    raise refuse("the function", name)

"""What a task may have looked up: names that are listed, on classes that are pandas' own.

The one rule: nothing is looked up by a text of the task's before one of these has let it through.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from safeser.pickles.shims.untouched import untouched
from safeser.pickles.shims.whole import refuse

__all__ = [
    "FRAMES",
    "GROUPED",
    "GROUPS",
    "ROLLING",
    "by_name",
    "classes",
    "function_named",
    "listed",
    "of_pandas",
    "quiet",
    "quiet_places",
]


def listed(what: str, name: object, names: frozenset[str]) -> str:
    # An exact str: a subclass could be equal to one name, and be another when it is looked up.
    if type(name) is not str or name not in names:
        raise refuse(what, name)
    return name


@cache
def by_name(name: str) -> Any:
    """Return what a guarded function calls in the end; only names of this room come here."""
    module, _, qualname = name.partition(":")
    return operator.attrgetter(qualname)(importlib.import_module(module))


@cache
def classes(*names: str) -> tuple[type, ...]:
    found = (operator.attrgetter(name.partition(":")[2]) for name in names)
    modules = (importlib.import_module(name.partition(":")[0]) for name in names)
    return tuple(get(module) for get, module in zip(found, modules, strict=True))


FRAMES = ("pandas:DataFrame", "pandas:Series", "pandas:Index")
GROUPS = ("pandas.core.groupby:GroupBy",)
GROUPED = ("pandas.core.groupby:SeriesGroupBy", "pandas.core.groupby:DataFrameGroupBy")
ROLLING = ("pandas.core.window:Rolling",)


def of_pandas(value: Any, *names: str) -> Any:
    """Return *value* if it is of one of pandas' own classes *names*; their methods do no harm."""
    if not isinstance(value, classes(*names)) or type(value).__module__.split(".")[0] != "pandas":
        raise refuse("a method of", value)
    return value


def function_named(value: Any, names: frozenset[str], *, what: str = "the method") -> Any:
    """Return *value* if it is a function, or the name of a method that only computes.

    pandas looks up whatever text it is given in place of a function, and functions in lists.
    """
    if isinstance(value, str):
        return listed(what, value, names)
    if isinstance(value, list | tuple | dict | set | frozenset) or not callable(value):
        raise refuse(what, value)
    return value


#: What has pandas import another library, or look a window up there.
_LOUD = ("engine", "engine_kwargs", "win_type", "numba")


def quiet(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return *kwargs* without what reaches beyond pandas or writes into what it is given."""
    untouched(kwargs)
    for name in _LOUD:
        if kwargs.get(name) is not None:
            raise refuse("the option", name)
    return dict(kwargs)


@cache
def _places(function: Any) -> tuple[str, ...]:
    """Return the names of what *function* takes by position, whatever pandas wraps it in."""
    found = inspect.signature(inspect.unwrap(function)).parameters.values()
    return tuple(
        each.name
        for each in found
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    )


def quiet_places(kind: type, name: str, args: Sequence[Any]) -> None:
    """Refuse among *args* of the method *name* what :func:`quiet` refuses by name."""
    method = getattr(kind, name, None)
    if isinstance(method, types.FunctionType):  # pandas' own: those in C take no such options
        quiet(dict(zip(_places(method), (None, *args), strict=False)))

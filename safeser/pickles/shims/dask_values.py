"""What a graph of Dask's may hold: plain data, parts of the graph, and listed functions.

The one rule: whatever may be called when the graph is computed is a function that a profile or the
policy lists by name, or is made of such, wherever in the graph it stands.
"""

from __future__ import annotations

import functools
import importlib
import operator
import types
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from safeser.pickles.names import shown
from safeser.pickles.profiles import DATA_PROFILES, Profile
from safeser.pickles.shims.calls import DATA_ATTRIBUTES, Method, is_own
from safeser.pickles.shims.site import Site, bad
from safeser.pickles.shims.standing import is_unnamed, replaced
from safeser.pickles.shims.whole import Ufunc, Whole

__all__ = ["MAX_NESTING", "called", "function_of", "own", "profile_of", "resolved", "value_of"]

#: Untyped on purpose: Dask is an extra, and brings toolz.
_toolz: Any = importlib.import_module("toolz.functoolz")

MAX_NESTING = 64
_CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    np.ufunc,
    type(np.sum),
)
#: Made from checked parts by reviewed functions of this profile and of profile functions.
_GETTERS = frozenset(
    (
        "operator:methodcaller",
        "dask.array.ufunc:da_frompyfunc",
    )
)
_ITEMS = frozenset(("operator:itemgetter", "dask.utils:itemgetter"))
# A value of another kind is made of one value; those of void and object_ hold what is no value.
_SCALARS = (np.number, np.bool_, np.str_, np.bytes_, np.datetime64)
# Its instances have whatever attributes a task gives them, and NumPy takes an address from one.
_UNCALLED = frozenset(("types:SimpleNamespace",))
_LEAVES = (type(None), bool, int, float, complex, str, bytes, range, type(...))
#: Values of these libraries are made by reviewed functions, and hold nothing that can be called.
_LIBRARIES = frozenset(("datetime", "decimal", "fractions", "uuid", "pathlib", "scipy", "pyarrow"))


@cache
def own() -> Profile:
    return Profile.named("functions", "dask-graph")


@cache
def _shipped() -> Profile:
    return Profile.named(*DATA_PROFILES)


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"


def profile_of(site: Site) -> Profile:
    found = getattr(site, "profile", None)
    return found if isinstance(found, Profile) else own()


def _added(site: Site, kind: Any) -> bool:
    """Whether the policy itself lists *kind*, and no profile that ships with safeser does."""
    name = _name(kind)
    return profile_of(site).get(name) is not None and _shipped().get(name) is None


def _check_class(site: Site, kind: type) -> None:
    """Refuse a class that may be named but not called: ndarray makes pointers of bytes."""
    entry = own().get(_name(kind))
    if issubclass(kind, _SCALARS) and kind.__module__ == "numpy":
        return
    listed = (entry is not None and entry.referable) or _is_one_of(kind, _expressions())
    if _name(kind) in _UNCALLED or not (listed or _added(site, kind)):
        raise bad("function", f"{shown(_name(kind))} may not stand in a graph")


def function_of(site: Site, value: Any, depth: int = 0) -> Any:
    """Return *value* if it is a function that a graph may call; nothing calls it here."""
    kind: Any = type(value)
    if isinstance(value, type):
        _check_class(site, value)
    elif kind is functools.partial:
        inner = function_of(site, value.func, depth + 1)
        args = (value_of(site, part, depth + 1) for part in value.args)
        named = {key: value_of(site, part, depth + 1) for key, part in value.keywords.items()}
        return functools.partial(inner, *args, **named)
    elif kind is types.MethodType:
        # A class's own method, as Sum.chunk, is listed by that name.
        if not isinstance(value.__self__, type):
            raise bad("function", "something is to be called that is no listed function")
    elif kind is operator.attrgetter:
        _check_attributes(value)
    elif _name(kind) in _ITEMS or is_unnamed(value):
        return Whole(value)
    elif kind is resolved("dask.utils:methodcaller"):
        return Method(value.method)
    elif kind in _CODE:
        return replaced(value)
    # Functions themselves can only be here because their names are listed.
    elif (
        kind not in (_toolz.curry, _toolz.Compose, Method, Whole, Ufunc)
        and _name(kind) not in _GETTERS
    ):
        raise bad("function", "something is to be called that is no listed function")
    return value


def called(site: Site, value: Any) -> Any:
    """Return what a task calls for *value*, which :func:`function_of` holds for any function.

    A class can stand among the arguments of a task as well, where it is what it is. What the policy
    lists by itself is its authors' own.
    """
    function = function_of(site, value)
    # Some look at what they are given by themselves; a fused task's tasks do, one by one.
    if (
        type(function) in (Method, Whole, Ufunc)
        or is_own(function)
        or function is resolved("dask._task_spec:_execute_subgraph")
        or _added(site, function)
    ):
        return function
    return Whole(function)


def _check_attributes(getter: Any) -> None:
    _, names = getter.__reduce__()
    for name in names:
        if not DATA_ATTRIBUTES.issuperset(name.split(".")):
            raise bad("function", f"the attribute {shown(name)} is not one that is only data")


def value_of(site: Site, value: Any, depth: int = 0) -> Any:
    """Return *value* with copies of its containers; refuse whatever a graph may not hold.

    Copies, so that nothing else that holds a list can change it after the task was checked; one for
    all that hold the same, as in the pickle.
    """
    kind: Any = type(value)
    if kind in _LEAVES or isinstance(value, np.generic | np.dtype):
        return value
    if depth > MAX_NESTING:
        raise bad("max-depth", "the values in a graph nest too deep")
    place = id(value), depth, ""
    known = site.remade.get(place)
    if known is None:
        # Kept with what it is made of, so that nothing else comes to have its address.
        known = site.remade[place] = value, _checked(site, value, kind, depth)
    return known[1]


def _checked(site: Site, value: Any, kind: Any, depth: int) -> Any:  # noqa: PLR0911 - as there are kinds
    if kind in (list, set, dict):
        site.copied(value)
    if kind in (list, tuple, set, frozenset):
        return kind(value_of(site, part, depth + 1) for part in value)
    if kind is dict:
        return {key: value_of(site, part, depth + 1) for key, part in value.items()}
    if kind is slice:
        parts = (value.start, value.stop, value.step)
        return slice(*(value_of(site, part, depth + 1) for part in parts))
    if kind is np.ndarray:
        return _array(site, value, depth)
    if _is_one_of(kind, _parts()) or value is resolved("dask.typing:no_default"):
        return value
    if isinstance(value, np.random.BitGenerator | np.random.SeedSequence):
        return value
    if kind is np.ma.MaskedArray and not value.dtype.hasobject:
        return value
    library = kind.__module__.partition(".")[0]
    if library == "pandas":
        return _checked_frame(site, value, depth)
    if not callable(value) and (library in _LIBRARIES or _added(site, kind)):
        return value
    return function_of(site, value, depth)


def _array(site: Site, value: Any, depth: int) -> Any:
    if not value.dtype.hasobject:
        return value
    if value.dtype != np.dtype(object):
        raise bad("values", "objects inside a structured array are not accepted in a graph")
    made = np.empty(value.shape, object, order="F" if value.flags.fnc else "C")
    for at, part in np.ndenumerate(value):
        made[at] = value_of(site, part, depth + 1)
    return made


def _checked_frame(site: Site, value: Any, depth: int) -> Any:
    """Refuse a frame, series or index that holds what can change or be called."""
    if callable(value):
        raise bad("values", "an object of pandas in a graph can be called")
    for column in _columns(value):
        if getattr(column, "dtype", None) == np.dtype(object):
            for part in column:
                if isinstance(part, list | dict | set | np.ndarray | type) or callable(part):
                    raise bad("values", "a frame in a graph holds more than plain values")
                value_of(site, part, depth + 1)
    return value


def _columns(value: Any) -> Iterable[Any]:
    if getattr(value, "ndim", 0) == 2:
        return [value.iloc[:, at] for at in range(value.shape[1])]
    return [value] if getattr(value, "ndim", 0) == 1 else []


@cache
def _expressions() -> frozenset[str]:
    entry = Profile.named("dask-graph").get("dask._expr:Expr._reconstruct")
    assert entry is not None
    return entry.args[0]


@cache
def _parts() -> frozenset[str]:
    """Return the classes whose objects this room makes, each checked when it was made."""
    entries = Profile.named("dask-graph").entries.values()
    return _expressions() | {entry.name for entry in entries if entry.role == "class"}


def _is_one_of(kind: type, names: frozenset[str]) -> bool:
    """Tell whether *kind* is a class that *names* lists; nothing that is not there is imported."""
    name = _name(kind)
    return name in names and resolved(name) is kind


@cache
def resolved(name: str) -> Any:
    """Return a class that an entry names; only ever called with names from this package's lists."""
    module, _, qualname = name.partition(":")
    return getattr(importlib.import_module(module), qualname)

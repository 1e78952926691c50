"""Reviewed functions for callable objects of the standard library, which safeser never calls.

The one rule: they consist of listed references and plain values. A program that calls one does
what its sender chose, so no part of one may begin with an underscore.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.pickles.shims.site import Site, bad, plain

__all__ = ["SHIMS"]

_MAX_NAME = 256
#: Each part of a union is compared with those before it.
_MAX_PARTS = 64
# Listed references, which a profile's author read, or made here from such.
_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    np.ufunc,
    type(np.sum),
    operator.attrgetter,
    operator.itemgetter,
    operator.methodcaller,
    functools.partial,
)
# A partial chooses its arguments too: ndarray((1,), "O", b"...") makes bytes into pointers, and
# type("X", (), {...}) a class, though both may be handed over by name.
_CLASSES = frozenset(
    (
        *(bool, bytes, complex, dict, enumerate, float, frozenset, int, list, range, reversed),
        *(set, slice, str, tuple, zip),
        *(datetime.date, datetime.datetime, datetime.timedelta),
        *(decimal.Decimal, fractions.Fraction),
    )
)
# Names that compute whatever they are applied to. Others may not: DataFrame.eval, ndarray.tofile,
# Path.replace.
_COMPUTING = """
    bit_count bit_length capitalize casefold copy count difference endswith get index intersection
    is_integer isalnum isalpha isascii isdecimal isdigit isdisjoint isidentifier islower isnumeric
    isprintable isspace issubset issuperset istitle isupper items join keys lower lstrip partition
    removeprefix removesuffix rfind rindex rpartition rsplit rstrip split splitlines startswith
    strip swapcase symmetric_difference title union upper values
"""
_METHODS = frozenset(_COMPUTING.split())
_BOUND = (str, bytes, int, float, complex, bool, list, tuple, dict, set, frozenset)


def _public(value: Any) -> str:
    """Return a name, dotted or not: one that begins with an underscore leads into the machinery.

    attrgetter("__class__.__init__.__globals__") of any function is the way to everything.
    """
    parts = plain(value, str).split(".")
    if len(value) > _MAX_NAME or not all(p.isidentifier() and p[0] != "_" for p in parts):
        raise bad("arguments", "an attribute's name is none, or is not public")
    # These attributes lead to frames, code and tracebacks.
    if any(part.startswith(("f_", "gi_", "cr_", "ag_", "tb_", "co_", "func_")) for part in parts):
        raise bad("arguments", "an attribute's name leads into the interpreter")
    return value  # type: ignore[no-any-return]  # plain() proved it a str


def _item_getter(site: Site, _: str, *items: Any) -> Any:
    return operator.itemgetter(*items)


def _attribute_getter(_: Site, __: str, *names: Any) -> Any:
    return operator.attrgetter(*(_public(name) for name in names))


def _method(name: Any) -> str:
    if plain(name, str) not in _METHODS:
        raise bad("arguments", "a method's name is not one that only computes")
    return name  # type: ignore[no-any-return]  # plain() proved it a str


def _method_caller(_: Site, __: str, name: Any, *args: Any) -> Any:
    return operator.methodcaller(_method(name), *args)


def _bound(_: Site, __: str, value: Any, name: Any) -> Any:
    """Return a built-in value's method. getattr of a global is a name, and judged as such."""
    return getattr(plain(value, *_BOUND), _method(name))


def _callable(value: Any) -> Any:
    if type(value) not in _FUNCTIONS and (type(value) is not type or value not in _CLASSES):
        raise bad("arguments", "a partial is of something that is no listed function")
    return value


def _partial(_: Site, __: str, function: Any) -> Any:
    return functools.partial(_callable(function))


def _partial_state(_: Site, made: Any, state: Any) -> Any:
    function, args, kwargs, fields = plain(state, tuple)
    for name in plain(kwargs, dict):
        plain(name, str)
    # A partial of a partial becomes one, and may not have become another meanwhile.
    if (
        plain(fields, dict, type(None))
        or type(made) is not functools.partial
        or made.func is not (function.func if type(function) is functools.partial else function)
    ):
        raise bad("state", "a partial is told two functions, or holds attributes")
    return functools.partial(_callable(function), *plain(args, tuple), **kwargs)


def _alias(_: Site, __: str, origin: Any, args: Any) -> Any:
    for part in plain(args, tuple):
        plain(part, type, types.GenericAlias, type(...))
    return types.GenericAlias(plain(origin, type), args)


def _union(_: Site, __: str, how: Any, parts: Any) -> Any:
    if how is not operator.or_ or len(plain(parts, tuple)) > _MAX_PARTS:
        raise bad("arguments", "functools:reduce makes short unions of types only")
    return functools.reduce(how, (plain(part, type, types.GenericAlias) for part in parts))


SHIMS: dict[str, Callable[..., Any]] = {
    "alias": _alias,
    "attribute_getter": _attribute_getter,
    "bound": _bound,
    "item_getter": _item_getter,
    "method_caller": _method_caller,
    "partial": _partial,
    "partial_state": _partial_state,
    "union": _union,
}

"""Classes that libraries registered with distributed's own decorators, lent to safeser's families.

The one rule: such functions write what this process sends, and read only what a policy names; those
of distributed itself do neither, since they pickle inside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed.protocol.serialize import ObjectDictSerializer, dask_deserialize, dask_serialize

from safeser.families.registered.dispatch import functions, name_of

__all__ = ["Decorated", "honour_decorators", "register"]

logger = logging.getLogger("safeser.dask")

Function = Callable[..., Any]

#: Packages of which a registration was reported, and whether it was generic: a library may register
#: hundreds of classes.
_reported: set[tuple[str, bool]] = set()


class Decorated:
    """What was registered for exactly one class; distributed's dispatch serves subclasses too."""

    def dumps(self, cls: type) -> Function | None:
        # A package's lazy registration runs as it would if distributed serialized the object.
        with suppress(TypeError):
            dask_serialize.dispatch(cls)
        return _registered_function(dask_serialize, cls)

    def loads(self, name: str) -> Function | None:
        for cls in list(dask_deserialize._lookup):
            if name_of(cls) == name:
                return _registered_function(dask_deserialize, cls)
        return None


def _registered_function(dispatch: Any, cls: type) -> Function | None:
    """Return the function that *cls* was registered with, not one that it inherits."""
    known = dispatch._lookup
    function: Function | None = known.get(cls)
    # dispatch() remembers what a class inherits as if it had been registered.
    if function is None or any(known.get(base) is function for base in cls.__mro__[1:]):
        return None
    return None if _is_of_distributed(function) else function


def _is_of_distributed(function: Function) -> bool:
    module = getattr(function, "__module__", None) or ""
    return module.partition(".")[0] == "distributed"


_DECORATED = Decorated()


def honour_decorators() -> None:
    """Let safeser's families use them; once is enough, and more does no harm."""
    functions.honour(_DECORATED)
    for cls, function in list(dask_serialize._lookup.items()):
        report(cls, function)


def register(stock: Function, dispatch: Any, type: Any, func: Function | None = None) -> Any:
    """Register as ``Dispatch.register``, *stock*, does, and report what safeser does with it."""
    if dispatch is not dask_serialize:
        return stock(type, func)

    def reported(function: Function) -> Any:
        result = stock(type, function)
        for cls in type if isinstance(type, tuple) else (type,):
            report(cls, function)
        return result

    return reported if func is None else reported(func)


def report(cls: type, function: Function) -> None:
    """Log, once for each package and kind, whether safeser uses *function*, registered for *cls*.

    What distributed registers itself is not reported: safeser has its own in its place.
    """
    generic = isinstance(getattr(function, "__self__", None), ObjectDictSerializer)
    package = getattr(cls, "__module__", "").partition(".")[0]
    if (package, generic) in _reported or functions.types.has_package(package):
        return
    if _is_of_distributed(function) and not generic:
        return
    _reported.add((package, generic))
    name = name_of(cls)
    if generic:
        logger.warning(
            "%s was registered with distributed's register_generic, which pickles the class:"
            " safeser does not use it. Call safeser.register_generic(%s) in its place.",
            name,
            cls.__qualname__,
        )
    else:
        logger.warning(
            "%s was registered with distributed's dask_serialize: safeser calls its functions only"
            " where a context of the policy names the type, 'dask: {types: [\"%s\"]}'. Registered"
            " with safeser.dask_serialize and safeser.dask_deserialize it needs no such line.",
            name,
            name,
        )

"""Classes that libraries registered with distributed's own decorators, lent to safeser's families.

The one rule: such functions write what this process sends, and read only what a policy names; those
of distributed itself do neither, since they pickle inside.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed.protocol.serialize import dask_deserialize, dask_serialize

from safeser.families.registered.dispatch import functions, name_of

__all__ = ["Decorated", "honour_decorators"]

Function = Callable[..., Any]


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
    module = getattr(function, "__module__", None) or ""
    return None if module.partition(".")[0] == "distributed" else function


_DECORATED = Decorated()


def honour_decorators() -> None:
    """Let safeser's families use them; once is enough, and more does no harm."""
    functions.honour(_DECORATED)

"""safeser's functions under the names of distributed's, and a count of who called them.

The one rule: nothing of distributed's changes but the names that its test modules import; what a
test starts around them, clusters above all, is distributed's own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import distributed.protocol

# They register their functions when they are imported, and must do so with distributed's own.
import distributed.protocol.arrow
import distributed.protocol.numpy
import distributed.protocol.scipy

import safeser
from safeser.families.registered.own import own_families

__all__ = ["CALLS", "in_place"]

#: What the running test called, for the plugin to read and clear.
CALLS: set[str] = set()

Function = Callable[..., Any]


def _counted(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        CALLS.add(function.__name__)
        return function(*args, **kwargs)

    return call


def serialize_bytelist(
    x: object, compression: str | bool | None = "auto", **kwargs: Any
) -> list[bytes]:
    return [safeser.serialize_bytes(x, compression=compression, **kwargs)]


def dumps(msg: object, context: dict[str, Any] | None = None, **kwargs: Any) -> list[bytes]:
    """A message as one run of bytes: safeser's own codec of messages belongs to its comm."""
    kwargs = {"on_error": "message", **kwargs}
    compression = (context or {}).get("compression")
    return [safeser.serialize_bytes(msg, context=context, compression=compression, **kwargs)]


def loads(frames: list[bytes], **kwargs: Any) -> Any:
    return safeser.deserialize_bytes(b"".join(frames), **kwargs)


def register_serialization(cls: type, serialize: Function, deserialize: Function) -> None:
    """For safeser, and for distributed's own cluster, which some of the tests start."""
    _ORIGINAL["dask_serialize"].register(cls)(serialize)
    _ORIGINAL["dask_deserialize"].register(cls)(deserialize)
    safeser.register_serialization(cls, serialize, deserialize)


def register_serialization_family(name: str, dumps: Function, loads: Function) -> None:
    _ORIGINAL["register_serialization_family"](name, dumps, loads)
    if not own_families.known(name):
        safeser.register_serialization_family(name, dumps, loads)


_SUBSTITUTES: dict[str, Any] = {
    "Serialize": safeser.Serialize,
    "Serialized": safeser.Serialized,
    "dask_deserialize": safeser.dask_deserialize,
    "dask_serialize": safeser.dask_serialize,
    "deserialize": _counted(safeser.deserialize),
    "deserialize_bytes": _counted(safeser.deserialize_bytes),
    "dumps": _counted(dumps),
    "loads": _counted(loads),
    "register_generic": safeser.register_generic,
    "register_serialization": register_serialization,
    "register_serialization_family": register_serialization_family,
    "serialize": _counted(safeser.serialize),
    "serialize_bytelist": _counted(serialize_bytelist),
    "serialize_bytes": _counted(safeser.serialize_bytes),
    "to_serialize": safeser.to_serialize,
}

#: The second is no attribute of the first: its function ``serialize`` goes by the same name.
_MODULES = (distributed.protocol, sys.modules["distributed.protocol.serialize"])
_ORIGINAL = {name: getattr(distributed.protocol, name) for name in _SUBSTITUTES}


@contextmanager
def in_place() -> Iterator[None]:
    """Have modules that are imported meanwhile get safeser's functions by distributed's names."""
    kept = [(module, name, vars(module).get(name)) for module in _MODULES for name in _SUBSTITUTES]
    kept = [(module, name, value) for module, name, value in kept if value is not None]
    for module, name, _ in kept:
        setattr(module, name, _SUBSTITUTES[name])
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)

"""Finding fields of a parsed message by the paths that the table of operations uses.

The one rule: it only looks. A path that does not fit a message finds nothing in it.

Paths: ``msg.message`` is a key inside a field, ``[]`` each element of a sequence, ``*`` each value
of a mapping, and the empty path the whole message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from safeser.dask.wire.reader import Reference

__all__ = ["holds_reference", "pickled", "select", "steps_of", "transform"]


@lru_cache(maxsize=1024)  # paths come from the table, of which there are fewer
def steps_of(path: str) -> tuple[str, ...]:
    """Return the steps of a path of the table."""
    return tuple(step for step in path.replace("[]", ".[].").split(".") if step)


def select(message: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the values at *path* in *message*, each with its place for people."""
    yield from _select(message, steps_of(path), "")


def _select(value: Any, steps: tuple[str, ...], where: str) -> Iterator[tuple[str, Any]]:
    if not steps:
        yield where, value
        return
    step, rest = steps[0], steps[1:]
    if step == "[]":
        if isinstance(value, tuple | list):
            for position, item in enumerate(value):
                yield from _select(item, rest, _item_place(where, position))
    elif isinstance(value, dict):
        if step == "*":
            for key, item in value.items():
                yield from _select(item, rest, _place(where, key))
        elif step in value:
            yield from _select(value[step], rest, _place(where, step))


#: As much of a path as places are told apart by, for people; what is deeper is told by that.
_MAX_PATH = 256


def _place(where: str, key: Any) -> str:
    if len(where) >= _MAX_PATH:
        return where
    shown = str(key)[:64]
    if not shown.isprintable():
        shown = "".join(c for c in shown if c.isprintable())
    return f"{where}.{shown}" if where else shown


def _item_place(where: str, position: int) -> str:
    # Each of a million items below a hundred long keys would have six kilobytes of its own.
    return where if len(where) >= _MAX_PATH else f"{where}[{position}]"


def pickled(value: Any, where: str) -> Iterator[tuple[str, bytes]]:
    """Yield each bytes value at or below *value*: what a handler would unpickle there."""
    if isinstance(value, bytes):
        if value:
            yield where, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from pickled(item, _place(where, key))
    elif isinstance(value, tuple | list | set):
        for position, item in enumerate(value):
            yield from pickled(item, _item_place(where, position))


def holds_reference(value: Any) -> bool:
    """Tell whether a payload reference is at or below *value*."""
    if isinstance(value, Reference):
        return True
    if isinstance(value, dict):
        return any(map(holds_reference, value)) or any(map(holds_reference, value.values()))
    return isinstance(value, tuple | list | set) and any(map(holds_reference, value))


def transform(message: Any, path: str, change: Callable[[Any], Any]) -> Any:
    """Return *message* with ``change(value)`` for each value at *path*."""
    return _transform(message, steps_of(path), change)


def _transform(value: Any, steps: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    if not steps:
        return change(value)
    step, rest = steps[0], steps[1:]
    if step == "[]" and isinstance(value, tuple | list):
        return type(value)([_transform(item, rest, change) for item in value])
    if step == "*" and isinstance(value, dict):
        return {key: _transform(item, rest, change) for key, item in value.items()}
    if isinstance(value, dict) and step in value:
        return {**value, step: _transform(value[step], rest, change)}
    return value

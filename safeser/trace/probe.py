"""The place at which functions report each serialization to the traces of this process.

The one rule: an object is reported once, by the outermost function that serializes it. What is
serialized on the way, as parts of it, is not reported again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

__all__ = ["Action", "Done", "Listener", "add", "is_traced", "remove", "size_of", "watch"]

#: ``hash``: pickled to compute a key, and not sent.
Action = Literal["serialize", "deserialize", "hash"]

T = TypeVar("T")


class Done(NamedTuple):
    """What was serialized or deserialized.

    :param size: bytes of its frames.
    """

    obj: object
    family: str
    size: int


class Listener(Protocol):
    """A trace, or the counters of a server."""

    def note(self, action: Action, done: Done, seconds: float) -> None:
        """Count one object; may be called by any thread."""


class _Process:
    #: Replaced as a whole, so that threads read it without a lock.
    listeners: tuple[Listener, ...] = ()


_process = _Process()
_change = threading.Lock()


class _Thread(threading.local):
    inside = False


_thread = _Thread()


def is_traced() -> bool:
    """Tell whether anything listens: functions that serialize ask for nothing else otherwise."""
    return bool(_process.listeners)


def add(listener: Listener) -> None:
    """Report to *listener* from now on, once for each object."""
    with _change:
        if listener not in _process.listeners:
            _process.listeners = (*_process.listeners, listener)


def remove(listener: Listener) -> None:
    """Report nothing more to *listener*."""
    with _change:
        left = [each for each in _process.listeners if each is not listener]
        _process.listeners = tuple(left)


def watch(action: Action, run: Callable[[], T], done: Callable[[T], Done]) -> T:
    """Return what *run* returns, and report it.

    :param done: returns what was serialized or deserialized, given what *run* returned.
    """
    if _thread.inside:
        return run()
    _thread.inside = True
    begun = perf_counter()
    try:
        made = run()
        seconds = perf_counter() - begun
        found = done(made)
        for each in _process.listeners:
            each.note(action, found, seconds)
    finally:
        _thread.inside = False
    return made


def size_of(frames: Iterable[Any]) -> int:
    """Return the total size of *frames* in bytes."""
    return sum(memoryview(frame).nbytes for frame in frames)

"""Pickle each argument once for one submission: for its key, and for the bytes that are signed.

Dask pickles and unpickles an object twice for each token, to find out whether its pickles agree,
and makes two tokens of each argument of ``map``.

The one rule: what is remembered ends with the call that submits. An object that changes between
two calls is pickled anew, and where a token has to be deterministic, Dask's own function decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from dask.hashing import hash_buffer_hex

from safeser import pickles
from safeser.dask.clients.tokenizer import is_strict
from safeser.errors import PayloadError
from safeser.pickles.stock import load_code
from safeser.trace.probe import Done, is_traced, watch

__all__ = ["OneCall", "pickled_in_call", "replace_normalizer"]

#: Longer pickles, and more of them together, are not kept for the bytes that are signed.
_MOST_OF_ONE = 1 << 20
_MOST_BYTES = 64 << 20

#: Bytes from which on pickling takes a millisecond and more for each key, which is worth advice.
_LARGE = 1_000_000

#: What pickles of classes by value call, and those of exceptions by tblib's reducers, which ask
#: each for its attributes: a dictionary of them is made then, and is in the next pickle.
_CLASS, _EXCEPTION = b"_class_setstate", b"unpickle_exception"

_Token = tuple[Any, list[str]]


@dataclass(slots=True)
class _Pickled:
    """One object that a call has pickled.

    :param obj: kept, so that no other takes its id.
    :param size: bytes of its pickle and its buffers.
    :param written: its pickle, where that is kept.
    """

    obj: Any
    token: _Token
    size: int
    written: bytes | None = None


class CallPickles:
    """What one call that submits has pickled so far."""

    def __init__(self) -> None:
        self._known: dict[int, _Pickled] = {}
        self._room = _MOST_BYTES

    def token(self, obj: Any, stock: Callable[[Any], _Token]) -> _Token:
        """Return what *stock* returns of *obj*: digests of its pickle and of its buffers."""
        try:
            return (self._known.get(id(obj)) or self._pickled(obj)).token
        except PayloadError:
            return stock(obj)

    def _pickled(self, obj: Any) -> _Pickled:
        if isinstance(obj, BaseException):
            vars(obj)  # made when it is first asked for, as reducers do
        written, buffers = _pickled(obj)
        if _CLASS in written:
            # What is loaded becomes the class that is here, which shares no strings with *obj* then
            # as none does with a copy of it. Dask's own function loads each pickle as well.
            with suppress(Exception):  # the object's own code may raise anything
                load_code(written, buffers=buffers)
        if _CLASS in written or _EXCEPTION in written:
            written, buffers = _pickled(obj)
        size = len(written) + sum(each.raw().nbytes for each in buffers)
        large = size >= _LARGE
        if large or type(obj).__module__ == "__main__":
            from safeser.sendable.costly import advise  # noqa: PLC0415 - as above

            advise(obj, size, large=large)
        token = hash_buffer_hex(written), [hash_buffer_hex(each) for each in buffers]
        made = self._known[id(obj)] = _Pickled(obj, token, size)
        if not buffers and len(written) <= min(_MOST_OF_ONE, self._room):
            self._room -= len(written)
            made.written = written
        return made

    def size(self, obj: Any) -> int | None:
        """Return the bytes of the pickle of *obj*, or None if it was not pickled."""
        known = self._known.get(id(obj))
        return None if known is None else known.size

    def pickle(self, obj: Any) -> bytes | None:
        """Return the pickle of *obj* that a token was made of, or None if there is none."""
        known = self._known.get(id(obj))
        return None if known is None else known.written


def _pickled(obj: Any) -> tuple[bytes, list[Any]]:
    buffers: list[Any] = []
    return pickles.dumps(obj, buffer_callback=buffers.append, code=True), buffers


class _Thread(threading.local):
    call: CallPickles | None = None


_thread = _Thread()


class OneCall:
    """Remembers pickles until the outermost of these ends."""

    __slots__ = ("_is_outermost",)

    def __enter__(self) -> None:
        self._is_outermost = _thread.call is None
        if self._is_outermost:
            _thread.call = CallPickles()

    def __exit__(self, *_: object) -> None:
        if self._is_outermost:
            _thread.call = None


def pickled_in_call(obj: Any) -> bytes | None:
    """Return the pickle of *obj* that the call which submits has made already, or None."""
    call = _thread.call
    return None if call is None else call.pickle(obj)


def replace_normalizer(stock: Callable[[Any], _Token]) -> Callable[[Any], _Token]:
    """Return what replaces ``dask.tokenize._normalize_pickle``."""

    def _normalize_pickle(o: Any) -> _Token:
        call = _thread.call
        make = stock if call is None or is_strict() else partial(call.token, stock=stock)
        if not is_traced():
            return make(o)
        if call is not None and call.size(o) is not None:
            return make(o)

        def done(_: _Token) -> Done:
            return Done(o, "cloudpickle", (call.size(o) if call is not None else None) or 0)

        token: _Token = watch("hash", lambda: make(o), done)
        return token

    return _normalize_pickle

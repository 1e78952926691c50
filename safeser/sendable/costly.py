"""Warn once about what makes submissions slow, and say what to do.

The one rule: each kind of advice is given once in a process, and only where it pays: what is small
costs too little to be worth a change.
"""

from __future__ import annotations

import threading
import types
import warnings
from typing import Any

from safeser import pickles
from safeser.errors import SafeserError
from safeser.sendable.advice import defined
from safeser.sendable.parts import parts
from safeser.trace.place import frame_of_caller

__all__ = ["SerializationAdvice", "advise"]

_MAIN = "__main__"


class SerializationAdvice(UserWarning):
    """A submission is slower than it has to be."""


_given: set[str] = set()
_lock = threading.Lock()


def advise(obj: Any, size: int, *, large: bool) -> None:
    """Warn about *obj*, which was pickled for a key, if nothing of its kind was said yet.

    :param size: bytes of its pickle and its buffers.
    :param large: whether they are many.
    """
    is_function = isinstance(obj, types.FunctionType | types.MethodType)
    kind = obj if isinstance(obj, type) else type(obj)
    if is_function and large:
        _once("closure", lambda: _of_function(obj, size))
    elif not is_function and kind.__module__ == _MAIN:
        _once(_MAIN, lambda: _of_main(kind))
    elif not is_function and large:
        _once("tokenizer", lambda: _of_object(kind, size))


def _once(kind: str, text: Any) -> None:
    if kind in _given:
        return
    with _lock:
        if kind in _given:
            return
        _given.add(kind)
    frame = frame_of_caller()
    if frame is None:  # of a thread that runs no code of the user's
        warnings.warn(text(), SerializationAdvice, stacklevel=2)
        return
    # The line that submits, however many frames of libraries are in between.
    warnings.warn_explicit(
        text(), SerializationAdvice, frame.f_code.co_filename, frame.f_lineno, module=__name__
    )


def _of_object(kind: type, size: int) -> str:
    return (
        f"An argument of class {_name(kind)} is pickled for its key at each submission,"
        f" {_mega(size)}: the class has no tokenizer. Give it a method __dask_tokenize__, scatter"
        " the object once and pass the future, or pass pure=False."
    )


def _of_function(function: Any, size: int) -> str:
    held = _largest(function)
    where = defined(function)
    return (
        f"Function {_name(function)}{f' ({where})' if where else ''} is pickled at each submission"
        f" with what it holds, {_mega(size)}{f', most of it {held}' if held else ''}. Pass that as"
        " an argument: client.submit(f, client.scatter(x))."
    )


def _of_main(kind: type) -> str:
    return (
        f"Class {_name(kind)} is pickled with its code at each submission, since workers cannot"
        f" import {_MAIN}. Define it in a module that is installed on the workers."
    )


def _largest(function: Any) -> str:
    """Return the words for the part of *function* whose pickle is largest."""
    largest, words = 0, ""
    for word, part in parts(getattr(function, "__func__", function)):
        try:
            size = len(pickles.dumps(part, code=True))
        except (SafeserError, RecursionError):
            continue
        if size > largest:
            largest, words = size, word
    return words


def _name(of: Any) -> str:
    name = f"{of.__module__}.{of.__qualname__}"[:200]
    return "".join(char if char.isprintable() else "?" for char in name)


def _mega(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"

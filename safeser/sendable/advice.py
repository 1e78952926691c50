"""What to do about an object that cannot be sent, and where it was defined."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import io
import multiprocessing.pool
import socket
import threading
import types
import weakref
from pathlib import Path
from typing import Any

from safeser.tokens.references import installed
from safeser.trace.place import notebook_cell

__all__ = ["advice", "defined", "is_too_deep", "stays"]

#: Characters of an error's text that a reason shows.
_LONGEST = 200

_PLACE = "Make it inside the function, where the task runs."
_LOCK = "a lock belongs to this process."
_HOLDS_LOCK = "it holds a lock, which belongs to this process."
_SHARED = "Make it inside the function; distributed.{} is shared by a cluster."

#: By class, why its objects stay in their process, and what to do.
_STAYS: tuple[tuple[tuple[type, ...], str, str], ...] = (
    (
        (types.GeneratorType, types.AsyncGeneratorType),
        "a generator is a position in code that runs here.",
        "Pass a list of what it yields, or the function that makes it.",
    ),
    (
        (types.CoroutineType,),
        "a coroutine is a position in code that runs here.",
        "Pass the coroutine function, or await it and pass its result.",
    ),
    (
        (asyncio.Future, concurrent.futures.Future),
        "it belongs to this process's event loop or pool.",
        "Wait for it, and pass its result.",
    ),
    ((asyncio.AbstractEventLoop,), "an event loop runs in one process.", _PLACE),
    (
        (contextvars.Context, contextvars.ContextVar, contextvars.Token),
        "context variables belong to this process.",
        "Pass the variable's value.",
    ),
    (
        (io.IOBase,),
        "an open file belongs to this process.",
        "Pass its path, and open it inside the function.",
    ),
    ((socket.socket,), "a socket belongs to this process.", "Connect inside the function."),
    (
        (concurrent.futures.Executor, multiprocessing.pool.Pool),
        "a pool belongs to this process.",
        _PLACE,
    ),
    ((threading.Thread,), "a thread runs in one process.", _PLACE),
    ((type(threading.Lock()), type(threading.RLock())), _LOCK, _SHARED.format("Lock")),
    (
        (weakref.ref, weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary),
        "a weak reference is valid in this process only.",
        "Pass the object itself.",
    ),
    (
        (types.FrameType, types.TracebackType),
        "frames belong to this process.",
        "Pass the text that traceback.format_exception makes of it.",
    ),
)

#: The same for classes of libraries that may not be installed.
_STAYS_BY_NAME = {
    **dict.fromkeys(
        ("sqlite3:Connection", "sqlite3:Cursor"),
        ("a connection belongs to this process.", "Connect inside the function."),
    ),
    **dict.fromkeys(
        ("multiprocessing.synchronize:SemLock", "threading:Condition", "threading:Barrier"),
        (_LOCK, _SHARED.format("Lock")),
    ),
    "threading:Event": (_HOLDS_LOCK, _SHARED.format("Event")),
    "threading:Semaphore": (_HOLDS_LOCK, _SHARED.format("Semaphore")),
    **dict.fromkeys(
        ("queue:Queue", "_queue:SimpleQueue", "multiprocessing.queues:Queue"),
        (_HOLDS_LOCK, _SHARED.format("Queue")),
    ),
    **dict.fromkeys(
        ("multiprocessing.process:BaseProcess", "subprocess:Popen"),
        ("it is a process that this one started.", "Start it inside the function."),
    ),
    "_thread:_local": ("it has other content in each thread.", "Pass what is needed of it."),
    "mmap:mmap": (
        "a mapped file belongs to this process.",
        "Pass its path, and map it inside the function.",
    ),
    "distributed.client:Client": (
        "a client is connected by this process.",
        "Call distributed.get_client() inside the function.",
    ),
    "ipykernel.zmqshell:ZMQInteractiveShell": (
        "it is this notebook.",
        "Pass what is needed of it.",
    ),
}


def stays(x: Any) -> tuple[str, str] | None:
    """Return why *x* belongs to its process and what to do, or None if nothing says so."""
    for kinds, reason, fix in _STAYS:
        if issubclass(type(x), kinds):  # its __class__ may be another's, or raise
            return reason, fix
    for base in type(x).__mro__:
        known = _STAYS_BY_NAME.get(f"{base.__module__}:{base.__qualname__}")
        if known is not None:
            return known
    return None


def is_too_deep(error: BaseException) -> bool:
    """Tell whether pickling ended with *error* because the object is nested too deep."""
    return isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError)


def advice(x: Any, error: BaseException) -> tuple[str, str]:
    """Return why *x*, whose pickling raised *error*, cannot be sent, and what to do."""
    known = stays(x)
    if known is not None:
        return known
    if is_too_deep(error):
        return "it is nested too deep to be pickled.", "Flatten it."
    said = " ".join(str(error).split())[:_LONGEST]
    said = "".join(char if char.isprintable() else "?" for char in said)
    reason = f"pickling it raises {type(error).__name__}{f': {said}' if said else ''}."
    return reason, "Leave it out, give its class a __reduce__, or make it inside the function."


def defined(x: Any) -> str:
    """Return where *x*, or its class, was written: a file and line, or a notebook's cell."""
    code = _code_of(x)
    if code is None:
        return ""
    cell = notebook_cell(code.co_filename)
    if cell:
        return f"{cell}, line {code.co_firstlineno}"
    name = code.co_filename
    if name.startswith("<"):
        return ""
    return f"{Path(name).name}, line {code.co_firstlineno}"


def _code_of(x: Any) -> types.CodeType | None:
    for name in ("__func__", "func", "__code__", "gi_code", "cr_code", "ag_code"):
        found = getattr(x, name, None) if issubclass(type(x), _WITH_CODE) else None
        if isinstance(found, types.CodeType):
            return found
        if found is not None:
            return _code_of(found)
    kind = x if issubclass(type(x), type) else type(x)
    module = str(kind.__module__)  # a program may set it to anything
    if installed(module) is not None or module.partition(".")[0] == "safeser":
        return None
    for value in vars(kind).values():
        if isinstance(value, types.FunctionType) and _is_written_in(value, module):
            return value.__code__
    return None


def _is_written_in(function: types.FunctionType, module: str) -> bool:
    """Tell whether *function* is neither generated nor a wrapper of a library's."""
    in_module = function.__globals__.get("__name__") == module
    return in_module and function.__code__.co_filename != "<string>"


_WITH_CODE = (
    types.FunctionType,
    types.MethodType,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
)

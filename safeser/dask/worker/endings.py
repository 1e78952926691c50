"""How a worker's process ends: not by Ctrl-C, and without errors about connections that it closed.

The one rule: a program that a task starts has SIGINT neither blocked nor ignored, and only failures
of a closed connection are left out of the log, only while the worker closes. A child inherits both
states of SIGINT through ``exec``; a handler in Python it does not inherit. Dask logs a heartbeat
that was under way when the worker closed as an error, with its traceback, although nothing failed;
``safeser up`` would sometimes print that in place of its last line.

A nanny whose worker cannot run ends ``dask worker`` as that process ended, which has said why in
one line.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from distributed.comm.core import CommClosedError
from distributed.core import Status

from safeser.dask.roles import UNABLE, is_command
from safeser.dask.servers import served

__all__ = ["silence_closed_connections", "unblock", "worker_exited"]

_CLOSING = frozenset({Status.closing, Status.closed})


class _OwnEnd(logging.Filter):
    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._worker = weakref.ref(worker)

    def filter(self, record: logging.LogRecord) -> bool:
        worker = self._worker()
        if worker is None or getattr(worker, "status", None) not in _CLOSING or not record.exc_info:
            return True
        return not isinstance(record.exc_info[1], CommClosedError)


def silence_closed_connections(worker: Any) -> None:
    """Keep *worker*, once it closes, from logging that its own connections closed."""
    logger = logging.getLogger("distributed.worker")
    # Workers that one process had before would pile up here.
    for known in logger.filters[:]:
        if isinstance(known, _OwnEnd) and known._worker() is None:
            logger.removeFilter(known)
    logger.addFilter(_OwnEnd(worker))


def unblock() -> None:
    """Let SIGINT through to this process, where it was started with SIGINT blocked, and drop it.

    ``safeser up`` starts its workers so, since a terminal interrupts every process at once and
    those are its nannies' to end. To be called by the main thread: threads that it starts later,
    those of tasks among them, block no more than it does.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        return
    ours = os.getpid()

    def drop(number: int, frame: FrameType | None) -> None:
        # A fork keeps the handler; it is no worker, and Ctrl-C ends it as any program.
        if os.getpid() != ours:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, drop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def worker_exited(stock: Callable[[Any], None], nanny: Any, exitcode: int | None) -> None:
    """Go on as *stock* does when the worker of *nanny* ended, if that process could run.

    Else ``dask worker`` ends as it: Dask would print tracebacks of what follows.
    """
    starts = nanny.status.name in ("init", "starting")
    if exitcode == UNABLE and starts and is_command() and served(nanny) is not None:
        # This is a callback of the event loop and no task of Dask's: it ends the loop.
        raise SystemExit(UNABLE)
    stock(exitcode)

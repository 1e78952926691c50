"""Log no errors about connections that a closing worker closed itself.

The one rule: only failures of a closed connection are left out, and only while the worker closes.
Dask logs a heartbeat that was under way then as an error, with its traceback, although nothing
failed; ``safeser up`` would sometimes print that in place of its last line.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

from distributed.comm.core import CommClosedError
from distributed.core import Status

__all__ = ["silence_closed_connections"]

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

"""The logs that are open in this process: closed when it ends, begun anew in a child.

The one rule: a log that cannot be closed keeps no other from being closed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import Protocol

from safeser.errors import SafeserError

__all__ = ["OPEN"]


class _Log(Protocol):
    def close(self) -> None: ...

    def _after_fork(self) -> None: ...


OPEN: weakref.WeakSet[_Log] = weakref.WeakSet()


def _close_all() -> None:
    for log in list(OPEN):
        # At exit no message is left to refuse; the file verifies without its closing record.
        with contextlib.suppress(SafeserError, OSError):
            log.close()


def _forked() -> None:
    for log in list(OPEN):
        log._after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forked)

"""Lets one thread at a time write a log.

The one rule: when a call is over, whatever exception ended it, its lock is free again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

from safeser.errors import AuditError

__all__ = ["Turn"]

A = TypeVarTuple("A")
T = TypeVar("T")


class Turn:
    """A lock that is held for the time of one call.

    Who holds it is the lock's own knowledge. A flag beside it would be a second statement of the
    same, and an exception could come between the two.
    """

    __slots__ = ("_lock", "is_mine")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: Tells whether this thread is inside :meth:`take`, where a signal interrupted it. The
        #: method is not documented; threading.Condition needs it of any lock, too.
        self.is_mine: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]

    def take(self, work: Callable[[Unpack[A]], T], *arguments: *A) -> T:
        """Return what *work* returns, called with *arguments* while no other thread is in here.

        :raises AuditError: if this thread already is.
        """
        if self.is_mine():
            raise AuditError("the log was called from inside itself", rule="audit.reentered")
        try:
            # The interpreter lets no signal in between the lock and the block, in either place; a
            # context manager written in Python would.
            with self._lock:
                return work(*arguments)
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        # A debugger or profiler that is written in Python can raise even between the block and the
        # release of the lock.
        try:
            self._lock.release()
        except RuntimeError:
            return  # it is not held, as it should be

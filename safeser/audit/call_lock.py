"""A lock that one call at a time holds, and only for as long as it lasts.

The one rule: when a call is over, whatever exception ended it, the lock is free again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

from safeser.errors import AuditError

__all__ = ["CallLock"]

A = TypeVarTuple("A")
T = TypeVar("T")


class CallLock:
    """Lets one thread at a time make a call, and refuses a call from inside another.

    The lock itself knows which thread holds it. A flag beside it would state the same a second
    time, and an exception could come between the two.
    """

    __slots__ = ("_lock", "is_mine")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: Returns whether this thread is inside :meth:`call`: a signal handler interrupted it
        #: there. The method is not documented; threading.Condition needs it of any lock, too.
        self.is_mine: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]

    def call(self, work: Callable[[Unpack[A]], T], *arguments: *A) -> T:
        """Return what *work* returns, called with *arguments* while no other thread is in here.

        :raises AuditError: if this thread already is.
        """
        if self.is_mine():
            raise AuditError("the log was called from inside itself", rule="audit.reentered")
        try:
            # The interpreter handles no signal between taking the lock and entering the block, nor
            # between leaving the block and releasing the lock. Inside the methods of a context
            # manager that is written in Python it does.
            with self._lock:
                return work(*arguments)
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        # A debugger or profiler that is written in Python can raise between the block and the
        # release, too.
        try:
            self._lock.release()
        except RuntimeError:
            return  # not held, which is the rule

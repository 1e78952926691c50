"""Ignore Ctrl-C in a worker process, but not in programs that users' tasks start there.

The one rule: a program that a task starts has SIGINT neither blocked nor ignored. A child inherits
both states through ``exec``; a handler in Python it does not inherit.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

__all__ = ["unblock"]


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

"""One thread of a process that looks at the files of all its channels, each second and on SIGHUP.

The one rule: nothing ends the thread. An exception in one look is logged, and the next follows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
from types import FrameType

from safeser.channel.reload import LiveFiles

__all__ = ["INTERVAL", "look_now", "unwatch", "watch"]

logger = logging.getLogger("safeser.channel")

#: Seconds between two looks: a revocation has ten to reach the sessions of a busy process.
INTERVAL = 1.0


class _Watcher:
    """The thread, the files that it looks at, and the queue that wakes it."""

    def __init__(self) -> None:
        self._files: set[LiveFiles] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # A signal handler may interrupt itself: put() allows that, set() of an Event does not.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def add(self, files: LiveFiles) -> None:
        with self._lock:
            self._files.add(files)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="safeser-watcher", daemon=True
                )
                self._thread.start()

    def drop(self, files: LiveFiles) -> None:
        with self._lock:
            self._files.discard(files)

    def wake(self) -> None:
        self._wake.put(None)

    def look(self) -> None:
        """Look at all files once."""
        with self._lock:
            found = list(self._files)
        for files in found:
            try:
                files.look()
            except Exception:  # a process without its watcher would never hear of a revocation
                logger.exception("Looking at the files of %s failed", files.channel)

    def _run(self) -> None:
        while True:
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=INTERVAL)
                while True:  # a storm of signals is one look
                    self._wake.get_nowait()
            self.look()


_watcher = _Watcher()


def watch(files: LiveFiles) -> None:
    """Look at *files* from now on, until :func:`unwatch`."""
    _watcher.add(files)
    _take_hangups()


def unwatch(files: LiveFiles) -> None:
    """Look at *files* no more."""
    _watcher.drop(files)


def look_now() -> None:
    """Have the thread look at all files now."""
    _watcher.wake()


def _forked() -> None:
    # The child has neither the thread nor the holder of its lock, and makes its own channels.
    global _watcher  # noqa: PLW0603
    _watcher = _Watcher()


os.register_at_fork(after_in_child=_forked)


# --- SIGHUP --------------------------------------------------------------------------------------


def _take_hangups() -> None:
    """Have SIGHUP look at the files at once, where no handler is installed."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
        return  # another's handler, or ignored, as nohup has it
    terminal = _has_terminal()

    def hang_up(number: int, frame: FrameType | None) -> None:
        if terminal and not _has_terminal():
            # The terminal was closed, which ends a program by default.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            look_now()

    signal.signal(signal.SIGHUP, hang_up)


def _has_terminal() -> bool:
    """Tell whether this process has a controlling terminal that is open."""
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        return True
    return False

"""Pause the garbage collector while a large message is decoded.

The one rule: afterwards the collector is enabled exactly if it was before, whatever happens
meanwhile.

A reply with ten thousand values is a hundred thousand small objects that all live until its last
value is built. CPython looks for cycles among them again and again, through everything else in the
process each time, and finds none.
"""

from __future__ import annotations

import gc
import threading

__all__ = ["gc_paused"]

_lock = threading.Lock()


class _Pause:
    """Switches the garbage collector off while any thread is inside."""

    def __init__(self) -> None:
        self._inside = 0
        self._was_on = False

    def __enter__(self) -> None:
        with _lock:
            if not self._inside:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with _lock:
            self._inside -= 1
            if not self._inside and self._was_on:
                gc.enable()


gc_paused = _Pause()

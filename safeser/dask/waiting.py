"""Requests that wait for something: they end when whoever asked has left.

The one rule: what a request would have taken, nobody who left takes. Dask's handlers wait for a
variable, an item, an event, a lease or a lock without looking at the connection again (distributed
2026.8.0): each stays for good with all that its sender wrote, and takes what comes from those who
still wait for it. A thousand requests of somebody who only looks took half a gigabyte that way.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

from distributed.core import Status
from distributed.scheduler import Scheduler

__all__ = ["end_with_their_askers"]

#: How often it is looked whether somebody is still there.
_SECONDS = 5.0


def end_with_their_askers(scheduler: Any) -> None:
    """Have requests of *scheduler* end with their connections; after others took their places."""
    if not isinstance(scheduler, Scheduler):
        return
    extensions, handlers = scheduler.extensions, scheduler.handlers
    semaphores, locks = extensions.get("semaphores"), extensions.get("multi_locks")

    def no_lease(name: Any = None, **_: Any) -> None:
        pending = semaphores.metrics["pending"]
        if name in pending:
            pending[name] -= 1

    def no_lock(id: Any = None, **_: Any) -> None:
        if id in locks.requests:
            locks.release(id=id)

    after = {
        "variable_get": _nothing,
        "queue_get": _nothing,
        "event_wait": _nothing,
        "semaphore_acquire": no_lease,
        "multi_lock_acquire": no_lock,
    }
    for name, left in after.items():
        stock = handlers.get(name)
        if stock is not None and not isinstance(getattr(stock, "__self__", None), _Waiting):
            # Without Dask's decorator, which prints a page for whatever is ended.
            plain = MethodType(inspect.unwrap(stock.__func__), stock.__self__)
            handlers[name] = _Waiting(plain, left).answer


def _nothing(**_: Any) -> None:
    pass


class _Waiting:
    """One handler that may wait.

    :param left: puts right what the handler does not where it is ended half way.
    """

    def __init__(self, stock: Callable[..., Any], left: Callable[..., None]) -> None:
        self._stock = stock
        self._left = left

    async def answer(self, comm: Any, **request: Any) -> Any:
        task = asyncio.ensure_future(self._stock(**request))
        try:
            while not (await asyncio.wait([task], timeout=_SECONDS))[0]:
                if comm.closed():
                    return Status.dont_reply
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
                if task.cancelled():
                    self._left(**request)

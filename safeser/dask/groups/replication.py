"""End a request to copy values, with the reason, where a worker repeatedly fails to take one.

The one rule: a worker that failed to take a value three times for one request is asked for it no
more, and the request for the copies fails.

In distributed 2026.8.0 ``Scheduler.replicate`` asks again at once, for ever, as long as a copy is
missing, and every other request to copy or to move values waits for it: one value that policy lets
no worker pass on, one worker that says it failed, or one that is lost meanwhile, held up all of
``replicate``, ``rebalance`` and ``scatter(broadcast=True)``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

__all__ = ["copied", "count_failures"]

#: Times that one worker is asked to take one value, and seconds before it is asked again.
ATTEMPTS = 3
_PAUSE = 0.1

#: Characters of a key that the error shows: its submitter chose it.
_SHOWN = 60

#: How often each worker failed to take each value, for the request that is served in this context.
_failed: ContextVar[Counter[tuple[str, Any]] | None] = ContextVar("safeser-copies", default=None)


async def count_failures(scheduler: Any, address: str, failed: set[Any]) -> None:
    """Record which values the worker at *address* *failed* to take for the request that is served.

    :raises RuntimeError: if it has failed to take one of them too often.
    """
    counted = _failed.get()
    # Dask leaves out keys that were forgotten meanwhile.
    there = [key for key in failed if key in scheduler.tasks]
    if counted is None or not there:
        return
    counted.update((address, key) for key in there)
    often = [key for key in there if counted[address, key] >= ATTEMPTS]
    if often:
        raise RuntimeError(
            f"{str(often[0])[:_SHOWN]!r} could not be copied to {address} in"
            f" {ATTEMPTS} attempts; the log of that worker says why"
        )
    await asyncio.sleep(_PAUSE)


async def copied(replicate: Callable[..., Awaitable[Any]], **request: Any) -> Any:
    """Do what ``Scheduler.replicate``, *replicate*, does, and count failures meanwhile."""
    token = _failed.set(Counter())
    try:
        return await replicate(**request)
    finally:
        _failed.reset(token)

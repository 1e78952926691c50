"""Progress bars for clients that may send the scheduler no function, as Dask's bars do.

The one rule: such a bar sends no request. It counts the futures that its own client holds, whose
states the scheduler reports anyway; tasks behind them are not counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import dask.utils

from safeser.dask.patches.patch import Patch

__all__ = ["ROWS"]

_Listen = Callable[[Any], Awaitable[None]]


def _may_feed(client: Any) -> bool:
    """Tell whether the scheduler of *client* would run a function for it; Dask's own asks it."""
    asked: Callable[[], bool] | None = getattr(client, "_may_feed", None)
    return asked is None or asked()


def _listening(states: Callable[[Any, Any], dict[str, Any]], asks: _Listen) -> _Listen:
    """Return what replaces a bar's ``listen``, by *states*, which counts a client's own futures."""

    async def listen(bar: Any) -> None:
        client = bar.client() if bar.client else None
        if client is None or _may_feed(client):
            await asks(bar)
            return
        interval = dask.utils.parse_timedelta(bar.interval)
        while True:
            found = states(bar, client)
            bar._last_response, bar.status = found, found["status"]
            bar._draw_bar(**found)
            if found["status"] != "running":
                bar._draw_stop(**found)
                return
            await asyncio.sleep(interval)

    return listen


def _all_of(bar: Any, client: Any) -> dict[str, Any]:
    waiting, status = _waiting(bar, client)
    return {"all": len(bar.keys), "remaining": len(waiting), **status}


def _by_group(bar: Any, client: Any) -> dict[str, Any]:
    waiting, status = _waiting(bar, client)
    total = Counter(map(bar.group_by, bar.keys))
    left = Counter(map(bar.group_by, waiting))
    return {"all": dict(total), "remaining": {name: left[name] for name in total}, **status}


def _waiting(bar: Any, client: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the keys that are still awaited, and how far the whole is."""
    states = {key: client.futures.get(key) for key in bar.keys}
    waiting = [key for key, state in states.items() if _status(state) == "pending"]
    failed = [state for state in states.values() if _status(state) == "error"]
    if failed:
        return waiting, {"status": "error", "exception": failed[0].exception}
    return waiting, {"status": "running" if waiting else "finished"}


def _status(state: Any) -> str | None:
    """Return the state of a future's key; None for a future that the client released."""
    return getattr(state, "status", None)


_BARS = "distributed.diagnostics.progressbar"

ROWS = tuple(
    Patch(
        target=f"{_BARS}:{name}.listen",
        reason="A progress bar has the scheduler run a function, which not every principal may.",
        process=("client",),
        needed=False,
        replace=partial(_listening, states),
    )
    for name, states in (("ProgressBar", _all_of), ("MultiProgressBar", _by_group))
)

"""Progress bars for clients that may not hand the scheduler a function, as Dask's do.

The one rule: such a bar asks nobody. It counts the futures that its own client holds, whose states
the scheduler reports anyway; tasks behind them are not counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import dask.utils
from distributed.diagnostics.progressbar import MultiProgressBar, ProgressBar

__all__ = ["count_own_futures"]

_Listen = Callable[[Any], Awaitable[None]]


def count_own_futures(may_feed: Callable[[Any], bool]) -> None:
    """Let Dask's bars count by themselves for clients that *may_feed* says no of; once is enough.

    :param may_feed: tells of a bar's client whether the scheduler would run a function for it.
    """
    for cls, states in ((ProgressBar, _all_of), (MultiProgressBar, _by_group)):
        if not hasattr(cls.listen, "without"):
            cls.listen = _listening(cls.listen, states, may_feed)


def _listening(
    asks: _Listen, states: Callable[[Any, Any], dict[str, Any]], may_feed: Callable[[Any], bool]
) -> _Listen:
    async def listen(bar: Any) -> None:
        client = bar.client() if bar.client else None
        if client is None or may_feed(client):
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

    listen.without = asks  # type: ignore[attr-defined]  # tells that it stands in Dask's place
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
    """Return the state of a future's key; one that the client let go of is awaited by nobody."""
    return getattr(state, "status", None)

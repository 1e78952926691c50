"""Progress bars for clients that may send the scheduler no function, as Dask's bars do.

The one rule: such a bar sends no request. It counts the futures that its own client holds, whose
states the scheduler reports anyway; tasks behind them are not counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import dask.utils
from distributed.diagnostics.progressbar import MultiProgressBar

__all__ = ["listen"]


async def listen(stock: Callable[[], Awaitable[None]], bar: Any) -> None:
    """Draw *bar* until all of its futures are done: as *stock*, where a function may be sent."""
    client = bar.client() if bar.client else None
    # Of Dask's own client, whose scheduler runs any function, nothing is asked.
    if client is None or getattr(client, "_may_feed", lambda: True)():
        await stock()
        return
    interval = dask.utils.parse_timedelta(bar.interval)
    while True:
        found = _counted(bar, client)
        bar._last_response, bar.status = found, found["status"]
        bar._draw_bar(**found)
        if found["status"] != "running":
            bar._draw_stop(**found)
            return
        await asyncio.sleep(interval)


def _counted(bar: Any, client: Any) -> dict[str, Any]:
    """Return what *bar* draws of the futures of *client*."""
    # Of a future that the client released there is no state.
    states = {key: client.futures[key] for key in bar.keys if key in client.futures}
    waiting = [key for key, state in states.items() if state.status == "pending"]
    found = {"status": "running" if waiting else "finished"}
    for state in states.values():
        if state.status == "error":
            found = {"status": "error", "exception": state.exception}
            break
    if not isinstance(bar, MultiProgressBar):
        return {"all": len(bar.keys), "remaining": len(waiting), **found}
    total, left = (Counter(map(bar.group_by, keys)) for keys in (bar.keys, waiting))
    return {"all": dict(total), "remaining": {name: left[name] for name in total}, **found}

"""Profiles that fit into a message: calls below a depth are left out.

The one rule: a profile has as many levels as ``limits.max_depth`` lets a message have. Each call
takes two of them, and a deeper profile is refused whole, for each client that asks.
"""

from __future__ import annotations

import inspect
from typing import Any

from safeser.values import Limits

__all__ = ["cut_profiles"]


def cut_profiles(server: Any, limits: Limits) -> None:
    """Have *server*, a scheduler or a worker, answer with profiles that can be sent; once."""
    handlers = getattr(server, "handlers", {})
    stock = handlers.get("profile")
    if stock is None or hasattr(stock, "__wrapped__"):
        return
    # A node, and its children; one level may stand around them all.
    levels = (limits.max_depth - 2) // 2

    async def profile(**asked: Any) -> Any:
        told = stock(**asked)
        told = await told if inspect.isawaitable(told) else told
        if asked.get("merge_workers", True):
            return _cut(told, levels)
        return {worker: _cut(each, levels) for worker, each in told.items()}

    profile.__wrapped__ = stock  # type: ignore[attr-defined]  # whose arguments Dask looks at
    handlers["profile"] = profile


def _cut(profile: dict[str, Any], levels: int) -> dict[str, Any]:
    """Return *profile* without the calls below *levels*; their time counts as their callers'."""
    whole = {**profile}
    row = [whole]
    for level in range(levels):
        below = []
        for node in row:
            last = level == levels - 1
            node["children"] = {} if last else {k: {**v} for k, v in node["children"].items()}
            below += node["children"].values()
        row = below
    return whole

"""Profiles that fit into a message: calls below a depth are left out.

The one rule: a profile has as many levels as ``limits.max_depth`` lets a message have. Each call
takes two of them, and a deeper profile is refused whole, for each client that asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from safeser.gate.values import Limits

__all__ = ["cut_profile"]


async def cut_profile(limits: Limits, stock: Callable[..., Any], asked: Mapping[str, Any]) -> Any:
    """Answer the request *asked* as ``get_profile``, *stock*, with profiles that can be sent."""
    # A node, and its children; one level may stand around them all.
    levels = (limits.max_depth - 2) // 2
    told = await stock(**asked)
    if asked.get("merge_workers", True):
        return _cut(told, levels)
    return {worker: _cut(each, levels) for worker, each in told.items()}


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

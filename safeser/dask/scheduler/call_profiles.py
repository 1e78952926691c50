"""Profiles that fit into a message: calls below a depth are left out.

The one rule: a profile has as many levels as ``limits.max_depth`` lets a message have. Each call
takes two of them, and a deeper profile is refused whole, for each client that asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from safeser.dask.servers import Part

__all__ = ["Profiles"]


class Profiles(Part):
    """The profiles that one server hands out."""

    async def get_profile(
        self, stock: Callable[..., Awaitable[Any]], comm: Any, *args: Any, **asked: Any
    ) -> Any:
        """Answer as *stock* does, a peer with profiles that can be sent."""
        told = await stock(*args, **asked)
        if comm is None:
            return told
        # A node, and its children; one level may stand around them all.
        levels = (self._known.channel.policy.limits.max_depth - 2) // 2
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

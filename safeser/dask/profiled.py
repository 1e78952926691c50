"""Profiles and call stacks: in which functions tasks spend their time, where somebody looks at it.

The one rule: what a scheduler makes of it is as large as what it knows by itself, its tasks, their
names and a while of time, however many workers say what.

Dask's scheduler makes a list for each name at each time that any worker told it of (distributed
2026.8.0, ``Scheduler.get_profile_metadata``, for a page of the dashboard): a hundred kilobytes of
both took two gigabytes, and everybody waited. A profile has two levels of nesting for each call
that it has seen, and one that is nested deeper than messages may be was not sent at all. Asked
for the call stacks of a task that waits (``Scheduler.get_call_stack``), it looks at what that waits
for once for each way that leads there: for forty levels of two tasks, for days.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Collection, Iterable
from time import time
from typing import Any

import dask.config
from dask.utils import parse_timedelta
from distributed import Scheduler

from safeser.values import Limits

__all__ = ["bound_profiles"]

#: As far as clocks differ, in seconds.
_AHEAD = 60


def bound_profiles(server: Any, limits: Limits) -> None:
    """Have *server*, a scheduler or a worker, tell profiles that can be sent; once is enough."""
    handlers = getattr(server, "handlers", {})
    stock = handlers.get("profile")
    if stock is None or hasattr(stock, "__wrapped__"):
        return
    # A node, and what is in it; one level may stand around them all.
    levels = (limits.max_depth - 2) // 2

    async def profile(**asked: Any) -> Any:
        told = stock(**asked)
        told = await told if inspect.isawaitable(told) else told
        if asked.get("merge_workers", True):
            return _cut(told, levels)
        return {worker: _cut(each, levels) for worker, each in told.items()}

    profile.__wrapped__ = stock  # type: ignore[attr-defined]  # whose arguments Dask looks at
    handlers["profile"] = profile
    if isinstance(server, Scheduler):
        _bound_times(server)
        _visit_once(server)


def _visit_once(scheduler: Any) -> None:
    stock, tasks = scheduler.get_call_stack, scheduler.tasks

    async def get_call_stack(keys: Iterable[Any] | None = None) -> dict[str, Any]:
        if keys is not None:
            seen = set(keys)
            ahead, keys = list(seen), []
            while ahead:
                task = tasks[ahead.pop()]
                if task.state == "processing":
                    keys.append(task.key)
                elif task.state == "waiting":
                    needed = {each.key for each in task.dependencies} - seen
                    seen |= needed
                    ahead += needed
        told: dict[str, Any] = await stock(keys=keys)
        return told

    scheduler.get_call_stack = scheduler.handlers["call_stack"] = get_call_stack


def _cut(profile: dict[str, Any], levels: int) -> dict[str, Any]:
    """Return *profile* without the calls below *levels*; their time is in what called them."""
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


def _bound_times(scheduler: Any) -> None:
    async def get_profile_metadata(
        workers: Iterable[str] | None = None,
        start: float = 0,
        stop: float | None = None,
        profile_cycle_interval: str | float | None = None,
    ) -> dict[str, Any]:
        asked = set(scheduler.workers if workers is None else workers) & set(scheduler.workers)
        answers = await asyncio.gather(
            *(scheduler.rpc(each).profile_metadata(start=start, stop=stop) for each in asked),
            return_exceptions=True,
        )
        cycle = profile_cycle_interval or dask.config.get("distributed.worker.profile.cycle")
        told = [each for each in answers if not isinstance(each, BaseException)]
        return _together(told, scheduler.task_prefixes, parse_timedelta(cycle, default="ms"))

    scheduler.get_profile_metadata = get_profile_metadata


def _together(
    answers: Iterable[Any], names: Collection[str], cycle: float
) -> dict[str, list[Any] | dict[str, list[list[Any]]]]:
    """Return what all workers say in the form of Dask's own, of *names* and the latest times."""
    now = time()
    # So many times a worker keeps.
    kept = dask.config.get("distributed.admin.low-level-log-length")
    oldest = now - (kept + 1) * cycle
    counts: Counter[float] = Counter()
    told: Counter[tuple[str, float]] = Counter()
    for answer in answers:
        for at, count in answer["counts"]:
            if oldest <= at <= now + _AHEAD:
                counts[at // cycle * cycle] += count
        for at, by_name in answer["keys"]:
            if oldest <= at <= now + _AHEAD:
                tick = at // cycle * cycle
                told.update({(name, tick): by_name[name] for name in by_name if name in names})
    ticks = sorted({tick for _, tick in told})
    return {
        "counts": sorted(counts.items()),
        "keys": {
            name: [[tick, told[name, tick]] for tick in ticks] for name in {n for n, _ in told}
        },
    }

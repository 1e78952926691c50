"""Trying failed tasks again: those that failed, and nothing else.

The one rule: whatever has a result, or is about to, is left as it is by whoever asks to retry it.

Dask's scheduler releases and computes anew whatever key it is told, anybody's: data that somebody
scattered is lost by that, and futures of it are cancelled. It also looks at a task once for each
way that leads to it, so that forty failed levels of two tasks that both need both of the level
before kept it busy for hours (distributed 2026.8.0).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from distributed.scheduler import Scheduler

__all__ = ["retry_what_failed"]


def retry_what_failed(scheduler: Any) -> None:
    """Have *scheduler* retry failed tasks alone; calling it again changes nothing."""
    if not isinstance(scheduler, Scheduler) or "stimulus_retry" in vars(scheduler):
        return
    stock, tasks = scheduler.stimulus_retry, scheduler.tasks

    def retry(keys: Collection[Any], client: str | None = None) -> tuple[Any, ...]:
        failed = {key for key in keys if _has_failed(tasks.get(key))}
        first, seen, ahead = [], set(failed), list(failed)
        while ahead:
            key = ahead.pop()
            needed = [each.key for each in tasks[key].dependencies if _has_failed(each)]
            if not needed:
                first.append(key)
            ahead += [each for each in needed if each not in seen]
            seen.update(needed)
        stock(first, client)
        # Dask's client looks for a future of each of them, and has those that it named.
        return tuple(failed)

    scheduler.stimulus_retry = scheduler.handlers["retry"] = retry


def _has_failed(task: Any) -> bool:
    return task is not None and task.state == "erred"

"""Retiring a worker that holds what no other worker may have: it ends, and says why.

The one rule: a worker that was asked to take a value and failed to is not asked again for that
retirement; where nobody is left to ask, Dask's own way out is taken. The worker goes on as before,
``retire_workers`` does not name it among those that it retired, and the log says which value it is.

In distributed 2026.8.0 ``RetireWorker`` asks the same workers for the same values every two
seconds. That one of them cannot take a value is reported as a failed task, which the scheduler
ignores for a task that it knows to be done; so with a value that policy lets no worker pass on,
``retire_workers`` would never return.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from distributed import scheduler as dask_scheduler
from distributed.active_memory_manager import RetireWorker, Suggestion

__all__ = ["end_retirements"]

logger = logging.getLogger("safeser.dask")

#: As many workers are asked to take one value. They are asked one after the other, two seconds
#: apart, and most clusters' workers are one principal, to which policy says the same each time.
ATTEMPTS = 3

#: As much of a key and of a reason as the log shows; whoever made them chose them.
_SHOWN = 300


class Retirement(RetireWorker):  # type: ignore[misc]  # distributed ships no types
    """Moves one worker's values away as Dask does, but asks nobody twice who failed to take one."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        _retirements.add(self)
        self._asked: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
        self._failed: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    def run(self) -> Generator[Suggestion, Any, None]:
        """Suggest what Dask suggests, to those who are left."""
        running = self.manager.scheduler.running
        suggestions = super().run()
        chosen = None
        while True:
            try:
                suggestion = suggestions.send(chosen)
            except StopIteration:
                return
            task = suggestion.ts
            failed = self._failed.get(task)
            if suggestion.op == "replicate" and failed:
                left = {each for each in running if each.address not in failed}
                suggestion = suggestion._replace(
                    candidates=left if len(failed) < ATTEMPTS else set()
                )
            chosen = yield suggestion
            if suggestion.op == "replicate" and chosen is not None:
                self._asked.setdefault(task, set()).add(chosen.address)

    def note(self, task: Any, worker: str, reason: object) -> None:
        """Take note that *worker* failed to take the value of *task*, if it was asked to."""
        if worker in self._asked.get(task, ()):
            self._failed.setdefault(task, set()).add(worker)
            logger.warning(
                "%s cannot be moved from %s, which is to retire, to %s: %s",
                str(task.key)[:_SHOWN],
                self.address,
                worker,
                str(reason)[:_SHOWN],
            )


#: All that are under way, or were until lately, of whatever scheduler in this process.
_retirements: WeakSet[Retirement] = WeakSet()


def _under_way(scheduler: Any) -> Iterator[Retirement]:
    for policy in tuple(_retirements):
        manager = getattr(policy, "manager", None)
        if manager is not None and manager.scheduler is scheduler and policy in manager.policies:
            yield policy


class _Reports:
    """Hears, in the place of one scheduler's handler, that a worker has failed to get a value."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._handle = scheduler.stream_handlers["task-erred"]

    def __call__(self, key: Any, worker: str, **report: Any) -> Any:
        task = self._scheduler.tasks.get(key)
        if task is not None and task.state == "memory":
            for policy in _under_way(self._scheduler):
                policy.note(task, worker, report.get("exception_text"))
        return self._handle(key=key, worker=worker, **report)


def end_retirements(scheduler: Any) -> None:
    """Have retirements at *scheduler* end; calling it again changes nothing."""
    if not isinstance(scheduler, dask_scheduler.Scheduler):
        return
    dask_scheduler.RetireWorker = Retirement
    if not isinstance(scheduler.stream_handlers["task-erred"], _Reports):
        scheduler.stream_handlers["task-erred"] = _Reports(scheduler)

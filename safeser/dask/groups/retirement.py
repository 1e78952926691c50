"""End the retirement of a worker that holds values which no other worker may have.

The one rule: a worker that was asked to take a value and failed to, or took nothing for a minute,
is not asked again for that retirement, and the active memory manager cannot be stopped meanwhile.
Where no worker is left to ask, Dask's own way out is taken. The worker goes on as before,
``retire_workers`` does not name it among those that it retired, and the log says which value it is.

In distributed 2026.8.0 ``RetireWorker`` asks the same workers for the same values every two
seconds. That one of them cannot take a value is reported as a failed task, which the scheduler
ignores for a task that it knows to be done; so with a value that policy lets no worker pass on,
``retire_workers`` would never return. Nor would it if one worker says nothing: the one that reports
the least memory is asked. Everything else that moves values waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from distributed.active_memory_manager import RetireWorker, Suggestion

from safeser.dask.servers import served

__all__ = ["Retirement", "note_failure", "require_no_retirement"]

logger = logging.getLogger("safeser.dask")

#: Workers that are asked to take one value. They are asked one after the other, two seconds apart,
#: and in most clusters all workers are one principal, for which the policy answers alike.
ATTEMPTS = 3

#: Seconds in which a worker that was asked to take values may take none, beside the time of the
#: transfer at the slowest rate, in bytes per second; workers report the sizes of values.
PATIENCE = 60.0
_SLOWEST = 1_000_000
_LONGEST = 3600.0

#: Characters of a key and of a reason that the log shows: submitter and worker chose them.
_SHOWN = 300


class Retirement(RetireWorker):  # type: ignore[misc]  # distributed ships no types
    """Moves one worker's values away as Dask does, but asks no worker again that failed to."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        _retirements.add(self)
        self._asked: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
        self._failed: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
        #: Since when each of those that were asked has taken nothing.
        self._idle: dict[str, float] = {}

    def run(self) -> Generator[Suggestion, Any, None]:
        """Suggest what Dask suggests, to the workers that may still be asked."""
        if served(self.manager.scheduler) is None:
            yield from super().run()
            return
        running = self.manager.scheduler.running
        now = monotonic()
        self._give_up(now)
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
                self._idle.setdefault(chosen.address, now)

    def _give_up(self, now: float) -> None:
        """Record workers that were asked for values and no longer take any."""
        for task, asked in self._asked.items():
            took = asked & {state.address for state in task.who_has or ()}
            asked.difference_update(took)
            self._idle |= dict.fromkeys(took, now)
        waited_for = set()
        for task, asked in self._asked.items():
            needed = PATIENCE + min(task.nbytes / _SLOWEST, _LONGEST)
            for address in asked - self._failed.get(task, set()):
                waited_for.add(address)
                if now - self._idle[address] > needed:
                    self.note(task, address, "it takes no value, and reports no failure")
        for address in self._idle.keys() - waited_for:
            del self._idle[address]

    def note(self, task: Any, worker: str, reason: object) -> None:
        """Record that *worker* failed to take the value of *task*, if it was asked to."""
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


def _running_retirements(scheduler: Any) -> Iterator[Retirement]:
    for policy in tuple(_retirements):
        manager = getattr(policy, "manager", None)
        if manager is not None and manager.scheduler is scheduler and policy in manager.policies:
            yield policy


def note_failure(scheduler: Any, key: Any, worker: str, report: Mapping[str, Any]) -> None:
    """Record the *report* that *worker* has failed to get the value of *key*, which is there."""
    task = scheduler.tasks.get(key)
    if task is not None and task.state == "memory":
        for policy in _running_retirements(scheduler):
            policy.note(task, worker, report.get("exception_text"))


def require_no_retirement(scheduler: Any) -> None:
    """Raise RuntimeError while a retirement at *scheduler* waits for what moves values."""
    manager = scheduler.extensions["amm"]
    if any(each.manager is manager for each in _running_retirements(scheduler)):
        raise RuntimeError("workers retire, which needs the active memory manager until then")

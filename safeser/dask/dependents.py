"""Failing the tasks that wait on a worker for a value which could not be brought there.

The one rule: whoever waits is told why. In distributed 2026.8.0 a worker that fails to fetch a
dependency, for any reason but the network, reports the dependency alone; the scheduler, which knows
that it exists, ignores that, and the dependent task waits for ever (distributed issue 6705).
"""

from __future__ import annotations

from typing import Any

from distributed.worker_state_machine import FreeKeysEvent, TaskErredMsg

__all__ = ["fail_dependents"]

_NAME = "safeser-dependents"


def fail_dependents(worker: Any) -> None:
    """Have *worker* report, as failed, each task whose dependency failed to arrive."""
    plugins = getattr(worker, "plugins", None)
    if isinstance(plugins, dict):
        plugins[_NAME] = _Dependents(worker)


class _Dependents:
    """Looks at the transitions of one worker, as Dask's worker plugins do."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        if start == "flight" and finish == "error":
            # Not at once: the worker is in the middle of its transitions.
            self._worker.loop.add_callback(self._fail, key)

    def _fail(self, key: Any) -> None:
        worker = self._worker
        task = worker.state.tasks.get(key)
        if task is None or task.state != "error":
            return
        waiting = [one for one in task.dependents if one.state == "waiting"]
        for one in waiting:
            message = TaskErredMsg(
                key=one.key,
                run_id=one.run_id,
                exception=task.exception,
                traceback=task.traceback,
                exception_text=task.exception_text,
                traceback_text=task.traceback_text,
                thread=None,
                startstops=[],
                stimulus_id=_NAME,
            )
            worker.batched_send(message.to_dict())
        if waiting:
            keys = [one.key for one in waiting]
            worker.handle_stimulus(FreeKeysEvent(keys=keys, stimulus_id=_NAME))

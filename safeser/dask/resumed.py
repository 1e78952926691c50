"""What a worker computed for a key that has come to name another task meanwhile.

The one rule: what the scheduler says is fetched or computed, and nothing stands in for it. A
task that is cancelled runs on to its end, and its key is free as soon as the scheduler forgets it.
If a task that gets the key then is computed by another worker, and needed by this one, Dask takes
what the cancelled one gives, which its submitter chose, and offers it to others. Likewise a value
that was being fetched stands in for a task of its key that this worker is to compute
(distributed 2026.8.0).
"""

from __future__ import annotations

from typing import Any

from distributed.worker import Worker
from distributed.worker_state_machine import (
    ExecuteSuccessEvent,
    GatherDepSuccessEvent,
    RescheduleEvent,
)

__all__ = ["fetch_what_was_cancelled"]


def fetch_what_was_cancelled(worker: Any) -> None:
    """Have *worker* fetch what it is told to fetch; to be called before it listens."""
    if isinstance(worker, Worker):
        worker.handle_stimulus = _Stimuli(worker)


class _Stimuli:
    def __init__(self, worker: Any) -> None:
        self._handle = worker.handle_stimulus
        self._state = worker.state

    def __call__(self, *events: Any) -> None:
        self._handle(*map(self._true, events))

    def _true(self, event: Any) -> Any:
        if isinstance(event, ExecuteSuccessEvent) and self._is_resumed(event.key):
            # As if it had asked to be computed elsewhere: then Dask goes on to fetch it.
            return RescheduleEvent(key=event.key, stimulus_id=event.stimulus_id)
        if isinstance(event, GatherDepSuccessEvent):
            left = {key for key in event.data if self._is_resumed(key)}
            if left:
                # What is missing of an answer, Dask goes on to compute if it was told to.
                data = {key: value for key, value in event.data.items() if key not in left}
                return type(event)(  # there is one of fetched.py's own
                    worker=event.worker,
                    total_nbytes=event.total_nbytes,
                    data=data,
                    stimulus_id=event.stimulus_id,
                )
        return event

    def _is_resumed(self, key: Any) -> bool:
        task = self._state.tasks.get(key)
        return task is not None and task.state == "resumed"

"""What a worker computed for a key that has come to name another task meanwhile.

The one rule: what the scheduler says is fetched or computed, and nothing stands in for it. A
task that is cancelled runs on to its end, and its key is free as soon as the scheduler forgets it.
If a task that gets the key then is computed by another worker, and needed by this one, Dask takes
what the cancelled one gives, which its submitter chose, and offers it to others. Likewise a value
that was being fetched stands in for a task of its key that this worker is to compute, or for the
one that it is to fetch by then (distributed 2026.8.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distributed.worker import Worker
from distributed.worker_state_machine import (
    CancelComputeEvent,
    ExecuteSuccessEvent,
    FreeKeysEvent,
    GatherDepDoneEvent,
    GatherDepSuccessEvent,
    RescheduleEvent,
    StealRequestEvent,
)

__all__ = ["fetch_what_was_cancelled"]


def fetch_what_was_cancelled(worker: Any) -> None:
    """Have *worker* fetch what it is told to fetch; to be called before it listens."""
    if isinstance(worker, Worker):
        worker.handle_stimulus = _Stimuli(worker)


#: What releases tasks, and so what they need: of keys, or of one.
_RELEASES = (FreeKeysEvent, StealRequestEvent, CancelComputeEvent)


class _Stimuli:
    def __init__(self, worker: Any) -> None:
        self._handle = worker.handle_stimulus
        self._state = worker.state
        self._cancelled: set[Any] = set()  # keys of which old values are still on their way

    def __call__(self, *events: Any) -> None:
        for event in events:
            if isinstance(event, _RELEASES):
                fetched = list(self._fetched_for(event))
                self._handle(event)
                self._cancelled.update(task.key for task in fetched if task.state == "cancelled")
            else:
                self._handle(self._true(event))

    def _fetched_for(self, event: Any) -> Iterator[Any]:
        """Yield what is on its way here and may be needed no more after *event*."""
        for key in event.keys if isinstance(event, FreeKeysEvent) else (event.key,):
            task = self._state.tasks.get(key)
            if task is not None:
                yield from (each for each in (task, *task.dependencies) if each.state == "flight")

    def _true(self, event: Any) -> Any:
        """Return what *event* says of the tasks that keys name now."""
        if isinstance(event, ExecuteSuccessEvent) and self._is_resumed(event.key):
            # As if it had asked to be computed elsewhere: then Dask goes on to fetch it.
            return RescheduleEvent(key=event.key, stimulus_id=event.stimulus_id)
        if not isinstance(event, GatherDepDoneEvent):
            return event
        cancelled = self._cancelled.intersection(
            self._state.in_flight_workers.get(event.worker, ())
        )
        self._cancelled -= cancelled
        if not isinstance(event, GatherDepSuccessEvent):
            return event
        left = {key for key in event.data if key in cancelled or self._is_resumed(key)}
        if not left:
            return event
        # What is missing of an answer, Dask goes on to compute or to fetch if it was told to.
        data = {key: value for key, value in event.data.items() if key not in left}
        return type(event)(  # there is one of fetched.py's own
            worker=event.worker,
            total_nbytes=event.total_nbytes,
            data=data,
            stimulus_id=event.stimulus_id,
        )

    def _is_resumed(self, key: Any) -> bool:
        task = self._state.tasks.get(key)
        return task is not None and task.state == "resumed"

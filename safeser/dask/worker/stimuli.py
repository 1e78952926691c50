"""Correct the events about fetched and computed values before a worker's state handles them.

The one rule: a worker holds the value of the task that the scheduler means, and no former value of
the same key.

A task that is cancelled runs on to its end, and its key is free as soon as the scheduler forgets
it. If a task that gets the key then is computed by another worker, and needed by this one, Dask
takes what the cancelled one gives, which its submitter chose, and offers it to others. If this
worker is to compute that task, the cancelled one stands for it until it ends. Likewise a value that
was being fetched stands in for a task of its key that this worker is to compute, or for the one
that it is to fetch by then. And a copy that is still here when its key is another author's is
reported as the result of that author's task, or given to what depends on it (distributed 2026.8.0).

If a value is brought while it is fetched, and its key is forgotten before the transfer ends, Dask
raises KeyError and closes the worker; if the key is fetched anew by then, the former value arrives.
If a key changes hands after Dask decided to execute its task and before the coroutine begins, the
new task begins without its inputs, and fails.

A worker that fails to fetch a dependency, for any reason but the network, reports the dependency
alone; the scheduler, which knows that it exists, ignores that, and the dependent task waits for
ever (distributed issue 6705). So each task that waits for it is reported as failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from distributed.worker_state_machine import (
    AcquireReplicasEvent,
    CancelComputeEvent,
    ComputeTaskEvent,
    ExecuteFailureEvent,
    ExecuteSuccessEvent,
    FreeKeysEvent,
    GatherDepDoneEvent,
    GatherDepSuccessEvent,
    RescheduleEvent,
    StealRequestEvent,
    TaskErredMsg,
)

from safeser.dask.messages.author_statements import stated_by
from safeser.dask.messages.fetched import handle_partly_gathered, is_partly_gathered
from safeser.dask.servers import Part
from safeser.dask.worker.value_authors import Authors

__all__ = ["Stimuli", "handle_event"]

#: What releases tasks, and so what they need: of keys, or of one.
_RELEASES = (FreeKeysEvent, StealRequestEvent, CancelComputeEvent)

#: By these the scheduler states whose the values are.
_STATING = (ComputeTaskEvent, AcquireReplicasEvent)

#: How a task ends that ran.
_ENDS = (ExecuteSuccessEvent, ExecuteFailureEvent)

_DEPENDENTS = "safeser-dependents"
_FORMER = "safeser-former"

#: The authors of the values that a worker gathers for its scheduler in this context.
_gathered: ContextVar[Mapping[Any, str]] = ContextVar("safeser-gathered")


def handle_event(stock: Callable[[Any], Any], state: Any, event: Any) -> Any:
    """Handle *event* as the worker's *state* does, which knows none that brings values in part."""
    return handle_partly_gathered(state, event) if is_partly_gathered(event) else stock(event)


class Stimuli(Part):
    """Checks the events of one worker, and what it is brought, before its state handles them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._authors = self._known.part(self._server, Authors)
        self._cancelled: set[Any] = set()  # keys of which old values are still on their way

    def handle(self, stock: Callable[[Any], None], *events: Any) -> None:
        """Call ``Worker.handle_stimulus``, *stock*, with each of *events*, corrected."""
        for event in events:
            self._handle(stock, self._server, event)

    def _handle(self, stock: Callable[[Any], None], worker: Any, event: Any) -> None:
        if isinstance(event, _STATING):
            authors = stated_by(event)
            self.release_former(authors)
            stock(event)
            self._authors.note(authors)
        elif isinstance(event, _RELEASES):
            fetched = list(self._fetched_for(worker.state, event))
            stock(event)
            self._cancelled.update(task.key for task in fetched if task.state == "cancelled")
        elif isinstance(event, GatherDepDoneEvent):
            self._leave_out_gone(worker.state, event.worker)
            asked = worker.state.in_flight_workers.get(event.worker, ())
            flying = [key for key in asked if _state_of(worker.state, key) == "flight"]
            stock(self._fetched(worker.state, event))
            for key in flying:
                if _state_of(worker.state, key) == "error":
                    _fail_dependents(worker, worker.state.tasks[key])
        elif isinstance(event, _ENDS) and _is_stale(worker.state, event):
            # As if it had asked to be computed elsewhere: then Dask goes on to fetch it, or the
            # scheduler has the task computed that the key names now.
            stock(RescheduleEvent(key=event.key, stimulus_id=event.stimulus_id))
        else:
            stock(event)

    # --- values that are brought, not fetched for a task -----------------------------------------

    async def gather(
        self,
        stock: Callable[..., Awaitable[Any]],
        comm: Any,
        *args: Any,
        authors: Any = None,
        **request: Any,
    ) -> Any:
        """Fetch values as *stock* does: those of *authors*, by key, if the scheduler says so."""
        if comm is None:
            return await stock(*args, **request)
        known = self._authors
        said = authors if authors and self._known.is_scheduler(comm.link.peer) else {}
        self.release_former(said)
        known.note(said)
        token = _gathered.set(said)
        try:
            with known.wanted(said):
                reply = await stock(*args, **request)
        finally:
            _gathered.reset(token)
        # Meanwhile a key may have come to be another author's.
        late = known.of_others(said)
        known.note({key: author for key, author in said.items() if key not in late})
        if not late:
            return reply
        return {"status": "partial-fail", "keys": list({*late, *reply.get("keys", ())})}

    def update_data(
        self,
        stock: Callable[..., Any],
        comm: Any,
        data: Any,
        *args: Any,
        author: Any = None,
        **more: Any,
    ) -> Any:
        """Take *data* as *stock* does, if no other author holds their keys."""
        known = self._authors
        if comm is None:  # what this worker has gathered, or a task of it scatters
            former = known.of_others(_gathered.get({}))
            return stock({key: data[key] for key in data if key not in former}, *args, **more)
        link = comm.link
        if self._known.is_scheduler(link.peer):
            brought = {} if author is None else dict.fromkeys(data, author)
            self.release_former(brought)
        else:
            brought = dict.fromkeys(known.require_free(link, data), link.peer)
        said = stock(data, *args, **more)
        known.note(brought)
        return said

    def release_former(self, authors: Mapping[Any, str]) -> None:
        """Release what is here, or on its way, under keys that are of other *authors* by now."""
        worker, held = self._server, []
        for key in self._authors.of_others(authors):
            task = worker.state.tasks.get(key)
            if task is None:
                continue
            if task.state == "memory":
                held.append(key)
            elif "flight" in (task.state, task.previous):
                self._cancelled.add(key)
        if held:
            worker.handle_stimulus(FreeKeysEvent(keys=held, stimulus_id=_FORMER))

    @staticmethod
    def _fetched_for(state: Any, event: Any) -> Iterator[Any]:
        """Yield what is on its way here and may be needed no more after *event*."""
        for key in event.keys if isinstance(event, FreeKeysEvent) else (event.key,):
            task = state.tasks.get(key)
            if task is not None:
                yield from (each for each in (task, *task.dependencies) if each.state == "flight")

    def _leave_out_gone(self, state: Any, worker: str) -> None:
        """Leave out of the transfer from *worker* the keys whose tasks no longer wait for it."""
        asked = state.in_flight_workers.get(worker, ())
        gone = {key for key in asked if not _comes_from(state, key, worker)}
        if gone:
            state.in_flight_workers[worker] = asked - gone
            flying = state.in_flight_tasks
            self._cancelled -= {key for key in gone if state.tasks.get(key) not in flying}

    def _fetched(self, state: Any, event: Any) -> Any:
        """Return what *event*, the end of a transfer, says of the tasks that keys name now."""
        asked = set(state.in_flight_workers.get(event.worker, ()))
        cancelled = self._cancelled & asked
        self._cancelled -= cancelled
        if not isinstance(event, GatherDepSuccessEvent):
            return event
        # What was brought meanwhile stays: Dask would let go of it to fetch what is missing.
        here = {key for key in asked if _state_of(state, key) == "memory"}
        left = {key for key in event.data if key in cancelled or _is_resumed(state, key)} - here
        if not left and here <= event.data.keys():
            return event
        # What is missing of an answer, Dask goes on to compute or to fetch if it was told to.
        data = {key: value for key, value in event.data.items() if key not in left}
        data = {**dict.fromkeys(here), **data}
        return GatherDepSuccessEvent(
            worker=event.worker,
            total_nbytes=event.total_nbytes,
            data=data,
            stimulus_id=event.stimulus_id,
        )


def _state_of(state: Any, key: Any) -> str | None:
    task = state.tasks.get(key)
    return None if task is None else str(task.state)


def _is_resumed(state: Any, key: Any) -> bool:
    return _state_of(state, key) == "resumed"


def _comes_from(state: Any, key: Any, worker: str) -> bool:
    task = state.tasks.get(key)
    return task in state.in_flight_tasks and task.coming_from == worker


def _is_stale(state: Any, event: Any) -> bool:
    """Tell whether *event* ends the run of a former task of its key."""
    if _is_resumed(state, event.key):
        return isinstance(event, ExecuteSuccessEvent)  # a failure is not taken for what is fetched
    task = state.tasks.get(event.key)
    if task is None:
        return False
    lacks_inputs = isinstance(event, ExecuteFailureEvent) and any(
        each.key not in state.data and each.key not in state.actors for each in task.dependencies
    )
    return task.run_id != event.run_id or lacks_inputs


def _fail_dependents(worker: Any, failed: Any) -> None:
    """Report as failed each task on *worker* that waits for *failed*, which did not arrive."""
    waiting = [task for task in failed.dependents if task.state == "waiting"]
    for task in waiting:
        message = TaskErredMsg(
            key=task.key,
            run_id=task.run_id,
            exception=failed.exception,
            traceback=failed.traceback,
            exception_text=failed.exception_text,
            traceback_text=failed.traceback_text,
            thread=None,
            startstops=[],
            stimulus_id=_DEPENDENTS,
        )
        worker.batched_send(message.to_dict())
    if waiting:
        keys = [task.key for task in waiting]
        worker.handle_stimulus(FreeKeysEvent(keys=keys, stimulus_id=_DEPENDENTS))

"""What a worker fetches and computes for a key that names another task by then, or that fails."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from distributed.core import Status
from distributed.worker import Worker
from distributed.worker_state_machine import (
    CancelComputeEvent,
    ComputeTaskEvent,
    ExecuteFailureEvent,
    ExecuteSuccessEvent,
    FreeKeysEvent,
    GatherDepBusyEvent,
    GatherDepFailureEvent,
    GatherDepNetworkFailureEvent,
    GatherDepSuccessEvent,
    RetryBusyWorkerEvent,
    SecedeEvent,
    StealRequestEvent,
    UpdateDataEvent,
    WorkerState,
)

from safeser.operations import Server
from tests.dask.patched import serve, with_rows

ELSEWHERE = "safeser://127.0.0.1:2"


class Stated(Worker):
    """A worker that is nothing but its state."""

    def __init__(self, *, guarded: bool = True) -> None:
        self.state = WorkerState(nthreads=1, address="safeser://127.0.0.1:1")
        self.sent: list[Any] = []
        self.handled: list[Any] = []
        self.batched_send = self.sent.append
        if guarded:
            serve(self, Server.WORKER, SimpleNamespace())

    def __del__(self) -> None: ...

    def handle_stimulus(self, *events: Any) -> None:
        self.handled += events
        self.state.handle_stimulus(*events)


Bare = with_rows(Stated, "distributed.worker:Worker.handle_stimulus")


def computed(key: str, value: Any, run_id: int = 0) -> ExecuteSuccessEvent:
    return ExecuteSuccessEvent.dummy(key, value, run_id=run_id, stimulus_id="done")


def compute(key: str, **needs: Any) -> ComputeTaskEvent:
    return ComputeTaskEvent.dummy(key, stimulus_id="compute", **needs)


def fetched(source: str = ELSEWHERE, /, **values: Any) -> GatherDepSuccessEvent:
    return GatherDepSuccessEvent(
        worker=source, total_nbytes=len(values), data=values, stimulus_id="fetched"
    )


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_what_a_cancelled_task_gives_is_not_what_another_worker_has(guarded):
    worker = Bare(guarded=guarded)
    worker.handle_stimulus(compute("k"))
    worker.handle_stimulus(FreeKeysEvent(keys=["k"], stimulus_id="free"))
    worker.handle_stimulus(compute("uses", who_has={"k": [ELSEWHERE]}))
    assert worker.state.tasks["k"].state == "resumed"
    worker.handle_stimulus(computed("k", 666))
    assert ("k" in worker.state.data) is not guarded
    assert worker.state.tasks["k"].state == ("flight" if guarded else "memory")


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_what_was_being_fetched_is_not_what_is_to_be_computed(guarded):
    worker = Bare(guarded=guarded)
    worker.handle_stimulus(compute("uses", who_has={"k": [ELSEWHERE], "other": [ELSEWHERE]}))
    worker.handle_stimulus(FreeKeysEvent(keys=["uses"], stimulus_id="free"))
    worker.handle_stimulus(compute("k"))
    assert worker.state.tasks["k"].state == "resumed"
    worker.handle_stimulus(compute("more", who_has={"other": [ELSEWHERE]}))
    worker.handle_stimulus(fetched(k=666, other=1))
    assert ("k" in worker.state.data) is not guarded
    computes = {"ready", "executing"}  # one thread, and two tasks in the order of a set
    assert worker.state.tasks["k"].state in (computes if guarded else {"memory"})
    # This one may be another by now as well: the scheduler is asked once more who has it.
    assert worker.state.tasks["other"].state == ("missing" if guarded else "memory")


@pytest.mark.parametrize(
    "release",
    [
        FreeKeysEvent(keys=["unknown", "uses"], stimulus_id="free"),
        StealRequestEvent(key="uses", stimulus_id="steal"),
        CancelComputeEvent(key="uses", stimulus_id="cancel"),
    ],
    ids=["free", "steal", "cancel"],
)
@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_what_was_on_its_way_is_not_what_the_key_names_by_then(guarded, release):
    worker = Bare(guarded=guarded)
    worker.handle_stimulus(compute("uses", who_has={"k": [ELSEWHERE], "other": [ELSEWHERE]}))
    assert worker.state.tasks["k"].state == "flight"
    worker.handle_stimulus(release)
    assert worker.state.tasks["k"].state == "cancelled"
    third = "safeser://127.0.0.1:3"
    worker.handle_stimulus(compute("later", who_has={"k": [third]}))
    worker.handle_stimulus(fetched(k=666, other=1))
    assert ("k" in worker.state.data) is not guarded
    if guarded:
        assert worker.state.tasks["k"].coming_from == third
        worker.handle_stimulus(fetched(third, k=42))
        assert worker.state.data["k"] == 42


def test_what_failed_to_come_may_come_later():
    worker = Bare()
    for uses in ("uses", "later"):
        worker.handle_stimulus(compute(uses, who_has={"k": [ELSEWHERE]}))
        worker.handle_stimulus(FreeKeysEvent(keys=[uses], stimulus_id="free"))
    worker.handle_stimulus(
        GatherDepBusyEvent(worker=ELSEWHERE, total_nbytes=1, stimulus_id="busy"),
        RetryBusyWorkerEvent(worker=ELSEWHERE, stimulus_id="retry"),
        compute("last", who_has={"k": [ELSEWHERE]}),
        fetched(k=42),
    )
    assert worker.state.data["k"] == 42


# --- what fails to come ---------------------------------------------------------------------------


def failing() -> GatherDepFailureEvent:
    return GatherDepFailureEvent.from_exception(
        ValueError("why"), worker=ELSEWHERE, total_nbytes=1, stimulus_id="failed"
    )


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_tasks_that_wait_for_a_value_that_failed_to_arrive_fail(guarded):
    worker = Bare(guarded=guarded)
    worker.handle_stimulus(compute("waits", who_has={"k": [ELSEWHERE]}))
    worker.handle_stimulus(compute("runs"))
    run_id = worker.state.tasks["waits"].run_id
    worker.handle_stimulus(failing())
    assert ("waits" in worker.state.tasks) is not guarded
    assert "runs" in worker.state.tasks
    if guarded:
        [message] = worker.sent
        assert (message["op"], message["key"], message["run_id"]) == ("task-erred", "waits", run_id)
        assert "why" in message["exception_text"]


def test_what_comes_what_the_network_lost_and_what_nobody_waits_for_fails_nothing():
    worker = Bare()
    worker.handle_stimulus(compute("waits", who_has={"k": [ELSEWHERE]}))
    worker.handle_stimulus(LOST)
    assert worker.state.tasks["waits"].state == "waiting"
    worker.handle_stimulus(compute("more", who_has={"l": [ELSEWHERE]}))
    worker.handle_stimulus(fetched(l=1))
    assert "more" in worker.state.tasks
    worker.handle_stimulus(compute("again", who_has={"m": [ELSEWHERE]}))
    worker.handle_stimulus(FreeKeysEvent(keys=["again"], stimulus_id="free"))
    worker.handle_stimulus(failing())
    assert worker.sent == []


# --- a task that runs while its key is given to another one --------------------------------------

ENDS = {
    "result": computed("k", "a secret", run_id=1),
    "error": ExecuteFailureEvent.dummy("k", run_id=1, stimulus_id="done"),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("guarded", "secedes"), [(False, False), (True, False), (True, True)])
def test_what_a_released_task_gives_is_not_of_the_task_that_has_its_key_now(guarded, secedes, end):
    worker = Bare(guarded=guarded)
    worker.handle_stimulus(compute("k", run_id=1))
    if secedes:  # it left its thread
        worker.handle_stimulus(SecedeEvent(key="k", compute_duration=1.0, stimulus_id="secede"))
    worker.handle_stimulus(FreeKeysEvent(keys=["k"], stimulus_id="release"))
    worker.handle_stimulus(compute("k", run_id=2))
    # Dask does not begin again.
    assert worker.state.tasks["k"].state == ("long-running" if secedes else "executing")
    worker.handle_stimulus(ENDS[end])
    if guarded:
        # The scheduler, which hears of it, has it computed.
        assert "k" not in worker.state.tasks
        assert "k" not in worker.state.data
    else:
        assert worker.state.tasks["k"].state == {"result": "memory", "error": "error"}[end]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("again", [False, True])
def test_what_a_released_task_gives_is_forgotten_if_its_key_is_not_needed(again, end):
    worker = Bare()
    for run_id in (1, 2) if again else (1,):
        worker.handle_stimulus(compute("k", run_id=run_id))
        worker.handle_stimulus(FreeKeysEvent(keys=["k"], stimulus_id="release"))
    assert worker.state.tasks["k"].state == "cancelled"
    worker.handle_stimulus(ENDS[end])
    assert "k" not in worker.state.tasks


# --- a transfer that ends when its key is forgotten, or is another transfer's ---------------------

LOST = GatherDepNetworkFailureEvent(worker=ELSEWHERE, total_nbytes=1, stimulus_id="lost")
BUSY = GatherDepBusyEvent(worker=ELSEWHERE, total_nbytes=1, stimulus_id="busy")
TRANSFERS = {"arrives": fetched(k=666), "failed": failing(), "lost": LOST, "busy": BUSY}
THIRD = "safeser://127.0.0.1:3"


def forgotten_on_its_way(*, guarded: bool = True) -> Bare:
    """Return a worker that fetches k, was brought k meanwhile, and was told to forget it."""
    worker = Bare(guarded=guarded)
    worker.handle_stimulus(compute("uses", who_has={"k": [ELSEWHERE]}))
    worker.handle_stimulus(UpdateDataEvent(data={"k": 42}, stimulus_id="brought"))
    worker.handle_stimulus(FreeKeysEvent(keys=["uses", "k"], stimulus_id="free"))
    return worker


@pytest.mark.parametrize("end", TRANSFERS)
def test_a_transfer_of_a_key_that_is_forgotten_ends(end):
    """Dask raises KeyError, and the worker closes."""
    with pytest.raises(KeyError):
        forgotten_on_its_way(guarded=False).handle_stimulus(TRANSFERS[end])
    worker = forgotten_on_its_way()
    worker.handle_stimulus(TRANSFERS[end])
    assert "k" not in worker.state.data
    assert not worker.state.in_flight_workers


@pytest.mark.parametrize(
    ("end", "source"), [*((end, THIRD) for end in TRANSFERS), ("arrives", ELSEWHERE)]
)
def test_a_former_transfer_ends_no_later_one(end, source):
    worker = forgotten_on_its_way()
    worker.handle_stimulus(compute("later", who_has={"k": [source]}))
    worker.handle_stimulus(TRANSFERS[end])
    assert worker.state.tasks["k"].state == "flight"
    worker.handle_stimulus(fetched(source, k=42))
    assert worker.state.data["k"] == 42


# --- a key that changes hands before its task begins ----------------------------------------------


class Executing(Stated):
    """A worker that executes what its state says, when it is told to begin."""

    status = Status.running
    data: ClassVar[Any] = {}  # type: ignore[misc]  # Dask's is a property of the class


def test_a_task_that_begins_under_a_key_without_its_inputs_runs_again():
    """Dask looks a task up by its key as its coroutine begins, and fails without its inputs."""
    worker = with_rows(Executing, "distributed.worker:Worker.handle_stimulus")()
    worker.handle_stimulus(compute("k", run_id=1))
    worker.handle_stimulus(FreeKeysEvent(keys=["k"], stimulus_id="release"))
    worker.handle_stimulus(compute("k", run_id=2, who_has={"input": [ELSEWHERE]}))
    end = asyncio.run(Worker.execute(worker, "k", stimulus_id="compute"))
    assert (type(end), end.run_id) == (ExecuteFailureEvent, 2)  # of the task that has the key now
    worker.handle_stimulus(end)
    assert "k" not in worker.state.tasks

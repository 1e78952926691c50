"""A cancelled task that still runs, and a key that names another one by then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from distributed.worker import Worker
from distributed.worker_state_machine import (
    CancelComputeEvent,
    ComputeTaskEvent,
    ExecuteSuccessEvent,
    FreeKeysEvent,
    GatherDepBusyEvent,
    GatherDepSuccessEvent,
    RetryBusyWorkerEvent,
    StealRequestEvent,
    WorkerState,
)

from safeser.dask.resumed import fetch_what_was_cancelled

ELSEWHERE = "safeser://127.0.0.1:2"


class Bare(Worker):
    def __init__(self) -> None:
        self.state = WorkerState(nthreads=1, address="safeser://127.0.0.1:1")

    def __del__(self) -> None: ...

    def handle_stimulus(self, *events: Any) -> None:
        self.state.handle_stimulus(*events)


def computed(key: str, value: Any) -> ExecuteSuccessEvent:
    return ExecuteSuccessEvent.dummy(key, value, run_id=1, stimulus_id="done")


def compute(key: str, **needs: Any) -> ComputeTaskEvent:
    return ComputeTaskEvent.dummy(key, stimulus_id="compute", **needs)


def fetched(**values: Any) -> GatherDepSuccessEvent:
    return GatherDepSuccessEvent(
        worker=ELSEWHERE, total_nbytes=len(values), data=values, stimulus_id="fetched"
    )


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_what_a_cancelled_task_gives_is_not_what_another_worker_has(guarded):
    worker = Bare()
    if guarded:
        fetch_what_was_cancelled(worker)
    worker.handle_stimulus(compute("k"))
    worker.handle_stimulus(FreeKeysEvent(keys=["k"], stimulus_id="free"))
    worker.handle_stimulus(compute("uses", who_has={"k": [ELSEWHERE]}))
    assert worker.state.tasks["k"].state == "resumed"
    worker.handle_stimulus(computed("k", 666))
    assert ("k" in worker.state.data) is not guarded
    assert worker.state.tasks["k"].state == ("flight" if guarded else "memory")


@pytest.mark.parametrize("resumed", [False, True])
def test_an_answer_stays_one_of_its_own_kind(resumed):
    class Own(GatherDepSuccessEvent):
        pass

    told: list[Any] = []
    worker = Bare()
    worker.handle_stimulus = lambda *events: told.extend(events)
    fetch_what_was_cancelled(worker)
    worker.state.tasks["k"] = SimpleNamespace(state="resumed" if resumed else "flight")
    event = Own(worker=ELSEWHERE, total_nbytes=2, data={"k": 1, "l": 2}, stimulus_id="x")
    worker.handle_stimulus(event)
    assert type(told[0]) is Own
    assert told[0].data == ({"l": 2} if resumed else {"k": 1, "l": 2})


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_what_was_being_fetched_is_not_what_is_to_be_computed(guarded):
    worker = Bare()
    if guarded:
        fetch_what_was_cancelled(worker)
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
    worker = Bare()
    if guarded:
        fetch_what_was_cancelled(worker)
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
        worker.handle_stimulus(
            GatherDepSuccessEvent(
                worker=third, total_nbytes=1, data={"k": 42}, stimulus_id="fetched"
            )
        )
        assert worker.state.data["k"] == 42


def test_what_failed_to_come_may_come_later():
    worker = Bare()
    fetch_what_was_cancelled(worker)
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


def test_what_is_computed_is_there_as_ever():
    worker = Bare()
    fetch_what_was_cancelled(worker)
    worker.handle_stimulus(compute("k"))
    worker.handle_stimulus(computed("k", 42))
    assert worker.state.data["k"] == 42


def test_only_a_worker_is_guarded():
    other = SimpleNamespace(handle_stimulus=None)
    fetch_what_was_cancelled(other)
    assert other.handle_stimulus is None

"""A cancelled task that still runs, and a key that names another one by then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from distributed.worker import Worker
from distributed.worker_state_machine import (
    ComputeTaskEvent,
    ExecuteSuccessEvent,
    FreeKeysEvent,
    GatherDepSuccessEvent,
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
    fetched = {"k": 666, "other": 1}
    worker.handle_stimulus(
        GatherDepSuccessEvent(worker=ELSEWHERE, total_nbytes=2, data=fetched, stimulus_id="fetched")
    )
    assert ("k" in worker.state.data) is not guarded
    computes = {"ready", "executing"}  # one thread, and two tasks in the order of a set
    assert worker.state.tasks["k"].state in (computes if guarded else {"memory"})
    assert worker.state.data["other"] == 1


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

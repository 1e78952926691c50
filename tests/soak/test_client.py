"""A client of the soak takes for a blow what one causes, and nothing else."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from distributed import KilledWorker
from distributed.comm.core import CommClosedError

from safeser.families.errors.failures import RemoteError
from tests.soak import preload
from tests.soak.client import inventory, is_cut_shuffle, judged


def caused(error, cause):
    error.__cause__ = cause
    return error


SHUFFLE = "P2P 1a6fea816f7a470d298736cac11c79aa failed during {} phase"
CLOSED = CommClosedError("in <SafeserComm>: Stream is closed")
AS_DATA = RemoteError("distributed.comm.core:CommClosedError: in <SafeserComm>: Stream is closed")


@pytest.mark.parametrize("phase", ["transfer", "barrier", "unpack"])
@pytest.mark.parametrize("cause", [CLOSED, AS_DATA, ConnectionRefusedError("no")])
def test_a_shuffle_that_was_cut_is_disturbed_by_what_fell_during_it(phase, cause):
    error = caused(RuntimeError(SHUFFLE.format(phase)), cause)
    assert is_cut_shuffle(error)
    assert judged(error) == "disturbed"


@pytest.mark.parametrize(
    "said",
    [
        "run_id=375 stale, got DataFrameShuffleRun<2cac[378]> on tcp://127.0.0.1:1",
        "P2PConsistencyError: No active shuffle with id='acbe92632282a695605317ae7e534aec' found",
    ],
)
def test_a_shuffle_that_was_begun_anew_is_disturbed(said):
    error = RuntimeError(said)
    assert is_cut_shuffle(error)
    assert judged(error) == "disturbed"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(SHUFFLE.format("barrier")),  # no reason
        caused(RuntimeError(SHUFFLE.format("barrier")), ValueError("wrong")),
        caused(RuntimeError("P2P failed"), CLOSED),
        ImportError("cannot import name 'cumreduction' from partially initialized module"),
        ValueError("x"),
    ],
)
def test_a_failure_without_a_cut_is_a_failure(error):
    assert not is_cut_shuffle(error)
    assert judged(error) == "failed"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (CLOSED, "disturbed"),
        (KilledWorker("x", SimpleNamespace(address="tcp://x"), 3), "disturbed"),
        (KeyError("safeser://127.0.0.1:1"), "disturbed"),
        (KeyError("x"), "failed"),
        (TimeoutError(), "lost"),
    ],
)
def test_each_end_has_its_outcome(error, outcome):
    assert judged(error) == outcome
    assert not is_cut_shuffle(error)


def test_the_inventory_counts_what_a_scheduler_holds():
    class State:
        __slots__ = ("__dict__", "absent", "tasks")

    scheduler = State()
    scheduler.tasks, scheduler.events, scheduler.number = {"a": 1}, [1, 2], 3
    counts = inventory(scheduler)
    assert (counts[".tasks"], counts[".events"]) == (1, 2)
    assert counts["builtins.dict"] > 0
    assert not {".number", ".absent"} & set(counts)
    assert json.dumps(counts)


def test_workers_import_what_jobs_need():
    assert preload.dask.dataframe.from_pandas
    assert preload.distributed.shuffle

"""Real processes decide workloads as recorded, and differences are found."""

from __future__ import annotations

import pytest

from tests.dask.golden.__main__ import CLIENTS, golden, opened, run
from tests.dask.golden.traces import Trace, differences
from tests.dask.sealed.watched import Watched

#: One workload for each way in which a value, a task or code travels.
CHOSEN = (
    *("submit_lambda", "scatter_pandas", "numpy_result", "da_sum", "dd_shuffle_p2p", "actors"),
    *("run", "register_worker_plugin", "task_error_custom_cls", "run_on_scheduler"),
)


@pytest.mark.cluster
def test_ten_workloads_decide_what_was_recorded(tmp_path):
    seen, did, said = run("dask-cluster", tmp_path, CHOSEN)
    assert list(differences(Trace.load(golden("dask-cluster")), seen)) == [], said
    assert set(seen.results) == set(CHOSEN)
    assert did == ()


@pytest.mark.parametrize(
    ("line", "did"),
    [
        ("imported bokeh.core", []),
        ("found builtins.print", ["the scheduler unpickled builtins.print"]),
        ("imported golden_tasks", ["the scheduler imported golden_tasks"]),
        ("imported workloads", ["the scheduler imported workloads"]),
    ],
)
def test_what_a_scheduler_opens_is_found(tmp_path, line, did):
    path = tmp_path / "watched"
    path.write_text(f"found collections.Counter\nimported distributed\n{line}\n")
    assert list(opened(Watched(path))) == did


@pytest.mark.parametrize("held", ["found collections.Counter\n", "imported distributed\n"])
def test_a_hook_that_saw_nothing_is_no_hook(tmp_path, held):
    path = tmp_path / "watched"
    path.write_text(held)
    with pytest.raises(AssertionError):
        list(opened(Watched(path)))


@pytest.mark.parametrize("policy", CLIENTS)
def test_the_recorded_trace_has_all_workloads(policy):
    trace = Trace.load(golden(policy))
    assert len(trace.results) == 84
    assert trace.counted
    assert all(trace.decisions[name] for name in CHOSEN)


FETCH = "worker admit worker worker data - dask worker permit"
TASK = "worker admit scheduler worker task compute-task sealed carol permit"
WAS = Trace({"a": "ok", "b": "ok"}, {"a": frozenset({FETCH, TASK}), "b": frozenset({TASK})})


@pytest.mark.parametrize(
    ("result", "decided", "found"),
    [
        ("ok", {FETCH, TASK}, []),
        ("ok", {TASK}, []),  # where tasks run is Dask's choice
        ("KilledWorker", {TASK}, ["a: came to KilledWorker, not ok"]),
        ("ok", {FETCH}, [f"a: missing: {TASK}"]),
        (
            "ok",
            {TASK, TASK.replace("permit", "context.family")},
            [f"a: new: {TASK.replace('permit', 'context.family')}"],
        ),
        (
            "ok",
            {TASK, FETCH.replace(" dask ", " cloudpickle ")},
            [f"a: new: {FETCH.replace(' dask ', ' cloudpickle ')}"],
        ),
    ],
)
def test_differences_are_found(result, decided, found):
    assert list(differences(WAS, Trace({"a": result}, {"a": frozenset(decided)}))) == found


def test_optional_decisions_of_other_workloads_may_come():
    seen = Trace({"b": "ok"}, {"b": frozenset({TASK, FETCH})})
    assert list(differences(WAS, seen)) == []


STOLEN = "worker scheduler worker steal-request permit permitted"
DENIED = "worker scheduler worker steal-request operation.not-granted refused"
REMOVED = "worker scheduler worker remove-replicas permit permitted"
BEAT = "scheduler worker scheduler heartbeat_worker permit permitted"


@pytest.mark.parametrize(
    ("was", "now", "found"),
    [
        ({BEAT, STOLEN}, {BEAT}, []),  # no work had to be stolen
        ({BEAT, REMOVED}, {BEAT}, []),  # each copy was gone within two seconds
        ({BEAT}, set(), [f"counted, missing: {BEAT}"]),
        ({BEAT}, {BEAT, STOLEN}, []),
        ({BEAT}, {BEAT, DENIED}, [f"counted, new: {DENIED}"]),
        (set(), {BEAT}, [f"counted, new: {BEAT}"]),
    ],
)
def test_counted_decisions_are_compared_for_the_whole_run(was, now, found):
    traces = [Trace({"a": "ok"}, {"a": frozenset()}, frozenset(each)) for each in (was, now)]
    assert list(differences(*traces)) == found

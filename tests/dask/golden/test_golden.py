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

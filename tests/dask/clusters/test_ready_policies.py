"""The ready policies on real clusters: viewers look, signers compute, and trust gives all."""

from __future__ import annotations

from pathlib import Path

import pytest

from safeser.operations import NAMES
from safeser.operations.groups import PARTS
from safeser.policy.ready import locate

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).parents[1] / "programs"


@pytest.fixture(scope="module")
def shared(clusters):
    """The cluster under dask-cluster, on which carol left something to look at."""
    cluster = clusters["dask-cluster"]
    left = cluster.run("carol", PROGRAMS / "carol.py", cluster.address)
    answer = left.answer
    cluster.passed, cluster.recreated = answer.pop("passed on"), answer.pop("recreated")
    cluster.refused = answer.pop("refused")
    cluster.brought = answer.pop("brought")
    assert answer == {
        "squares": [0, 1, 4, 9],
        "empty part moved": True,
        "run": [4, 4],
    }, cluster.logs()
    return cluster


@pytest.fixture(scope="module")
def dashboard(shared):
    ended = shared.run("dashboard", PROGRAMS / "dashboard.py", shared.address)
    assert ended.code == 0, f"{ended.err}\n{shared.logs()}"
    return ended.answer


SQUARES = [0, 1, 4, 9]

LOOKS = {
    "workers": 2,
    "repr": True,
    "variable": SQUARES,
    "dataset": SQUARES,
    "datasets": ["published"],
    "future": SQUARES,
    "direct": SQUARES,
    "who_has": 1,
    "has_what": 2,
    "nthreads": 2,
    "ncores": 2,
    "nbytes": ["squares"],
    "processing": 2,
    "metadata": "carol",
    "events": True,
    "versions": True,
    "stream": True,
    "profile": True,
    "set": False,
}


def test_a_viewer_looks_and_fetches(dashboard):
    assert dashboard["looks"] == LOOKS


def test_a_viewer_is_refused_all_else_and_nothing_of_it_happened(dashboard):
    assert len(dashboard["tries"]) == 8
    refused = {"submit": "submission.none", "persist": "submission.none"}
    for name, outcome in dashboard["tries"].items():
        assert outcome == [refused.get(name, "operation.not-granted")], name
    assert dashboard["status"] == "running"
    assert dashboard["again"] == LOOKS


ALICE = """
import json, sys, safeser
from distributed import Variable
with safeser.Client(sys.argv[1], timeout=30) as client:
    client.wait_for_workers(2, timeout=60)
    out = {"fetched": Variable("squares").get(timeout=20).result(timeout=20).tolist()}
    failed = Variable("failed").get(timeout=20)
    for name, call in {
        "recreate": lambda: client.recreate_error_locally(failed),
        "lambda": lambda: client.submit(lambda: 1).result(timeout=30),
        "run": lambda: client.run(len, "x"),
    }.items():
        try:
            out[name] = repr(call())
        except Exception as error:
            out[name] = "refused" if "lambda" in name else error.rule
print(json.dumps(out))
"""


def test_an_analyst_fetches_and_submits_no_code(shared):
    ended = shared.run("alice", ALICE, shared.address)
    assert ended.answer == {
        "fetched": SQUARES,
        "recreate": "operation.not-granted",
        "lambda": "refused",
        "run": "operation.not-granted",
    }


def test_workers_pass_on_values_of_registered_classes_and_say_what_to_do_of_others(shared):
    assert shared.passed["Reading"] == [2.5, 2.5]
    here, said = shared.passed["Unregistered"]
    assert here == 2.5  # where it was made, no one has to read it
    assert "mylib.readings:Unregistered" in said
    assert 'pickle: {allow: {"mylib.readings:Unregistered": class}}' in said


def test_a_failed_task_is_run_again_by_who_signed_it(shared):
    assert shared.recreated == ["ZeroDivisionError", True]


def test_nothing_of_an_engineer_runs_on_the_scheduler(shared):
    assert shared.refused == {
        "run_on_scheduler": "operation.not-granted",
        "scheduler plugin": "operation.not-granted",
    }


def test_an_engineer_brings_workers_data(shared):
    assert shared.brought == 3


# --- analysts -----------------------------------------------------------------------------------

ANALYST = """
import json, sys, dask.array as da, numpy as np, safeser
with safeser.Client(sys.argv[1], timeout=30) as client:
    client.wait_for_workers(2, timeout=60)
    brought = client.scatter(np.arange(4), direct=True)
    out = {
        "lambda": client.submit(lambda x: x + 1, 1).result(timeout=30),
        "array": int(da.arange(8, chunks=2).sum().compute()),
        "brought": client.submit(sum, brought).result(timeout=30).item(),
    }
    for name, call in {
        "run": lambda: client.run(len, "x"),
        "run_on_scheduler": lambda: client.run_on_scheduler(len, "x"),
    }.items():
        try:
            out[name] = repr(call())
        except safeser.SafeserError as error:
            out[name] = error.rule
print(json.dumps(out))
"""


def test_analysts_compute_on_a_cluster_of_their_own(cluster_under):
    """Where their sandbox is not what is tried: tests/confinement has that."""
    lines = locate("analysts").read_text("utf-8").splitlines(keepends=True)
    policy = "".join(line for line in lines if not line.startswith("    confined: "))
    policy = policy.replace("  worker:\n", "  worker: {}\n")
    assert "confined:" not in policy
    with cluster_under(policy, ("scheduler", "worker", "alice"), nannies=0) as cluster:
        ended = cluster.run("alice", ANALYST, cluster.address)
        assert ended.answer == {
            "lambda": 2,
            "array": 28,
            "brought": 6,
            "run": "operation.not-granted",
            "run_on_scheduler": "operation.not-granted",
        }, cluster.logs()


def test_who_trusts_all_gets_code_back(folder):
    ended = folder.run("alice", PROGRAMS / "trusting.py", DASK_SAFESER__POLICY="trusted")
    assert ended.answer == {
        "function": 2,
        "direct": 3,
        "thing": 5,
        "scattered": 3,
        "used": 3,
        "run": [3],
        "failed": ["Wrong", "no", 7],
    }


# --- a viewer with a client of its own making ---------------------------------------------------


@pytest.mark.parametrize("server", ["scheduler", "worker"])
def test_a_hostile_viewer_is_refused_by_the_server(talk, server):
    t = talk("dashboard", server, "dask-cluster")
    for name in sorted(NAMES - PARTS["look"] - {"get_task_stream", "profile"}):
        t.refuses({"op": name, "reply": True})

"""The ready policies on real clusters: who looks looks, who may not submit is told, who trusts all
gets all."""

from __future__ import annotations

from pathlib import Path

import pytest

from safeser.operations import NAMES
from safeser.operations.groups import PARTS
from safeser.policy.ready import locate

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).parent / "programs"
PRINCIPALS = ("scheduler", "worker", "nanny", "carol", "alice", "dashboard")


@pytest.fixture(scope="module")
def shared(cluster_under):
    """A cluster under dask-cluster on which carol left something to look at."""
    policy = locate("dask-cluster").read_text("utf-8")
    with cluster_under(policy, PRINCIPALS, workers=1) as cluster:
        left = cluster.run("carol", PROGRAMS / "carol.py", cluster.address)
        assert left.answer == {"squares": [0, 1, 4, 9]}, cluster.logs()
        yield cluster


@pytest.fixture(scope="module")
def dashboard(shared):
    ended = shared.run("dashboard", PROGRAMS / "dashboard.py", shared.address)
    assert ended.code == 0, f"{ended.err}\n{shared.logs()}"
    return ended.answer


SQUARES = [0, 1, 4, 9]

LOOKS = {
    "workers": 1,
    "repr": True,
    "variable": SQUARES,
    "dataset": SQUARES,
    "datasets": ["published"],
    "future": SQUARES,
    "direct": SQUARES,
    "who_has": 1,
    "has_what": 1,
    "nthreads": 1,
    "ncores": 1,
    "nbytes": ["squares"],
    "processing": 1,
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
    assert len(dashboard["tries"]) == 28
    refused = {"submit": "submission.none", "persist": "submission.none"}
    for name, outcome in dashboard["tries"].items():
        assert outcome == [refused.get(name, "operation.not-granted")], name
    assert dashboard["again"] == LOOKS


ALICE = """
import json, sys, safeser
from distributed import Variable
with safeser.Client(sys.argv[1], timeout=30) as client:
    client.wait_for_workers(2, timeout=60)
    out = {"fetched": Variable("squares").get(timeout=20).result(timeout=20).tolist()}
    for name, call in {
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
        "lambda": "refused",
        "run": "operation.not-granted",
    }


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

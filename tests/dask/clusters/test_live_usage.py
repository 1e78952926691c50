"""All of Dask that a policy can grant, on a real cluster and on clusters that a program starts.

What a client does under the ready policies is in test_cluster.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).parents[1] / "programs"
POLICIES = Path(__file__).parents[3] / "policies"

PRINCIPALS = ("scheduler", "worker", "nanny", "client")

USED = {
    "from_inside": [14, 10],
    "arguments": [9998, 24_995_000],
    "computes": [4950, 3, 9900, [0, 99], 6],
    "shuffles": [True, 200, True],
    "retries": ["xxx", 2],
    "cancels": "goes on",
    "copies": [2, 2, list(range(11))],
    "completes": [3, [-1, -2], [-3, -2, -1, 0], [0, 1, 4, 9]],
    "locks": [1, True, 0],
    "annotations": [True, True, True],
    "failures": ["glass", 7, True, "glass", "glass"],
    "runs": 6,
    "plugins": [[1, 1, 1, 1, 1], 2, 2],
    "uploads": [
        *(41, "operation.field-shape", "operation.field-shape", "written"),
        *([True, True], [False, False]),
    ],
    "forwards": [5, 6],
    "shows": [True, True],
    "measures": [True, True, True],
    "looks": [
        [
            *("has_what", "nanny_logs", "nbytes", "ncores", "profile", "scheduler_logs"),
            *("story", "worker_logs"),
        ],
        False,
        True,
    ],
    "retires": [1, 29],
    "restarts": [True, "again"],
}

STARTED = {
    "local": {
        "address": True,
        "spills": [True, list(range(8)), 1_000_000, True],
        "recomputes": [18, True],
        "adapts": 5,
        "shows": True,
        "logs": ["Cluster", "Scheduler", "safeser"],
    },
    "spec": [True, 2, 6],
    "asynchronous": [2, [0, 2, 4], [0, 1, 2], "division by zero", 1],
}


@pytest.fixture(scope="module")
def used(cluster_under):
    """What comes out of all that a program does on a cluster that lets it."""
    trusted = (POLICIES / "trusted.yaml").read_text()
    with cluster_under(trusted, PRINCIPALS) as cluster:
        ended = cluster.run("client", PROGRAMS / "usage.py", cluster.address, timeout=200)
        assert ended.code == 0, f"{ended.err}\n{cluster.logs()}"
        yield {**ended.answer, "stderr": ended.err}


@pytest.mark.parametrize("step", USED)
def test_what_policy_grants_works(used, step):
    assert json.loads(json.dumps(used[step])) == USED[step], used["stderr"][-4000:]


def test_clusters_that_a_program_starts(folder):
    """LocalCluster scaled, SpecCluster, and both with ``await``: one process after the other."""
    ended = folder.run("alice", PROGRAMS / "embedded.py", str(folder.path / "spec"), timeout=300)
    assert ended.answer == STARTED, ended.err[-6000:]

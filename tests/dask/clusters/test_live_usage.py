"""All of Dask that a policy can grant, on a real cluster and on clusters that a program starts.

What a client does under the ready policies is in test_cluster.py; collections, futures, retries,
progress and measures are compared with stock Dask in tests/dask/notebook.
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
    "copies": [2, 2, list(range(11))],
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
        "shows": True,
        "logs": ["Cluster", "Scheduler", "safeser"],
    },
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
    ended = folder.run("alice", PROGRAMS / "embedded.py", timeout=300)
    assert ended.answer == STARTED, ended.err[-6000:]

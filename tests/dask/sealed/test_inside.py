"""Tasks that submit tasks, between real processes: the worker's own identity signs those."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dask.live.rig import Log
from tests.dask.sealed.conftest import POLICY

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parent / "inside.py"
SUBMITTING = """
  - name: workers-submit
    sender: worker
    recipient: scheduler
    submission: sealed
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    pickle: {profile: [data, numpy, pandas]}
    operations: {grant: [basic, cluster, diagnose]}
  - name: workers-report
    sender: nanny
"""
#: Workers submit, and sign for nobody.
NO_AUTHORS = POLICY.replace("\n  - name: workers-report\n    sender: [worker, nanny]\n", SUBMITTING)
_BEFORE, _NANNY, _AFTER = NO_AUTHORS.partition("    sender: nanny\n")
NO_AUTHORS = f"{_BEFORE}{_NANNY}{_AFTER.replace('cluster,', 'nanny-reports,', 1)}"
LISTED = NO_AUTHORS.replace("authors: [group:engineers]", "authors: [group:engineers, worker]", 1)
STEPS = {"gathered": 35, "submitted": 14, "computed": 45, "keyed": 2}


@pytest.fixture(scope="module")
def run(cluster_under):
    """Return what runs the program under a policy, and the log of that cluster."""

    def made(policy):
        with cluster_under(policy, nannies=0) as cluster:
            ended = cluster.run("alice", PROGRAM, cluster.address, timeout=180)
            assert ended.code == 0, f"{ended.out}\n{ended.err}\n{cluster.logs()}"
            return ended.answer, Log(cluster.audit).refusals()

    return made


def test_what_a_task_submits_is_signed_by_its_worker(run):
    answers, refusals = run(LISTED)
    assert answers == STEPS
    assert not [each for each in refusals if each["rule"][:6] in ("sealed", "author")]


def test_no_worker_runs_what_a_worker_signed_that_is_no_author(run):
    answers, refusals = run(NO_AUTHORS)
    assert {name: kind for name, (kind, _) in answers.items()} == dict.fromkeys(
        STEPS, "PolicyDenied"
    )
    found = {(each["rule"], each["author"]) for each in refusals if each["rule"] != "peer.unsent"}
    assert found == {("author.relayed", "worker")}

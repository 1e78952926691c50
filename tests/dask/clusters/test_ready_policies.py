"""The ready policies on real clusters: viewers look, signers compute, and trust gives all."""

from __future__ import annotations

from pathlib import Path

import pytest

from safeser.operations import NAMES
from safeser.operations.groups import PARTS
from tests.confinement.conftest import lacks_landlock
from tests.needs import needs

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).parents[1] / "programs"


@pytest.fixture(scope="module")
def shared(visit):
    return visit("dask-cluster")


@pytest.fixture(scope="module")
def carol(shared):
    """What came out of her work; she left something on the cluster to look at."""
    return shared.answer("carol", PROGRAMS / "carol.py")


@pytest.fixture(scope="module")
def dashboard(shared, carol):
    return shared.answer("dashboard", PROGRAMS / "dashboard.py")


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
    "metadata": "carol",
    "stream": True,
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
from distributed import Variable
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
client.close()
print(json.dumps(out))
"""


def test_an_analyst_fetches_and_submits_no_code(shared, carol):
    assert shared.answer("alice", ALICE) == {
        "fetched": SQUARES,
        "recreate": "operation.not-granted",
        "lambda": "refused",
        "run": "operation.not-granted",
    }


def test_an_engineer_works(carol):
    assert (carol["squares"], carol["run"], carol["brought"]) == (SQUARES, [4, 4], 3)
    assert carol["empty part moved"]
    # A task that failed is run again by who signed it.
    assert carol["recreated"] == ["ZeroDivisionError", True]


def test_workers_pass_on_values_of_registered_classes_and_say_what_to_do_of_others(carol):
    assert carol["passed on"]["Reading"] == [2.5, 2.5]
    here, said = carol["passed on"]["Unregistered"]
    assert here == 2.5  # where it was made, no one has to read it
    assert "mylib.readings:Unregistered" in said
    assert 'pickle: {allow: {"mylib.readings:Unregistered": class}}' in said


def test_nothing_of_an_engineer_runs_on_the_scheduler(carol):
    assert carol["refused"] == {
        "run_on_scheduler": "operation.not-granted",
        "scheduler plugin": "operation.not-granted",
    }


# --- analysts -----------------------------------------------------------------------------------

ANALYST = """
import dask.array as da, numpy as np
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
client.close()
print(json.dumps(out))
"""


@needs("Landlock", not lacks_landlock())
def test_analysts_compute_in_their_sandboxes_and_run_nothing_else(visit):
    assert visit("confined").answer("alice", ANALYST) == {
        "lambda": 2,
        "array": 28,
        "brought": 6,
        "run": "operation.not-granted",
        "run_on_scheduler": "operation.not-granted",
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

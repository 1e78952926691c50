"""The ready policies on real clusters: who looks looks, what is approved works and all else is
refused where it is submitted, who trusts all gets all.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safeser.operations import NAMES
from safeser.operations.groups import PARTS
from safeser.policy.ready import locate

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).parents[1] / "programs"
PRINCIPALS = ("scheduler", "worker", "nanny", "carol", "alice", "dashboard")


#: The line that docs/how-to/approved.md has for functions of one's own, and where it goes.
ALLOW = 'pickle: {allow: {"mylib.models:train": reference, "mylib.models:double": reference}}'
APPROVED = "    submission: approved\n"


@pytest.fixture(scope="module")
def shared(cluster_under):
    """A cluster under dask-cluster on which carol left something to look at."""
    policy = locate("dask-cluster").read_text("utf-8")
    assert policy.count(APPROVED) == 1
    policy = policy.replace(APPROVED, f"{APPROVED}    {ALLOW}\n")
    with pytest.MonkeyPatch.context() as patch:
        # Scheduler, workers and analysts have the operator's library; see programs/mylib.
        paths = [str(PROGRAMS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        with cluster_under(policy, PRINCIPALS) as cluster:
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
            yield cluster


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
    assert len(dashboard["tries"]) == 31
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


# --- what is approved ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def analyst(shared, tmp_path_factory):
    mark = tmp_path_factory.mktemp("attacks") / "mark"
    shared.measured = True
    ended = shared.run("alice", PROGRAMS / "analyst.py", shared.address, str(mark), timeout=300)
    shared.measured = False
    assert ended.code == 0, f"{ended.err}\n{shared.logs()}"
    return {**ended.answer, "stderr": ended.err, "marked": mark.exists()}


@pytest.mark.parametrize(
    ("step", "result"),
    [
        ("submits", [3.0, 6.0, 3.0, [2, 4]]),
        ("maps", [[0, 2, 4, 6, 8], [0, 4, 8, 12, 16], [3.0, 6.0], [0, 2, 4, 6, 8]]),
        ("futures_as_arguments", [2.5, 2.0, [2, 2]]),
        ("scatters", [22.5, 3.0]),
        ("delayed", [2.5, [1, 6, 1, 6], 3.0, 12.0, 3.0]),
        ("annotates", [42, 2]),
        ("low_level_graphs", [2, 2.5]),
        ("many", 89_700),
        ("fails", "'int' object is not iterable"),
    ],
)
def test_what_is_approved_comes_out(analyst, step, result):
    assert json.loads(json.dumps(analyst[step])) == result, analyst["stderr"][-3000:]


@pytest.mark.parametrize(
    ("name", "culprit", "line"),
    [
        ("lambda", "<lambda>, defined in analyst.py, line", 'allow: {"mylib:NAME": reference}'),
        ("main", "__main__:of_the_script, defined in", 'allow: {"mylib:of_the_script": reference}'),
        ("unlisted", "mylib.models:other cannot be", 'allow: {"mylib.models:other": reference}'),
        ("partial", "functools:partial cannot be", 'allow: {"mylib:partial": reference}'),
        ("map", "mylib.models:other cannot be", 'allow: {"mylib.models:other": reference}'),
        ("delayed", "mylib.models:other cannot be", 'allow: {"mylib.models:other": reference}'),
        ("class", "mylib.models:Thing cannot be", 'allow: {"mylib.models:Thing": reference}'),
        ("method", "method, defined in models.py", "allow: "),
        ("system", "posix:system cannot be", "of the standard library, of which"),
        ("eval", "builtins:eval cannot be", "of the standard library, of which"),
        ("add", "_operator:add cannot be", "of the standard library, of which"),
        ("item", "_operator:getitem cannot be", "of the standard library, of which"),
        ("array", "cannot be", "ask for a worker group"),
        ("frame", "cannot be", "ask for a worker group"),
        ("bag", "cannot be", "ask for a worker group"),
    ],
)
def test_what_is_not_is_refused_where_it_is_submitted(analyst, name, culprit, line):
    kind, rule, text = analyst["refusals"][name]
    assert (kind, rule) == ("PolicyDenied", "submission.approved")
    assert culprit in text
    assert line in text


@pytest.mark.parametrize("name", ["argument", "instance"])
def test_what_is_no_data_is_no_argument(analyst, name):
    kind, rule, text = analyst["refusals"][name]
    assert (kind, rule) == ("PayloadError", "submission.approved")
    assert "mylib.models" in text or "function" in text


def test_actors_and_annotations_of_other_values_are_refused(analyst):
    assert analyst["refusals"]["actor"][:2] == ["PolicyDenied", "submission.actors"]
    assert analyst["refusals"]["annotation"][:2] == ["PayloadError", "families.type"]
    assert analyst["refusals"]["run"][:2] == ["PolicyDenied", "operation.not-granted"]


def test_a_patched_client_gets_nothing_run_anywhere(analyst):
    assert len(analyst["attacks"]) == 11
    for name, said in analyst["attacks"].items():
        assert said[0] == "refused", (name, said)
    assert analyst["afterwards"] == [3.0, 6.0, 3.0, [2, 4]]
    assert not analyst["marked"]


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

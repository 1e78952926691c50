"""A real cluster by unmodified commands: users work, guests look, nobody else gets in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safeser import audit

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).parents[1] / "programs"


@pytest.fixture(scope="module")
def alice(cluster):
    """What came out of everything that alice does."""
    ended = cluster.run("alice", PROGRAMS / "alice.py", cluster.address)
    assert ended.code == 0, f"{ended.err}\n{cluster.logs()}"
    return {**ended.answer, "stderr": ended.err}


@pytest.mark.parametrize(
    ("step", "result"),
    [
        ("direct", [3.0, [0, 1, 4]]),
        ("failed_future_in_a_queue", "ZeroDivisionError"),
        ("warns", [["careful", "FutureWarning"]]),
        ("own_classes", [True, "of glass"]),
        ("relayed_classes", [True, 5, [4, 5], True, False]),
        ("actors", [8, 5, "inside", "<Actor: Counter, "]),
        ("actors_of_two_clients", [True, True, True]),
        ("copies", list(range(11))),
        ("annotations", [True, True]),
        ("runs", 6),
        ("plugins", [[1, 1, 1, 1, 1], 2, 2]),
        ("forwards", [5, 6]),
        (
            "looks",
            [
                [
                    *("has_what", "nanny_logs", "nbytes", "ncores", "profile", "scheduler_logs"),
                    *("story", "worker_logs"),
                ],
                False,
                True,
            ],
        ),
        ("metered", [True, True]),
        ("published_collections", [10.0, 6, 41]),
        ("restart", "again"),
    ],
)
def test_what_alice_does_comes_out(alice, step, result):
    assert json.loads(json.dumps(alice[step])) == result, alice["stderr"][-3000:]


def test_a_failing_task_shows_its_own_traceback(alice):
    text, shown = alice["failing"]
    assert text == "division by zero"
    assert "lambda: 1 / 0" in shown


def test_a_result_that_cannot_be_sent_fails_that_future_only(alice):
    text, following = alice["unsendable"]
    assert "safeser.register_class(Local)" in text
    assert following == "next"


@pytest.mark.parametrize(
    ("name", "culprit", "place", "advice"),
    [
        ("lambda", "builtins:function", "at ['f'][0]", "grants family cloudpickle"),
        ("file", "_io:TextIOWrapper", "", "send its content, or make it"),
        ("generator", "builtins:generator", "at [0]", "send its content, or make it"),
    ],
)
def test_what_is_inside_and_cannot_be_sent_is_named(alice, name, culprit, place, advice):
    said = alice["says_what_is_inside"][name]
    assert f"of type {culprit} by dask, msgpack" in said
    assert "in context worker -> scheduler data" in said
    assert place in said
    assert advice in said
    assert said.endswith(" next")


@pytest.mark.parametrize("inside", ["objects", "column"])
def test_a_class_of_the_program_is_refused_with_the_line_that_registers_it(alice, inside):
    said = alice["says_what_is_inside"][inside]
    assert "no type __main__:Odd is registered here" in said
    assert said.endswith(" safeser.register_class(Odd) next")


def test_a_task_may_not_submit_where_its_worker_may_not(alice):
    assert "submitting work is not granted" in alice["from_inside"]


def test_code_does_not_come_back(alice):
    assert alice["code_as_result"] in ("peer.unsent", "families.cannot-serialize")


BOB = """
import io, json, sys, safeser
from contextlib import redirect_stdout
from distributed import Variable, progress
out = {}
with safeser.Client(sys.argv[1], deserializers=["dask", "msgpack"], timeout=30) as client:
    client.wait_for_workers(2, timeout=60)
    out["workers"] = len(client.scheduler_info()["workers"])
    kept = Variable("kept").get(timeout=20)
    out["kept"] = kept.result(timeout=20)
    with redirect_stdout(io.StringIO()) as shown:
        progress(kept, notebook=False)
    out["shown"] = shown.getvalue()
    for name, call in {
        "submit": lambda: client.submit(len, "x"),
        "map": lambda: client.map(len, ["x"]),
        "run": lambda: client.run(len, "x"),
        "scheduler": lambda: client.run_on_scheduler(len, "x"),
        "restart": lambda: client.restart(),
        "upload": lambda: client.upload_file(__file__ if "__file__" in globals() else "/etc/hosts"),
        "own": lambda: client.gather(client.scatter([7], hash=False)),
    }.items():
        try:
            out[name] = call()
        except safeser.SafeserError as error:
            out[name] = [type(error).__name__, error.rule]
        except Exception as error:
            out[name] = [type(error).__name__, str(error)]
print(json.dumps(out))
"""

KEEP = """
import sys, safeser
from distributed import Variable
with safeser.Client(sys.argv[1], timeout=30) as client:
    client.wait_for_workers(2, timeout=60)
    Variable("kept").set(client.submit(lambda: [1, 2], key="kept"))
print("null")
"""


def test_bob_looks_and_gathers_and_submits_nothing(cluster):
    cluster.run("alice", KEEP, cluster.address).answer  # noqa: B018 - it asserts that it ended well
    out = cluster.run("bob", BOB, cluster.address).answer
    assert out["workers"] == 2
    assert out["kept"] == [1, 2]
    assert "100% Completed" in out["shown"]
    assert out["own"] == [7]
    for name in ("submit", "map", "run", "scheduler", "restart"):
        assert out[name][0] == "PolicyDenied", (name, out[name])
    assert out["submit"][1] == "submission.none"


# --- strangers on the port --------------------------------------------------------------------


def test_a_principal_that_is_not_the_expected_one_is_refused_at_once(cluster):
    program = (
        "import sys, json, safeser\n"
        "security = safeser.Security(expected_scheduler='worker')\n"
        "try:\n    safeser.Client(sys.argv[1], security=security, timeout=60)\n"
        "except safeser.AuthenticationError as error:\n    print(json.dumps(str(error)))\n"
    )
    assert "did not accept" in cluster.run("alice", program, cluster.address).answer


# --- what is recorded -------------------------------------------------------------------------


def test_the_logs_of_a_running_cluster_verify(cluster):
    report = audit.verify(cluster.audit, key=cluster.keys / "audit.key")
    assert report.ok, report
    assert report.files >= 5 or len(list(cluster.audit.iterdir())) >= 5


# --- the embedded cluster ---------------------------------------------------------------------


OF_A_CLUSTER = """
import asyncio, distributed, json, os, safeser
from safeser.dask.cluster import LocalCluster

async def awaited():
    async with LocalCluster(n_workers=1, threads_per_worker=1, asynchronous=True) as cluster:
        async with cluster.get_client() as client:
            return type(client) is safeser.Client, await client.submit(sum, [1, 2])

if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1) as cluster:
        with distributed.Client(cluster):  # current, and not one of safeser's
            with cluster.get_client() as client:
                made = type(client) is safeser.Client, cluster.get_client() is client
                total = client.submit(sum, [1, 2]).result(timeout=60)
        with cluster.get_client() as client:
            again = client.safeser.identity.principal
    left = os.path.exists(cluster.directory)
    print(json.dumps([*made, total, again, left, *asyncio.run(awaited())]))
"""


def test_a_cluster_gives_a_client_of_safeser_and_leaves_no_folder(folder):
    program = folder.path / "of_a_cluster.py"
    program.write_text(OF_A_CLUSTER)
    folder.measured = True
    answer = folder.run("alice", program).answer
    assert answer == [True, True, 3, "client", False, True, 3]


UNCLOSED = """
import json, safeser

def main():
    client = safeser.Client(n_workers=1, threads_per_worker=1)
    future = client.submit(lambda: print)
    try:
        future.result(timeout=30)
    except safeser.PayloadError as error:
        print(json.dumps([error.rule, "numbers, text, arrays or frames" in str(error),
                          client.submit(lambda: 7).result(timeout=30)]))

if __name__ == "__main__":
    main()
"""


def test_a_result_that_needs_code_fails_once_and_a_client_may_be_left_open(folder):
    program = folder.path / "unclosed.py"
    program.write_text(UNCLOSED)
    ended = folder.run("alice", program)
    assert ended.answer == ["peer.unsent", True, 7]
    assert "the log is closed" not in ended.err
    assert "Traceback" not in ended.err


def test_a_cluster_spills_and_computes_again_what_a_worker_took_with_it(folder):
    ended = folder.run("alice", PROGRAMS / "embedded.py", timeout=300)
    assert ended.answer == {
        "address": True,
        "spills": [True, list(range(8)), 1_000_000, True],
        "recomputes": [18, True],
        "shows": True,
        "logs": ["Cluster", "Scheduler", "safeser"],
    }, ended.err[-6000:]


def test_each_client_that_is_left_open_is_closed_before_the_log(cluster):
    ended = cluster.run("alice", PROGRAMS / "left_open.py", cluster.address)
    assert ended.answer == ["closed", "closed"]
    assert ended.err == ""

"""A real cluster by unmodified commands: users work, guests look, nobody else gets in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def alice(cluster):
    """What came out of everything that alice does."""
    ended = cluster.run("alice", PROGRAMS / "alice.py", cluster.address)
    assert ended.code == 0, f"{ended.err}\n{cluster.logs()}"
    return {**ended.answer, "stderr": ended.err}


@pytest.mark.parametrize(
    ("step", "result"),
    [
        ("submit", 2),
        ("gather", [0, 2, 4, 6, 8]),
        ("scatter", [100_000.0, {"a": 1, "b": [1, 2]}]),
        ("array", [49_995_000, 12.649111, "ndarray"]),
        (
            "frame",
            [
                {"0": 47.5, "1": 48.5, "2": 49.5, "3": 50.5, "4": 51.5},
                100,
                ["a", "b"],
                "DataFrame",
            ],
        ),
        ("missing_key", ["missing"]),
        ("coordination", [[1, 2], {"a": 1}, True, True]),
        ("failed_future_in_a_queue", "ZeroDivisionError"),
        ("published", [["numbers"], [1, 2, 3]]),
        ("metadata", [{"a": [1]}, {"x": 1}]),
        ("shows_progress", True),
        ("warns", [["careful", "FutureWarning"]]),
        ("runs", [[7, 7], 8]),
        ("run_that_fails", "division by zero"),
        ("looks", [2, True]),
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
    assert "cannot serialize" in text
    assert following == "next"


def test_a_task_may_not_submit_where_its_worker_may_not(alice):
    assert "submitting work is not granted" in alice["from_inside"]


def test_code_does_not_come_back(alice):
    assert alice["code_as_result"] in ("peer.unsent", "families.cannot-serialize")


BOB = """
import json, sys, safeser
from distributed import Variable
out = {}
with safeser.Client(sys.argv[1], deserializers=["dask", "msgpack"], timeout=30) as client:
    client.wait_for_workers(2, timeout=60)
    out["workers"] = len(client.scheduler_info()["workers"])
    out["kept"] = Variable("kept").get(timeout=20).result(timeout=20)
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
    assert out["own"] == [7]
    for name in ("submit", "map", "run", "scheduler", "restart"):
        assert out[name][0] == "PolicyDenied", (name, out[name])
    assert out["submit"][1] == "submission.none"

"""A real cluster by unmodified commands, and those of a program: what is not as on Dask."""

from __future__ import annotations

from pathlib import Path

import pytest

from safeser import audit
from safeser.operations import NAMES

pytestmark = pytest.mark.cluster

PROGRAMS = Path(__file__).parents[1] / "programs"


@pytest.fixture(scope="module")
def alice(visit):
    """What came out of everything that alice does."""
    return visit("demo").answer("alice", PROGRAMS / "alice.py")


def test_what_alice_does_comes_out(alice):
    assert {
        "failed_future_in_a_queue": "ZeroDivisionError",
        "relayed_classes": [True, 5, [4, 5], True, False],
        "actors_of_two_clients": [True, True, True],
        "metered": [True, True],
    }.items() <= alice.items(), alice


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


# --- a guest who asks by Dask's own methods ------------------------------------------------------

#: By the name of the step, the operation that is refused; tests/dask/attacks has all in memory.
REFUSED = {
    "run": "run",
    "run_function": "run_function",
    "register_worker_plugin": "register_worker_plugin",
    "upload_file": "register_scheduler_plugin",
    "restart": "restart",
    "actor_execute": "actor_execute",
    "get_task_stream": "get_task_stream",
    "get_logs": "logs",
    "proxy": "run",
}


@pytest.fixture(scope="module")
def guest(visit, tmp_path_factory):
    bob = visit("demo")
    before = len(bob.cluster.logs())
    answer = bob.answer("bob", PROGRAMS / "guest.py", str(tmp_path_factory.mktemp("guest")))
    return {**answer, "logs": bob.cluster.logs()[before:]}


@pytest.mark.parametrize("step", REFUSED)
def test_what_nobody_granted_is_refused_by_name_at_the_call(guest, step):
    operation = REFUSED[step]
    assert operation in NAMES
    kind, rule, said, works_afterwards = guest[step]
    assert (kind, rule) == ("PolicyDenied", "operation.not-granted"), said
    assert f"operation {operation} is not granted" in said
    assert "of policy demo revision" in said
    assert f"add {operation} to 'operations: grant'" in said
    assert len(said.split("\n")) == 3
    assert works_afterwards


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        ("submit", "submission.none"),
        ("map", "submission.none"),
        ("proxy of a broadcast", "operation.unknown"),
        ("no such field", "operation.unknown-field"),
    ],
)
def test_so_is_a_submission_and_what_the_table_does_not_have(guest, step, rule):
    kind, found, _, works_afterwards = guest[step]
    assert (kind, found) == ("PolicyDenied", rule)
    assert works_afterwards


def test_the_client_works_afterwards_and_the_cluster_says_no_more_than_a_line(guest):
    assert guest["afterwards"] == [True, 2]
    assert "Traceback" not in guest["logs"]


# --- what is recorded, and how clients end -------------------------------------------------------


def test_the_logs_of_a_running_cluster_verify(cluster):
    report = audit.verify(cluster.audit, key=cluster.keys / "audit.key")
    assert report.ok, report
    assert report.files >= 5 or len(list(cluster.audit.iterdir())) >= 5


def test_each_client_that_is_left_open_is_closed_before_the_log(visit):
    ended = visit("demo").run("alice", PROGRAMS / "left_open.py")
    assert ended.answer == ["closed", "closed"]
    assert ended.err == ""


def test_clusters_that_a_program_starts(folder):
    """They spill, compute again what a worker took with it, and may be left open at the end."""
    folder.measured = True
    ended = folder.run("alice", PROGRAMS / "embedded.py", timeout=300)
    assert ended.answer == {
        "awaited": [True, 3],
        "clients": [True, True, 3],
        "again": "client",
        "address": True,
        "spills": [True, list(range(8)), 1_000_000, True],
        "recomputes": [18, True],
        "code": ["peer.unsent", True, 7],
        "shows": True,
        "logs": ["Cluster", "Scheduler", "safeser"],
        "left": False,
    }, ended.err[-6000:]
    assert "the log is closed" not in ended.err
    # The worker that it ends itself says so, and nothing else is loud.
    assert "Traceback" not in ended.err

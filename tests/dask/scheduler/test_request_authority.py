"""Authority is granted by name: who lacks it hears at the call which grant is missing, and goes on.

A guest asks by Dask's own methods for one operation of each group that policy ``demo`` grants to
engineers alone, or to nobody; tests/dask/attacks has all of them in memory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from safeser.operations import NAMES

pytestmark = pytest.mark.cluster

GUEST = Path(__file__).parents[1] / "programs" / "guest.py"

#: By the name of the step, the operation that is refused.
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
def guest(cluster, tmp_path_factory):
    before = len(cluster.logs())
    ended = cluster.run("bob", GUEST, cluster.address, str(tmp_path_factory.mktemp("guest")))
    assert ended.code == 0, f"{ended.err}\n{cluster.logs()}"
    return {**ended.answer, "logs": cluster.logs()[before:]}


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
        ("proxy of a broadcast", "operation.unknown"),
        ("no such field", "operation.unknown-field"),
    ],
)
def test_so_is_what_the_table_does_not_have(guest, step, rule):
    kind, found, _, works_afterwards = guest[step]
    assert (kind, found) == ("PolicyDenied", rule)
    assert works_afterwards


def test_the_client_works_afterwards_and_the_cluster_says_no_more_than_a_line(guest):
    assert guest["afterwards"] == [True, 2]
    assert "Traceback" not in guest["logs"]

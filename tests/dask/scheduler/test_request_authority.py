"""Authority is granted by name: who lacks it hears at the call which grant is missing, and goes on.

A guest asks by Dask's own methods for each operation that the policy ``demo`` grants to engineers
alone, or to nobody.
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
    "run_coroutine": "run_coroutine",
    "run_function": "run_function",
    "run on nannies": "run",
    "feed": "feed",
    "register_worker_plugin": "register_worker_plugin",
    "register_scheduler_plugin": "register_scheduler_plugin",
    "register_nanny_plugin": "register_nanny_plugin",
    "unregister_worker_plugin": "unregister_worker_plugin",
    "unregister_scheduler_plugin": "unregister_scheduler_plugin",
    "upload_file": "register_scheduler_plugin",
    "upload_file itself": "upload_file",
    "restart": "restart",
    "restart_workers": "restart_workers",
    "retire_workers": "retire_workers",
    "terminate": "terminate",
    "terminate a worker": "terminate",
    "get_cluster_state": "get_cluster_state",
    "dump_cluster_state_to_url": "dump_cluster_state_to_url",
    "benchmark_hardware": "benchmark_hardware",
    "set_restrictions": "set_restrictions",
    "set_resources": "set_resources",
    "adaptive_target": "adaptive_target",
    "workers_to_close": "workers_to_close",
    "unregister": "unregister",
    "actor_execute": "actor_execute",
    "get_task_stream": "get_task_stream",
    "call_stack": "call_stack",
    "profile": "profile",
    "get_logs": "logs",
    "echo": "echo",
    "connection_stream": "connection_stream",
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
    kind, rule, said, soon, works_afterwards = guest[step]
    assert (kind, rule) == ("PolicyDenied", "operation.not-granted"), said
    assert f"operation {operation} is not granted" in said
    assert "of policy demo revision" in said
    assert f"add {operation} to 'operations: grant'" in said
    assert len(said.split("\n")) == 3
    assert soon
    assert works_afterwards


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        ("proxy of a broadcast", "operation.unknown"),
        ("no such field", "operation.unknown-field"),
    ],
)
def test_so_is_what_the_table_does_not_have(guest, step, rule):
    kind, found, _, soon, works_afterwards = guest[step]
    assert (kind, found) == ("PolicyDenied", rule)
    assert soon
    assert works_afterwards


def test_the_client_works_afterwards_and_the_cluster_says_no_more_than_a_line(guest):
    assert guest["afterwards"] == [True, 2]
    assert "Traceback" not in guest["logs"]

"""A scheduler whose log cannot grow: what its policy lets pass goes on, and code does not."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from safeser.audit import read, verify
from tests.processes import until

pytestmark = pytest.mark.cluster

#: Contexts of policy ``demo`` through which no code passes.
PASSING = ("workers-report", "guests-look", "guests-fetch", "results")

GUEST = """
import sys, safeser
client = safeser.Client(sys.argv[1], timeout=60)
print("workers", len(client.scheduler_info(n_workers=-1)["workers"]), flush=True)
"""

ENGINEER = """
import os, sys, time, safeser
client = safeser.Client(sys.argv[1], timeout=60)

def wait(path):
    open(path + ".begun", "w").close()
    while not os.path.exists(path):
        time.sleep(0.05)
    return 1

assert client.submit(lambda x: x + 1, 1).result(60) == 2
begun = client.submit(wait, sys.argv[2])
while not os.path.exists(sys.argv[2] + ".begun"):
    time.sleep(0.05)
print("connected", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
while begun.status == "pending":
    time.sleep(0.05)
print("begun", begun.status, flush=True)
try:
    print("result", client.submit(lambda x: x + 2, 1).result(30), flush=True)
except BaseException as error:
    print("refused", type(error).__name__, flush=True)
    os._exit(0)
"""


def policy() -> str:
    text = (Path(__file__).parents[3] / "policies" / "demo.yaml").read_text()
    for name in PASSING:
        text = text.replace(f"name: {name}\n", f"name: {name}\n    audit_failure: queue 5000\n")
    return text


def test_guests_go_on_and_code_is_refused_while_the_log_cannot_grow(cluster_under):
    with cluster_under(policy(), nannies=0) as cluster:
        go = cluster.path / "go"
        name = "engineer"
        engineer = cluster.start(
            *(name, sys.executable, "-c", ENGINEER, cluster.address, str(go)),
            environment=cluster.environment("alice"),
        )
        until("the engineer", lambda: "connected" in cluster.log(name), 120)
        (log,) = cluster.audit.glob("scheduler-*.log")
        size = log.stat().st_size
        # As on a full disk: no file of the scheduler grows beyond this.
        _, most = resource.prlimit(cluster.scheduler, resource.RLIMIT_FSIZE)
        resource.prlimit(cluster.scheduler, resource.RLIMIT_FSIZE, (size, most))
        try:
            _guest_sees_the_workers(cluster)
            go.touch()
            assert engineer.wait(120) == 0, cluster.log(name)
            said = cluster.log(name)
            assert "begun finished" in said, said  # a worker reports it
            assert "refused" in said, said
            _guest_sees_the_workers(cluster)
            assert log.stat().st_size <= size
        finally:
            resource.prlimit(cluster.scheduler, resource.RLIMIT_FSIZE, (most, most))
        again = cluster.call(
            *(sys.executable, "-c", ENGINEER, cluster.address, str(go)),
            environment=cluster.environment("alice"),
        )
        assert "result 3" in again.out, again
        # What the workers and the guest asked meanwhile is counted, and none of it is lost.
        until("counts of both", lambda: {"bob", "worker"} <= _counted(log))
        records = list(read(log))
        assert not any(each.number("lost") > 0 for each in records)
        late = {each.text("context") for each in records if "delayed" in each.fields}
        assert late <= set(PASSING)
    assert verify(log, key=cluster.keys / "audit.key").ok


def _counted(log: Path) -> set[str]:
    return {row[0] for each in read(log) for row in each.fields.get("counts", ())}


def _guest_sees_the_workers(cluster) -> None:
    seen = cluster.call(
        *(sys.executable, "-c", GUEST, cluster.address), environment=cluster.environment("bob")
    )
    assert "workers 2" in seen.out, seen

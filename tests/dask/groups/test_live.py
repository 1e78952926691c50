"""Two groups of workers in real processes: whose tasks run where, and whose values are where.

The one rule: where a task ran is what the task says, and a worker that was handed a task which it
does not take says so in its audit log.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.conftest import DASK, Cluster, until
from tests.dask.live.rig import Log

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
PRINCIPALS = (
    *("scheduler", "worker-analysts", "worker-engineers"),
    *("alice", "carol", "erin", "kate"),
)
GROUPS = {"a": "worker-analysts", "e": "worker-engineers"}

PATIENCE = 240

#: Values move although there are few of them, and only where a test moves them.
SETTINGS = {
    "DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__START": "false",
} | {
    f"DASK_DISTRIBUTED__WORKER__MEMORY__REBALANCE__{name}": value
    for name, value in (
        ("MEASURE", "managed"),
        ("SENDER_MIN", "0.0"),
        ("SENDER_RECIPIENT_GAP", "0.0"),
    )
}


class Grouped(Cluster):
    def __init__(self, path, policy="groups.yaml", principals=PRINCIPALS):
        copied = path / "policy.yaml"
        copied.write_text((HERE / policy).read_text())
        super().__init__(path, str(copied), principals)
        self.workers = {}

    def environment(self, principal, **more):
        return super().environment(principal, **SETTINGS, **more)

    def add(self, *names):
        for name in names:
            self.workers[name] = self.start(
                name,
                *(DASK, "worker", self.address, "--nthreads", "1", "--host", "127.0.0.1"),
                *("--no-dashboard", "--no-nanny", "--name", name),
                *("--local-directory", str(self.path / f"scratch-{name}")),
                environment=self.environment(GROUPS[name[0]]),
            )

    def wait_for(self, *names):
        lines = [f"name: {name}\n" for name in names]
        until("workers", lambda: all(each in self.log("scheduler") for each in lines), PATIENCE)

    def kill(self, name):
        os.kill(self.workers[name].pid, signal.SIGKILL)
        self.workers[name].wait(30)

    def program(self, name):
        """Start a program of users.py, and wait until it has submitted."""
        command = (sys.executable, str(HERE / "users.py"), name, self.address, str(self.path))
        process = self.start(name, *command, environment=self.environment("alice"))
        ended = process.poll
        until("work", lambda: "submitted" in self.log(name) or ended() is not None, PATIENCE)
        return process

    def outcome(self, name, process):
        assert process.wait(PATIENCE) == 0, f"{self.log(name)}\n{self.logs()}"
        return self.printed(name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Grouped(tmp_path_factory.mktemp("groups"))
    try:
        made.begin(0)
        made.add("a-0", "a-1")
        made.wait_for("a-0", "a-1")
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def early(cluster):
    process = cluster.program("early")
    cluster.add("e-0", "e-1")
    return cluster.outcome("early", process)


def test_tasks_that_wait_stay_with_their_group_when_another_one_comes(early):
    assert early["analyst"] == ["a-0", "a-1"]


def test_a_task_waits_for_the_first_worker_of_its_group(early):
    assert early["engineer"] in ("e-0", "e-1")


@pytest.fixture(scope="module")
def day(cluster, early):
    cluster.wait_for("e-0", "e-1")
    arguments = ("day", cluster.address, str(cluster.path))
    ended = cluster.run("alice", HERE / "users.py", *arguments, timeout=PATIENCE)
    assert ended.code == 0, f"{ended.out}\n{ended.err}\n{cluster.logs()}"
    return ended.answer


ANALYSTS, ENGINEERS = ["a-0", "a-1"], ["e-0", "e-1"]

DAY = {
    "analyst": ANALYSTS,
    "engineer": ENGINEERS,
    "in both": True,
    "stolen": ANALYSTS,
    "none": "worker-group.none",
    "others'": ANALYSTS,
    "some": ["a-0"],
    "name": ["a-1"],
    "both groups, own": ["e-1"],
    "replicated": ANALYSTS,
    "replicated by others": ANALYSTS,
    "scattered": ANALYSTS,
    "scattered elsewhere": "worker-group.values",
    "rebalanced": ANALYSTS,
    "of others": "worker-group.values",
    "data of others": "worker-group.values",
    "of one group": "a",
    "of both groups": "worker-group.values",
    "shared": ["e"],
    "after shared": "worker-group.values",
    "shuffle": 79800,
    "shuffled": ANALYSTS,
    "retired": ["a-0"],
    "not retired": {},
    "kept": ["a-0"],
    "lost": "pending",
}


@pytest.mark.parametrize("step", DAY)
def test_each_group_computes_and_keeps_its_own(day, step):
    assert day[step] == DAY[step]


def test_no_worker_was_handed_a_task_that_it_refuses(cluster, day):
    assert day
    refused = [
        each for each in Log(cluster.audit).refusals() if each["recipient"] in GROUPS.values()
    ]
    assert not refused
    assert {each["rule"] for each in Log(cluster.audit).refusals()} == {
        "worker-group.none",
        "worker-group.values",
    }


def test_a_task_waits_while_its_group_has_no_worker(cluster, day):
    assert day
    cluster.kill("a-0")
    process = cluster.program("alone")
    cluster.add("a-2")
    assert cluster.outcome("alone", process) == {"other": "e", "analyst": "a-2"}

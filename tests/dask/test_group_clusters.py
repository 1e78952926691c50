"""``safeser up --group NAME``: a cluster for each group, which shares nothing with another one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from safeser.dask import group_clusters
from safeser.dask.group_clusters import GroupCluster, up_groups
from safeser.errors import ConfigError
from safeser.identity import Roster
from safeser.policy.ready import locate
from tests.processes import measured

COMMAND = (sys.executable, "-c", "from safeser.cli import main; main()", "up")
PROGRAM = """
import safeser
{connect}
print(client.submit(lambda x: x + 1, 1).result(60))
client.close()
"""


def analysts(demand: str) -> str:
    """Return the ready policy of that name, with *demand* in place of its worker's."""
    text, found = re.subn("  worker:\n +confined: .*\n", f"  worker: {demand}\n", READY)
    assert found == 1
    return text


READY = locate("analysts").read_text()


def used(connect):
    program = PROGRAM.format(connect=connect)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False
    )


@pytest.mark.cluster
def test_each_group_has_a_cluster_that_no_other_groups_key_opens(tmp_path):
    policy = tmp_path / "sealed.yaml"
    policy.write_text(analysts("{}"))
    names = ("one", "two")
    groups = [word for name in names for word in ("--group", name)]
    command = (*COMMAND, str(tmp_path / "all"), *groups, "--policy", str(policy), "--port=0")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=measured(os.environ)
    ) as running:
        try:
            assert running.stdout is not None
            lines = (line for line in running.stdout if line.startswith("client = "))
            one, two = next(lines), next(lines)
            assert str(tmp_path / "all" / "one" / "keys" / "alice.key") in one
            first, second = (re.search(r"safeser://[0-9.:]+", each)[0] for each in (one, two))
            with ThreadPoolExecutor() as beside:
                ended = list(beside.map(used, (one, two, one.replace(first, second))))
            assert [each.stdout for each in ended] == ["2\n", "2\n", ""]
            assert "AuthenticationError" in ended[2].stderr
        finally:
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 0


def test_what_a_group_has_stays_and_is_used_again(tmp_path):
    made = GroupCluster(tmp_path / "analysts")
    assert made.users == ["alice"]
    assert made.policy.name == "analysts"
    assert {path.name for path in made.key("worker").parent.iterdir()} == {
        *("worker.key", "audit.key")
    }
    # A part of the roster beside a key would be found by default, and never change.
    assert not made.key("alice").with_name("roster").exists()
    roster = Roster.load(made.policy_path.with_name("roster"))
    assert {each.principal for each in roster.entries} == {*made.policy.principals}
    key = made.key("alice").read_bytes()
    assert GroupCluster(tmp_path / "analysts").key("alice").read_bytes() == key
    with pytest.raises(ConfigError, match="has a policy already"):
        GroupCluster(tmp_path / "analysts", "sealed")
    # Each group's keys are its own.
    other = GroupCluster(tmp_path / "others", "analysts")
    assert other.key("alice").read_bytes() != key


@pytest.mark.parametrize(
    ("policy", "says"), [(None, "no ready policy 'some'"), ("stock-cluster", "no principal")]
)
def test_a_group_needs_a_policy_of_a_cluster(tmp_path, policy, says):
    with pytest.raises(ConfigError, match=says):
        GroupCluster(tmp_path / "some", policy)
    assert not (tmp_path / "some").exists()


# --- processes -----------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch):
    """Stand in for the processes; their commands are kept."""
    commands = []

    def start(self, principal, command, more, suffix="", dashboard=0):
        commands.append([*map(os.path.basename, command), *more, dashboard])
        if principal == "scheduler":
            Path(more[1]).write_text('{"address": "safeser://127.0.0.1:8786"}')

    monkeypatch.setattr(GroupCluster, "_start", start)
    return commands


def confined(tmp_path, ports: str) -> GroupCluster:
    demand = f"{{confined: {{write: [/scratch], connect: cluster, ports: [{ports}]}}}}"
    policy = tmp_path / "policy.yaml"
    policy.write_text(analysts(demand))
    return GroupCluster(tmp_path / "analysts", str(policy))


def up(tmp_path, *groups: str, policy: str | None = None, port: int = 8786) -> None:
    up_groups(tmp_path, groups, policy=policy, workers=1, port=port, announce=lambda _: None)


def test_a_confined_worker_is_started_confined_on_ports_of_its_policy(tmp_path, started):
    cluster = confined(tmp_path, '8786, "9000-9003"')
    cluster.start(8786, 2)
    workers = started[1:]
    for number, command in enumerate(workers):
        assert command[:5] == ["safeser", "confined", "--", "dask", "worker"]
        assert command[-2:] == [str(9000 + number), 9003 - number]
    with pytest.raises(ConfigError, match="has none for worker 3"):
        cluster.start(8786, 3)


def test_a_scheduler_that_confined_workers_could_not_reach_is_not_started(tmp_path, started):
    for port, says in ((8787, "has no 8787"), (0, "has no port that is chosen when it starts")):
        with pytest.raises(ConfigError, match=says):
            up(tmp_path, "analysts", port=port)
    assert not started


def test_confined_workers_of_two_groups_do_not_share_ports(tmp_path, started):
    demand = "{confined: {connect: cluster, ports: [8786, 8787, '9000-9003']}}"
    policy = tmp_path / "policy.yaml"
    policy.write_text(analysts(demand))
    with pytest.raises(ConfigError, match="of one and two would both listen on port 8787"):
        up(tmp_path, "one", "two", policy=str(policy))
    copy = tmp_path / "two" / "public" / "policy.yaml"
    copy.write_text(analysts(demand.replace("8786, ", "")))
    copy = tmp_path / "one" / "public" / "policy.yaml"
    copy.write_text(analysts(demand.replace("8787, ", "")))
    with pytest.raises(ConfigError, match="of two and one would both listen on port 9000"):
        up(tmp_path, "one", "two")
    assert not started


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/x", "-x", "a b", "a\n", "twice"])
def test_a_group_is_one_folder_below_the_one_that_is_named(tmp_path, started, name):
    with pytest.raises(ConfigError, match=r"is no name|is given twice"):
        up(tmp_path / "all", "twice", name, policy="sealed")
    assert not started
    assert not (tmp_path / "all").exists()


def test_a_process_that_ends_ends_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(group_clusters, "_command", lambda _: [sys.executable, "-c", "exit(3)"])
    cluster = GroupCluster(tmp_path / "analysts")
    with pytest.raises(ConfigError, match="analysts ended with code 3") as caught:
        cluster.start(0, 1)
    assert caught.value.rule == "config.up"
    cluster.end()


def test_a_scheduler_that_does_not_listen_ends_the_command(tmp_path, monkeypatch):
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(group_clusters, "_command", lambda _: sleeps)
    monkeypatch.setattr(group_clusters, "_START", 0.0)
    with pytest.raises(ConfigError, match="does not listen"):
        up_groups(
            *(tmp_path, ["analysts"]),
            **{"policy": "sealed", "workers": 1, "port": 0, "announce": lambda _: None},
        )


def test_a_process_that_stays_is_killed(tmp_path, monkeypatch):
    stays = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    monkeypatch.setattr(group_clusters, "_command", lambda _: [sys.executable, "-c", stays])
    monkeypatch.setattr(group_clusters, "_END", 0.5)
    cluster = GroupCluster(tmp_path / "analysts")
    cluster._start("worker", group_clusters._command("dask"), [])
    ((process, _),) = cluster._processes
    cluster.end()
    assert process.returncode in (-signal.SIGKILL, -signal.SIGTERM)  # it may not have begun

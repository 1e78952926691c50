"""Bad input to the stock commands: one line that says what to do, and exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from safeser.identity import Roster
from tests.processes import DASK, Cluster

pytestmark = pytest.mark.cluster

OPTIONS = ("--host", "127.0.0.1", "--no-dashboard")
SCHEDULER = ("scheduler", "--protocol", "safeser", "--port", "0", *OPTIONS)
WORKER = ("worker", "safeser://127.0.0.1:9", "--nthreads", "1", *OPTIONS)

ONE_PRINCIPAL = """
safeser: 1
name: small
revision: 1
principals: {other: {}, another: {}}
contexts:
  - {name: only, sender: other, recipient: another}
...
"""


def no_key(folder):
    return {"DASK_SAFESER__IDENTITY": str(folder.path / "no-such.key")}, "no-such.key"


def not_listed(folder):
    (folder.path / "small.yaml").write_text(ONE_PRINCIPAL)
    return {"DASK_SAFESER__POLICY": str(folder.path / "small.yaml")}, "'small'"


def no_policy(folder):
    (folder.path / "broken.yaml").write_text("safeser: [1\n...\n")
    return {"DASK_SAFESER__POLICY": str(folder.path / "broken.yaml")}, "broken.yaml"


def open_key(folder):
    for name in ("scheduler", "nanny", "worker"):
        (folder.keys / f"{name}.key").chmod(0o644)
    return {}, "chmod"


def dask(folder, command, environment):
    return folder.call(DASK, *command, environment=environment)


def require_one_line(ended, named):
    lines = [line for line in ended.err.splitlines() if line.startswith("safeser: ")]
    assert ended.code == 2, ended.err
    assert len(lines) == 1, ended.err
    assert named in lines[0]
    assert "Traceback" not in ended.err
    assert ended.out == ""


@pytest.mark.parametrize("bad", [no_key, not_listed, no_policy, open_key])
@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_one_line_and_exit_code_2(folder, role, bad):
    changed, named = bad(folder)
    environment = folder.environment(role, **changed)
    if "DASK_SAFESER__IDENTITY" in changed:
        environment.pop("DASK_SAFESER__NANNY__IDENTITY", None)
    ended = dask(folder, SCHEDULER if role == "scheduler" else WORKER, environment)
    require_one_line(ended, named)


OTHER_SOURCE = """
import dask.dot

def label(*args, **kwargs):
    return "another release of Dask"

dask.dot.label = label
"""


@pytest.mark.parametrize("command", [WORKER, None])
def test_a_release_whose_source_is_unknown_ends_a_command_with_a_table(folder, command):
    (folder.path / "sitecustomize.py").write_text(OTHER_SOURCE)
    environment = folder.environment("scheduler", PYTHONPATH=str(folder.path))
    if command is None:
        ended = folder.call(str(Path(DASK).with_name("safeser")), "up", environment=environment)
    else:
        ended = dask(folder, command, environment)
    assert ended.code == 2, ended.err
    assert "Traceback" not in ended.err
    assert "is not supported" in ended.err
    assert "dask.dot:label changed yes" in " ".join(ended.err.split())
    assert ended.out == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"DASK_SAFESER__IDENTITY": "KEYS/no-such.key"},
        {"DASK_SAFESER__IDENTITY": "KEYS/alice.key"},
        {"DASK_SAFESER__WORKER__POLICY": "KEYS/roster.yaml"},
        {"DASK_SAFESER__WORKER__ROSTER": "KEYS/no-roster"},
    ],
)
def test_what_is_wrong_with_the_worker_of_a_nanny_is_said_before_it_starts(folder, changed):
    changed = {name: value.replace("KEYS", str(folder.keys)) for name, value in changed.items()}
    ended = dask(folder, WORKER, folder.environment("worker", **changed))
    named = next(iter(changed.values())).rpartition("/")[2].removesuffix(".key")
    require_one_line(ended, named)
    assert ended.err.count("\n") == 1  # no worker was started, which would have had its own lines


@pytest.mark.parametrize("nanny", ["--nanny", "--no-nanny"])
def test_a_worker_with_a_users_key_cannot_begin(folder, nanny):
    environment = folder.environment("alice")
    require_one_line(dask(folder, (*WORKER, nanny), environment), "'alice'")


def test_a_scheduler_that_nobody_may_register_with_cannot_begin(folder):
    require_one_line(dask(folder, SCHEDULER, folder.environment("alice")), "'alice'")


# --- what only a running scheduler shows ---------------------------------------------------------


@pytest.mark.parametrize("nanny", ["--nanny", "--no-nanny"])
def test_a_worker_whom_the_scheduler_does_not_accept_ends_the_command(cluster, folder, nanny):
    """Its key is listed on its own side only: the scheduler knows another for its principal."""
    environment = cluster.environment("worker")
    environment["DASK_SAFESER__WORKER__IDENTITY"] = str(folder.keys / "worker.key")
    environment["DASK_SAFESER__WORKER__ROSTER"] = str(folder.path / "both")
    environment["DASK_SAFESER__WORKER__AUDIT"] = str(folder.audit)
    both = [Roster.load(each.keys / "roster").entries for each in (cluster, folder)]
    Roster([*both[0], *both[1]]).save(folder.path / "both")
    ended = dask(folder, ("worker", cluster.address, *WORKER[2:], nanny), environment)
    require_one_line(ended, "did not accept each other")


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A scheduler under whose policy workers that say they are so may not register."""
    text = (Path(__file__).parents[3] / "policies" / "demo.yaml").read_text()
    reports = "[basic, worker-reports, diagnose]"
    assert text.count(reports) == 1
    made = Cluster(tmp_path_factory.mktemp("closed"))
    policy = made.path / "closed.yaml"
    others = text.replace("nanny-reports]", "nanny-reports, register-worker]")
    policy.write_text(others.replace(reports, "[basic]"))
    made.policy = str(policy)
    try:
        made.begin(workers=0)
        made.policy = "demo"
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("nanny", ["--nanny", "--no-nanny"])
def test_a_worker_whom_only_the_schedulers_policy_refuses_ends_the_command(closed, folder, nanny):
    """Its own policy grants what the other side, which answers, does not."""
    environment = closed.environment("worker")
    ended = dask(folder, ("worker", closed.address, *WORKER[2:], nanny), environment)
    require_one_line(ended, "operation register-worker is not granted")


@pytest.mark.parametrize(
    "module", [("dask", "scheduler"), ("distributed.cli.dask_scheduler",)], ids=" ".join
)
def test_by_its_module_a_command_ends_the_same(folder, module):
    command = (sys.executable, "-m", *module, *SCHEDULER[1:])
    ended = folder.call(*command, environment=folder.environment("alice"))
    require_one_line(ended, "'alice'")

"""The files of examples/deploy/confined, by what starts them, as far as this machine has it."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from safeser.confinement.own import _python
from safeser.identities import make_identities
from safeser.policy import Policy
from safeser.policy.questions.lint import lint
from safeser.policy.questions.task_workers import TaskWorkers
from safeser.policy.ready import locate
from safeser.policy.taken_tasks import Takes
from tests.conftest import DASK, base_environment
from tests.needs import needs

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "deploy" / "confined"
UNIT = "safeser-analysts.service"
SAFESER = Path(DASK).with_name("safeser")


@needs("systemd-analyze")
def test_systemd_counts_little_that_the_unit_leaves_open(tmp_path) -> None:
    """Of 10, for a unit without settings; the network, which a worker needs, counts 0.5."""
    text = (EXAMPLES / UNIT).read_text().replace("/opt/safeser/bin/safeser", "/bin/true")
    bare = re.sub(r"^(Protect|Private|Restrict|SystemCall|Capability).*\n", "", text, flags=re.M)
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager"]
    for said, code in ((text, 0), (bare, 1)):
        (tmp_path / UNIT).write_text(said)
        ended = subprocess.run(
            [*command, str(tmp_path / UNIT)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ended.returncode == code, ended.stdout


def test_the_pod_is_started_confined_and_its_network_policy_names_its_ports() -> None:
    deployment, network = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["command"][:5] == ["safeser", "confined", "--", "dask", "worker"]
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert network["spec"]["podSelector"]["matchLabels"].items() <= (
        deployment["spec"]["template"]["metadata"]["labels"].items()
    )
    (rule,) = network["spec"]["egress"]
    ports = [range(each["port"], each.get("endPort", each["port"]) + 1) for each in rule["ports"]]
    demand = confined(Path("/scratch"), Path("/data")).principals["worker"].confined
    assert tuple(ports) == demand.ports


@pytest.mark.parametrize("name", [UNIT, "kubernetes.yaml"])
def test_workers_listen_on_the_ports_that_a_policy_allows_by_default(name) -> None:
    words = re.sub(r"[\n\s-]*\n\s+- ", " ", (EXAMPLES / name).read_text())
    demand = confined(Path("/scratch"), Path("/data")).principals["worker"].confined
    first, last = re.search(r"--worker-port (\d+):(\d+)", words).groups()
    dashboard = re.search(r"--dashboard-address 127.0.0.1:(\d+)", words)[1]
    for port in (first, last, dashboard):
        assert any(int(port) in each for each in demand.ports)


def confined(write: Path, read: Path) -> Policy:
    text = locate("dask-cluster").read_text()
    told = f"  worker: {{confined: {{read: [{read}], write: [{write}]}}}}\n"
    return Policy.parse(text.replace("  worker: {}\n", told))


@pytest.mark.slow
@needs("bwrap")
@pytest.mark.usefixtures("landlock")
def test_every_probe_fails_in_bubblewrap(tmp_path) -> None:
    make_identities(tmp_path / "keys", ("scheduler", "worker"))
    for name in ("own", "data", "scratch", "etc", "log"):
        (tmp_path / name).mkdir(mode=0o700)
    for name in ("worker.key", "audit.key"):
        (tmp_path / "keys" / name).rename(tmp_path / "own" / name)
    (tmp_path / "keys" / "roster").rename(tmp_path / "etc" / "roster")
    text = locate("dask-cluster").read_text()
    told = f"  worker: {{confined: {{read: [{tmp_path}/data], write: [{tmp_path}/scratch]}}}}\n"
    (tmp_path / "etc" / "policy.yaml").write_text(text.replace("  worker: {}\n", told))
    linked = [each for each in _python() if os.path.isdir(each)]
    seen = [*linked, str(ROOT), *(str(tmp_path / name) for name in ("own", "etc", "data"))]
    environment = base_environment() | {
        "DASK_SAFESER__IDENTITY": str(tmp_path / "own" / "worker.key"),
        "DASK_SAFESER__ROSTER": str(tmp_path / "etc" / "roster"),
        "DASK_SAFESER__POLICY": str(tmp_path / "etc" / "policy.yaml"),
        "DASK_SAFESER__AUDIT": str(tmp_path / "log"),
        "SAFESER_COMMAND": str(SAFESER),
        "SAFESER_READ": " ".join(seen),
        "SAFESER_WRITE": f"{tmp_path}/log {tmp_path}/scratch",
    }
    assert sys.prefix in seen
    ended = subprocess.run(
        [EXAMPLES / "bubblewrap.sh", "safeser", "doctor", "--role=worker", "--json"],
        capture_output=True, text=True, timeout=100, check=False, env=environment,
    )  # fmt: skip
    assert ended.stdout, ended.stderr
    found = [each for each in json.loads(ended.stdout) if each["check"].startswith("confined")]
    assert len(found) == 13
    assert [each for each in found if each["state"] != "fine"] == []


def test_the_policy_is_of_one_confined_group() -> None:
    policy = Policy.load(EXAMPLES / "policy.yaml")
    assert TaskWorkers(policy, "scheduler").takes == {"worker": Takes(frozenset({"alice"}))}
    assert policy.principals["worker"].confined is not None
    assert lint(policy, today=datetime.date(2026, 3, 15)) == []

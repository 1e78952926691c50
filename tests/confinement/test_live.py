"""A confined worker on a real cluster: what code inside attempts, and who is not let in."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from safeser.confinement import PROBES
from tests.confinement.conftest import without_capabilities
from tests.confinement.site import SAFESER, Site
from tests.confinement.test_filter import system_v
from tests.conftest import DASK

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("landlock")]

TEXT = (Path(__file__).parents[1] / "dask" / "sealed" / "sealed.yaml").read_text()
PRINCIPALS = ("scheduler", "worker", "nanny", "free", "alice", "bob")

PROGRAM = """
import json, sys
import cloudpickle
import safeser
from tests.confinement import attempts
cloudpickle.register_pickle_by_value(attempts)
address, told, names = json.loads(sys.argv[1])
with safeser.Client(address, timeout=60) as client:
    client.wait_for_workers(2, timeout=60)
    known = client.scheduler_info(n_workers=-1)["workers"]
    at = {info["name"]: where for where, info in known.items()}
    done = {}
    for name in names:
        for function in (attempts.works, attempts.attempt):
            mine = {**told, "scratch": told["scratch"][name]}
            key = f"{name}-{function.__name__}"
            future = client.submit(function, mine, key=key, workers=[at[name]], pure=False)
            done[key] = future.result(120)
    extra = known[at["worker"]].get("safeser-confined")
print(json.dumps({**done, "report": extra}))
"""


class Watched(Site):
    """Two workers: one that is confined, and one that is not, of a principal of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, PRINCIPALS, ports=3)
        for name in ("outside", "free-scratch"):
            (path / name).mkdir()
        (path / "data" / "sales.csv").write_text("name,amount\nann,40\nbob,2\n")
        for name in ("theirs", "removed"):
            (path / "outside" / name).write_text("text")
        confined = f"{{read: [{self.data}], write: [{self.scratch}], ports: {self.ports}}}"
        # A second worker's principal, whose processes are free: the control.
        text = re.sub(r"(recipient|sender): worker\n", r"\1: [worker, free]\n", TEXT)
        text = text.replace("sender: [worker, nanny]", "sender: [worker, free, nanny]")
        self.lenient = text.replace("  worker: {}\n", "  worker: {}\n  free: {}\n")
        self.strict = self.lenient.replace("  worker: {}", f"  worker: {{confined: {confined}}}")
        self.write_policy(self.strict)

    def worker(self, name: str = "worker") -> list[str]:
        command = self.worker_command(name)
        if name == "worker":
            command += ["--worker-port", str(self.ports[1])]
            return [*command, "--dashboard-address", f"127.0.0.1:{self.ports[2]}"]
        return [*command, "--local-directory", str(self.path / "free-scratch")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Watched(tmp_path_factory.mktemp("site"))
    try:
        made.start_scheduler()
        yield made
    finally:
        made.stop()


def records(site, principal: str) -> list[dict]:
    folder = site.path / f"log-{principal}"
    lines = [line for path in folder.glob("*.log*") for line in path.read_text().splitlines()]
    return [json.loads(line)["record"] for line in lines if '"event":"confined"' in line]


def test_a_worker_that_is_not_confined_does_not_start(site) -> None:
    command = [DASK, *site.worker()[1:]]
    ended = site.call(*command, environment=site.environment("worker"))
    assert ended.code == 2
    lines = ended.err.splitlines()
    assert all(line.startswith("safeser: this process is not confined") for line in lines)
    for probe in ("read", "write", "homes", "execute", "connect", "sockets", "trace", "signal"):
        (line,) = [each for each in lines if f"[confined.{probe}]" in each]
        assert "safeser confined" in line
    (record,) = records(site, "worker")
    assert record["permitted"] is False
    assert [each.split()[0] for each in record["probes"]] == list(PROBES)


def test_a_worker_that_reports_nothing_is_not_taken(site) -> None:
    """Its own copy of the policy demands nothing, so that it probes nothing."""
    (site.path / "own-worker").mkdir(exist_ok=True)
    lenient = site.path / "own-worker" / "lenient.yaml"
    lenient.write_text(site.lenient)
    environment = site.environment("worker") | {"DASK_SAFESER__POLICY": str(lenient)}
    ended = site.call(DASK, *site.worker()[1:], environment=environment)
    lenient.unlink()
    assert ended.code == 2
    assert "must prove the confinement" in ended.err
    assert "rule: worker.confined" in ended.err


def test_code_inside_reaches_nothing_that_code_in_a_free_worker_reaches(site) -> None:
    # As little as the worker may: the kernel guards by itself what may do more.
    sleep = [*without_capabilities(), "sleep", "600"]
    other = subprocess.Popen(sleep, stdin=subprocess.DEVNULL)
    listener = socket.create_server(("127.0.0.1", 0))
    confined = [*without_capabilities(), SAFESER, "confined", "--", *site.worker()]
    try:
        site.start("worker", *confined, environment=site.environment("worker"))
        free = site.environment("free")
        site.start("free", DASK, *site.worker("free")[1:], environment=free)
        told = {
            "outside": str(site.path / "outside"),
            "data": str(site.path / "data"),
            "scratch": {
                "worker": str(site.path / "scratch"),
                "free": str(site.path / "free-scratch"),
            },
            "key": str(site.keys / "scheduler.key"),
            "pid": other.pid,
            "port": listener.getsockname()[1],
        }
        checkout = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH", "")]))
        with system_v() as numbers:
            asked = json.dumps([site.address, told | numbers, ["worker", "free"]])
            found = site.run("alice", PROGRAM, asked, PYTHONPATH=paths, timeout=200).answer
    finally:
        listener.close()
        other.kill()
        other.wait()
    reached = [name for name, refused in found["worker-attempt"].items() if not refused]
    assert reached == [], site.log("worker")
    kept = {name: refused for name, refused in found["free-attempt"].items() if refused}
    assert kept == {}  # the control
    for name in ("worker", "free"):
        assert found[f"{name}-works"] == {"total": 42, "names": ["ann", "bob"]}
    assert found["report"]["probes"] == list(PROBES)
    (record,) = [each for each in records(site, "worker") if each["permitted"]]
    assert record["rule"] == "confined.proven"
    assert all(each.split()[1] == "refused:" for each in record["probes"])


def test_what_the_worker_left_ends_with_it(site) -> None:
    site.stop(gently=True)
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert not [line for line in listed.stdout.splitlines() if str(site.path) in line]

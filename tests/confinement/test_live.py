"""A confined worker on a real cluster: what code inside attempts, and who is not let in."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from safeser.confinement import PROBES
from tests.confinement.conftest import without_capabilities
from tests.confinement.test_filter import system_v
from tests.processes import DASK, in_session, until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("landlock")]

#: Attempts everything in each worker and, as the control, in a process that nothing confines.
PROGRAM = """
import json, sys
import cloudpickle
import safeser
from tests.confinement import attempts
cloudpickle.register_pickle_by_value(attempts)
address, told = json.loads(sys.argv[1])
with safeser.Client(address, timeout=60) as client:
    client.wait_for_workers(2, timeout=60)
    known = client.scheduler_info(n_workers=-1)["workers"]
    done = {name: client.submit(getattr(attempts, name), told, workers=[*known][:1]).result(120)
            for name in ("works", "attempt")}
    done["reports"] = [each.get("safeser-confined") for each in known.values()]
print(json.dumps(done))
"""
FREE = """
import json, sys
from tests.confinement import attempts
print(json.dumps(attempts.attempt(json.loads(sys.argv[1]))))
"""


@pytest.fixture(scope="module")
def site(clusters):
    return clusters["confined"]


def records(folder: Path) -> list[dict]:
    lines = [line for path in folder.glob("*.log*") for line in path.read_text().splitlines()]
    return [json.loads(line)["record"] for line in lines if '"event":"confined"' in line]


def test_a_worker_that_is_not_confined_does_not_start(site, tmp_path) -> None:
    command = [DASK, *site.worker_command("free")[1:]]
    environment = site.environment("worker") | {"DASK_SAFESER__AUDIT": str(tmp_path / "audit")}
    ended = site.call(*command, environment=environment)
    assert ended.code == 2
    # Dask may say by itself that it was kept waiting.
    lines = [line for line in ended.err.splitlines() if line.startswith("safeser: ")]
    assert all(line.startswith("safeser: this process is not confined") for line in lines), lines
    assert "Traceback" not in ended.err
    for probe in ("read", "write", "homes", "execute", "connect", "sockets", "trace", "signal"):
        (line,) = [each for each in lines if f"[confined.{probe}]" in each]
        assert "safeser confined" in line
    (record,) = records(tmp_path / "audit")
    assert record["permitted"] is False
    assert [each.split()[0] for each in record["probes"]] == list(PROBES)


def test_a_worker_that_reports_nothing_is_not_taken(site) -> None:
    """Its own copy of the policy demands nothing, so that it probes nothing."""
    lenient = site.path / "own-worker" / "lenient.yaml"
    strict = (site.public / "policy.yaml").read_text()
    lenient.write_text(re.sub(r"  worker:\n +confined: .*\n", "  worker: {}\n", strict))
    environment = site.environment("worker") | {"DASK_SAFESER__POLICY": str(lenient)}
    ended = site.call(DASK, *site.worker_command("free")[1:], environment=environment)
    lenient.unlink()
    assert ended.code == 2
    assert "must prove the confinement" in ended.err
    assert "rule: worker.confined" in ended.err


def test_code_inside_reaches_nothing_that_free_code_reaches(site, tmp_path) -> None:
    outside, scratch = tmp_path / "outside", tmp_path / "scratch"
    for folder in (outside, scratch):
        folder.mkdir()
    for name in ("theirs", "removed"):
        (outside / name).write_text("text")
    (site.data / "sales.csv").write_text("name,amount\nann,40\nbob,2\n")
    checkout = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH", "")]))
    # As little as the worker may: the kernel guards by itself what may do more.
    other = subprocess.Popen([*without_capabilities(), "sleep", "600"], stdin=subprocess.DEVNULL)
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener, system_v() as numbers:
            told = {
                "outside": str(outside),
                "data": str(site.data),
                "scratch": str(site.scratch),
                "key": str(site.keys / "scheduler.key"),
                "pid": other.pid,
                "port": listener.getsockname()[1],
                **numbers,
            }
            asked = json.dumps([site.address, told])
            found = site.run("alice", PROGRAM, asked, PYTHONPATH=paths, timeout=200).answer
            asked = json.dumps({**told, "scratch": str(scratch)})
            free = site.call(
                *(*without_capabilities(), sys.executable, "-c", FREE, asked),
                environment={**os.environ, "PYTHONPATH": paths},
            )
    finally:
        other.kill()
        other.wait()
    reached = [name for name, refused in found["attempt"].items() if not refused]
    assert reached == [], site.logs()
    kept = {name: refused for name, refused in free.answer.items() if refused}
    assert kept == {}  # the control
    assert found["works"] == {"total": 42, "names": ["ann", "bob"]}
    assert [each["probes"] for each in found["reports"]] == [list(PROBES)] * 2
    proven = [each for each in records(site.path / "log-worker") if each["permitted"]]
    assert {each["rule"] for each in proven} == {"confined.proven"}
    assert all(probe.split()[1] == "refused:" for each in proven for probe in each["probes"])


def test_what_the_worker_left_ends_with_it(site) -> None:
    process = site.start_worker("leaves")
    until("the worker", lambda: "name: leaves\n" in site.log("scheduler"))
    assert len(in_session(process.pid)) > 1
    process.terminate()
    process.wait(60)
    until("the end of all of it", lambda: not in_session(process.pid))

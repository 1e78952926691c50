"""Each probe succeeds in a process that is not confined, and fails in one that is."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from safeser.confinement import PROBES, Outcome, Own, Unconfined, probe
from safeser.confinement.outcome import Tries
from safeser.errors import ConfigError

pytestmark = pytest.mark.usefixtures("landlock")


def states(found: dict[str, list[str]]) -> dict[str, str]:
    return {name: each[0] for name, each in found.items()}


def broken(found: dict[str, list[str]]) -> set[str]:
    return {name for name, each in found.items() if each[0] not in ("refused", "allowed")}


def everything(path: Path) -> set[Path]:
    return set(path.rglob("*"))


# --- the control: a process that is not confined -------------------------------------------------


def status(field: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)[field]


#: Where the tests themselves run confined in part, in a container or as an ordinary account.
HELD = {
    "privileges": lambda: status("NoNewPrivs") == "1",
    "capabilities": lambda: int(status("CapEff"), 16) == 0,
    "seccomp": lambda: status("Seccomp") == "2",
}


@pytest.fixture
def free(bench):
    """Return what the probes find in this very process, beside which another one runs."""
    (bench.path / "own" / "alice.key").write_text("key")
    other = subprocess.Popen(["sleep", "60"])
    try:
        yield {each.probe: each for each in probe(bench.demand, bench.own)}
    finally:
        other.kill()
        other.wait()


def test_every_probe_succeeds_in_a_process_that_is_not_confined(free) -> None:
    expected = {name for name in PROBES if not HELD.get(name, lambda: False)()}
    assert {name for name, each in free.items() if each.state == "succeeded"} >= expected
    assert all(each.fix for name, each in free.items() if name in expected)


def test_a_start_names_everything_that_is_to_be_mended_each_by_itself(free) -> None:
    error = Unconfined.of(tuple(free.values()))
    assert isinstance(error, ConfigError)
    failed = [each for each in free.values() if not each.is_met]
    assert [each.rule for each in error.each] == [f"confined.{each.probe}" for each in failed]
    assert [each.fix for each in error.each] == [each.fix for each in failed]
    assert error.message == error.each[0].message
    assert (
        Unconfined.of([Outcome("read", "refused", ""), Outcome("execute", "allowed", "")]) is None
    )


def test_a_probe_leaves_nothing_behind(bench) -> None:
    before = everything(bench.path)
    threads, children = os.listdir("/proc/self/task"), os.listdir("/proc/self/fd")
    shared = Path("/proc/sysvipc/shm").read_text()
    probe(bench.demand, bench.own)
    assert everything(bench.path) == before
    assert not [name for name in os.listdir("/tmp") if name.startswith(".safeser-probe")]
    assert os.listdir("/proc/self/task") == threads
    assert len(os.listdir("/proc/self/fd")) == len(children)
    assert Path("/proc/sysvipc/shm").read_text().count("\n") == shared.count("\n")


# --- a process that is confined ------------------------------------------------------------------


def test_every_probe_fails_in_a_process_that_is_confined(bench) -> None:
    assert states(bench.probe()) == dict.fromkeys(PROBES, "refused")


def test_a_demand_that_allows_something_is_not_probed_for_it(bench) -> None:
    demand = replace(bench.demand, execute=True, connect="any", ports=())
    found = bench.probe(replace(bench.rules, execute=True, ports=None), demand=demand)
    assert broken(found) == set()
    assert {name for name, state in states(found).items() if state == "allowed"} == {
        "execute",
        "connect",
    }


# --- one wall left out ----------------------------------------------------------------------------


def test_without_landlock_files_ports_and_processes_are_open(bench) -> None:
    found = broken(bench.probe(walls=("witness", "seccomp")))
    assert found >= {"read", "homes", "write", "connect", "trace", "signal"}


def test_without_seccomp_other_sockets_memory_and_programs_in_memory_are_open(bench) -> None:
    found = bench.probe(walls=("witness", "landlock"))
    assert broken(found) >= {"sockets", "connect", "execute", "share"}
    assert "a file in memory" in found["execute"][1]  # of which Landlock knows nothing
    assert "Multipath TCP" in found["connect"][1] or "UDP" in found["connect"][1]


def test_nothing_to_try_is_no_refusal() -> None:
    tries = Tries("trace", "read the memory of", "Leave a process.")
    assert tries.outcome().state == "unproven"
    assert not tries.outcome().is_met
    tries.refused("process 1")
    assert tries.outcome().is_met
    tries.succeeded("process 2")
    assert tries.outcome().state == "succeeded"
    assert "process 2" in tries.outcome().found


#: Further paths, and the probe that finds them.
TOO_MANY = [
    *(({"read": (folder,)}, "read") for folder in ("/etc", "/var", "/tmp")),
    *(({"write": (folder,)}, "write") for folder in ("/tmp", "/dev/shm")),
    ({"read": (os.path.expanduser("~"),)}, "homes"),
]


@pytest.mark.parametrize(("more", "expected"), TOO_MANY)
def test_a_folder_too_many_is_found(bench, more, expected) -> None:
    assert expected in broken(bench.probe(bench.also(**more)))


@pytest.mark.parametrize("name", ["data", "own"])
def test_what_may_only_be_read_is_not_written(bench, name) -> None:
    """Neither a listed folder nor that of the process's own files."""
    found = bench.probe(bench.also(write=(str(bench.path / name),)))
    assert broken(found) == {"write"}
    assert str(bench.path / name) in found["write"][1]


def test_a_key_of_another_is_found_though_its_folder_may_be_read(bench) -> None:
    (bench.path / "own" / "alice.key").write_text("key")
    found = bench.probe()
    assert broken(found) == {"keys"}
    assert "alice.key" in found["keys"][1]
    assert "a folder of its own" in found["keys"][2]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"execute": True}, "execute"),
        ({"ports": None}, "connect"),
        ({"ports": (8786, 1)}, "connect"),
    ],
)
def test_programs_and_ports_that_are_not_demanded_are_found(bench, change, expected) -> None:
    assert broken(bench.probe(replace(bench.rules, **change))) == {expected}


def test_a_thread_from_before_is_found(bench) -> None:
    found = bench.probe(thread=True)
    assert {"privileges", "seccomp"} <= broken(found)


def test_files_of_a_process_lie_in_no_folder_that_all_share(bench) -> None:
    with pytest.raises(ConfigError) as caught:
        Own(Path("/etc/worker.key"), bench.own.audit_key, bench.own.audit)
    assert caught.value.rule == "confined.folder"
    assert "/etc" in caught.value.message

"""The demo as a user runs it, and when a step fails."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.demo.attacks import ATTACKS, markers
from examples.demo.groups import why_skipped
from safeser.confinement import PROBES
from safeser.policy.ready import locate

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
DEMO = (sys.executable, "-m", "examples.demo")
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}


def left_running(folder: Path) -> list[int]:
    """Return the processes that have to do with *folder*, by their arguments or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            known = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(folder).encode() in known and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


def demo(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, "--directory", str(folder)],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path):
    folder = tmp_path / "demo-folder"
    yield folder
    assert not left_running(folder)


def test_every_step_succeeds(folder: Path) -> None:
    done = demo(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    titles = re.findall(r"^\d  .*$", done.stdout, re.MULTILINE)
    assert [title[0] for title in titles] == list("1234567")
    assert max(map(len, titles)) <= 80
    table = done.stdout.partition("safeser refused it by")[2]
    for attack in ATTACKS:
        assert attack.what in table
        made = [path.exists() for path in markers(folder / "markers" / "stock", attack)]
        assert any(made) or attack.leaks, attack.name
    # On safeser:// only the code that the policy permits alice ran.
    assert [path.name for path in (folder / "markers" / "safeser").iterdir()] == [
        "alice-update-graph"
    ]
    if not why_skipped():
        _groups_are_apart(done.stdout, folder / "groups")
    stock = re.search(
        r"probe in a stock client: loaded (\d+) pickles of other processes", done.stdout
    )
    assert stock is not None
    assert int(stock[1]) > 0
    _commands_work(done.stdout)


def _groups_are_apart(output: str, groups: Path) -> None:
    """Check that an analyst's code computed, and reached nothing of an engineer."""
    said = " ".join(output.split())
    size = (groups / "engineers" / "keys" / "erin.key").stat().st_size
    for line in (
        f"confined: {len(PROBES)} probes in the analysts' worker passed before it listened",
        "dana, an analyst: her lambda returned 499500 in the confined worker",
        "her lambda opens erin's key: PermissionError: Permission denied",
        f"the same lambda read its {size} bytes in the engineers' worker",
        "dana at the engineers' cluster: refused by authentication",
    ):
        assert line in said
    # No key of one group is listed by the other.
    rosters = [groups / group / "public" / "roster" for group in ("analysts", "engineers")]
    one, other = (set(re.findall(r"x25519:\S+", roster.read_text())) for roster in rosters)
    assert one
    assert other
    assert not one & other


def _commands_work(output: str) -> None:
    """Run the three commands that the demo ends with, as they were printed."""
    commands = re.findall(r"^   \$ (.*(?:explain|tail|verify) .*)$", output, re.MULTILINE)
    assert len(commands) == 3
    codes = [
        subprocess.run(
            shlex.split(command), env=ENVIRONMENT, capture_output=True, timeout=60, check=False
        ).returncode
        for command in commands
    ]
    assert codes == [1, 0, 0]  # what bob may do with a graph is explained by a denial


#: The demo without its third step and with one attack: the workload does not depend on the policy,
#: nor does the refusal of the other attacks.
WITHOUT_WORK = """
import os, sys
from pathlib import Path
from examples.demo import attack_run, steps
steps._work = lambda *_: None
attack_run.ATTACKS = [attack for attack in attack_run.ATTACKS if attack.name == "update-graph"]
raise SystemExit(steps.run(directory=Path(sys.argv[1]), policy=sys.argv[2], environment=os.environ))
"""


def test_a_policy_that_grants_bob_code_fails_the_demo(folder: Path, tmp_path: Path) -> None:
    text = locate("demo").read_text(encoding="utf-8")
    guests = text.index("- name: guests-look")
    granted = text[guests:].replace("submission: none", "submission: code", 1)
    granted = granted.replace("[dask, msgpack]", "[dask, msgpack, pickle, cloudpickle]", 2)
    policy = tmp_path / "generous.yaml"
    policy.write_text(text[:guests] + granted, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_WORK, str(folder), str(policy)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    said = "Step failed: 'update-graph with code' (bob) ran"
    assert said in done.stdout, done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_it_leaves_nothing(folder: Path, number: int) -> None:
    with _started(folder) as process:
        process.send_signal(number)
        assert process.wait(120) == 128 + number


def test_a_cluster_process_that_dies_ends_it_with_the_reason(folder: Path) -> None:
    with _started(folder) as process:
        scheduler = next(
            pid
            for pid in left_running(folder)
            if b"safeser-scheduler.json" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(scheduler, signal.SIGKILL)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "Step failed: " in output


@contextlib.contextmanager
def _started(folder: Path):
    """Run the demo until its cluster's scheduler runs."""
    with subprocess.Popen(
        [*DEMO, "--directory", str(folder)],
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + 120
            while not (folder / "scratch" / "safeser-scheduler.json").exists():
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.05)
            yield process
        finally:
            process.kill()

"""The demo as its reader runs it, and when a step does not come out as said."""

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

from safeser.demo.attacks import ATTACKS, markers
from safeser.demo.groups import why_left_out
from safeser.policy.ready import locate
from tests.conftest import measured

pytestmark = pytest.mark.cluster

SAFESER = str(Path(sys.executable).with_name("safeser"))
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


#: The command, with coverage measured in its own programs, but not in Dask's.
DEMO = """
import sys
from safeser.cli import main
from safeser.demo.processes import Processes

start = Processes.start

def started(self, name, command, *, environment=None, talks=False):
    own = {} if talks else {"COVERAGE_PROCESS_CONFIG": ""}
    return start(self, name, command, environment={**(environment or {}), **own}, talks=talks)

Processes.start = started
main()
"""


def demo(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DEMO, "demo", "--directory", str(folder)],
        env=measured(ENVIRONMENT),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path):
    folder = tmp_path / "demo-folder"
    yield folder
    assert not left_running(folder)


def test_every_step_comes_out_as_said(folder: Path) -> None:
    done = demo(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    for number in range(1, 8):
        assert re.search(rf"^{number}  ", done.stdout, re.MULTILINE)
    table = done.stdout.partition("what is sent")[2]
    for attack in ATTACKS:
        assert attack.what in table
        made = [path.exists() for path in markers(folder / "markers" / "stock", attack)]
        assert any(made) or attack.leaks, attack.name
    # The one thing that ran on safeser:// is what alice is granted.
    assert [path.name for path in (folder / "markers" / "safeser").iterdir()] == [
        "alice-update-graph"
    ]
    assert (": refused to dana by values.author" in done.stdout) == (not why_left_out())
    stock = re.search(r"probe in a stock client: (\d+) pickles of peers", done.stdout)
    assert stock is not None
    assert int(stock[1]) > 0
    _commands_work(done.stdout)


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


#: The demo without its third step, and with one attack: what alice works is the same under any
#: policy, and the other attacks are refused here as there.
WITHOUT_WORK = """
import os, sys
from pathlib import Path
from safeser.demo import assault, story
story._work = lambda *_: None
assault.ATTACKS = [attack for attack in assault.ATTACKS if attack.name == "update-graph"]
raise SystemExit(story.run(directory=Path(sys.argv[1]), policy=sys.argv[2], environment=os.environ))
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
        timeout=240,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    said = "This did not come out as said: 'update-graph with code' (bob) ran"
    assert said in done.stdout, done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_it_leaves_nothing(folder: Path, number: int) -> None:
    with _started(folder) as process:
        process.send_signal(number)
        assert process.wait(60) == 128 + number


def test_a_cluster_process_that_dies_ends_it_with_the_reason(folder: Path) -> None:
    with _started(folder) as process:
        scheduler = next(
            pid
            for pid in left_running(folder)
            if b"safeser-scheduler.json" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(scheduler, signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "This did not come out as said: " in output


@contextlib.contextmanager
def _started(folder: Path):
    """Run the demo until its cluster's scheduler runs."""
    command = [SAFESER, "demo", "--directory", str(folder)]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 60
            while not (folder / "scratch" / "safeser-scheduler.json").exists():
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.05)
            yield process
        finally:
            process.kill()

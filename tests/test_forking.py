"""A forked process is what a new interpreter is, but for what it has imported."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests import forking
from tests.conftest import Folder, base_environment
from tests.forking import DASK
from tests.forking import can_fork as can_fork_from

TELLS = """
import json, os, signal, sys, dask, __main__
told = {"argv": sys.argv, "path": sys.path[0], "folder": os.getcwd(), "leads": os.getsid(0)}
told["leads"] = told["leads"] == os.getpid()
told["main"] = __main__.told is told
told["policy"] = dask.config.get("safeser.policy")
told["connect"] = dask.config.get("distributed.comm.timeouts.connect")
told["environment"] = {k: v for k, v in os.environ.items() if k.startswith("DASK_")}
told["interrupted"] = signal.getsignal(signal.SIGINT) is signal.default_int_handler
told["files"] = sorted(os.listdir("/proc/self/fd"))[:3]
told["installed"] = "safeser" in sys.modules["distributed.comm.registry"].backends if (
    "distributed" in sys.modules) else False
print(json.dumps(told))
"""


@pytest.fixture(autouse=True)
def origin(monkeypatch):
    """Fork from a process of this test: the environment may have changed since another."""
    monkeypatch.setattr(forking, "_origins", [])
    yield
    for each in forking._origins:
        each.close()


@pytest.mark.parametrize("fails", ["", "\nraise SystemExit(3)", "\n1 / 0"])
@pytest.mark.parametrize("script", [False, True])
def test_it_is_what_a_new_one_is(folder: Folder, script, fails):
    program = folder.path / "program.py"
    program.write_text(TELLS + fails)
    ended = []
    for folder.fresh in (True, False):
        if not folder.fresh:
            assert can_fork([sys.executable, "-c", ""], folder.environment("alice"))
        given = program if script else TELLS + fails
        ended.append(folder.run("alice", given, "an argument"))
    fresh, forked = ended
    assert (forked.code, forked.err) == (fresh.code, fresh.err)
    assert json.loads(forked.out) == json.loads(fresh.out)
    assert forked.code == {"": 0, "\n1 / 0": 1}.get(fails, 3)


def can_fork(command, environment):
    return can_fork_from(command, environment, base_environment())


def test_only_what_differs_in_settings_of_safeser_is_forked(folder: Folder):
    environment = folder.environment("alice")
    assert can_fork([DASK, "scheduler"], environment)
    assert can_fork([sys.executable, "-c", ""], {**environment, "DASK_SAFESER__POLICY": "x"})
    assert not can_fork([sys.executable, "-m", "dask"], environment)
    assert not can_fork(["/bin/true", "x"], environment)
    for name in ("PYTHONPATH", "PYTHONHASHSEED", "COVERAGE_PROCESS_START", "DASK_DISTRIBUTED__X"):
        assert not can_fork([DASK, "worker"], {**environment, name: "x"})


def test_its_end_is_seen_and_its_group_ends_with_it(folder: Folder):
    folder.fresh = False
    process = folder.start(
        "sleeper", sys.executable, "-c", "input()", environment=folder.environment("alice")
    )
    assert process.wait(30) == 1  # there is no input
    assert "EOFError" in folder.log("sleeper")
    process = folder.start(
        *("sleeper", sys.executable, "-c", "import time; time.sleep(600)"),
        environment=folder.environment("alice"),
    )
    assert process.poll() is None
    assert os.getpgid(process.pid) == process.pid
    folder.stop()
    assert process.returncode == -9

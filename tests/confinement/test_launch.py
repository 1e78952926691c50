"""The launcher: what it refuses to start, and what is in force before anything is imported."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import asdict, replace

import pytest

from safeser.confinement import launch
from safeser.errors import ConfigError, MissingExtraError
from tests.confinement.conftest import without_capabilities
from tests.conftest import base_environment


def run(rules: launch.Rules, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*without_capabilities(), *launch.command_line(rules, command)],
        capture_output=True, text=True, timeout=60, check=False, env=base_environment(),
        cwd=rules.write[-1],
    )  # fmt: skip


def test_a_command_line_names_no_folder_of_modules_and_says_all_rules(bench) -> None:
    line = launch.command_line(bench.rules, ["dask", "worker"])
    assert line[:4] == [sys.executable, "-P", "-m", "safeser.confinement.launch"]
    assert launch.Rules(**json.loads(line[4])) != bench.rules  # lists, where these are tuples
    assert json.loads(line[4]) == json.loads(json.dumps(asdict(bench.rules)))
    assert line[5:] == ["dask", "worker"]


def test_a_command_runs_confined(landlock, bench) -> None:
    ended = run(bench.rules, "safeser", "--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("safeser ")
    refused = run(bench.rules, "safeser", "policy", "check", "/etc/passwd")
    assert refused.returncode == 2
    assert "Permission denied" in refused.stderr


def test_files_that_were_open_before_are_closed(tmp_path) -> None:
    program = (
        "import os, sys; from safeser.confinement import launch; launch._close_inherited();"
        "print(os.path.exists(f'/proc/self/fd/{sys.argv[1]}'), os.readlink('/proc/self/fd/0'))"
    )
    with (tmp_path / "secret").open("w") as secret, (tmp_path / "secret").open() as typed:
        ended = subprocess.run(
            [sys.executable, "-c", program, str(secret.fileno())],
            pass_fds=[secret.fileno()], stdin=typed, capture_output=True, text=True, timeout=60,
            check=False, env=base_environment(),
        )  # fmt: skip
    assert ended.stdout == "False /dev/null\n", ended.stderr


def test_another_program_than_pythons_is_not_started(landlock, bench) -> None:
    ended = run(bench.rules, "sh", "-c", "id")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "[confined.command]" in ended.stderr


def test_threads_that_run_already_are_refused(landlock, bench) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with pytest.raises(ConfigError) as caught:
            launch.restrict(bench.rules)
    finally:
        over.set()
        thread.join()
    assert caught.value.rule == "confined.threads"


class Landlock:
    def __init__(self, version: int) -> None:
        self.version = version

    def abi_version(self) -> int:
        return self.version


@pytest.mark.parametrize(("version", "said"), [(0, "no Landlock"), (5, "has version 5")])
def test_a_kernel_that_confines_too_little_is_refused(monkeypatch, version, said) -> None:
    monkeypatch.setattr(launch, "_libraries", lambda: (Landlock(version), None))
    with pytest.raises(ConfigError) as caught:
        launch.require_kernel()
    assert caught.value.rule == "confined.landlock"
    assert said in caught.value.message


def test_a_kernel_that_confines_enough_is_taken(monkeypatch) -> None:
    monkeypatch.setattr(launch, "_libraries", lambda: (Landlock(launch.LEAST_ABI), None))
    launch.require_kernel()


def test_what_is_not_installed_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "landlockpy", None)
    with pytest.raises(MissingExtraError) as caught:
        launch.require_kernel()
    assert "extra landlock" in caught.value.fix


def test_a_path_that_went_meanwhile_is_left_out(landlock, bench) -> None:
    gone = str(bench.path / "gone")
    ended = run(replace(bench.rules, read=(*bench.rules.read, gone)), "safeser", "--version")
    assert ended.returncode == 0, ended.stderr

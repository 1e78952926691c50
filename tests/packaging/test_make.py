"""``make`` where something is missing: one clear line, code 2, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def make(*arguments, path=None, **more):
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    env |= more
    if path is not None:
        env["PATH"] = str(path)
    return subprocess.run(
        ["/usr/bin/env", "make", "--no-print-directory", *arguments],
        cwd=PROJECT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def stub(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("target", ["demo", "test", "check"])
@pytest.mark.parametrize(
    "script",
    [
        "exit 127",  # not there, or broken
        "echo",  # too old: the check prints an empty line
        'echo "No module named venv" >&2; exit 1',
    ],
)
def test_without_a_usable_python(tmp_path, target, script):
    python = stub(tmp_path, "python", script)
    ended = make(f"PYTHON={python}", f"VENV={tmp_path / 'venv'}", target)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "safeser: no Python 3.11 or newer with the venv module" in ended.stderr
    assert ended.stdout == ""
    assert not (tmp_path / "venv").exists()


def test_a_failed_installation_says_so_and_is_tried_again(tmp_path):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    stub(venv / "bin", "python", '[ "$1" = -c ] && exit 0; echo "no route to index" >&2; exit 1')
    ended = make(f"VENV={venv}", "demo")
    assert ended.returncode == 2
    assert "no route to index" in ended.stderr
    assert "safeser: the packages of requirements/demo.lock could not be installed" in ended.stderr
    assert not list(venv.glob("*.stamp"))


@pytest.mark.parametrize("name", ["PYTHONDONTWRITEBYTECODE", "PYTHONPATH"])
def test_what_would_slow_or_mislead_every_process_is_not_passed_on(tmp_path, name):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    for tool in ("ruff", "mypy", "lint-imports", "python"):
        stub(venv / "bin", tool, f'echo "{tool}, ${{{name}-unset}}, $KEPT"')
    (venv / "dev.stamp").touch()
    ended = make(f"VENV={venv}", "check", KEPT="kept", **{name: "1"})
    assert ended.returncode == 0, ended.stderr
    for tool in ("ruff", "mypy", "lint-imports"):
        assert f"\n{tool}, unset, kept\n" in f"\n{ended.stdout}"


def test_ci_runs_the_documented_command():
    script = (PROJECT / ".ci" / "run").read_text()
    assert "make --no-print-directory test" in script
    assert "make --no-print-directory compat" in script
    assert "make --no-print-directory docs" in script
    assert os.access(PROJECT / ".ci" / "run", os.X_OK)
    assert "make test" in (PROJECT / "README.md").read_text()

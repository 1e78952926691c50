"""Runs commands in this process, for speed, and in one of their own, for what only that shows."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from safeser.cli.app import app
from safeser.cli.ending import run


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def safeser(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*arguments: str | os.PathLike[str]) -> Ended:
        code = run(functools.partial(app, [os.fspath(each) for each in arguments]))
        return Ended(code, *capfd.readouterr())

    return call


@pytest.fixture(scope="session")
def process() -> Callable[..., Ended]:
    def call(*arguments: str | os.PathLike[str], **options: object) -> Ended:
        command = [sys.executable, "-c", "from safeser.cli import main; main()"]
        env = {**os.environ, "COLUMNS": "80", "PYTHONWARNINGS": "error"}
        ended = subprocess.run(
            [*command, *map(os.fspath, arguments)],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return call


@pytest.fixture
def keys(tmp_path: Path, safeser: Callable[..., Ended]) -> Path:
    folder = tmp_path / "keys"
    assert safeser("keys", "init", folder).code == 0
    return folder

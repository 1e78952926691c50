"""Runs commands in this process, for speed."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from safeser.cli.app import app
from safeser.cli.ending import run


@functools.cache
def _command() -> Callable[[list[str]], object]:
    """Return the command that the app makes of its functions at each call."""
    return typer.main.get_command(app)


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
        code = run(functools.partial(_command(), [os.fspath(each) for each in arguments]))
        return Ended(code, *capfd.readouterr())

    return call


@pytest.fixture(scope="session")
def made_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that ``safeser keys init`` made, which no test changes."""
    folder = tmp_path_factory.mktemp("made") / "keys"
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(functools.partial(_command(), ["keys", "init", str(folder)])) == 0
    return folder


@pytest.fixture
def keys(tmp_path: Path, made_keys: Path) -> Path:
    return Path(shutil.copytree(made_keys, tmp_path / "keys"))

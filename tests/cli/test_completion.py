"""Shell completion: what the command offers, and what a real bash makes of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from safeser.cli.ending import run
from tests.cli.conftest import _command

BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("po", ["policy"]),
        ("policy s", ["show", "schema"]),
        ("policy show de", ["default", "demo"]),
        ("policy check tru", ["trusted"]),
        ("policy explain dask", ["dask-cluster"]),
        ("doctor --role w", ["worker"]),
        ("doctor --id", ["--identity"]),
        ("keys f", ["fingerprint"]),
        ("nothing x", []),
    ],
)
def test_what_is_offered(capfd, monkeypatch, words, offered):
    """As a shell asks: by variables of the environment."""
    monkeypatch.setenv("_SAFESER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"safeser {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    assert run(lambda: _command().main([], prog_name="safeser")) in (0, 1)
    assert capfd.readouterr().out.split() == offered


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    script = """
safeser --show-completion > "$HOME/../script"
source "$HOME/../script"
complete -p safeser
COMP_WORDS=(safeser policy sch); COMP_CWORD=2
_safeser_completion safeser
echo "${COMPREPLY[@]}"
"""
    ended = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.splitlines() == [
        "complete -o default -F _safeser_completion safeser",
        "schema",
    ], ended.stderr
    assert list(home.iterdir()) == []  # to show a script installs nothing

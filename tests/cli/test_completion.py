"""Shell completion: what typer writes for each shell, and what a real bash makes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def completed(words, **environment):
    """Ask the command as a shell's completion does; return what it offers."""
    ended = subprocess.run(
        [BIN / "safeser"],
        env={
            **os.environ, "_SAFESER_COMPLETE": "complete_bash",
            "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1), **environment,
        },
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("safeser po", ["policy"]),
        ("safeser policy s", ["show", "schema"]),
        ("safeser policy show de", ["default", "demo"]),
        ("safeser policy check tru", ["trusted"]),
        ("safeser policy explain dask", ["dask-cluster"]),
        ("safeser doctor --role w", ["worker"]),
        ("safeser doctor --id", ["--identity"]),
        ("safeser keys f", ["fingerprint"]),
        ("safeser nothing x", []),
    ],
)
def test_what_is_offered(words, offered):
    assert completed(words) == offered


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "COMPREPLY"), ("zsh", "#compdef safeser"), ("fish", "complete")]
)
def test_the_script_of_a_shell_is_shown(shell, word):
    # Otherwise it is the shell that the command is run from.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ended = subprocess.run(
        [BIN / "safeser", "--show-completion", shell],
        env={**os.environ, **named},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert word in ended.stdout


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
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.stdout.splitlines() == [
        "complete -o default -F _safeser_completion safeser", "schema",
    ], ended.stderr  # fmt: skip
    assert list(home.iterdir()) == []  # to show a script installs nothing


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_script_is_installed_below_the_home_folder(tmp_path):
    ended = subprocess.run(
        ["bash", "--norc", "-c", "safeser --install-completion; exit"],
        env={"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    [script] = tmp_path.rglob("safeser.sh")
    assert "_safeser_completion" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()

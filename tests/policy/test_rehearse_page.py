"""docs/how-to/rehearse.md: every command on the page prints what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import Page
from tests.policy import recorded

PAGE = Page("how-to/rehearse.md")


def test_the_page_has_the_whole_walk() -> None:
    said = " ".join(command.text for command in PAGE.commands)
    for each in ("show observe", "lint", "replay", "learn", "test", "diff"):
        assert f"safeser policy {each}" in said


@pytest.mark.slow
def test_each_command_prints_what_the_page_says(tmp_path: Path) -> None:
    recorded.write(tmp_path / "audit")
    (tmp_path / "cases.yaml").write_text(PAGE.files["cases.yaml"], "utf-8")
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        **{"PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "80", "NO_COLOR": "1"},
    }
    for command, expected in PAGE.commands:
        ended = subprocess.run(
            ["bash", "-c", f"umask 077; {command}"],
            **{"cwd": tmp_path, "env": environment, "capture_output": True, "text": True},
            timeout=100,
            check=False,
        )
        printed = [line.rstrip() for line in (ended.stdout + ended.stderr).splitlines()]
        assert printed == list(expected), command
        assert ended.returncode in (0, 1), command
    assert ended.returncode == 1  # the last one is the check that fails on a loosening

"""docs/how-to/operations.md: every command on the page runs, and prints what the page says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit import demo_day
from tests.pages import Page, matches, shell

PAGE = Page("how-to/operations.md")
IN_TABLE = re.findall(r"^\| .* \| `(safeser [^`]*)` \|$", PAGE.text, re.M)
FOLLOWING = "safeser audit tail audit -f"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    demo_day.write(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_each_command_prints_what_the_page_says(folder: Path) -> None:
    with shell(folder, os.environ) as opened:
        for command in PAGE.commands:
            printed, code = opened.run(command.text, 100)
            assert matches(printed, command.printed), f"{command.text}\n" + "\n".join(printed)
            assert code == 0, command.text
        ran = {command.text for command in PAGE.commands}
        for text in IN_TABLE:
            if text == FOLLOWING or text in ran:
                continue
            printed, code = opened.run(text.replace("KEY", demo_day.TASKS[0]), 100)
            assert code in (0, 1), f"{text}\n" + "\n".join(printed)
            assert not any("Traceback" in line for line in printed)


def test_the_log_is_followed(folder: Path) -> None:
    assert FOLLOWING in IN_TABLE
    scripts = Path(sys.executable).parent
    with subprocess.Popen(
        ["bash", "-c", f"exec {FOLLOWING}"],
        cwd=folder,
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        shown = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert re.search(r"ok|REFUSED", shown)

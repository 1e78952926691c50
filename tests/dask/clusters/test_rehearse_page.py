"""docs/how-to/rehearse.md: the walk on a live cluster, as the page has it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from tests.forking import Commands
from tests.pages import Command, Page, Shell, matches, shell
from tests.processes import PATIENCE, base_environment, free_ports

pytestmark = pytest.mark.cluster

PAGE = Page("how-to/rehearse.md")
PORT = "8786"

#: Commands that end with another code than 0, because of what they found.
FOUND = ("policy lint", "policy replay", "policy diff", "attempt.py", "restart.py")


def run(opened: Shell, command: Command) -> tuple[list[str], int]:
    """Run a command; one that looks at what processes log is repeated until that is there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        printed, code = opened.run(command.text, 100)
        looks = command.text.startswith("grep ") and command.text.endswith(".log")
        if not looks or printed == list(command.printed) or time.monotonic() > deadline:
            return printed, code
        time.sleep(0.2)


def test_the_walk_prints_what_the_page_says(tmp_path):
    [port] = map(str, free_ports(1))
    for name, text in PAGE.files.items():
        (tmp_path / name).write_text(text.replace(PORT, port), "utf-8")
    environment = base_environment() | {"PYTHONUNBUFFERED": "1"}
    commands = Commands(tmp_path / ".commands", base_environment())
    with contextlib.closing(commands), shell(tmp_path, environment) as opened:
        opened.run(f"export PATH={tmp_path}/.commands:$PATH", 10)
        for command in PAGE.commands:
            asked = command._replace(text=command.text.replace(PORT, port))
            printed, code = run(opened, asked)
            said = "\n".join(printed)
            assert matches(printed, command.printed), f"{command.text}\n{said}\n{logs(tmp_path)}"
            may_fail = any(each in command.text for each in FOUND)
            assert code == 0 or (may_fail and code == 1), command.text


def logs(folder: Path) -> str:
    """Return the ends of what the cluster's processes logged."""
    return "\n".join(path.read_text("utf-8")[-3000:] for path in sorted(folder.glob("*.log")))


def test_the_page_has_each_step_and_each_role():
    said = "\n".join(command.text for command in PAGE.commands)
    for each in ("learn", "lint", "replay", "test", "diff", "drift"):
        assert f"safeser policy {each}" in said
    for role in ("carol", "alice", "oscar"):
        assert f"keys/{role}.key python {role}.py" in said

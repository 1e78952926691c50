"""The documents: their examples run, their links lead somewhere, their commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from safeser.cli.app import app
from tests.conftest import PATIENCE
from tests.pages import Page, matches, shell

PROJECT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)#]+)")
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])


@pytest.mark.parametrize(("page", "count"), [("README.md", 1), ("docs/tutorials/library.md", 6)])
def test_python_examples_run(tmp_path, page, count):
    blocks = re.findall(r"^```python\n(.*?)^```", (PROJECT / page).read_text(), re.M | re.S)
    assert len(blocks) == count
    subprocess.run(
        [sys.executable, "-W", "error", "-c", "".join(blocks)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=60,
    )


def test_the_library_tutorial_ends_with_two_processes(tmp_path):
    page = Page("tutorials/library.md")
    for name, text in page.files.items():
        (tmp_path / name).write_text(text, "utf-8")
    install = "pip install ."
    texts = [command.text for command in page.commands]
    with shell(tmp_path, os.environ) as opened:
        for command in page.commands[texts.index(install) + 1 :]:
            printed, code = opened.run(command.text, PATIENCE)
            assert matches(printed, command.printed), "\n".join(printed)
            assert code == 0, command.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_to_files(page):
    for target in LINK.findall(page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_code_is_as_wide_as_its_box(page):
    # What commands print wraps in the browser; code and commands would be cut off.
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.M | re.S):
        printed = language in ("console", "text", "json")
        assert [x for x in text.splitlines() if len(x) > 88 and not printed] == []
        assert [x for x in text.splitlines() if len(x) > 88 and x.startswith("$ ")] == []


def test_commands_that_the_documents_name_exist():
    named = set()
    for page in PAGES:
        named |= set(
            re.findall(r"safeser ((?:keys|policy|audit) [a-z]+)(?![\w-])", page.read_text())
        )
    assert {"keys init", "policy show", "audit verify"} <= named
    assert named - commands() == set()


def commands():
    """Return the words of each command, as they are typed after ``safeser``."""
    tree = typer.main.get_command(app)
    names = {name for name, each in tree.commands.items() if not hasattr(each, "commands")}
    for group, each in tree.commands.items():
        names |= {f"{group} {name}" for name in getattr(each, "commands", ())}
    return names

"""The documents: their examples run, their links lead somewhere, their commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from safeser.cli.app import app

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_to_files(page):
    for target in LINK.findall(page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


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

"""The parts of the site's pages that are made from the code."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import safeser

PROJECT = Path(__file__).parents[2]


@cache
def load(name):
    path = PROJECT / "docs" / "theme" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"site_{name}", path)
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses ask for it
    spec.loader.exec_module(found)
    return found


def test_markers_of_pages_are_known():
    made = load("reference").MADE
    pages = (PROJECT / "docs").rglob("*.md")
    named = {name for page in pages for name in re.findall("<!-- made: (.*) -->", page.read_text())}
    assert named == set(made)


def test_every_public_name_is_in_the_reference():
    pages = [(PROJECT / "docs/reference" / name).read_text() for name in ("python.md", "rules.md")]
    named = set(re.findall(r"^::: safeser\.(\w+)", "\n".join(pages), re.M))
    errors = {name for name in safeser.__all__ if name.endswith(("Error", "Denied"))}
    assert set(safeser.__all__) - errors - {"audit", "pickles"} - named == set()

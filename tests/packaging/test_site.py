"""The parts of the site's pages that are made from the code."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import safeser

PROJECT = Path(__file__).parents[2]


@cache
def load(name):
    path = PROJECT / "docs" / "theme" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"site_{name}", path)
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses ask for it
    spec.loader.exec_module(found)
    return found


def test_every_field_of_a_policy_is_in_the_reference():
    page = load("reference").policy_fields()
    for heading in ("## `contexts`", "## `principals.confined`", "## `limits`"):
        assert heading in page
    for field in ("submission", "max_array", "authors", "same_host", "key_conflicts"):
        assert f"| `{field}` |" in page
    assert "| `safeser` | Version of the policy language. | `1` | **required** |" in page
    assert "`update-graph`" in page  # in the list of words below its table
    assert max(map(len, page.splitlines())) < 5000


def test_every_command_is_in_the_reference():
    page = load("reference").commands()
    assert "### `safeser keys init`" in page
    assert "safeser inspect [OPTIONS] FILE..." in page
    assert "| `--principal NAME` |" in page


@functools.cache
def rules():
    """Return the page of rules, which takes seconds to make."""
    return load("reference").rules()


@pytest.mark.unmeasured
def test_rules_are_in_the_reference():
    page = rules()
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in page.splitlines() if row} <= {0, 5}
    assert re.search(r"^\| `config\.signing` \| `ConfigError` \| .+ \| .+ \|$", page, re.M)
    assert "## `envelope`" in page


#: Rules that the code puts together of two texts, or keeps in a table.
PUT_TOGETHER = {
    "config.extra",
    "config.file-folder",
    "config.file-link",
    "config.file-mode",
    "config.file-owner",
    "config.not-supported",
    "config.suite",
    "config.value",
    "families.buffers",
    "families.max-array",
    "families.max-bytes",
    "families.max-refs",
    "families.version",
    "key.retired",
    "key.verify-only",
    "lint.confinement",
    "lint.values",
    "marker.pickled",
    "nanny.confined",
    "pickle.extension",
    "pickle.frame",
    "pickle.opcodes",
    "token.nondeterministic",
}


@pytest.mark.unmeasured
def test_rules_that_tests_assert_are_in_the_reference():
    listed = set(re.findall(r"^\| `([a-z0-9.-]+)` \|", rules(), re.M))
    assert {"operation.not-granted", "author.relayed", "pickle.state", "value.sparse"} <= listed
    asserted = {
        rule
        for path in (PROJECT / "tests").rglob("test_*.py")
        for rule in re.findall(r'\brule == "([a-z]+\.[a-z0-9-]+)"', path.read_text("utf-8"))
    }
    assert asserted - listed <= PUT_TOGETHER


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

"""The page on architecture names files and definitions that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`((?:safeser|tests|docs|requirements)/[^`\s]+)`", PAGE)))


def _defined(tree, names):
    """Return whether the dotted *names* are definitions in *tree*, one inside of the other."""
    for name in names:
        found = [
            node
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == name
        ]
        if not found:
            return False
        [tree] = found
    return True


def test_the_page_names_many():
    assert len(NAMED) > 50


@pytest.mark.parametrize("named", NAMED)
def test_each_named_place_is_there(named):
    path, _, definition = named.partition(":")
    assert (ROOT / path).exists()
    if definition:
        assert _defined(ast.parse((ROOT / path).read_text("utf-8")), definition.split("."))


@pytest.mark.parametrize("folder", ["safeser", "safeser/dask"])
def test_each_package_is_on_the_page(folder):
    packages = {path.parent for path in (ROOT / folder).glob("*/__init__.py")}
    assert {f"{folder}/{package.name}" for package in packages} <= set(NAMED)


def test_a_definition_that_is_not_there_is_found_out():
    tree = ast.parse("class A:\n    def b(self): ...")
    assert _defined(tree, ["A", "b"])
    assert not _defined(tree, ["A", "c"])
    assert not _defined(tree, ["b"])


def test_packages_are_small():
    """Some fifteen files in a folder, and no file over 600 lines."""
    files = list((ROOT / "safeser").rglob("*.py"))
    long = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if len(path.read_text("utf-8").splitlines()) > 600
    }
    assert not long
    counts = {folder: len(list(folder.glob("*.py"))) for folder in {p.parent for p in files}}
    crowded = {f.relative_to(ROOT).as_posix() for f, count in counts.items() if count > 16}
    assert not crowded


def test_files_of_tests_are_small():
    """No file over 600 lines among the tests either."""
    long = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if len(path.read_text("utf-8").splitlines()) > 600
    }
    assert not long

"""Each rule that the code names is spelled where a test of ``make fast`` can assert it.

The one rule: a rule that no fast test spells is one that nobody would miss. The search is one of
text: a string that is the rule, or, in a module that joins ``f"value.{bound}"``, the part after it.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
LATER = ("mark.cluster", "mark.slow")


def declared() -> set[str]:
    """Return the rules of the reference page, which it reads from the code."""
    path = PROJECT / "docs" / "theme" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference_of_rules", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {*module.declared()}


def is_later(node: ast.AST) -> bool:
    """Return whether *node* runs in ``make test`` alone, by its marks."""
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
        return any(mark in ast.unparse(node.value) for mark in LATER)
    marks = getattr(node, "decorator_list", ())
    return any(mark in ast.unparse(each) for each in marks for mark in LATER)


def fast(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of *tree* that are not of a test for ``make test`` alone."""
    if any(isinstance(node, ast.Assign) and is_later(node) for node in tree.body):
        return
    below: list[ast.AST] = [tree]
    for node in below:
        yield node
        below += [each for each in ast.iter_child_nodes(node) if not is_later(each)]


def spelled(source: str) -> set[str]:
    words, prefixes = set(), {""}
    for node in fast(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(node.value)
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            prefixes.add(str(node.values[0].value))
    return {prefix + word for prefix in prefixes for word in words if not prefix or "." not in word}


@pytest.mark.slow
@pytest.mark.unmeasured
def test_each_rule_is_spelled_in_a_fast_test() -> None:
    found = set()
    for path in (PROJECT / "tests").rglob("*.py"):
        if path != Path(__file__):
            found |= spelled(path.read_text("utf-8"))
    assert declared() - found == set()

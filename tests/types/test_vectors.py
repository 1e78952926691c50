"""Pickles that once ended a process, hung it, or changed memory of others.

Each is loaded and used in a process of its own; what it must come to stands beside it in
``tests/vectors/values.json``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.types.isolated import outcomes_of

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/values.json").read_text())


@pytest.fixture(scope="module")
def outcomes():
    return outcomes_of(VECTORS)


@pytest.mark.slow
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_no_value_ends_a_process(vector, outcomes):
    expected = f"refused by {vector['rule']}" if vector["rule"] else "used"
    assert outcomes[vector["name"]] == expected, vector["what"]

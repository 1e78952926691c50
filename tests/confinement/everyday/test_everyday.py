"""What an analyst does on an ordinary day works on confined workers as on stock Dask."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.confinement.everyday.cluster import SAME, measure, rows
from tests.confinement.everyday.running import OPERATIONS
from tests.dask.notebook.cells import operations

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "everyday-operations.md"


def table() -> list[str]:
    lines = PAGE.read_text("utf-8").splitlines()
    return lines[lines.index("| --- | --- | --- |") + 1 :]


@pytest.mark.cluster
@pytest.mark.unmeasured
@pytest.mark.usefixtures("landlock")
def test_the_page_says_what_is_measured(clusters, tmp_path) -> None:
    outcomes = measure(clusters["confined"], tmp_path)
    assert rows(outcomes) == table()
    assert list(outcomes.values()).count(SAME) >= 46


def test_the_page_lists_the_operations() -> None:
    _, cells = operations(OPERATIONS)
    assert len(cells) == 49
    named = [f"| {cell.area} | {cell.title} |" for cell in cells]
    assert [row[: len(name)] for row, name in zip(table(), named, strict=True)] == named


def test_the_page_counts_its_rows() -> None:
    works = sum(row.endswith(f"| {SAME} |") for row in table())
    assert f"{works} of {len(table())} do" in PAGE.read_text("utf-8")

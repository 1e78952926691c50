"""Read files of operations: cells that begin with ``# %% area: what it does``."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

MARK = "# %% "


@dataclass(frozen=True)
class Operation:
    """One cell: of the part of the work *area*, titled *title*."""

    area: str
    title: str
    source: str


def operations(first: Path, *others: Path) -> tuple[str, list[Operation]]:
    """Return the cell of *first* that prepares all others, and those, of all files."""
    _, setup, *cells = first.read_text("utf-8").split(f"\n{MARK}")
    for path in others:
        cells += path.read_text("utf-8").split(f"\n{MARK}")[1:]
    made = []
    for cell in cells:
        heading, _, source = cell.partition("\n")
        area, _, title = heading.partition(": ")
        made.append(Operation(area, title, source.strip()))
    return setup.partition("\n")[2], made


def shown(source: str) -> str:
    """Return *source* with its last expression printed as a digest."""
    tree = ast.parse(source)
    last = tree.body[-1]
    assert isinstance(last, ast.Expr), source
    lines = source.splitlines()
    before = "\n".join(lines[: last.lineno - 1])
    return f"{before}\nshow((\n{ast.get_source_segment(source, last)}\n))"

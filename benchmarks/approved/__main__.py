"""Writes docs/approved-operations.md: ``python -m benchmarks.approved``, which says it all."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.approved.operations import Verdict, judge, names, operations

_HEAD = """# Operations under `submission: approved`

What became of each of Dask's operations, written by `python -m benchmarks.approved`;
[approved.md](approved.md#what-works) says how they were measured, and why some are refused.
"""
_WORDS = {name: name for name in ("works", "refused", "differs")} | {"none": "stock fails, too"}
#: As much of a reason as a table has room for.
_REASON = 150


def _table(kind: str) -> str:
    with tempfile.TemporaryDirectory() as made:
        given = names(Path(made))
        before = Path.cwd()
        os.chdir(made)  # some operations write where they stand
        try:
            verdicts = [judge(section, text, given) for section, text in operations(kind)]
        finally:
            os.chdir(before)
    count = Counter(verdict.outcome for verdict in verdicts)
    said = ", ".join(f"{count[name]} {words}" for name, words in _WORDS.items() if count[name])
    rows = ["| | operation | |", "| --- | --- | --- |"]
    section = ""
    for verdict in verdicts:
        rows.append(_row(verdict, "" if verdict.section == section else verdict.section))
        section = verdict.section
    return f"## {kind.capitalize()}\n\n{len(verdicts)} operations: {said}.\n\n" + "\n".join(rows)


def _row(verdict: Verdict, section: str) -> str:
    why = f": {' '.join(verdict.why.split())[:_REASON]}" if verdict.outcome == "refused" else ""
    text = verdict.text.replace("|", "\\|")
    return f"| {section} | `{text}` | {_WORDS[verdict.outcome]}{why.replace('|', '/')} |"


if __name__ == "__main__":
    print("\n".join((_HEAD, *(f"{_table(kind)}\n" for kind in ("arrays", "frames")))), end="")

"""Starts the child, starts it again behind a case that ended it, and says what was found.

The one rule: a child that ends before its last case is a finding, and belongs to the case it ran.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Outcome", "run"]

ROOT = Path(__file__).parents[2]
_PROGRESS_BYTES = 16
_STALLED = 600.0  # seconds without one case: processor time is bounded, this is for sleep
_MOST_CRASHES = 25


@dataclass
class Outcome:
    """How many cases went how, and each that broke the contract.

    :ivar unseen: names of typed serializers that no example shows.
    """

    counted: dict[str, int] = field(default_factory=dict)
    broken: list[dict[str, Any]] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{count:>10,}  {name}" for name, count in self.counted.items()]
        for entry in self.broken:
            lines.append(f"\n{entry['name']} --seed {entry['seed']} --case {entry['case']}")
            lines += [f"  {step}" for step in entry["done"]]
            lines.append("  " + entry["problem"].replace("\n", "\n  "))
        return "\n".join(lines)


def run(
    *,
    cases: int,
    seed: int,
    only: str = "",
    case: int | None = None,
    start: int = 0,
) -> Outcome:
    """Run *cases* of *seed*, spread evenly over all examples whose names hold *only*.

    :param case: run this number of each of those examples alone.
    :param start: position of the first case that is run.
    """
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        progress, found = Path(folder, "progress"), Path(folder, "found")
        for _ in range(_MOST_CRASHES):
            progress.write_bytes(bytes(_PROGRESS_BYTES))
            found.write_text("")
            options = {
                "cases": cases, "seed": seed, "only": only, "case": case, "start": start,
                "progress": str(progress), "found": str(found),
            }  # fmt: skip
            ended, stderr = _child(options, progress)
            names = _collect(outcome, found)
            if ended == "exit code 0":
                break
            position, phase = _at(progress)
            step = ("making it", "reading it", "using it")[phase]
            said = stderr.partition("Extension modules:")[0][-2500:]
            problem = f"the child ended with {ended} while {step}\n{said}"
            outcome.broken.append(
                {
                    "name": names[position % len(names)] if names else "before any case",
                    "seed": seed,
                    "case": position // len(names) if names and case is None else case,
                    "done": [],
                    "problem": problem,
                }
            )
            if not names:
                break
            start = position + 1
    return outcome


def _at(progress: Path) -> tuple[int, int]:
    data = progress.read_bytes()
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")


def _collect(outcome: Outcome, found: Path) -> list[str]:
    """Add what a child wrote to *outcome*; return the names of the examples that it ran."""
    names: list[str] = []
    for line in found.read_text().splitlines():
        entry = json.loads(line)
        if "names" in entry:
            names = entry["names"]
            outcome.unseen = entry["unseen"]
        elif "counted" in entry:
            for name, count in entry["counted"].items():
                outcome.counted[name] = outcome.counted.get(name, 0) + count
        else:
            outcome.broken.append(entry)
    return names


def _child(options: dict[str, Any], progress: Path) -> tuple[str, str]:
    """Return how the child ended, and what it had to say."""
    command = [sys.executable, "-X", "faulthandler", "-m", "verification.malformed.child"]
    child = subprocess.Popen(
        [*command, json.dumps(options)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    before = (-1, -1)
    while True:
        try:
            stderr = child.communicate(timeout=_STALLED)[1]
            break
        except subprocess.TimeoutExpired:
            now = _at(progress)
            if now == before:
                child.kill()
            before = now
    code = child.returncode
    return (signal.Signals(-code).name if code < 0 else f"exit code {code}"), stderr

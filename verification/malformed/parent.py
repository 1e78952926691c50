"""Starts the child, starts it again behind a case that ended it, and says what was found.

The one rule: a child that ends before its last case is a finding, and belongs to the case it ran.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.samples.values import collect
from verification.cases import Case, Runs, Tool
from verification.malformed.child import names_in, pool_of
from verification.malformed.mutate import Tree, make

__all__ = ["Outcome", "names", "run"]


@dataclass
class Outcome:
    """How many cases went how, each that broke the contract, and what no example shows."""

    counted: Counter[str]
    broken: list[dict[str, Any]]
    unseen: list[str]

    def __str__(self) -> str:
        lines = [f"{count:>10,}  {name}" for name, count in self.counted.items()]
        return "\n".join([*lines, *(f"{each['what']}\n  {each['ended']}" for each in self.broken)])


@cache
def _pool() -> dict[str, Tree]:
    sys.setrecursionlimit(20_000)  # for what is nested deeper than readers go
    return pool_of(collect()[0])


def names(only: str) -> list[str]:
    """Return the names of the examples that hold *only*."""
    return names_in(_pool(), only)


def run(*, cases: int, seed: int, only: str = "", start: int = 0) -> Outcome:
    """Run *cases* of *seed*, spread evenly over all examples whose names hold *only*.

    :param start: position of the first case that is run.
    """

    def described(position: int, _: Random) -> Case:
        chosen = names(only)
        name, number = chosen[position % len(chosen)], position // len(chosen)
        done = "; ".join(make(name, seed, number, _pool()).done)
        return Case(b"", (), f"{name} --seed {seed} --case {number}: {done}")

    command = [sys.executable, "-X", "faulthandler", "-m", "verification.malformed.child", only]
    # The child ends itself after 20 seconds of a case; until its first one it imports for a while.
    tool = Tool(described, each=20_000, patience=120, command=command)
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(tool, Path(folder), seed)
        runs.next = start
        runs.go_on(math.inf, cases)
    told = [name for name in runs.totals if name.startswith("unseen")]
    unseen = {name for each in told for name in each.split()[1:]}
    counted = Counter({name: n for name, n in runs.totals.items() if name not in told})
    return Outcome(counted, runs.findings, sorted(unseen))

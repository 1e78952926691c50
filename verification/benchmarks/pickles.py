"""Loads with safeser, beside pickle's own and two scanners.

The one rule: one round runs everybody over the same pickles, one after the other, so that whatever
else the machine does falls on each of them alike; a ratio is the median of the rounds' ratios.

The naive unpickler is a subclass whose ``find_class`` looks a name up in a set, which stops far
less. The scanners judge and do not load: picklescan's scan and fickling's check, where they are
installed (the extra ``bench``).
"""

from __future__ import annotations

import datetime
import importlib.util
import io
import os
import pickle
import pickletools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from safeser import pickles
from safeser.errors import SafeserError
from safeser.pickles import DATA_PROFILES, Profile
from safeser.pickles.building.build import Builder
from safeser.pickles.judge import judge
from safeser.pickles.reading.machine import read
from safeser.pickles.shape import check_shape
from safeser.values import Limits
from verification.benchmarks.objects import KINDS, Kind, Sent
from verification.benchmarks.report import grid, grid_markdown, machine, number, ratio

PACKAGES = ("safeser", "numpy", "pandas", "scikit-learn", "picklescan", "fickling")
PROFILE = Profile.named(*DATA_PROFILES)
LIMITS = Limits()
#: What one contender gets in one round, at least one pass over all variants.
SLICE = 0.02
#: What is timed as one, and the median taken: shorter than what a scheduler gives to others.
CHUNK = 1e-4
HEADINGS = (
    "object", "bytes", "apart", "loads (µs)",
    "naive", "safeser", "picklescan", "fickling",
)  # fmt: skip
STAGES = ("read", "judge", "build", "rest")

Load = Callable[[Sent], object]


@dataclass(frozen=True, slots=True)
class Contender:
    """Somebody who loads or judges a pickle.

    :param once: too slow for more than one pickle a round.
    """

    name: str
    run: Load
    once: bool = False


def plain(sent: Sent) -> object:
    return pickle.loads(sent.data, buffers=sent.buffers)


def guarded(sent: Sent) -> object:
    return pickles.loads(sent.data, buffers=sent.buffers, profile=PROFILE)


def naive(names: frozenset[tuple[str, str]]) -> Load:
    """Return the unpickler that documentation shows: pickle's own with a set of allowed names."""

    class Naive(pickle.Unpickler):
        def find_class(self, module: str, name: str, /) -> Any:
            if (module, name) not in names:
                raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
            return super().find_class(module, name)

    def load(sent: Sent) -> object:
        return Naive(io.BytesIO(sent.data), buffers=sent.buffers).load()

    return load


def names_of(sent: Sequence[Sent]) -> frozenset[tuple[str, str]]:
    """Return the globals that *sent* name, as an operator would have listed them."""
    found: set[tuple[str, str]] = set()

    class Noting(pickle.Unpickler):
        def find_class(self, module: str, name: str, /) -> Any:
            found.add((module, name))
            return super().find_class(module, name)

    for each in sent:
        Noting(io.BytesIO(each.data), buffers=each.buffers).load()
    return frozenset(found)


def scanners() -> list[Contender]:
    """Return those that are installed."""
    found = []
    if importlib.util.find_spec("picklescan"):
        from picklescan.scanner import scan_pickle_bytes

        found.append(
            Contender("picklescan", lambda sent: scan_pickle_bytes(io.BytesIO(sent.data), "x"))
        )
    if importlib.util.find_spec("fickling"):
        from fickling.analysis import check_safety
        from fickling.fickle import Pickled

        found.append(
            Contender("fickling", lambda sent: check_safety(Pickled.load(sent.data)), once=True)
        )
    return found


class Run:
    """All rounds of one kind of object."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.sent = kind.sent()
        self.seconds: dict[str, list[float]] = {}
        self.refused = ""
        try:
            guarded(self.sent[0])
        except SafeserError as error:
            self.refused = error.rule
        own = [] if self.refused else [Contender("safeser", guarded)]
        allowed = naive(names_of(self.sent))
        self.contenders = [Contender("loads", plain), Contender("naive", allowed), *own]
        self.contenders += scanners()

    def round(self, at: int) -> None:
        first = at % len(self.contenders)
        for who in self.contenders[first:] + self.contenders[:first]:
            taken = self._measure(who, at)
            if taken is not None:
                self.seconds.setdefault(who.name, []).append(taken)

    def _measure(self, who: Contender, at: int) -> float | None:
        """Return seconds for one pickle."""
        sent = self.sent[at % len(self.sent) :][:1] if who.once else self.sent
        for each in sent:
            try:
                who.run(each)
            except Exception:  # a scanner that cannot read what pickle reads
                return None
        start = time.perf_counter()
        who.run(sent[0])
        together = max(1, int(CHUNK / (time.perf_counter() - start)))
        taken: list[float] = []
        begun = time.perf_counter()
        while not taken or (not who.once and time.perf_counter() - begun < SLICE):
            for first in range(0, len(sent), together):
                part = sent[first : first + together]
                start = time.perf_counter()
                for each in part:
                    who.run(each)
                taken.append((time.perf_counter() - start) / len(part))
        return statistics.median(taken)

    def cells(self) -> list[str]:
        """Return one line of the table."""
        size = statistics.median_low(len(each.data) for each in self.sent)
        apart = sum(buffer.nbytes for buffer in self.sent[0].buffers)
        base = statistics.median(self.seconds["loads"])
        cells = [self.kind.name, f"{size:,}", f"{apart:,}" if apart else "", number(base * 1e6)]
        return cells + [self.ratio(name) for name in HEADINGS[4:]]

    def ratio(self, name: str) -> str:
        if name in self.seconds:
            return f"{number(ratio(self.seconds[name], self.seconds['loads']))}x"
        if name == "safeser":
            return "refused"
        return "fails" if any(who.name == name for who in self.contenders) else "not installed"

    def faster(self, other: str) -> float | None:
        """Return how many times as long as a load with safeser *other* takes."""
        if "safeser" not in self.seconds or other not in self.seconds:
            return None
        return ratio(self.seconds[other], self.seconds["safeser"])

    def stages(self) -> list[str]:
        """Return which share of a load each stage has."""
        whole = statistics.median(self.seconds["safeser"])
        shares = [seconds / whole for seconds in _stages(self.sent)]
        return [f"{share:.0%}" for share in (*shares, max(0.0, 1 - sum(shares)))]


def _stages(sent: Sequence[Sent]) -> tuple[float, float, float]:
    """Return the seconds that reading, judging and building one pickle take, each alone."""
    read_, judged, built = [], [], []
    for each in list(sent) * max(1, 20 // len(sent)):
        start = time.perf_counter()
        program = read(each.data, buffers=len(each.buffers), limits=LIMITS)
        read_.append(time.perf_counter() - start)
        start = time.perf_counter()
        judge(program, PROFILE)
        shape = check_shape(program, LIMITS)
        judged.append(time.perf_counter() - start)
        start = time.perf_counter()
        Builder(program, PROFILE, buffers=each.buffers, limits=LIMITS, shape=shape).build()
        built.append(time.perf_counter() - start)
    return statistics.median(read_), statistics.median(judged), statistics.median(built)


def targets(runs: Sequence[Run]) -> list[str]:
    """Return how many kinds reach what the project set itself, in sentences."""
    ours = [run for run in runs if not run.refused]

    def count(most: float, among: Sequence[Run]) -> str:
        reached = sum(ratio(run.seconds["safeser"], run.seconds["loads"]) <= most for run in among)
        return f"{reached} of {len(among)}"

    small = [run for run in ours if not run.sent[0].buffers and len(run.sent[0].data) < 4096]
    apart = [run for run in ours if _mostly_apart(run.sent[0])]
    said = [
        f"Below 4 KiB, at most 12 times pickle.loads: {count(12, small)}",
        f"Where nine tenths are buffers, at most 6 times: {count(6, apart)}",
    ]
    for other, least in (("picklescan", 1), ("fickling", 15)):
        times = [found for run in ours if (found := run.faster(other)) is not None]
        if times:
            reached = sum(found >= least for found in times)
            said.append(
                f"At least {least} times as fast as {other}:"
                f" {reached} of {len(times)}"
                f" (median {number(statistics.median(times))})"
            )
    return said


def _mostly_apart(sent: Sent) -> bool:
    return 10 * sum(buffer.nbytes for buffer in sent.buffers) >= 9 * len(sent.data)


def _elements(run: Run) -> int:
    return sum(1 for _ in pickletools.genops(run.sent[0].data))


def notes(*, rounds: int, load: tuple[float, float, float]) -> list[str]:
    return [
        *machine(PACKAGES),
        f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}; {rounds} rounds; load average"
        f" {load[0]:.1f} before and {os.getloadavg()[0]:.1f} after",
        "Columns from naive on: median of the rounds' ratios to pickle.loads, above 1 is slower",
    ]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Times that everybody takes a turn.")] = 9,
    only: Annotated[str, typer.Option(help="Only kinds whose name has this in it.")] = "",
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the tables for the docs to this file.")
    ] = None,
) -> None:
    """Measure restricted loads beside pickle.loads, a naive subclass and two scanners."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    progress = Console(stderr=True)
    load = os.getloadavg()
    with progress.status("Making objects") as status:
        runs = [Run(kind) for kind in KINDS if only in kind.name]
        for at in range(rounds):
            status.update(f"Round {at + 1} of {rounds}")
            for run in runs:
                run.round(at)
    lines = [run.cells() for run in runs]
    parts = [
        [run.kind.name, f"{_elements(run):,}", *run.stages()] for run in runs if not run.refused
    ]
    shares = ("object", "opcodes", *STAGES)
    known = [*targets(runs), *notes(rounds=rounds, load=load)]
    console.print(grid(HEADINGS, lines))
    console.print("\nWhere the time of a load goes", style="bold")
    console.print(grid(shares, parts))
    for note in known:
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    if markdown_file is not None:
        text = [grid_markdown(HEADINGS, lines), grid_markdown(shares, parts)]
        markdown_file.write_text("\n".join([*text, *(f"- {note}" for note in known), ""]))


if __name__ == "__main__":
    typer.run(main)

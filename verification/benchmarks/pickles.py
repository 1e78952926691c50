"""Loads with safeser, beside pickle's own and two scanners.

The one rule: one round runs everybody over the same pickles, one after the other, so that whatever
else the machine does falls on each of them alike.

The naive unpickler is a subclass whose ``find_class`` looks a name up in a set, which stops far
less. The scanners judge and do not load: picklescan's scan and fickling's check, where they are
installed (the extra ``bench``).
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import pickle
import pickletools
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from safeser import pickles
from safeser.gate.values import Limits
from safeser.pickles import DATA_PROFILES, Profile
from safeser.pickles.building.build import Builder
from safeser.pickles.judge import judge
from safeser.pickles.reading.machine import read
from safeser.pickles.shape import check_shape
from verification.benchmarks import report
from verification.benchmarks.objects import KINDS, Kind, Sent
from verification.benchmarks.report import number

PACKAGES = ("safeser", "numpy", "pandas", "scikit-learn", "picklescan", "fickling")
PROFILE = Profile.named(*DATA_PROFILES)
LIMITS = Limits()
#: What one contender gets in one round, at least one pass over all variants.
SLICE = 0.02
#: What is timed as one, and the median taken: shorter than what a scheduler gives to others.
CHUNK = 1e-4
OTHERS = ("naive", "safeser", "picklescan", "fickling")

Load = Callable[[Sent], object]


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


def scanners() -> dict[str, Load]:
    """Return those that are installed."""
    found: dict[str, Load] = {}
    if importlib.util.find_spec("picklescan"):
        from picklescan.scanner import scan_pickle_bytes

        found["picklescan"] = lambda sent: scan_pickle_bytes(io.BytesIO(sent.data), "x")
    if importlib.util.find_spec("fickling"):
        from fickling.analysis import check_safety
        from fickling.fickle import Pickled

        found["fickling"] = lambda sent: check_safety(Pickled.load(sent.data))
    return found


class Run(report.Contest):
    """All rounds of one kind of object."""

    def __init__(self, kind: Kind) -> None:
        self.name = kind.name
        self.sent = kind.sent()
        loads: dict[str, Load] = {
            "loads": lambda sent: pickle.loads(sent.data, buffers=sent.buffers),
            "naive": naive(names_of(self.sent)),
            "safeser": lambda sent: pickles.loads(sent.data, buffers=sent.buffers, profile=PROFILE),
            **scanners(),
        }
        super().__init__({name: partial(self._measure, name, run) for name, run in loads.items()})

    def _measure(self, name: str, run: Load) -> float | None:
        """Return seconds for one pickle; fickling is too slow for more than one of them."""
        sent = self.sent[:1] if name == "fickling" else self.sent
        taken: list[float] = []
        try:
            one = report.timed(lambda: run(sent[0]), 0)
            together = max(1, int(CHUNK / one))
            begun = time.perf_counter()
            while not taken or (name != "fickling" and time.perf_counter() - begun < SLICE):
                for first in range(0, len(sent), together):
                    part = sent[first : first + together]
                    start = time.perf_counter()
                    for each in part:
                        run(each)
                    taken.append((time.perf_counter() - start) / len(part))
        except Exception:  # a scanner that cannot read what pickle reads
            return None
        return statistics.median(taken)

    def cells(self) -> list[str]:
        """Return one line of the table."""
        size = statistics.median_low(len(each.data) for each in self.sent)
        apart = sum(buffer.nbytes for buffer in self.sent[0].buffers)
        cells = [self.name, f"{size:,}", f"{apart:,}" if apart else "", self.micros("loads")]
        for other in OTHERS:
            found = self.ratio(other, "loads")
            failed = "fails" if other in self.contenders else "not installed"
            cells.append(failed if found is None else f"{number(found)}x")
        return cells

    def stages(self) -> list[str]:
        """Return how many opcodes there are, and which share of a load each stage has."""
        whole = statistics.median(self.seconds["safeser"])
        shares = [seconds / whole for seconds in _stages(self.sent)]
        opcodes = sum(1 for _ in pickletools.genops(self.sent[0].data))
        percent = [f"{share:.0%}" for share in (*shares, max(0.0, 1 - sum(shares)))]
        return [self.name, f"{opcodes:,}", *percent]


def _stages(sent: Sequence[Sent]) -> list[float]:
    """Return the seconds that reading, judging and building one pickle take, each alone."""
    found = []
    for each in list(sent) * max(1, 20 // len(sent)):
        clocks = [time.perf_counter()]
        program = read(each.data, buffers=len(each.buffers), limits=LIMITS)
        clocks.append(time.perf_counter())
        judge(program, PROFILE)
        shape = check_shape(program, LIMITS)
        clocks.append(time.perf_counter())
        Builder(program, PROFILE, buffers=each.buffers, limits=LIMITS, shape=shape).build()
        clocks.append(time.perf_counter())
        found.append([end - start for start, end in itertools.pairwise(clocks)])
    return list(map(statistics.median, zip(*found, strict=True)))


def main() -> None:
    options = report.options(__doc__, rounds=9, only="")
    runs = [Run(kind) for kind in KINDS if options.only in kind.name]
    report.hold(runs, options.rounds)
    report.show(("object", "bytes", "apart", "loads (µs)", *OTHERS), [run.cells() for run in runs])
    stages = ("object", "opcodes", "read", "judge", "build", "rest")
    report.show(stages, [run.stages() for run in runs])
    notes = "Columns from naive on: median of the rounds' ratios to pickle.loads, above 1 is slower"
    report.show_notes(notes, rounds=options.rounds, packages=PACKAGES)


if __name__ == "__main__":
    main()

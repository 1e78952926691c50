"""Options, turns, medians and ratios of a benchmark, and its table as Markdown.

The one rule: a ratio is the median of the ratios of single rounds, in each of which the contenders
took turns; it is never one of numbers from two runs.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

PACKAGES = ("safeser", "distributed", "numpy", "msgpack", "cryptography")
#: What one contender gets for one turn of a round, in seconds.
SLICE = 0.01
#: Of the machine when this is imported, before the first round.
_LOAD = os.getloadavg()[0]


def options(description: str | None, **defaults: Any) -> argparse.Namespace:
    """Return the options of the command line: one for each of *defaults*, of the type that it has.

    A list has the choices of an option that may stand several times.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        if isinstance(default, list):
            parser.add_argument(f"--{name}", action="append", choices=default)
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


def turns(each: Sequence[Any], at: int) -> list[Any]:
    """Return the order of round *at*: whoever begins may pay for what the next ones reuse."""
    first = at % len(each)
    return [*each[first:], *each[:first]]


def timed(run: Callable[[], object], seconds: float = SLICE) -> float:
    """Return the median of as many turns as fit into some *seconds*, after one to warm up."""
    run()
    taken: list[float] = []
    begun = perf_counter()
    while not taken or perf_counter() - begun < seconds:
        start = perf_counter()
        made = run()
        taken.append(perf_counter() - start)
        del made  # not while the clock runs, and before the next takes memory
    return statistics.median(taken)


class Contest:
    """What each contender takes for the same work, round by round.

    :param contenders: by name, what returns the seconds of one turn, or None for one that failed.
    """

    def __init__(self, contenders: Mapping[str, Callable[[], float | None]]) -> None:
        self.contenders = contenders
        self.seconds: dict[str, list[float]] = {}

    def round(self, at: int) -> None:
        for name in turns(list(self.contenders), at):
            taken = self.contenders[name]()
            if taken is not None:
                self.seconds.setdefault(name, []).append(taken)

    def micros(self, name: str) -> str:
        return number(statistics.median(self.seconds[name]) * 1e6)

    def ratio(self, name: str, other: str) -> float | None:
        """Return how many times as long as *other* it takes, or None if either cannot do it."""
        if name not in self.seconds or other not in self.seconds:
            return None
        return ratio(self.seconds[name], self.seconds[other])


def hold(contests: Iterable[Contest], rounds: int) -> None:
    """Let all contenders of all *contests* take turns, round by round."""
    held = list(contests)
    for at in range(rounds):
        print(f"Round {at + 1} of {rounds}", file=sys.stderr)
        for contest in held:
            contest.round(at)


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something measured: how it is called and shown.

    :param rate: the amount that is shown for each second, or 0 for a time.
    :param scale: what one shown unit is, in seconds or in amounts.
    """

    name: str
    unit: str
    scale: float = 1
    rate: float = 0

    def shown(self, seconds: float) -> float:
        return (self.rate / seconds if self.rate else seconds) / self.scale


def rows(quantity: Quantity, seconds: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """Return one row for each transport: median, quartiles, and ratios to ``tcp`` and ``tls``.

    :param seconds: for each transport what each round took; round by round they belong together.
        A transport is a scheme, and may have a word behind it.
    """
    made: list[list[str]] = []
    for transport, taken in seconds.items():
        shown = [quantity.shown(each) for each in taken]
        low, high = quartiles(shown)
        scheme, *words = transport.split(" ")
        made.append(
            [
                "" if made else f"{quantity.name} ({quantity.unit})",
                " ".join((f"{scheme}://", *words)),
                number(statistics.median(shown)),
                f"{number(low)} to {number(high)}",
                *(f"{ratio(taken, seconds[other]):.2f}" for other in ("tcp", "tls")),
            ]
        )
    return made


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def ratio(taken: Sequence[float], other: Sequence[float]) -> float:
    """Return the median of the ratios round by round."""
    return statistics.median(a / b for a, b in zip(taken, other, strict=True))


def number(value: float) -> str:
    """Return *value* with three digits that matter, and thousands kept whole."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def show(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column names things and whose others are numbers."""
    rule = "|---|" + "--:|" * (len(headings) - 1)
    first, *others = ("| " + " | ".join(line) + " |" for line in (headings, *lines))
    print(first, rule, *others, "", sep="\n")


def show_notes(*notes: str, rounds: int, packages: Sequence[str] = PACKAGES) -> None:
    """Print what the numbers depend on, below their table."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{package} {_version(package)}" for package in packages)
    for note in (
        *notes,
        f"Machine: {_processor()}, {usable} cores, {platform.system()} {platform.machine()};"
        f" {platform.python_implementation()} {platform.python_version()}",
        f"Versions: {versions}",
        f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}; {rounds} rounds; load average"
        f" {_LOAD:.1f} before and {os.getloadavg()[0]:.1f} after",
    ):
        print(f"- {note}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or "unknown processor"

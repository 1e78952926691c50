"""Options, turns, medians and ratios of a benchmark, and its table as Markdown.

The one rule: a ratio is the median of the ratios of single rounds, in each of which the contenders
took turns; it is never one of numbers from two runs.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("safeser", "distributed", "numpy", "msgpack", "cryptography")


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
                *(_beside(taken, seconds[other]) for other in ("tcp", "tls")),
            ]
        )
    return made


def _beside(taken: Sequence[float], other: Sequence[float]) -> str:
    ratios = [a / b for a, b in zip(taken, other, strict=True)]
    found = interval(ratios)
    shown = f"{statistics.median(ratios):.2f}"
    if taken is other or found is None:
        return shown
    return f"{shown} ({found[0]:.2f} to {found[1]:.2f})"


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the narrowest two of *values*, as far from either end, that hold the median of what
    they were drawn from in 95 % of all samples; None for fewer than six.

    Source: the sign test's interval of order statistics, after B(n, 1/2) (W. J. Conover, Practical
    Nonparametric Statistics, 3rd edition, section 3.2).
    """
    number_of = len(values)
    beyond = 0  # samples of 2 ** number_of in which the median lies below the value at *rank*
    for rank in range(number_of // 2 + 1):
        beyond += math.comb(number_of, rank)
        if 40 * beyond > 2**number_of:  # 2.5 % on either side
            break
    ordered = sorted(values)
    return (ordered[rank - 1], ordered[-rank]) if rank else None


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


def show_notes(
    *notes: str, rounds: int, load: Sequence[float], packages: Sequence[str] = PACKAGES
) -> None:
    """Print what the numbers depend on, below their table.

    :param load: of the machine before the first round.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{package} {_version(package)}" for package in packages)
    for note in (
        *notes,
        f"Machine: {_processor()}, {usable} cores, {platform.system()} {platform.machine()};"
        f" {platform.python_implementation()} {platform.python_version()}",
        f"Versions: {versions}",
        f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}; {rounds} rounds; load average"
        f" {load[0]:.1f} before and {os.getloadavg()[0]:.1f} after",
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

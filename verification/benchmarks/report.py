"""Medians, spreads and ratios of one run, as a table for the terminal and for the documentation.

The one rule: a ratio is the median of the ratios of single rounds, in each of which the transports
took turns; it is never one of numbers from two runs.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

PACKAGES = ("safeser", "distributed", "numpy", "msgpack", "cryptography")


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something measured: how it is called and shown.

    :param amount: what one measurement did, so many tasks or bytes.
    :param rate: shown as amount per second rather than as a time.
    :param scale: what one shown unit is, in seconds or in amounts.
    """

    name: str
    unit: str
    amount: float
    rate: bool
    scale: float

    def shown(self, seconds: float) -> float:
        return (self.amount / seconds if self.rate else seconds) / self.scale


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table, as text."""

    quantity: str
    transport: str
    median: str
    spread: str
    against_tcp: str
    against_tls: str

    def cells(self) -> tuple[str, ...]:
        return (
            self.quantity,
            self.transport,
            self.median,
            self.spread,
            self.against_tcp,
            self.against_tls,
        )


HEADINGS = ("", "transport", "median", "quartiles", "time / tcp", "time / tls")


def rows(quantity: Quantity, seconds: Mapping[str, Sequence[float]]) -> list[Row]:
    """Return one row for each transport.

    :param seconds: for each transport what each round took; round by round they belong together.
        A transport is a scheme, and may have a word behind it.
    """
    made: list[Row] = []
    for transport, taken in seconds.items():
        shown = [quantity.shown(each) for each in taken]
        low, high = quartiles(shown)
        made.append(
            Row(
                "" if made else f"{quantity.name} ({quantity.unit})",
                _address(transport),
                number(statistics.median(shown)),
                f"{number(low)} to {number(high)}",
                _beside(taken, seconds["tcp"]),
                _beside(taken, seconds["tls"]),
            )
        )
    return made


def _beside(taken: Sequence[float], other: Sequence[float]) -> str:
    ratios = [a / b for a, b in zip(taken, other, strict=True)]
    found = interval(ratios)
    shown = f"{statistics.median(ratios):.2f}"
    if taken is other or found is None:
        return shown
    return f"{shown} ({found[0]:.2f} to {found[1]:.2f})"


def _address(transport: str) -> str:
    scheme, *words = transport.split(" ")
    return " ".join((f"{scheme}://", *words))


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


def table(lines: Sequence[Row]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column(HEADINGS[0])  # it alone is wrapped: a shortened number says nothing
    made.add_column(HEADINGS[1], no_wrap=True)
    for heading in HEADINGS[2:]:
        made.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        style = "bold" if line.transport.startswith("safeser") else ""
        made.add_row(*line.cells(), style=style)
    return made


def markdown(lines: Sequence[Row], notes: Sequence[str]) -> str:
    """Return the table and the *notes* below it, for the documentation."""
    text = ["| " + " | ".join(HEADINGS) + " |", "|---|---|--:|--:|--:|--:|"]
    text += ["| " + " | ".join(line.cells()) + " |" for line in lines]
    return "\n".join([*text, "", *(f"- {note}" for note in notes), ""])


def grid(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    """Return a table whose first column names things and whose others are numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for at, heading in enumerate(headings):
        made.add_column(heading, no_wrap=True, justify="right" if at else "left")
    for line in lines:
        made.add_row(*line)
    return made


def grid_markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return the same table for the documentation."""
    rule = "|---|" + "--:|" * (len(headings) - 1)
    rows = ["| " + " | ".join(line) + " |" for line in (headings, *lines)]
    return "\n".join([rows[0], rule, *rows[1:], ""])


def show_grid(
    console: Console,
    headings: Sequence[str],
    lines: Sequence[Sequence[str]],
    notes: Sequence[str],
    markdown_file: Path | None,
) -> None:
    """Print the table and the *notes* below it; write both to *markdown_file* where it is given."""
    console.print(grid(headings, lines))
    for note in notes:
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    if markdown_file is not None:
        text = [grid_markdown(headings, lines), *(f"- {note}" for note in notes), ""]
        markdown_file.write_text("\n".join(text))


def machine(packages: Sequence[str] = PACKAGES) -> list[str]:
    """Return what the numbers depend on: processor, Python, versions of those *packages* here."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{package} {_version(package)}" for package in packages)
    return [
        f"Machine: {_processor()}, {usable} cores, {platform.system()} {platform.machine()};"
        f" {platform.python_implementation()} {platform.python_version()}",
        f"Versions: {versions}",
    ]


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

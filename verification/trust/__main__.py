"""``python -m verification.trust``: what a reviewer must trust, measured on real connections.

The one rule: a number is measured here and compared with ``bounds.toml``, never written there. One
that is above its ``most`` fails, as in ``lines.toml``; ``asked`` is where it is to come to.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import platform
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from verification.trust.cases import ARRAY, CASES, PICKLE, STRANGER, measured
from verification.trust.measuring import PACKAGE, Entered, closure

BOUNDS = Path(__file__).with_name("bounds.toml")
#: Of which there is a column by package.
SHOWN = {STRANGER: "stranger", ARRAY: "array", PICKLE: "pickle"}
#: What writes records, and what moves bytes: each is of one kind for all that passes.
_LOG = ("audit",)
_CONNECTION = ("dask/transport", "dask/comm_backend.py", "dask/same_host.py")


def package_of(path: Path) -> str:
    """Return the package of a file, as ``gate`` or ``dask/wire``."""
    *folders, name = path.relative_to(PACKAGE).parts
    if folders == ["dask"] or not folders:
        return "/".join((*folders, name))
    return "/".join(folders[: 2 if folders[0] == "dask" else 1])


def without_log(entered: Entered) -> Entered:
    """Return *entered* without the functions that move bytes or write records."""
    apart = (*_LOG, *_CONNECTION)
    times = entered.times.items()
    return Entered(
        Counter({c: n for c, n in times if package_of(Path(c.co_filename)) not in apart})
    )


def table(*headings: str) -> Table:
    made = Table(*headings, box=None, pad_edge=False)
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def tables(fewest: Mapping[str, Entered]) -> Iterator[Table]:
    """Yield what *fewest* entered in each case, and what that imports."""
    entered = table("functions of safeser that are entered", "functions", "calls", "files", "lines")
    imported = table("files that theirs import at module level", "files", "lines", "and packages")
    packages = table("lines, by package", *SHOWN.values())
    imported.columns[-1].justify = "left"
    for case, every in fewest.items():
        rows = {case: every.numbers, "  without connection and log": without_log(every).numbers}
        for name, numbers in rows.items():
            if name == case or numbers != every.numbers:
                entered.add_row(name, *(f"{number:,}" for number in numbers.values()))
    yield entered
    by_package = {case: lines_of_packages(fewest[case]) for case in SHOWN}
    for case in SHOWN:
        needed = closure(fewest[case].lines)
        names = " ".join(sorted(needed.packages))
        imported.add_row(case, f"{len(needed.files):,}", f"{needed.lines:,}", names)
    yield imported
    for package in sorted(set().union(*by_package.values())):
        lines = (each[package] for each in by_package.values())
        packages.add_row(package, *(f"{each:,}" if each else "" for each in lines))
    yield packages


def lines_of_packages(entered: Entered) -> Counter[str]:
    found: Counter[str] = Counter()
    for path, lines in entered.lines.items():
        found[package_of(path)] += len(lines)
    return found


def main() -> int:
    """Print the tables.

    :return: 0, or 1 where a number is above its ``most``.
    """
    logging.disable(logging.CRITICAL)  # a stranger who is refused is logged
    with tempfile.TemporaryDirectory(prefix="safeser-trust-") as folder:
        rounds = asyncio.run(measured(Path(folder)))
    # Another one may write what is written once a second.
    fewest = {case: min(rounds[case], key=lambda each: each.numbers["calls"]) for case in CASES}
    bounds = table("bounds", "", "measured", "most", "asked")
    bounds.columns[1].justify = "left"
    broken = []
    for case, rows in tomllib.loads(BOUNDS.read_text("utf-8")).items():
        counted = without_log(fewest[case]).numbers
        counted["lines imported"] = closure(fewest[case].lines).lines
        for what, bound in rows.items():
            number, most, asked = counted[what], bound["most"], bound.get("asked")
            cells = (case, what, f"{number:,}", f"{most:,}", f"{asked:,}" if asked else "")
            bounds.add_row(*cells, style="bold red" if number > most else None)
            if number > most:
                broken.append(f"{case}: {number:,} {what}, at most {most:,} in bounds.toml")
    console = Console(width=100, highlight=False)
    for each in (*tables(fewest), bounds):
        console.print(each, "")
    versions = (f"{name} {version(name)}" for name in ("safeser", "distributed", "numpy"))
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(", ".join((python, *versions, f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}")))
    for problem in broken:
        print(f"trust: {problem}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m verification.lines``: hold the tree to the budgets and ratchets of ``lines.toml``.

The one rule: a number is counted here and compared with ``lines.toml``, never written there. What
is above its number fails; a budget that the tree no longer uses is lowered by hand, in the commit
that made the room.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]

#: Lines of a body that a private function with one caller must have, docstring left out.
_SHORTEST_BODY = 6
#: Lines of a file that is worth its name; ``__init__`` has none.
_SHORTEST_FILE = 80
_LONGEST_FILE = 600
_FULLEST_FOLDER = 16

#: Representative types, one for each way in which a type is written today: a scalar of pandas, a
#: matrix of SciPy, an array of Arrow and an estimator's part.
_TYPES = ("IntervalIndex", "csr_matrix", "ChunkedArray", "RandomState")


def _files(*folders: str, pattern: str = "*.py") -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob(pattern))


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _used(name: str) -> int:
    """Return the lines that the budget *name* counts: folders, joined by ``+``.

    Markdown under ``docs``, Python elsewhere; ``safeser`` alone means the modules that are in no
    package, so that the budgets of ``safeser`` add up to all of it.
    """
    if name == "safeser":
        return sum(map(_lines, (ROOT / name).glob("*.py")))
    if name == "docs":
        return sum(map(_lines, _files(name, pattern="*.md")))
    return sum(map(_lines, _files(*name.split("+"))))


def _is_tiny(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return not body or body[-1].end_lineno - body[0].lineno + 1 < _SHORTEST_BODY  # type: ignore[operator]  # parsed from text, so that it has lines


def _tiny_functions() -> int:
    """Count private functions and methods with a short body that their module uses once."""
    found = 0
    for path in _files("safeser"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        uses = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Name | ast.Attribute)
        )
        found += sum(
            node.name.startswith("_")
            and not node.name.startswith("__")
            and not node.decorator_list
            and uses[node.name] == 1
            and _is_tiny(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
    return found


def _small_files() -> int:
    return sum(
        _lines(path) < _SHORTEST_FILE for path in _files("safeser") if path.stem != "__init__"
    )


def _repeated_names() -> int:
    """Count the files of ``safeser`` whose name another file of it has, ``__init__`` left out."""
    names = Counter(path.name for path in _files("safeser") if path.stem != "__init__")
    return sum(count for count in names.values() if count > 1)


def _long_files() -> int:
    return sum(_lines(path) > _LONGEST_FILE for path in _files("safeser"))


def _full_folders() -> int:
    folders = Counter(path.parent for path in _files("safeser"))
    return sum(count > _FULLEST_FOLDER for count in folders.values())


def _files_of_a_type() -> int:
    """Return in how many files the most scattered type occurs, tests and tools too."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in _files("safeser", "tests", "verification", pattern="*.*")
        if path.suffix in {".py", ".toml"} and path != Path(__file__)
    ]
    return max(sum(name in text for text in texts) for name in _TYPES)


#: Rules of size that a program can count, by their name in ``lines.toml``.
RATCHETS: Mapping[str, Callable[[], int]] = {
    "private functions with one use and under 6 lines": _tiny_functions,
    "files under 80 lines": _small_files,
    "files over 600 lines": _long_files,
    "folders of more than 16 files": _full_folders,
    "files that share their name": _repeated_names,
    "files that one type touches": _files_of_a_type,
}


def main() -> int:
    """Print what is used and allowed.

    :return: 0, or 1 where something is above its number or a package has no budget.
    """
    promised = tomllib.loads((ROOT / "lines.toml").read_text(encoding="utf-8"))
    budgets: dict[str, int] = promised["budgets"]
    ratchets: dict[str, int] = promised["ratchets"]
    packages = {f"safeser/{path.parent.name}" for path in (ROOT / "safeser").glob("*/__init__.py")}
    problems = [f"{name} has no budget in lines.toml" for name in sorted(packages - budgets.keys())]
    problems += [
        f"lines.toml names {name!r}, which is unknown" for name in ratchets.keys() - RATCHETS
    ]
    table = Table("", "used", "allowed", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    counted = [(name, _used(name), allowed) for name, allowed in budgets.items()]
    counted += [(name, count(), ratchets.get(name, 0)) for name, count in RATCHETS.items()]
    for name, used, allowed in counted:
        above = used > allowed
        table.add_row(name, f"{used:,}", f"{allowed:,}", style="bold red" if above else None)
        if above:
            problems.append(f"{name}: {used:,}, {used - allowed:,} more than lines.toml allows")
    product = [row for row in counted if row[0] in packages | {"safeser"}]
    table.add_section()
    table.add_row(
        "safeser, all of it",
        f"{sum(used for _, used, _ in product):,}",
        f"{sum(allowed for _, _, allowed in product):,}",
    )
    Console().print(table)
    for problem in problems:
        print(f"lines: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

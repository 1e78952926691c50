"""Which functions of safeser some work enters, and what the files that hold them import.

The one rule: nothing is estimated. Functions are those that Python reports, in each thread; lines
are those with code, as the compiler numbers them; imports are read from the syntax trees.
"""

from __future__ import annotations

import ast
import gc
import inspect
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import safeser

__all__ = ["PACKAGE", "Closure", "Entered", "Recorder", "closure"]

PACKAGE = Path(safeser.__file__).parent
_ROOT, _HERE = PACKAGE.parent, f"{PACKAGE}/"

#: Of functions that wait for something and go on.
_WAITS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True)
class Entered:
    """How often each function was entered."""

    times: Counter[CodeType]

    @property
    def numbers(self) -> dict[str, int]:
        # Since Python 3.12 a comprehension is a part of the function around it.
        counted = [
            times for code, times in self.times.items() if not code.co_name.endswith("comp>")
        ]
        lines = self.lines
        return {
            "functions": len(counted),
            "calls": sum(counted),
            "files": len(lines),
            "lines": sum(map(len, lines.values())),
        }

    @property
    def lines(self) -> dict[Path, set[int]]:
        """Return the lines with code of these functions, by file."""
        found: dict[Path, set[int]] = {}
        for code in self.times:
            numbers = {line for *_, line in code.co_lines() if line}
            found.setdefault(Path(code.co_filename), set()).update(numbers)
        return found


class Recorder:
    """Notes the functions of safeser that some threads enter inside of :meth:`during`."""

    def __init__(self) -> None:
        self._times: Counter[CodeType] | None = None
        self._waiting: set[FrameType] = set()

    def watch(self) -> None:
        """Note what the calling thread enters, from now on."""
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        times, code = self._times, frame.f_code
        if times is None or event != "call" or not code.co_filename.startswith(_HERE):
            return
        if code.co_flags & _WAITS:
            if frame in self._waiting:  # it goes on where it was
                return
            self._waiting.add(frame)
        times[code] += 1

    @contextmanager
    def during(self) -> Iterator[list[Entered]]:
        """Yield a list that has what was entered once this is left."""
        found: list[Entered] = []
        gc.collect()
        gc.disable()  # a collection would enter what other work left behind
        self._times = times = Counter()
        try:
            yield found
        finally:
            self._times = None
            self._waiting.clear()
            gc.enable()
        found.append(Entered(times))


class Closure(NamedTuple):
    """Files that others import when they are imported, themselves included; other packages."""

    files: frozenset[Path]
    packages: frozenset[str]

    @property
    def lines(self) -> int:
        return sum(len(path.read_text("utf-8").splitlines()) for path in self.files)


def closure(files: Iterable[Path]) -> Closure:
    """Return all that *files* of safeser import at their module level, and those, and so on."""
    found: set[Path] = set()
    packages: set[str] = set()
    todo = [each for path in files for each in _files_of(_module_of(path))]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imported(ast.parse(path.read_text("utf-8")).body):
            if name.partition(".")[0] == PACKAGE.name:
                todo += _files_of(name)
            else:
                packages.add(name.partition(".")[0])
    return Closure(frozenset(found), frozenset(packages - sys.stdlib_module_names))


def _imported(body: Iterable[ast.AST]) -> Iterator[str]:
    """Yield what *body* imports when it runs, functions that it defines left out."""
    for node in body:
        match node:
            case ast.Import(names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str() as module, names=names, level=0):
                yield from (f"{module}.{each.name}" for each in names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                pass
            case ast.If(test=ast.Name("TYPE_CHECKING"), orelse=other):
                yield from _imported(other)
            case _:
                yield from _imported(ast.iter_child_nodes(node))


def _module_of(path: Path) -> str:
    return ".".join(path.relative_to(_ROOT).with_suffix("").parts)


def _files_of(name: str) -> Iterator[Path]:
    """Yield the files that an import of *name* runs; its last word may be no module."""
    place = _ROOT
    for word in name.split("."):
        place /= word
        yield from (
            path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()
        )

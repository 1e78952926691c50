"""The demo's terminal output: numbered steps, results, and the table of attacks.

Words carry the meaning and colour repeats it. Text is never read as markup; commands and paths are
never wrapped inside a word.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.status import Status
from rich.table import Table
from rich.text import Text

__all__ = ["Row", "Screen"]

_INDENT = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table of attacks."""

    what: str
    sender: str
    recipient: str
    stock: str
    safeser: str
    good: bool = True


class Screen:
    """The demo's output."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._console = Console(file=file, markup=False, highlight=False, emoji=False)
        self._step = 0

    def title(self, text: str) -> None:
        self._console.print(Text(text, style="bold"))

    def step(self, text: str) -> None:
        """Begin the next numbered step."""
        self._step += 1
        self._console.print()
        self._console.print(Text(f"{self._step}  {text}", style="bold cyan"))

    def say(self, text: str, *, style: str = "") -> None:
        """Print a paragraph, indented and wrapped to the terminal."""
        for line in Text(text, style=style).wrap(self._console, self._console.width - _INDENT):
            line.rstrip()
            self._console.print(Text.assemble(" " * _INDENT, line), soft_wrap=True)

    def result(self, what: str, found: str) -> None:
        """Print an expected result."""
        text = Text.assemble((f"{what}: ", "bold"), found)
        lines = text.wrap(self._console, max(self._console.width - _INDENT - 3, 20))
        for number, line in enumerate(lines):
            mark = ("ok ", "green") if number == 0 else "   "
            line.rstrip()
            self._console.print(Text.assemble(" " * _INDENT, mark, line), soft_wrap=True)

    def blank(self) -> None:
        self._console.print()

    def command(self, words: Sequence[str]) -> None:
        """Print a command that can be copied.

        On a terminal, a long command continues after a backslash between words; in a pipe it is
        one line.
        """
        prompt, hang = f"{' ' * _INDENT}$ ", " " * (_INDENT + 4)
        lines = [prompt.rstrip()]
        for piece in _pieces(words):
            wide = len(lines[-1]) + len(piece) + len("  \\") > self._console.width
            if wide and self._console.is_terminal and lines != [prompt.rstrip()]:
                lines[-1] += " \\"
                lines.append(hang.removesuffix(" "))
            lines[-1] += f" {piece}"
        for line in lines:
            self._console.print(Text(line, style="bold"), soft_wrap=True)

    def location(self, what: str, where: object) -> None:
        """Print the location of a file on one line."""
        line = Text.assemble(" " * _INDENT, (f"{what:<11}", "dim"), str(where))
        self._console.print(line, soft_wrap=True)

    def table(self, rows: Iterable[Row]) -> None:
        """Print the table of attacks."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        table.add_column("message", overflow="fold")
        table.add_column("from", no_wrap=True)
        table.add_column("to", no_wrap=True)
        table.add_column("stock", no_wrap=True)
        table.add_column("safeser refused it by", overflow="fold", min_width=25)
        for row in rows:
            table.add_row(
                Text(row.what),
                Text(row.sender),
                Text(row.recipient),
                Text(row.stock, style="red" if row.stock == "ran" else ""),
                Text(row.safeser, style="green" if row.good else "bold red"),
            )
        self._console.print(table)

    def failed(self, reason: str, lines: Sequence[str] = ()) -> None:
        """Print why the demo ends early."""
        self._console.print()
        self._console.print(Text(f"Step failed: {reason}", style="bold red"))
        for line in lines:
            self._console.print(Text(f"   | {line}"), soft_wrap=True)

    @contextmanager
    def waiting(self, text: str) -> Iterator[Status | None]:
        """Show a spinner; in a pipe nothing."""
        if not self._console.is_terminal:
            yield None
            return
        with self._console.status(Text(f"{text} ...")) as status:
            yield status

    @contextmanager
    def progress(self, text: str) -> Iterator[Progress]:
        """Show a progress bar until the block is done; in a pipe nothing."""
        columns = (TextColumn("   {task.description}"), BarColumn(24), MofNCompleteColumn())
        with Progress(
            *columns,
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        ) as progress:
            progress.add_task(text, total=None)
            yield progress


def _pieces(words: Sequence[str]) -> list[str]:
    """Return *words* quoted for a shell, each option together with its value."""
    pieces: list[str] = []
    after_option = False
    for word in words:
        option = word.startswith("-")
        if after_option and not option:
            pieces[-1] += f" {shlex.quote(word)}"
        else:
            pieces.append(shlex.quote(word))
        after_option = option
    return pieces

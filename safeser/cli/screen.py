"""What commands print with: tables for people, lines that can be copied, no colour in a pipe.

The one rule: text is never read as markup or as control sequences, so that a name in a file cannot
style or hide a line, nor move the cursor over another.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["line", "mark", "say", "table", "width"]

#: How much of a terminal's width, in percent, dotted names in a table may take.
_NAMES_PART = 45


def _console(columns: int | None = None) -> Console:
    # Made for each use: tests and pipes replace sys.stdout.
    return Console(markup=False, highlight=False, emoji=False, width=columns)


def width() -> int | None:
    """Return the columns of the terminal, or None in a pipe, where lines stay whole."""
    console = _console()
    return console.width if console.is_terminal else None


def _plain(text: str, style: str = "") -> Text:
    kept = (char if char.isprintable() or char == "\n" else "?" for char in text)
    return Text("".join(kept), style=style)


def line(text: str = "", *, style: str = "") -> None:
    """Print one line whole, however long: a path or a key that was wrapped cannot be copied."""
    _console().print(_plain(text, style), soft_wrap=True)


def say(text: str, *, style: str = "", hang: int = 4) -> None:
    """Print a sentence, wrapped between words on a terminal and whole in a pipe.

    :param hang: columns by which the lines after the first are indented.
    """
    console = _console()
    if console.is_terminal:
        text = textwrap.fill(
            text,
            console.width,
            subsequent_indent=" " * hang,
            break_long_words=False,
            break_on_hyphens=False,
        )
    line(text, style=style)


def mark(good: bool, text: str) -> None:
    """Print a verdict, green or red where there is colour; the words alone must suffice."""
    say(text, style="green" if good else "red")


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, names: Collection[str] = ()
) -> None:
    """Print *rows* under *columns*; what does not fit is folded, never cut.

    :param names: columns of dotted names: those are whole in a pipe and broken behind dots on a
        terminal. What is still too long there makes the table wider than the terminal.
    """
    console = _console()
    room = console.width * _NAMES_PART // 100 if console.is_terminal else None
    cells = [
        [
            _wrapped(cell, room) if name in names else cell
            for name, cell in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    wide = console.width
    for at, name in enumerate(columns):
        if name not in names:
            made.add_column(name, overflow="fold")
            continue
        longest = max(
            (cell_len(piece) for row in cells for piece in row[at].split("\n")), default=0
        )
        wide += max(0, longest - wide * _NAMES_PART // 100)
        made.add_column(name, no_wrap=True, min_width=longest)
    for row in cells:
        made.add_row(*(_plain(cell) for cell in row))
    _console(wide).print(made)


def _wrapped(name: str, room: int | None) -> str:
    """Return dotted *name* on lines of at most *room* columns, as far as its parts are shorter."""
    lines = [""]
    for part in re.findall(r"[^.:]*[.:]*", name):
        if room is not None and lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)

"""What commands print with: tables for people, lines that can be copied, no colour in a pipe.

The one rule: text is never read as markup or as control sequences, so that a name in a file cannot
style or hide a line, nor move the cursor over another.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["line", "mark", "say", "table"]


def _console() -> Console:
    # Made for each use: tests and pipes replace sys.stdout.
    return Console(markup=False, highlight=False, emoji=False)


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


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print *rows* under *columns*; what does not fit is folded, never cut."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*(_plain(cell) for cell in row))
    _console().print(made)

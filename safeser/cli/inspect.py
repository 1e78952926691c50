"""``safeser inspect``: what a pickle says, without loading it.

The one rule: nothing in the file is imported or built, and nothing of it is trusted by a terminal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from safeser.cli.ending import DENIED
from safeser.cli.screen import line, mark
from safeser.errors import ConfigError, PayloadError

__all__ = ["inspect"]

# The tree of a pickle takes many times its size; a file for a person to look at is far smaller.
_MAX_BYTES = 256 << 20


def inspect(
    file: Annotated[Path, typer.Argument(help="A pickle; - reads standard input.")],
    profile: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Profile to judge by; may be repeated. [default: data]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a pickle says, without loading it; code 1 if refused."""
    from safeser import pickles

    found = pickles.inspect(_read(file), profile=tuple(profile or ("data",)))
    if as_json:
        line(json.dumps(found.as_dict(), indent=2))
    else:
        for each in found.text().splitlines():
            line(each)
        line()
        for name, problem in found.verdicts.items():
            mark(not problem, f"profile {name}: {problem or 'every global is listed'}")
    if not found.permitted:
        raise typer.Exit(DENIED)


def _read(path: Path) -> bytes:
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "that is not a path"
        raise ConfigError(
            f"{path} cannot be read: {reason}", rule="config.file", fix="Name a readable file."
        ) from None
    if len(data) > _MAX_BYTES:
        raise PayloadError(f"{path} has more than {_MAX_BYTES >> 20} MiB", rule="pickle.max-bytes")
    return data

"""``safeser inspect``: what a file holds, and whether safeser or another library would load it.

The one rule: nothing in the file is imported or built by this process, and nothing of it is trusted
by a terminal.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeser.cli.ending import one_line
from safeser.cli.screen import line, mark, say, table
from safeser.errors import ConfigError

if TYPE_CHECKING:
    from safeser.gate.values import Limits
    from safeser.inspection import Report

__all__ = ["inspect"]

# What a person reads; --json has more.
_MAX_GLOBALS = 60
_MAX_PARTS = 20
_MAX_LINES = 60
#: What is longer may have moved the verdict off the screen.
_SCREEN = 16
_WORDS = {"refused": "Refused", "unreadable": "Not read", "over-limit": "Over a limit"}
# By what a program undoes the compression of a file that was read through it.
_OPENED = {
    "gzip": "gzip.decompress(data)",
    "bz2": "bz2.decompress(data)",
    "xz": "lzma.decompress(data)",
    "lzma": "lzma.decompress(data)",
    "zlib": "zlib.decompress(data)",
}
_UNITS = ("bytes", "KiB", "MiB", "GiB")


def inspect(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files; - reads standard input.")
    ],
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Profile to judge by, with those that it builds on; may be repeated."
            " [default: all]",
        ),
    ] = None,
    tree: Annotated[
        bool | None,
        typer.Option("--tree/--no-tree", help="Show the whole tree, or none. [default: its start]"),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER",
            help="A limit of safeser.Limits, such as max_memory=512000000; may be repeated.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, a line for each file.")
    ] = False,
) -> None:
    """Show what a pickle, joblib, NumPy or PyTorch file holds, and whether it would be loaded.

    Code 0: the profiles allow all of it, and safeser.pickles.loads does load it if that is what
    would. 1: refused. 2: it cannot be read to its end. 3: over a limit.
    """
    from safeser.inspection import Source, examine
    from safeser.inspection.lists import with_bases

    profiles = with_bases(profile or ())
    limits = _limits(limit or [])
    worst = 0
    for number, path in enumerate(files):
        opened = Source.read_from(sys.stdin.buffer) if str(path) == "-" else Source.open(path)
        with closing(opened) as source:
            report = examine(source, profiles=profiles, limits=limits)
        worst = max(worst, report.verdict.code)
        if as_json:
            line(json.dumps({"file": str(path), **report.as_dict(tree=tree is not False)}))
            continue
        if number:
            line()
        _show(path, report, asked=profile or [], tree=tree)
    if worst:
        raise typer.Exit(worst)


def _limits(asked: list[str]) -> Limits:
    from safeser.gate.values import Limits

    found: dict[str, int] = {}
    for each in asked:
        name, _, number = each.partition("=")
        if name not in Limits.__slots__ or not number.replace("_", "").isdecimal():
            raise ConfigError(
                f"{each} is not a limit and its number",
                rule="config.limits",
                fix=f"Write NAME=NUMBER, where NAME is one of {', '.join(Limits.__slots__)}.",
            )
        found[name] = int(number)
    return Limits(**found)


def _show(path: Path, report: Report, *, asked: list[str], tree: bool | None) -> None:
    name = "standard input" if str(path) == "-" else str(path)
    say(one_line(f"{name}: {report.title}, {_size(report.size)}"))
    _show_verdict(report, asked=asked)
    below = 0
    if report.globals:
        line()
        below += _show_globals(report)
    if len(report.parts) > 1:
        line()
        rows = [
            (part.name, part.what, str(part.offset), _size(part.size))
            for part in report.parts[:_MAX_PARTS]
        ]
        table(("part", "what", "from byte", "size"), rows)
        _say_rest(len(report.parts) - len(rows), "parts")
        below += len(rows)
    if tree is not False:
        below += _show_trees(report, most=None if tree else _MAX_LINES)
    if below > _SCREEN:
        line()
        _show_word(report)


def _show_word(report: Report) -> None:
    """Say what the verdict is, in one sentence."""
    from safeser.inspection import Verdict

    if report.verdict is Verdict.ALLOWED:
        mark(True, f"Allowed: {_permission(report)}")
    else:
        word = _WORDS[report.verdict.value]
        mark(False, one_line(f"{word}: {report.reason.rstrip('.')}. [{report.rule}]"))


def _show_verdict(report: Report, *, asked: list[str]) -> None:
    from safeser.inspection import Verdict

    _show_word(report)
    if report.verdict is Verdict.ALLOWED:
        say(f"Load it by {_loading(report)}. Check what you load: allowed is not the same as true.")
        if report.kind == "joblib":
            say("Never by pickle.load: it would take the arrays' bytes for opcodes, and run them.")
        if report.globals and report.kind in ("joblib", "npy", "npz"):
            say(
                f"Unlike safeser, {report.loader} does not check what it hands to the globals that"
                " are listed: forged values can crash it, or take its memory."
            )
    elif report.fix:
        say(one_line(report.fix))
    if asked:
        added = [name for name in report.profiles if name not in asked]
        also = f" (with {', '.join(added)}, on which they build)" if added else ""
        say(f"Judged by the profiles {', '.join(asked)}{also}.")


def _loading(report: Report) -> str:
    if report.kind != "pickle":
        return report.loader
    needs = report.needs or ("data",)
    profile = f'"{needs[0]}"' if len(needs) == 1 else repr(needs).replace("'", '"')
    more = ", ".join(f"{name}={number}" for name, number in report.limits.items())
    how = f"profile={profile}" + (f", limits=safeser.Limits({more})" if more else "")
    data = _OPENED.get(report.compression, "data")
    if len(report.parts) == 1:
        return f"{report.loader}({data}, {how})"
    opened = f"data = {data}, and " if report.compression else ""
    return f"{opened}each pickle by itself: {report.loader}(data[begin:begin + size], {how})"


def _permission(report: Report) -> str:
    if not report.globals:
        return "it names nothing that would be imported; any profile would do."
    if report.kind.startswith("torch"):
        return "every global is one that PyTorch's tensors need; safeser itself loads no such file."
    many = "profiles" if len(report.needs) > 1 else "profile"
    listed = f"every global is listed by {many} {', '.join(report.needs)}"
    return f"{listed}; loads takes its values." if report.kind == "pickle" else f"{listed}."


def _show_globals(report: Report) -> int:
    """Show each global once, with its roles, refused ones first; return how many."""
    rows: dict[tuple[str, str], list[str]] = {}
    offsets: dict[tuple[str, str], int] = {}
    for use in report.globals:
        key = use.name, use.allowed_by or f"REFUSED: {use.problem}"
        roles = rows.setdefault(key, [])
        offsets.setdefault(key, use.offset)
        if use.role not in roles:
            roles.append(use.role)
    shown = [
        (name, ", ".join(roles), by, str(offsets[name, by]))
        for (name, by), roles in islice(rows.items(), _MAX_GLOBALS)
    ]
    table(("global", "is", "allowed by", "at byte"), shown, names=("global",))
    _say_rest(len(rows) - len(shown), "globals")
    return len(shown)


def _say_rest(count: int, what: str) -> None:
    if count > 0:
        line(f"... and {count} more {what}; --json has more of them")


def _show_trees(report: Report, *, most: int | None) -> int:
    """Show the first *most* lines of all trees; return how many there were."""
    trees = [part for part in report.parts if part.inspection is not None]
    left, shown = most, 0
    for part in trees:
        assert part.inspection is not None
        lines = part.inspection.text().splitlines()
        line()
        if len(trees) > 1:
            line(f"{part.name}:")
        for each in islice(lines, left):
            line(each)
        shown += len(lines) if left is None else min(len(lines), left)
        if left is not None:
            if len(lines) > left or (part is not trees[-1] and len(lines) == left):
                line("... the rest is left out; --tree shows it")
                return shown
            left -= len(lines)
    return shown


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{count} {_UNITS[0]}" if not unit else f"{size:.1f} {_UNITS[unit]}"

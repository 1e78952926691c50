"""``safeser audit``: verify a log, and read its newest records.

The one rule: reading is not verifying, and each command says which of the two it did.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeser.cli.ending import DENIED
from safeser.cli.screen import line, mark, say
from safeser.errors import ConfigError

if TYPE_CHECKING:
    from safeser.audit import Record

    #: A record, with whose log holds it.
    Owned = tuple[str, Record]

__all__ = ["app"]

app = typer.Typer(help="Verify and read audit logs.", no_args_is_help=True)

LogPath = Annotated[Path, typer.Argument(metavar="LOG", help="The folder of a log, or a file.")]

_POLL = 0.25  # seconds; a person follows, nothing waits for this


@app.command(short_help="Verify a log against its key.")
def verify(
    log: LogPath,
    key: Annotated[Path, typer.Option(help="The file of the log's key.")],
    expect: Annotated[
        Path | None,
        typer.Option(help="A head that --save-head wrote; the log must have grown from there."),
    ] = None,
    save_head: Annotated[
        Path | None,
        typer.Option(help="Write the log's head to this new file, to keep it elsewhere."),
    ] = None,
) -> None:
    """Verify a log against its key; code 1 names the place of each problem."""
    from safeser.audit import verify as verified

    _must_exist(log)
    expected = "" if expect is None else _read_head(expect)
    report = verified(log, key=key, expect=expected)
    summary, *rest = str(report).splitlines()
    mark(report.ok, summary)
    for each in rest:
        say(each)
    if save_head is not None and report.ok:
        _write_head(save_head, report.head)
    if not report.ok:
        raise typer.Exit(DENIED)


def _must_exist(log: Path) -> None:
    if not log.exists():
        raise ConfigError(
            f"there is no log at {log}",
            rule="config.audit",
            fix="Name the folder that safeser.audit is set to.",
        )


def _read_head(path: Path) -> str:
    try:
        with path.open(encoding="ascii") as file:
            return file.read(16 << 20)  # as much as the log itself would take for a head
    except (OSError, ValueError):
        raise ConfigError(
            f"{path} cannot be read as a head",
            rule="config.audit-head",
            fix="Name a file that 'safeser audit verify --save-head' wrote.",
        ) from None


def _write_head(path: Path, head: str) -> None:
    try:
        with path.open("x", encoding="ascii") as file:
            try:
                file.write(head + "\n")
                file.flush()
            except BaseException:
                path.unlink()  # a part of a head says less than the log had
                raise
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            rule="config.audit-head",
            fix="Name a file that is not there yet.",
        ) from None


@app.command()
def tail(
    log: LogPath,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many records.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written; needs one file.")
    ] = False,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only what says that something was refused.")
    ] = False,
) -> None:
    """Show the newest records, oldest first. This does not verify them.

    Of a folder, each line begins with the principal whose log holds the record.
    """
    from safeser.audit import render

    _must_exist(log)
    if follow and log.is_dir():
        raise ConfigError(
            f"{log} is a folder, and one file is followed at a time",
            rule="config.audit",
            fix="Name one of its .log files.",
        )
    wanted = _says_refused if refused else _says_anything
    if log.is_dir():
        for whose, record in _newest(_of_all(log), lines, wanted):
            line(f"{whose}: {render(record)}")
        return
    for record in _following(log, lines, wanted) if follow else _of_one(log, lines, wanted):
        line(render(record))


def _says_anything(record: Record) -> bool:
    return True


def _says_refused(record: Record) -> bool:
    """Tell whether *record* is a refusal, or numbers among which there is one."""
    if record.type == "counts":
        counts = record.fields.get("counts")
        rows = counts if isinstance(counts, list) else []
        # By identity: a count of 0 equals False.
        return any(isinstance(row, list) and any(cell is False for cell in row) for row in rows)
    return record.type == "suppressed" or record.fields.get("permitted") is False


def _of_all(folder: Path) -> Iterator[Owned]:
    from safeser.audit import read

    for path in sorted(folder.glob("*.log")):
        # <principal>-<UTC>-<id>.log; other files of the folder may have any name.
        whose = "".join(c if c.isascii() and c.isprintable() else "?" for c in path.name)
        for record in read(path):
            yield whose.rsplit("-", 2)[0][:64], record


def _of_one(log: Path, count: int, wanted: Callable[[Record], bool]) -> list[Record]:
    from safeser.audit import read

    return [record for _, record in _newest((("", each) for each in read(log)), count, wanted)]


def _newest(records: Iterator[Owned], count: int, wanted: Callable[[Record], bool]) -> list[Owned]:
    found = (each for each in records if wanted(each[1]))
    newest = heapq.nlargest(count, found, key=lambda each: (each[1].time, each[1].sequence))
    return newest[::-1]


def _following(log: Path, count: int, wanted: Callable[[Record], bool]) -> Iterator[Record]:
    from safeser.audit import read

    newest = _of_one(log, count, wanted)
    yield from newest
    shown = newest[-1].sequence if newest else -1
    for record in filter(wanted, read(log, wait=_wait)):
        if record.sequence > shown:
            yield record


def _wait() -> bool:
    time.sleep(_POLL)
    return True

"""``safeser audit``: verify logs, ask them, follow them.

The one rule: reading is not verifying, and each command says which of the two it did.
"""

from __future__ import annotations

import csv
import enum
import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeser.cli.ending import DENIED, one_line
from safeser.cli.screen import line, mark, say, width
from safeser.errors import ConfigError

if TYPE_CHECKING:
    from safeser.audit import Report
    from safeser.audit.reading.search import Found

__all__ = ["app", "moment_of", "must_exist"]

app = typer.Typer(help="Verify and read audit logs.", no_args_is_help=True)

Logs = Annotated[
    list[Path], typer.Argument(metavar="LOG...", help="Folders of logs, or single files.")
]
_LONGEST_HEAD = 1 << 20  # bytes of one line; the head of one process has some 250
_POLL = 0.25  # seconds; a person follows, nothing waits for this


@app.command(short_help="Verify logs against their key.")
def verify(  # noqa: PLR0917 - typer reads the parameters by name
    logs: Logs,
    key: Annotated[Path, typer.Option(help="The file of the logs' key.")],
    expect: Annotated[
        Path | None,
        typer.Option(help="A head that --save-head wrote; the log must have grown from there."),
    ] = None,
    heads: Annotated[
        Path | None,
        typer.Option(help="A file of heads that the log's processes wrote to a second place."),
    ] = None,
    keep_age: Annotated[
        str, typer.Option(help="With heads: a removal is no problem of files this old, e.g. 90d.")
    ] = "",
    processes: Annotated[
        int, typer.Option(min=0, help="How many verify files at a time; 0: as many as processors.")
    ] = 1,
    save_head: Annotated[
        Path | None,
        typer.Option(help="Write the log's head to this new file, to keep it elsewhere."),
    ] = None,
) -> None:
    """Verify logs against their key; code 1 names the place of each problem.

    A head is of one log: --expect, --heads and --save-head take one LOG. Without --expect or
    --heads, verification cannot see that a log was put back to an older state, or cut at its end
    together with its heads. A removal after such a head is a problem, unless --keep-age says how
    long the log keeps files. Of a key that moves, --key is the initial one.
    """
    from safeser.audit import AuditFiles
    from safeser.audit import verify as verified

    if len(logs) > 1 and (expect, heads, save_head) != (None, None, None):
        raise ConfigError(
            "a head is of one log, and several were named",
            rule="config.audit-head",
            fix="Verify each by itself with --expect, --heads or --save-head.",
        )
    must_exist(logs)
    age = AuditFiles.parse({"keep-age": keep_age or None}).keep_age
    expected = "" if expect is None else _read_head(expect)
    whole = True
    for log in logs:
        kept = None if heads is None else _kept_heads(heads)
        found = verified(
            log,
            key=key,
            expect=expected,
            heads=kept,
            keep_age=age,
            processes=processes or os.cpu_count() or 1,
            progress=_progress,
        )
        whole = _say_verdict(log if len(logs) > 1 else None, found) and whole
        if save_head is not None and found.ok:
            _write_head(save_head, found.head)
    if not whole:
        raise typer.Exit(DENIED)


def _say_verdict(log: Path | None, report: Report) -> bool:
    """Print what verification found, under the name of *log* if there is one."""
    summary, *rest = str(report).splitlines()
    mark(report.ok, summary if log is None else f"{log}: {summary}")
    for each in rest:
        say(each)
    return report.ok


def _progress(done: int, total: int) -> None:
    """Say on a terminal how far verification is, on one line that the next one replaces."""
    if sys.stderr.isatty() and total > 1:
        end = "\r" if done < total - 1 else "\r\x1b[K"
        print(f"\rverifying file {done + 1} of {total}", end=end, file=sys.stderr, flush=True)


def _kept_heads(path: Path) -> Iterator[str]:
    """Yield the lines of a file of heads; a system log holds other bytes as well."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            while line_ := file.readline(_LONGEST_HEAD):
                yield line_
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}",
            rule="config.audit-head",
            fix="Name the file that the heads of this log are written to.",
        ) from None


@app.command("moving-key", short_help="Make a log key that moves one way.")
def moving_key(
    machine: Annotated[Path, typer.Argument(help="The new file for the machine: its audit.key.")],
    auditor: Annotated[
        Path, typer.Option(help="The new file for the auditor, who keeps it elsewhere.")
    ],
) -> None:
    """Make a log key that moves one way with each file of the log, for forward security.

    The log moves the key in MACHINE; who has that file later cannot compute the key before. Only
    the initial key verifies the log: move the file AUDITOR off the machine before the log is begun.
    """
    from safeser.audit import AuditKey

    key = AuditKey.new()
    key.save(auditor)
    try:
        key.save(machine, moving=True)
    except ConfigError:
        auditor.unlink()  # a key without its log would be kept for nothing
        raise
    line(f"{machine}: the key that moves; set safeser.audit-key to it")
    line(f"{auditor}: the initial key, which verifies the log; move it off this machine")


def must_exist(logs: Sequence[Path]) -> None:
    for log in logs:
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


class Outcome(enum.StrEnum):
    """What a record says of its message."""

    PERMITTED = "permitted"
    REFUSED = "refused"


class Format(enum.StrEnum):
    """How answers are written."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"


_Names = list[str]


def _asking(help_: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(help=f"{help_} Repeat it to allow several.")
    return option


@app.command(short_help="Find records by time, peer, rule, task and so on.")
def query(  # noqa: PLR0917 - typer reads the parameters by name
    logs: Logs,
    since: Annotated[
        str, typer.Option(help="1h, 30m, 2d, today, yesterday, or 2026-11-26T20:00 (UTC).")
    ] = "",
    until: Annotated[str, typer.Option(help="The same, for the end.")] = "",
    principal: Annotated[_Names, _asking("Sender or recipient.")] = [],  # noqa: B006 - typer reads it
    author: Annotated[_Names, _asking("Who wrote the payload, or whose task it is.")] = [],  # noqa: B006
    peer: Annotated[_Names, _asking("Other end: principal, address, host or key.")] = [],  # noqa: B006
    rule: Annotated[_Names, _asking("The rule that decided.")] = [],  # noqa: B006
    operation: Annotated[_Names, _asking("Dask's operation.")] = [],  # noqa: B006
    family: Annotated[_Names, _asking("Serialization family.")] = [],  # noqa: B006
    refers_to: Annotated[
        _Names, typer.Option("--global", help="The refused global, as module:name.")
    ] = [],  # noqa: B006
    task: Annotated[_Names, _asking("Key of a task.")] = [],  # noqa: B006
    outcome: Annotated[Outcome | None, typer.Option(help="Without it, both.")] = None,
    by: Annotated[
        _Names, typer.Option(help="Count by this field: rule, sender, user, log... Repeatable.")
    ] = [],  # noqa: B006
    form: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.TABLE,
    everything: Annotated[
        bool, typer.Option("--all", help="Also permitted messages that are only counted.")
    ] = False,
) -> None:
    """Show the records of all LOGs that match, oldest first. This does not verify them.

    Times are UTC. Files that are no audit logs are named on standard error and left out.
    """
    from safeser.audit.reading.search import Question, search
    from safeser.audit.record import short_key

    must_exist(logs)
    now = datetime.now(UTC)
    question = Question(
        since=moment_of(since, now=now) if since else 0,
        until=moment_of(until, now=now) if until else Question().until,
        principal=frozenset(principal),
        author=frozenset(author),
        peer=frozenset(peer),
        rule=frozenset(rule),
        operation=frozenset(operation),
        family=frozenset(family),
        refers_to=frozenset(refers_to),
        task=frozenset(map(short_key, task)),
        permitted=None if outcome is None else outcome is Outcome.PERMITTED,
        everything=everything,
    )
    matching = search(logs, question, skipped=_skipped)
    first = next(matching, None)
    found = matching if first is None else chain([first], matching)
    if first is None and form is Format.TABLE:
        print("safeser: no record matches", file=sys.stderr)
    if by:
        _write_counts(by, found, form)
    else:
        _write(found, form)


def _skipped(place: str, why: str) -> None:
    print(one_line(f"safeser: skipped {place}: {why}"), file=sys.stderr)


def _write(found: Iterable[Found], form: Format = Format.TABLE) -> None:
    """Write each of *found* as lines: one at a time on a terminal, else many."""
    from safeser.audit.reading.show import csv_lines, json_lines, lines

    if form is Format.TABLE:
        texts = lines(found, width())
    else:
        texts = json_lines(found) if form is Format.JSONL else csv_lines(found)
    size = 1 if sys.stdout.isatty() else 128
    while some := list(islice(texts, size)):
        sys.stdout.write("\n".join([*some, ""]))


def _write_counts(fields: Sequence[str], found: Iterable[Found], form: Format) -> None:
    """Write how often each combination of values occurs, the most frequent first."""
    from safeser.audit.reading.show import cell, counted, escaped, when
    from safeser.cli.screen import table

    columns = ["count", *fields, "first", "last"]
    rows = counted(found, fields)
    if form is Format.JSONL:
        for each in rows:
            print(
                json.dumps(
                    {
                        **dict(zip(fields, each.values, strict=True)),
                        "count": each.times,
                        "first": when(each.first),
                        "last": when(each.last),
                    }
                )
            )
    elif form is Format.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(cell, columns))
        for each in rows:
            values = (each.times, *each.values, when(each.first), when(each.last))
            writer.writerow(map(cell, values))
    else:
        shown = (
            [
                str(each.times),
                *map(escaped, each.values),
                when(each.first, short=True),
                when(each.last, short=True),
            ]
            for each in rows
        )
        table([escaped(name) for name in columns], shown)


@app.command()
def tail(
    logs: Logs,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many records.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written, in new files too.")
    ] = False,
    refused: Annotated[bool, typer.Option("--refused", help="Only refusals.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also counts, and records about the log itself.")
    ] = False,
) -> None:
    """Show the newest records, oldest first, one line each; times are UTC.

    This does not verify them. Heartbeats and other messages that are only counted are left out.
    """
    from safeser.audit.reading.search import Question
    from safeser.audit.reading.search import follow as following

    must_exist(logs)
    question = Question(everything=everything, permitted=False if refused else None)
    parts = following(logs, question, skipped=_skipped, wait=_wait if follow else lambda: False)
    _write(deque(next(parts), maxlen=lines))
    for part in parts:
        sys.stdout.flush()
        _write(part)
        sys.stdout.flush()


@app.command(short_help="Write one HTML page about logs.")
def report(
    logs: Logs,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
    since: Annotated[str, typer.Option(help="As of 'query'.")] = "",
    until: Annotated[str, typer.Option(help="The same, for the end.")] = "",
) -> None:
    """Write one HTML page: decisions over time, who talks to whom, refusals, who ran code.

    It needs no other file or host, and runs no script. This does not verify the logs.
    """
    from safeser.audit.reading.page import page
    from safeser.audit.reading.search import Question, search
    from safeser.audit.reading.summary import summarize

    must_exist(logs)
    now = datetime.now(UTC)
    question = Question(
        since=moment_of(since, now=now) if since else 0,
        until=moment_of(until, now=now) if until else Question().until,
        everything=True,
    )
    skipped: list[str] = []

    def note(place: str, why: str) -> None:
        skipped.append(f"{place}: {why}")
        _skipped(place, why)

    summary = summarize(search(logs, question, skipped=note))
    made = now.strftime("%Y-%m-%d %H:%M UTC")
    text = page(summary, logs=[str(log) for log in logs], skipped=skipped, made=made)
    try:
        output.write_text(text, encoding="ascii", errors="xmlcharrefreplace")
    except OSError as error:
        raise ConfigError(
            f"{output} cannot be written: {error.strerror}", rule="config.audit"
        ) from None
    line(f"{output}: {summary.records:,} decisions")


def _wait() -> bool:
    sys.stdout.flush()
    time.sleep(_POLL)
    return True


# --- moments as people name them on a command line: ``1h``, ``yesterday``, ``2026-11-26T20:00`` ---
# The one rule: everything is UTC, as the log is, and a text that could mean two moments is refused.

_AGO = re.compile(r"([0-9]{1,6})([smhdw])\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment_of(text: str, *, now: datetime) -> int:
    """Return the moment that *text* names, in microseconds since 1970.

    :raises ConfigError: if it names none.
    """
    ago = _AGO.match(text)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if ago is not None:
            found = now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        elif text in ("today", "yesterday"):
            found = midnight - timedelta(days=text == "yesterday")
        else:
            found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text!r} names no moment",
            rule="config.audit",
            fix="Write 90s, 30m, 1h, 2d or 1w for that long ago, today, yesterday, or a date and"
            " time in UTC: 2026-11-26, 2026-11-26T20:00.",
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1e6)

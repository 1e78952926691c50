"""Four ways to change an audit log afterwards, each on a copy, and what verification says.

The one rule: the forger here can do whatever somebody can who owns the files and lacks the log's
key, and knows how the log is made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from safeser.audit import AuditKey, Report, verify
from safeser.audit.chain import ZERO, Head, file_keys, step
from safeser.audit.files import head_name
from safeser.audit.record import line, split
from safeser.demo.failure import StepFailed

__all__ = ["FORGERIES", "Forgery", "largest_log", "try_forgery"]


@dataclass(frozen=True, slots=True)
class Forgery:
    """One way to change a log.

    :param what: what is done, for the reader.
    :param change: does it to a log file.
    """

    what: str
    change: Callable[[Path], None]


def _change_byte(log: Path) -> None:
    data = bytearray(log.read_bytes())
    # A digit of a record's time, in the middle of the file.
    at = data.index(b'"time":', len(data) // 2) + len(b'"time":1234')
    data[at] = ord("0") + (data[at] - ord("0") + 1) % 10
    log.write_bytes(data)


def _rewrite(log: Path) -> None:
    """Make every MAC and the head anew, as the log does, with a key of the forger's own."""
    bodies = []
    for raw in log.read_bytes().splitlines():
        parts = split(raw)
        assert parts is not None
        bodies.append(parts[1])
    genesis = json.loads(bodies[0])
    keys = file_keys(AuditKey.new(), directory=genesis["directory"], file=genesis["file"])
    # What the forger is after: no refusal ever happened.
    bodies = [body.replace(b'"permitted":false', b'"permitted":true') for body in bodies]
    mac, lines = ZERO, []
    for sequence, body in enumerate(bodies):
        mac = step(keys.chain, mac, sequence, body)
        lines.append(line(mac, body))
    log.write_bytes(b"".join(lines))
    head = Head(genesis["file"], len(bodies), mac, sum(map(len, lines)))
    log.with_name(head_name(log.name)).write_bytes(head.encode(keys.head))


def _cut_tail(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[: -max(1, len(lines) // 3)]))


def _remove(log: Path) -> None:
    log.unlink()


FORGERIES = (
    Forgery("a changed byte", _change_byte),
    Forgery("a rewritten chain", _rewrite),
    Forgery("a deleted tail", _cut_tail),
    Forgery("a missing file", _remove),
)


def try_forgery(forgery: Forgery, log: Path, *, key: Path, scratch: Path) -> str:
    """Do *forgery* to a copy of the folder that *log* is in; return the place that was named.

    :raises StepFailed: if verification does not find it, or names another file.
    """
    copy = scratch / forgery.what.replace(" ", "-")
    shutil.copytree(log.parent, copy)
    forgery.change(copy / log.name)
    found = verify(copy, key=key)
    shutil.rmtree(copy)
    return _named(found, log.name, forgery.what)


def _named(found: Report, name: str, what: str) -> str:
    if found.ok:
        raise StepFailed(f"{what} was not found in the audit log")
    named = [problem for problem in found.problems if problem.file == name]
    if not named:
        raise StepFailed(
            f"{what} was found, but {name} was not named", lines=str(found).split("\n")
        )
    first = named[0]
    place = f"line {first.line}" if first.line else "the file"
    return f"{place}: {first.kind}"


def largest_log(folder: Path) -> Path:
    """Return the largest log file in *folder*: the one of a process that saw the most."""
    return max(folder.glob("*.log"), key=lambda log: log.stat().st_size)

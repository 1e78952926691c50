"""Four ways to change an audit log afterwards, each applied to a copy, and what verification finds.

The forger can write the files and knows the log's format, but does not hold the audit key.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from examples.demo.errors import StepFailed
from safeser.audit import AuditKey, Report, verify
from safeser.audit.files import head_name
from safeser.audit.key import file_keys
from safeser.audit.record import line, split
from safeser.gate.chain import ZERO, Head, step

__all__ = ["FORGERIES", "Forgery", "largest_log", "try_forgery"]


@dataclass(frozen=True, slots=True)
class Forgery:
    """One way to change a log.

    :param what: its name, to print.
    :param change: changes a log file.
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
    """Recompute every MAC and the head with the forger's own key."""
    bodies = []
    for raw in log.read_bytes().splitlines():
        parts = split(raw)
        assert parts is not None
        bodies.append(parts[1])
    genesis = json.loads(bodies[0])
    keys = file_keys(AuditKey.new(), directory=genesis["directory"], file=genesis["file"])
    # The forger hides every refusal.
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
    """Apply *forgery* to a copy of the folder of *log*; return the problem that was found.

    :raises StepFailed: if verification finds nothing, or names another file.
    """
    copy = scratch / forgery.what.replace(" ", "-")
    shutil.copytree(log.parent, copy)
    forgery.change(copy / log.name)
    found = verify(copy, key=key)
    shutil.rmtree(copy)
    return _problem(found, log.name, forgery.what)


def _problem(found: Report, name: str, what: str) -> str:
    if found.ok:
        raise StepFailed(f"{what} in the audit log was not detected")
    here = [problem for problem in found.problems if problem.file == name]
    if not here:
        raise StepFailed(
            f"{what} was detected, but in another file than {name}", lines=str(found).split("\n")
        )
    first = here[0]
    return f"line {first.line}: {first.kind}" if first.line else first.kind


def largest_log(folder: Path) -> Path:
    """Return the largest log file in *folder*."""
    return max(folder.glob("*.log"), key=lambda log: log.stat().st_size)

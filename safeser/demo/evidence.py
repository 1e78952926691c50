"""What the audit logs say about an attack: who refused it, and by which rule.

The one rule: it reads what the other processes recorded, and asks no attacker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from safeser.audit import Record, read
from safeser.errors import AuditError

__all__ = ["Refusal", "now", "refusals", "wait_for_refusals"]

#: Counted decisions are written once a second, or with the next decision after that.
_WAIT = 6.0
_POLL = 0.1


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal as a process recorded it."""

    sender: str
    by: str
    rule: str


def now() -> int:
    """Return the time as records have it."""
    return time.time_ns() // 1_000


def refusals(folder: Path, *, since: int, senders: frozenset[str]) -> list[Refusal]:
    """Return what was refused from *senders* since then, in order of time, each once."""
    records = [
        record
        for log in folder.glob("*.log")
        if log.stat().st_mtime_ns // 1_000 >= since
        for record in _records(log)
        if record.time >= since
    ]
    found: dict[Refusal, None] = {}
    for record in sorted(records, key=lambda record: record.time):
        for refusal in _of(record):
            if refusal.sender in senders:
                found[refusal] = None
    return list(found)


def _records(log: Path) -> Iterator[Record]:
    try:
        yield from read(log)
    except AuditError:
        return  # verification names what is wrong with it


def _of(record: Record) -> Iterator[Refusal]:
    if record.type == "counts":
        counts = record.fields.get("counts")
        for entry in counts if isinstance(counts, list) else []:
            sender, recipient, _, rule, permitted, _ = entry
            if not permitted:
                yield Refusal(sender, recipient, rule)
    elif record.fields.get("permitted") is False:
        yield Refusal(record.text("sender"), record.text("recipient"), record.text("rule"))


def wait_for_refusals(
    folder: Path, *, since: int, senders: frozenset[str], check: Callable[[], None]
) -> list[Refusal]:
    """Return the refusals once there are any; an empty list if none is recorded in time."""
    deadline = time.monotonic() + _WAIT
    while True:
        found = refusals(folder, since=since, senders=senders)
        if found or time.monotonic() > deadline:
            return found
        check()
        time.sleep(_POLL)

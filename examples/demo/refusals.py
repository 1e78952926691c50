"""The refusals in the audit logs: which process refused an attack, and by which rule.

It reads what the attacked processes recorded, not what an attacker reports.
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
    """One refusal, as a process recorded it."""

    sender: str
    by: str
    rule: str


def now() -> int:
    """Return the current time in the unit of audit records, microseconds."""
    return time.time_ns() // 1_000


def refusals(folder: Path, *, since: int, senders: frozenset[str]) -> list[Refusal]:
    """Return the distinct refusals of *senders* since that time, oldest first."""
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
        return  # a later step verifies the log and reports its problems


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

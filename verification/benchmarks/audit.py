"""The audit log beside Python's own logging of JSON lines.

The one rule: one round does each of them once, in turns that start with another each round; a ratio
is the median of the ratios of single rounds. What is measured is processor time of this process.
All of them take the same events, of a session's tasks; one in 500 is a refusal.
"""

from __future__ import annotations

import itertools
import json
import logging
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safeser.audit import AuditKey, AuditLog, SessionFacts, verify
from safeser.audit.reading.search import Found, Question, search
from safeser.audit.reading.show import counted, csv_lines, json_lines, lines
from verification.benchmarks import report

LOGGING = "logging.FileHandler, JSON lines"
KEY = AuditKey(bytes(32))
#: Records that one write of the log takes where they come together, as in a batch of a stream.
BATCH = 100

ADMIT = {
    "event": "admit",
    "sender": "scheduler",
    "recipient": "worker",
    "kind": "task",
    "operation": "compute-task",
    "context": "scheduler-workers",
    "family": "sealed",
    "author": "alice",
    "where": "run_spec",
    "bytes": 812,
    "rule": "permit",
    "permitted": True,
}
REFUSE = {**ADMIT, "event": "refuse", "rule": "context.family", "permitted": False}
FACTS = {
    "address": "10.0.0.7:41234",
    "key": "abcd-efgh-ijkl-mnop",
    "peer": "scheduler",
    "peer_states": "team/7/0123456789abcdef",
    "suite": "encrypt",
}


def events(count: int) -> list[dict[str, Any]]:
    """Return *count* events of one session."""
    facts = SessionFacts("0123456789ab", FACTS)
    return [
        {
            **(REFUSE if place % 500 == 7 else ADMIT),
            "session": facts,
            "message": place,
            "task": f"sum-{place:032x}",
            "digest": f"{place:024x}",
        }
        for place in range(count)
    ]


def append(folder: Path, said: Sequence[dict[str, Any]], size: int) -> None:
    """Write *said* to a new log, *size* events at once."""
    ticks = itertools.count(time.time_ns(), 1_000_000)
    policy = ("team", 7, "ab" * 32)
    with AuditLog.open(
        folder, key=KEY, principal="worker", policy=policy, clock=lambda: next(ticks)
    ) as log:
        for start in range(0, len(said), size):
            log.record_all(said[start : start + size])


def log_lines(folder: Path, said: Sequence[dict[str, Any]]) -> None:
    """Write *said* by the standard library, which flushes each line, too."""
    folder.mkdir()
    logger = logging.Logger("benchmark")
    handler = logging.FileHandler(folder / "log.jsonl", encoding="ascii")
    logger.addHandler(handler)
    for each in said:
        logger.info("%s", json.dumps({**each, "session": FACTS, "time": time.time_ns()}))
    handler.close()


def _skipped(place: str, why: str) -> None:
    raise AssertionError(f"{place}: {why}")


def _drained(found: Iterator[Any]) -> int:
    return sum(1 for _ in found)


def steps(folder: Path, said: Sequence[dict[str, Any]]) -> Mapping[str, Callable[[], object]]:
    """Return what is measured, by its name; *folder* holds a log of *said*."""
    places = (folder.parent / f"other-{number}" for number in itertools.count())

    def ask(**wanted: Any) -> Callable[[], object]:
        question = Question(**wanted)
        return lambda: _drained(search([folder], question, skipped=_skipped))

    def everything() -> Iterator[Found]:
        return search([folder], Question(), skipped=_skipped)

    return {
        LOGGING: lambda: log_lines(next(places), said),
        "append, one record a write": lambda: append(next(places), said, 1),
        f"append, {BATCH} records a write": lambda: append(next(places), said, BATCH),
        "verify": lambda: verify(folder, key=KEY),
        "query: refusals": ask(permitted=False),
        "query: one task": ask(task=frozenset({f"sum-{len(said) // 2:032x}"})),
        "query: all, counted by author": lambda: counted(everything(), ["author"]),
        "query: all, as lines of 80 columns": lambda: _drained(lines(everything(), 80)),
        "query: all, as JSON lines": lambda: _drained(json_lines(everything())),
        "query: all, as CSV": lambda: _drained(csv_lines(everything())),
    }


def main() -> None:
    options = report.options(__doc__, records=100_000, rounds=5)
    said = events(options.records)
    taken: dict[str, list[float]] = defaultdict(list)
    for at in range(options.rounds):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "audit"
            append(folder, said, BATCH)
            for name, step in report.turns(list(steps(folder, said).items()), at):
                start = time.process_time()
                step()
                taken[name].append(time.process_time() - start)
    lines = []
    for name in sorted(taken, key=lambda name: name != LOGGING):
        median = statistics.median(taken[name])
        shown = (
            options.records / median,
            median / options.records * 1e6,
            report.ratio(taken[name], taken[LOGGING]),
        )
        lines.append([name, *map(report.number, shown)])
    report.show(("", "records a second", "µs a record", "time / logging"), lines)
    packages = ("safeser", "cryptography")
    report.show_notes(rounds=options.rounds, packages=packages)


if __name__ == "__main__":
    main()

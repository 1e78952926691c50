"""Traces: the decisions in a cluster's audit logs, as sets that two runs can be compared by.

A decision is compared without time, place in the message, size and number of times. What remains is
the deciding process, event, sender, recipient, kind, operation, family, author and rule. A record
belongs to the workload that ran when it was written. Decisions on administrative messages are only
counted and written up to a second later, so they are compared for the whole run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safeser.audit import read

__all__ = ["OPTIONAL", "Trace", "differences", "recorded", "traced"]

#: Actions of Dask that vary between runs, by sender, recipient and operation (empty in a reply),
#: with the reason. Such a decision may be missing, and may occur in a workload that did not have it
#: when the trace was recorded, if another workload had it.
OPTIONAL: Mapping[tuple[str, str, str], str] = {
    ("worker", "worker", "get_data"): "tasks run where there is room, and fetch what is elsewhere",
    ("worker", "worker", ""): "the values that are fetched",
    ("scheduler", "worker", "steal-request"): "work is stolen where a worker has too much of it",
    ("worker", "scheduler", "steal-response"): "the answer to that",
    ("scheduler", "worker", "remove-replicas"): "copies left when memory is looked after",
    ("worker", "worker", "shuffle_receive"): "a shard whose worker is its own sender is not sent",
}


@dataclass(frozen=True)
class Trace:
    """The decisions of one run of workloads under one policy.

    :param results: the result of each workload: ``ok``, or the name of an error.
    :param decisions: the decisions recorded while each workload ran, one line each.
    :param counted: the decisions counted in the whole run.
    """

    results: Mapping[str, str] = field(default_factory=dict)
    decisions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()

    @classmethod
    def load(cls, path: Path) -> Trace:
        held = json.loads(path.read_text("utf-8"))
        return cls(
            {name: each["result"] for name, each in held["workloads"].items()},
            {name: frozenset(each["decisions"]) for name, each in held["workloads"].items()},
            frozenset(held["counted"]),
        )

    def save(self, path: Path) -> None:
        workloads = {
            name: {"result": result, "decisions": sorted(self.decisions[name])}
            for name, result in self.results.items()
        }
        held = {"workloads": workloads, "counted": sorted(self.counted)}
        path.write_text(json.dumps(held, indent=1) + "\n", "utf-8")

    def union(self, other: Trace) -> Trace:
        """Return the decisions of either run; both ran the same workloads."""
        both = {name: each | other.decisions[name] for name, each in self.decisions.items()}
        return Trace(self.results, both, self.counted | other.counted)


def recorded(audit: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the time, line, and whether it was only counted, of each decision in *audit*."""
    for path in sorted(audit.glob("*.log")):
        role = path.name.rpartition("-")[0].rpartition("-")[0]
        for record in read(path):
            fields: Mapping[str, Any] = record.fields
            if record.type == "event":
                yield record.time, _line(role, fields), False
            elif record.type == "counts":
                for row in fields["counts"]:
                    yield record.time, _counted(role, row), True


def _line(role: str, fields: Mapping[str, Any]) -> str:
    said = [fields.get(name) or "-" for name in ("kind", "operation", "family", "author")]
    return " ".join(
        (role, fields["event"], fields["sender"], fields["recipient"], *said, fields["rule"])
    )


def _counted(role: str, row: Any) -> str:
    sender, recipient, operation, rule, permitted, *_ = row
    outcome = "permitted" if permitted else "refused"
    return " ".join((role, sender, recipient, operation or "-", rule, outcome))


def traced(audit: Path, taken: Mapping[str, tuple[str, int, int]]) -> Trace:
    """Return the trace of a run.

    :param taken: the result, begin and end of each workload.
    """
    begun = sorted((start, name) for name, (_, start, _) in taken.items())
    decisions: dict[str, set[str]] = {name: set() for name in taken}
    counted = set()
    for time, line, only_counted in recorded(audit):
        if only_counted:
            if " keep-alive " not in line:  # sent once a minute: a short run has none
                counted.add(line)
            continue
        before = [name for start, name in begun if start <= time]
        if before:
            decisions[before[-1]].add(line)
    return Trace(
        {name: result for name, (result, _, _) in taken.items()},
        {name: frozenset(each) for name, each in decisions.items()},
        frozenset(counted),
    )


def _is_optional(line: str) -> bool:
    _, *words = line.split(" ")
    # A recorded decision also says which event it is, and its kind.
    sender, recipient, operation = words[:3] if len(words) == 5 else (*words[1:3], words[4])
    return (sender, recipient, "" if operation == "-" else operation) in OPTIONAL


def differences(golden: Trace, seen: Trace) -> Iterator[str]:
    """Yield the differences of *seen*, which may be a part of the workloads, from *golden*."""
    known = frozenset(line for each in golden.decisions.values() for line in each)
    for name, result in seen.results.items():
        if result != golden.results[name]:
            yield f"{name}: came to {result}, not {golden.results[name]}"
        was, now = golden.decisions[name], seen.decisions[name]
        yield from (f"{name}: missing: {line}" for line in _left(was - now, frozenset(was)))
        yield from (f"{name}: new: {line}" for line in _left(now - was, known))
    # Optional decisions may be new even to the whole golden trace, if they are permitted.
    permitted = frozenset(line for line in seen.counted if line.endswith(" permit permitted"))
    new = _left(seen.counted - golden.counted, permitted)
    yield from (f"counted, new: {line}" for line in new)
    if seen.results.keys() == golden.results.keys():
        missing = _left(golden.counted - seen.counted, golden.counted)
        yield from (f"counted, missing: {line}" for line in missing)


def _left(lines: Iterable[str], known: frozenset[str]) -> list[str]:
    """Return *lines* without the optional ones that are *known*."""
    return sorted(line for line in lines if not (_is_optional(line) and line in known))

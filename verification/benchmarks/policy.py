"""Measure what a decision costs, and what a shadow policy adds to a message: processor time.

Decisions are those of a policy of 1,000 contexts, seen before and not; a message has one payload,
and is admitted and recorded with a shadow policy beside the enforced one and without.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from safeser import families
from safeser.gate.values import ANY_AUTHOR, Context, Kind
from safeser.operations import NAMES
from safeser.policy import Policy
from safeser.policy.compiled import Compiled
from safeser.policy.source.context import Rule
from tests.conftest import Doors
from verification.benchmarks import report

CONTEXTS = 1_000
PEOPLE = 2_000
MESSAGES = 2_000
PAIRS = 15
AGAIN = 20


def large_table() -> tuple[Compiled, list[Context]]:
    """Return a table of :data:`CONTEXTS` contexts and a question that each of them decides."""
    names = [f"user-{number}" for number in range(PEOPLE)]
    rules = [
        Rule(
            name=f"context-{number}",
            senders=frozenset(names[2 * number : 2 * number + 2]),
            recipients=frozenset({"scheduler"}),
            kinds=frozenset(Kind),
            serializers=("dask", "msgpack", "pickle"),
            deserializers=("dask", "msgpack", "pickle"),
            operations=frozenset({"identity", "gather"}),
        )
        for number in range(CONTEXTS)
    ]
    asked = [Context(name, "scheduler", "data", "gather") for name in names]
    return Compiled(rules, [*names, "scheduler"]), asked


def microseconds(run: Callable[[], object], times: int) -> float:
    start = time.process_time_ns()
    run()
    return (time.process_time_ns() - start) / 1e3 / times


def decisions() -> list[list[str]]:
    """Return the rows of decisions in a policy of :data:`CONTEXTS` contexts."""
    taken: dict[str, list[float]] = defaultdict(list)
    strange = [Context("eve", name, "task") for name in sorted(NAMES) if len(name) < 60]
    for _ in range(7):
        compiled, asked = large_table()

        def ask(asked: list[Context], author: Any = None, times: int = 1) -> float:
            asks = partial(compiled.table.decide, family="pickle", author=author)  # noqa: B023
            return microseconds(lambda: [*map(asks, asked * times)], times * len(asked))

        taken["not seen, permitted"].append(ask(asked))
        taken["seen before"].append(ask(asked, times=AGAIN))
        taken["not seen, refused"].append(ask(asked, ANY_AUTHOR))
        taken["not seen, no context"].append(ask(strange))
    return [
        [name, report.number(statistics.median(found)), "1" if name == "seen before" else "50"]
        for name, found in taken.items()
    ]


class Side:
    """A channel that receives messages of one peer, with a log on disk."""

    def __init__(self, folder: Path, shadow: Policy | None) -> None:
        doors = Doors(folder)
        here = doors.channel("client", "default", shadow=shadow)
        self.near, self.far = doors.shake(doors.channel("scheduler", "default"), here)

    def messages(self, header: dict[str, Any], frames: list[bytes]) -> None:
        """Receive, decide and record one message with one payload, many times."""
        near, far = self.near, self.far
        context = far.inbound(Kind.DATA)
        for _ in range(MESSAGES):
            message = far.verify(near.session.seal(b"", []))
            far.admit(message, context, [far.payload(message, context, "x", header, frames)])


def shadows() -> list[list[str]]:
    """Return the rows of one message with one payload, received and recorded."""
    header, frames = families.serialize([1.5, 2.5], ["msgpack"])
    lines = []
    for name in ("strict", "observe", "stock-cluster"):
        with tempfile.TemporaryDirectory() as folder:
            sides = {
                "without": Side(Path(folder) / "a", None),
                "with": Side(Path(folder) / "b", Policy.load(name)),
            }
            contest = report.Contest(
                {
                    which: partial(microseconds, partial(side.messages, header, frames), MESSAGES)
                    for which, side in sides.items()
                }
            )
            report.hold([contest], PAIRS)
            more = 100 * ((contest.ratio("with", "without") or 0) - 1)
            medians = map(statistics.median, contest.seconds.values())
            lines.append([name, *map(report.number, medians), f"{more:+.1f} %"])
    return lines


if __name__ == "__main__":
    report.show(("decision", "µs", "aim"), decisions())
    report.show(("shadow policy", "without (µs a message)", "with", "more (aim: 10 %)"), shadows())
    report.show_notes(rounds=PAIRS)

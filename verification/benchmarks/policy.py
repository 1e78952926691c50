"""Measure what a decision costs, and what a shadow policy adds to a message.

``python -m verification.benchmarks.policy`` prints processor time: of decisions in a policy of
1,000 contexts, seen before and not, and of one message with a payload, admitted and recorded, with
a shadow policy beside the enforced one and without.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safeser import families
from safeser.audit import AuditKey, AuditLog
from safeser.channel import Channel
from safeser.identity import Identity, PrivateKey, Roster
from safeser.operations import NAMES
from safeser.policy import Policy
from safeser.policy.decide import Table
from safeser.policy.source.context import Rule
from safeser.values import ANY_AUTHOR, Context, Kind, Suite

CONTEXTS = 1_000
PEOPLE = 2_000
MESSAGES = 2_000
PAIRS = 15
AGAIN = 20


def large_table() -> tuple[Table, list[Context]]:
    """Return a table of :data:`CONTEXTS` contexts and a question that each of them decides."""
    names = [f"user-{number}" for number in range(PEOPLE)]
    rules = [
        Rule.model_construct(
            name=f"context-{number}",
            suite=Suite.AUTHENTICATE,
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
    return Table(rules, [*names, "scheduler"]), asked


def microseconds(run: Callable[[], object], times: int) -> float:
    start = time.process_time_ns()
    run()
    return (time.process_time_ns() - start) / 1e3 / times


def decisions() -> None:
    print(f"decisions in a policy of {CONTEXTS:,} contexts, processor time of each")
    seen, unseen, authored, denied = [], [], [], []
    for _ in range(7):
        table, asked = large_table()

        def ask(table: Table = table, asked: list[Context] = asked, author: Any = None) -> None:
            for context in asked:
                table.decide(context, "pickle", author=author)

        unseen.append(microseconds(ask, len(asked)))

        def ask_again() -> None:
            for _ in range(AGAIN):
                ask()

        seen.append(microseconds(ask_again, AGAIN * len(asked)))
        authored.append(microseconds(lambda: ask(author=ANY_AUTHOR), len(asked)))
        strange = [Context("eve", name, "task") for name in sorted(NAMES) if len(name) < 60]
        denied.append(microseconds(lambda: ask(asked=strange), len(strange)))  # noqa: B023
    for what, found, most in (
        ("seen before", seen, 1),
        ("not seen, permitted", unseen, 50),
        ("not seen, refused", authored, 50),
        ("not seen, no context", denied, 50),
    ):
        middle = statistics.median(found)
        print(
            f"  {what:<22} {middle:6.2f} us, best {min(found):5.2f} us;"
            f" at most {most} us: {_verdict(middle <= most)}"
        )


def _verdict(good: bool) -> str:
    return "yes" if good else "NO"


class Side:
    """A channel that receives messages of one peer, with a log on disk."""

    def __init__(self, folder: Path, shadow: Policy | None) -> None:
        policy = Policy.load("default")
        self._log = AuditLog.open(folder, key=AuditKey.new(), principal="client")
        keys = {name: PrivateKey.generate() for name in ("scheduler", "client")}
        lines = (f"{key.public.text} {name} active 2026-01-01\n" for name, key in keys.items())
        roster = Roster.parse("".join(lines))
        there, here = (
            Channel(
                identity=Identity(name, key),
                policy=policy,
                audit=self._log,
                roster=roster,
                shadow=shadow,
            )
            for name, key in keys.items()
        )
        one, two = there.handshake(initiator=True), here.handshake(initiator=False)
        to_here, to_there = one.outgoing, b""
        while one.wanted or two.wanted:
            if two.wanted and len(to_here) >= two.wanted:
                size = two.wanted
                to_there += two.feed(to_here[:size])
                to_here = to_here[size:]
            else:
                size = one.wanted
                to_here += one.feed(to_there[:size])
                to_there = to_there[size:]
        self.near, self.far = there.link(one), here.link(two)

    def messages(self, header: dict[str, Any], frames: list[bytes]) -> None:
        """Receive, decide and record one message with one payload, many times."""
        near, far = self.near, self.far
        context = far.inbound(Kind.DATA)
        for _ in range(MESSAGES):
            message = far.verify(near.session.seal(b"", []))
            far.admit(message, context, [far.payload(message, context, "x", header, frames)])


def shadows() -> None:
    print(f"one message with one payload, received and recorded, medians of {PAIRS} pairs")
    header, frames = families.serialize([1.5, 2.5], ["msgpack"])
    for name in ("strict", "observe", "stock-cluster"):
        with tempfile.TemporaryDirectory() as folder:
            sides = [Side(Path(folder) / "a", None), Side(Path(folder) / "b", Policy.load(name))]
            pairs = []
            for number in range(PAIRS):
                # Each goes first in every other pair.
                order = sides[:: 1 if number % 2 else -1]
                costs = [
                    microseconds(lambda: each.messages(header, frames), MESSAGES)  # noqa: B023
                    for each in order
                ]
                pairs.append(costs[:: 1 if number % 2 else -1])
            without, beside = (statistics.median(each) for each in zip(*pairs, strict=True))
            more = 100 * (statistics.median(b / a for a, b in pairs) - 1)
            print(
                f"  shadow {name:<14} {without:6.1f} us without, {beside:6.1f} us with:"
                f" {more:+5.1f} %   at most 10 %: {_verdict(more <= 10)}"
            )


if __name__ == "__main__":
    decisions()
    shadows()

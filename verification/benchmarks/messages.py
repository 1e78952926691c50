"""Messages through a Channel or a conversation of Dask's, as multiples of pickle and an HMAC.

The one rule: what sends, what receives, and what they are compared with take turns in one run.

To send is to decide, serialize and seal. To receive is to verify, decide, record in a log on disk
and build. The others pickle the object in one piece and sign that by HMAC-SHA256, or verify and
unpickle it.
"""

from __future__ import annotations

import hmac
import pickle
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from distributed.worker_state_machine import TaskFinishedMsg

from safeser import Context
from tests.conftest import Doors
from tests.dask.conftest import Talk
from verification.benchmarks import report

POLICY = "default"
_KEY = bytes(range(32))

Step = Callable[[Any], Any]


def _finished(number: int) -> dict[str, Any]:
    """Return what a worker reports of a task."""
    return TaskFinishedMsg(
        key=f"inc-{number:032x}",
        run_id=number,
        nbytes=28,
        type=pickle.dumps(int, 5),
        typename="int",
        metadata={},
        thread=140_000,
        startstops=[{"action": "compute", "start": 1.5, "stop": 1.6}],
        stimulus_id=f"task-finished-{number / 8}",
    ).to_dict()


def _library(doors: Doors) -> tuple[Step, Step]:
    """Return what sends and what receives, by two channels."""
    here, there = doors.channel("scheduler", POLICY), doors.channel("client", POLICY)
    doors.shake(here, there)
    context = Context("scheduler", "client", "data")
    return lambda value: here.seal(value, context), lambda sent: there.open(sent, context)


def _stream(doors: Doors) -> tuple[Step, Step]:
    """Return the same on the stream of a worker to its scheduler."""
    talk = Talk(doors, "worker", "scheduler", POLICY).greet().worker_stream()

    def send(elements: Any) -> list[Any]:
        frames = talk.asker.send(elements)
        talk.asker.sent.commit()
        return talk.near.session.seal(b"", frames)

    return send, lambda sent: talk.server.receive(talk.far.verify(sent), None)


class Kind(NamedTuple):
    """Messages of one kind, the multiples that are the goal, who sends them, and how many."""

    name: str
    make: Callable[[int], Any]
    asked: tuple[float, float]
    pair: Callable[[Doors], tuple[Step, Step]] = _library
    times: int = 64


KINDS = (
    Kind("dict of 64 ints", lambda n: {f"k{at}": at + n for at in range(64)}, (2.7, 4)),
    Kind("a worker's task-finished", lambda n: [_finished(n)], (3, 5.5), _stream),
    Kind(
        "50 stream elements",
        lambda n: [_finished(n * 50 + at) for at in range(50)],
        (2.6, 7),
        _stream,
    ),
    Kind(
        "1,000 records",
        lambda n: [{"id": n, "name": f"name-{at}", "score": at / 8} for at in range(1000)],
        (2.6, 3),
    ),
    Kind("array of 800 kB", lambda n: np.arange(100_000.0) + n, (0.6, 0.4), times=16),
    Kind("array of 64 MiB", lambda n: np.arange(float(1 << 23)) + n, (0.25, 0.25), times=1),
)


def _signed(value: Any) -> tuple[bytes, bytes]:
    data = pickle.dumps(value, 5)
    return data, hmac.digest(_KEY, data, "sha256")


def _checked(sent: tuple[bytes, bytes]) -> Any:
    data, tag = sent
    assert hmac.compare_digest(hmac.digest(_KEY, data, "sha256"), tag)
    return pickle.loads(data)


def contest(kind: Kind, doors: Doors) -> report.Contest:
    # What is sent to be measured is not received.
    (send, _), (sent, receive) = kind.pair(doors), kind.pair(doors)
    steps = {
        "send": (send, None),
        "receive": (receive, lambda value: [b"".join(sent(value))]),
        "sign": (_signed, None),
        "check": (_checked, _signed),
    }
    numbers = count()

    def taken(step: Step, prepare: Step | None) -> float:
        """Return the median time of *step* with values that are new."""
        found = []
        values = map(kind.make, islice(numbers, kind.times))
        for value in [prepare(each) if prepare else each for each in values]:
            start = perf_counter()
            made = step(value)
            found.append(perf_counter() - start)
            del made  # not while the clock runs
        return statistics.median(found)

    return report.Contest({name: partial(taken, *step) for name, step in steps.items()})


def main() -> None:
    options = report.options(__doc__, rounds=9, only="")
    with tempfile.TemporaryDirectory(prefix="safeser-messages-") as folder:
        doors = Doors(Path(folder) / "logs")
        held = {kind: contest(kind, doors) for kind in KINDS if options.only in kind.name}
        report.hold(held.values(), options.rounds)
    lines = []
    for kind, each in held.items():
        lines.append([kind.name])
        pairs = (("send", "sign"), ("receive", "check"))
        for (ours, other), asked in zip(pairs, kind.asked, strict=True):
            lines[-1] += [each.micros(ours), f"{each.ratio(ours, other):.2f}", f"{asked:g}"]
    ratio = ("/ pickle + HMAC", "asked")
    report.show(("message", "send (µs)", *ratio, "receive (µs)", *ratio), lines)
    note = f"/ pickle + HMAC: median of the rounds' ratios, above 1 is slower; policy {POLICY}"
    report.show_notes(note, rounds=options.rounds)


if __name__ == "__main__":
    main()

"""What sealed graphs and tasks take, beside what Dask sends.

The one rule: bytes are those of graphs and tasks alone, without the messages around them; times are
processor time of this process, the median of all rounds. *Dask* is the pickle that its client and
scheduler make of the same graph and task.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
from dask._expr import HLGExpr, LLGExpr
from dask._task_spec import Task
from distributed.protocol import pickle

from safeser.dask.sealed.call import Kept, Sent
from safeser.dask.sealed.graph import parse, write_out
from safeser.dask.sealed.node import nodes
from safeser.gate.values import Limits
from safeser.identity import Identity
from verification.benchmarks import report
from verification.benchmarks.report import number

PACKAGES = ("safeser", "dask", "distributed", "cloudpickle", "msgpack", "cryptography")
#: Bytes of the constant that the function of each task closes over.
CLOSURE = 2816

AUTHOR, SCHEDULER = Identity.generate("alice"), Identity.generate("scheduler")
LIMITS = Limits()


def closures(count: int) -> LLGExpr:
    """Return a graph of *count* calls of one function that closes over some 3 kB."""
    constant = bytes(range(256)) * (CLOSURE // 256)

    def function(number: int) -> int:
        return number + len(constant)

    return LLGExpr({f"f-{at}": Task(f"f-{at}", function, at) for at in range(count)})


def array_sum(chunks: int) -> Any:
    return HLGExpr.from_collection(da.ones(chunks, chunks=1).sum(), optimize_graph=True).optimize()


class Round:
    """One graph from its author to a worker: bytes, and microseconds for each task."""

    def __init__(self, expr: Any) -> None:
        (header, frames), self.write = _timed(
            lambda: write_out(expr, AUTHOR, SCHEDULER.public, LIMITS)
        )
        self.to_scheduler = sum(map(len, frames))
        header = {**header, "sizes": tuple(header["sizes"])}  # as msgpack is read
        graph, self.parse = _timed(lambda: parse(header, frames, LIMITS))
        tasks, sent, kept = list(nodes(graph).values()), Sent(), Kept()
        calls, self.encode = _timed(lambda: [sent.frames(task.call) for task in tasks])
        self.to_workers = sum(len(frame) for frames in calls for frame in frames)
        known: set[bytes] = set()
        _, self.verify = _timed(lambda: [_verify(kept, frames, known) for frames in calls])
        self.tasks = len(tasks)


def _verify(kept: Kept, frames: Sequence[bytes], known: set[bytes]) -> None:
    """Check the task that *frames* are, and its statement unless it is *known*, as workers do."""
    signed = kept.call(frames, LIMITS).signed
    if signed.packed not in known:
        assert signed.verify()
        known.add(signed.packed)


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = function()
    return result, (time.process_time() - start) * 1e6


def lines(name: str, expr: Any, *, rounds: int, pickled: bool) -> list[list[str]]:
    """Return the rows of one graph.

    :param pickled: whether Dask's scheduler pickles each of its tasks.
    """
    found = [Round(expr) for _ in range(rounds)]
    count, first = found[0].tasks, found[0]
    by_dask = len(pickle.dumps(expr))
    rows = [
        [name, "", "", ""],
        _row("client to scheduler (kB)", first.to_scheduler / 1e3, by_dask / 1e3),
    ]
    if pickled:
        tasks = sum(len(pickle.dumps(task)) for task in expr.__dask_graph__().values())
        sealed = first.to_workers / count
        rows.append(_row("scheduler to workers (bytes a task)", sealed, tasks / count))
    for quantity, step in (
        ("client writes and signs (µs a task)", "write"),
        ("scheduler reads and checks (µs a task)", "parse"),
        ("scheduler encodes (µs a task)", "encode"),
        ("worker verifies (µs a task)", "verify"),
    ):
        taken = statistics.median(getattr(each, step) for each in found) / count
        rows.append([f"  {quantity}", number(taken), "", ""])
    return rows


def _row(quantity: str, sealed: float, by_dask: float) -> list[str]:
    return [f"  {quantity}", number(sealed), number(by_dask), number(sealed / by_dask)]


def main() -> None:
    options = report.options(__doc__, rounds=7, tasks=5_000, chunks=10_000)
    Round(closures(10))  # to warm up
    rows = []
    for count in dict.fromkeys((options.tasks, min(options.tasks, 1000), 1)):
        name = f"{count:,} closures of 3 kB" if count > 1 else "one closure of 3 kB"
        # What takes microseconds is repeated more often.
        many = options.rounds * (50 if count == 1 else 1)
        rows += lines(name, closures(count), rounds=many, pickled=True)
    name = f"sum of an array of {options.chunks:,} chunks"
    rows += lines(name, array_sum(options.chunks), rounds=options.rounds, pickled=False)
    report.show(("", "sealed", "Dask", "sealed / Dask"), rows)
    report.show_notes(rounds=options.rounds, packages=PACKAGES)


if __name__ == "__main__":
    main()

"""Typed serialization, beside distributed's, pickle 5 and Arrow.

The one rule: one round lets everybody serialize and load the same object, one after the other, so
that whatever else the machine does falls on each of them alike.

distributed serializes by its own default, families ``dask`` and ``pickle``; pickle uses protocol 5
with buffers apart; Arrow writes an IPC stream, where there is one. Whoever loads is given frames
of memory of their own, writable, as a comm delivers them. *Extra* is what was taken at the peak
beyond what was there before, as a share of what was sent: 0 is no copy, 1 is one.
"""

from __future__ import annotations

import gc
import pickle
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
from distributed.protocol import deserialize, serialize

from safeser import families
from safeser.gate.values import Grant
from verification.benchmarks import report
from verification.benchmarks.payloads import TYPES, Type
from verification.benchmarks.report import number

PACKAGES = ("safeser", "distributed", "numpy", "pandas", "pyarrow", "polars", "scipy")
SIZE_NAMES = {1 << 10: "1 KiB", 1 << 20: "1 MiB", 1 << 26: "64 MiB"}
STEPS = ("dumps", "loads")
GRANT = Grant("benchmark", ("dask", "msgpack"))
OTHERS = ("distributed", "pickle 5", "Arrow IPC")
#: From here on headers no longer count, and a copy of a buffer is one that hurts.
LARGE = 1 << 20
#: Buffers return their memory to the pool that gave it, so none of them may go away.
_DEFAULT_POOL, _POOLS = pa.default_memory_pool(), list[Any]()


class Sent(NamedTuple):
    """What travels: a header, in whatever form, and frames."""

    header: Any
    frames: list[Any]

    def received(self) -> Sent:
        """Return the same with frames in memory of its own, as a comm would hand them over."""
        return Sent(self.header, [memoryview(bytearray(frame)) for frame in self.frames])


def _pickled(x: Any) -> Sent:
    buffers: list[Any] = []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return Sent(None, [data, *(buffer.raw() for buffer in buffers)])


def _stream(table: Any) -> Sent:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Sent(None, [sink.getvalue()])


def _read(sent: Sent) -> Any:
    return pa.ipc.open_stream(pa.py_buffer(sent.frames[0])).read_all()


#: What Arrow has, by library: for frames and tables, not for arrays.
_ARROW: dict[str, tuple[Callable[[Any], Sent], Callable[[Sent], Any]]] = {
    "pyarrow": (_stream, _read),
    "pandas": (lambda x: _stream(pa.Table.from_pandas(x)), lambda sent: _read(sent).to_pandas()),
    "polars": (lambda x: _stream(x.to_arrow()), lambda sent: pl.from_arrow(_read(sent))),
}
#: How each contender writes and reads.
_CONTENDERS: dict[str, tuple[Callable[[Any], Sent], Callable[[Sent], Any]]] = {
    "safeser": (
        lambda x: Sent(*families.serialize(x, ("dask", "msgpack"))),
        lambda sent: families.deserialize(*sent, GRANT),
    ),
    "distributed": (lambda x: Sent(*serialize(x)), lambda sent: deserialize(*sent)),
    "pickle 5": (_pickled, lambda sent: pickle.loads(sent.frames[0], buffers=sent.frames[1:])),
}


class Run:
    """All rounds of one object: both steps of each contender, and the memory that safeser takes."""

    def __init__(self, kind: Type, size: int, rounds: int) -> None:
        self.kind, self.size = kind, size
        made = kind.make(size)
        arrow = _ARROW.get(kind.family)
        contenders = _CONTENDERS | ({"Arrow IPC": arrow} if arrow else {})
        self.turns = {
            "dumps": report.Contest(
                {
                    name: partial(report.timed, partial(dumps, made))
                    for name, (dumps, _) in contenders.items()
                }
            ),
            "loads": report.Contest(
                {
                    name: partial(report.timed, partial(loads, dumps(made).received()))
                    for name, (dumps, loads) in contenders.items()
                }
            ),
        }
        dumps, loads = _CONTENDERS["safeser"]
        sent = dumps(made).received()
        size = sum(memoryview(frame).nbytes for frame in sent.frames)
        steps = {"dumps": partial(dumps, made), "loads": partial(loads, sent)}
        report.hold(self.turns.values(), rounds)
        self.extra = {name: _extra(step, size) for name, step in steps.items()}
        for turn in self.turns.values():
            turn.contenders = {}  # they hold the object, and only its numbers are still wanted

    def cells(self) -> list[str]:
        """Return one line of the table."""
        cells = [self.kind.name, SIZE_NAMES[self.size]]
        for step, turn in self.turns.items():
            cells += [turn.micros("safeser"), *(_times(turn, other) for other in OTHERS)]
            cells.append(f"{self.extra[step]:.2f}" if self.size >= LARGE else "")
        return cells


def _times(turn: report.Contest, other: str) -> str:
    """Return a ratio with three digits that matter; what takes next to nothing has none."""
    found = turn.ratio("safeser", other)
    if found is None:
        return ""
    return "<0.01" if found < 0.005 else number(found)


def _extra(run: Callable[[], object], nbytes: int) -> float:
    """Return what *run* took at its peak beyond what there was, as a share of *nbytes*.

    Python's and NumPy's memory are seen by tracemalloc, Arrow's by a pool of the run's own.
    """
    gc.collect()
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        made = run()
        _, peak = tracemalloc.get_traced_memory()
        del made
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(_DEFAULT_POOL)
    return max(0, peak - before + pool.max_memory()) / max(1, nbytes)


def main() -> None:
    options = report.options(__doc__, rounds=7, only="", largest=max(SIZE_NAMES))
    runs = []
    for kind in TYPES:
        for size in SIZE_NAMES:
            chosen = options.only in kind.name or options.only == kind.family
            if chosen and size <= min(kind.most, options.largest):
                print(f"{kind.name}, {SIZE_NAMES[size]}", file=sys.stderr)
                runs.append(Run(kind, size, options.rounds))
    steps = ("(µs)", "/ distributed", "/ pickle 5", "/ Arrow", "extra")
    headings = [
        f"{step} {steps[0]}" if each == steps[0] else each for step in STEPS for each in steps
    ]
    report.show(("object", "size", *headings), [run.cells() for run in runs])
    notes = (
        "/ distributed, / pickle 5, / Arrow: median of the ratios of single rounds, above 1 is"
        " slower; extra: memory at the peak as a share of what is sent"
    )
    report.show_notes(notes, rounds=options.rounds, packages=PACKAGES)


if __name__ == "__main__":
    main()

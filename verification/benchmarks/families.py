"""Typed serialization, beside distributed's, pickle 5 and Arrow.

The one rule: one round lets everybody serialize and load the same object, one after the other, so
that whatever else the machine does falls on each of them alike; a ratio is the median of the
ratios of single rounds, and never one of numbers from two runs.

distributed serializes by its own default, families ``dask`` and ``pickle``; pickle uses protocol 5
with buffers apart; Arrow writes an IPC stream, where there is one. Whoever loads is given frames
of memory of their own, writable, as a comm delivers them. *Extra* is what was taken at the peak
beyond what was there before, as a share of what was sent: 0 is no copy, 1 is one.
"""

from __future__ import annotations

import datetime
import gc
import os
import pickle
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from distributed.protocol import deserialize, serialize
from rich.console import Console

from safeser import families
from safeser.errors import SafeserError
from safeser.values import Grant
from verification.benchmarks.payloads import TYPES, Type
from verification.benchmarks.report import machine, number, ratio, show_grid

PACKAGES = ("safeser", "distributed", "numpy", "pandas", "pyarrow", "polars", "scipy")
SIZES = (1 << 10, 1 << 20, 1 << 26)
SIZE_NAMES = {1 << 10: "1 KiB", 1 << 20: "1 MiB", 1 << 26: "64 MiB"}
#: What one contender gets for one step of one round, at least one turn.
SLICE = 0.01
GRANT = Grant("benchmark", ("dask", "msgpack"))
OTHERS = ("distributed", "pickle 5", "Arrow IPC")
#: How much slower than distributed's own a family may be, and what is aimed at where.
AIMS = {"numpy": 1.1, "pandas": 1.0}
#: From here on headers no longer count, and a copy of a buffer is one that hurts.
LARGE = 1 << 20
#: Extra memory below which no large buffer can have been copied.
NO_COPY = 0.1
#: How many of those that miss an aim are named, the worst first; the table has the others.
SHOWN = 4

HEADINGS = (
    "object", "size", "dumps (µs)", "/ distributed", "/ pickle 5", "/ Arrow", "extra",
    "loads (µs)", "/ distributed", "/ pickle 5", "/ Arrow", "extra",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sent:
    """What travels: a header, in whatever form, and frames."""

    header: Any
    frames: list[Any] = field(repr=False)

    def received(self) -> Sent:
        """Return the same with frames in memory of its own, as a comm would hand them over."""
        return Sent(self.header, [memoryview(bytearray(frame)) for frame in self.frames])

    @property
    def nbytes(self) -> int:
        return sum(memoryview(frame).nbytes for frame in self.frames)


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    dumps: Callable[[Any], Sent]
    loads: Callable[[Sent], Any]


def _safeser_dumps(x: Any) -> Sent:
    return Sent(*families.serialize(x, ("dask", "msgpack")))


def _safeser_loads(sent: Sent) -> Any:
    return families.deserialize(sent.header, sent.frames, GRANT)


def _distributed_dumps(x: Any) -> Sent:
    return Sent(*serialize(x))


def _distributed_loads(sent: Sent) -> Any:
    return deserialize(sent.header, sent.frames)


def _pickle_dumps(x: Any) -> Sent:
    buffers: list[Any] = []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return Sent(None, [data, *(buffer.raw() for buffer in buffers)])


def _pickle_loads(sent: Sent) -> Any:
    return pickle.loads(sent.frames[0], buffers=sent.frames[1:])


def _stream(table: Any) -> Sent:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Sent(None, [sink.getvalue()])


def _read(sent: Sent) -> Any:
    import pyarrow as pa

    return pa.ipc.open_stream(pa.py_buffer(sent.frames[0])).read_all()


def _arrow(kind: Type) -> Contender | None:
    """Return what Arrow has for objects of *kind*: for frames and tables, not for arrays."""
    if kind.family == "pyarrow":
        return Contender("Arrow IPC", _stream, _read)
    if kind.family == "pandas":
        import pyarrow as pa

        return Contender(
            "Arrow IPC",
            lambda x: _stream(pa.Table.from_pandas(x)),
            lambda sent: _read(sent).to_pandas(),
        )
    if kind.family == "polars":
        import polars as pl

        return Contender(
            "Arrow IPC", lambda x: _stream(x.to_arrow()), lambda sent: pl.from_arrow(_read(sent))
        )
    return None


def contenders(kind: Type) -> list[Contender]:
    arrow = _arrow(kind)
    return [
        Contender("safeser", _safeser_dumps, _safeser_loads),
        Contender("distributed", _distributed_dumps, _distributed_loads),
        Contender("pickle 5", _pickle_dumps, _pickle_loads),
        *([arrow] if arrow else []),
    ]


class Run:
    """All rounds of one object."""

    def __init__(self, kind: Type, size: int) -> None:
        self.kind = kind
        self.size = size
        self.object = kind.make(size)
        self.contenders = contenders(kind)
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.extra: dict[tuple[str, str], float] = {}
        self.refused = ""
        try:
            _safeser_loads(_safeser_dumps(self.object).received())
        except SafeserError as error:
            self.refused = error.rule
            self.contenders = self.contenders[1:]

    def round(self, at: int) -> None:
        """Let everybody take a turn, each round another first; the first round looks at memory."""
        first = at % len(self.contenders)
        for who in self.contenders[first:] + self.contenders[:first]:
            sent = who.dumps(self.object).received()
            who.loads(sent)
            steps = {"dumps": partial(who.dumps, self.object), "loads": partial(who.loads, sent)}
            for step, run in steps.items():
                if at == 0:
                    self.extra[step, who.name] = _extra(run, sent.nbytes)
                self.seconds.setdefault((step, who.name), []).append(_seconds(run))

    def cells(self) -> list[str]:
        """Return one line of the table."""
        return [self.kind.name, SIZE_NAMES.get(self.size, f"{self.size:,} B"),
                *self._half("dumps"), *self._half("loads")]  # fmt: skip

    def _half(self, step: str) -> list[str]:
        if self.refused:
            return ["refused", "", "", "", ""] if step == "dumps" else [self.refused, *[""] * 4]
        median = statistics.median(self.seconds[step, "safeser"])
        return [
            number(median * 1e6),
            *(self._against(step, other) for other in OTHERS),
            f"{self.extra[step, 'safeser']:.2f}" if self.size >= LARGE else "",
        ]

    def _against(self, step: str, other: str) -> str:
        found = self.against(step, other)
        return "" if found is None else _times(found)

    def against(self, step: str, other: str) -> float | None:
        """Return how many times as long as *other* safeser takes, or None if either can't."""
        if self.refused or (step, other) not in self.seconds:
            return None
        return ratio(self.seconds[step, "safeser"], self.seconds[step, other])

    def copies(self, step: str) -> bool:
        return self.extra[step, "safeser"] > NO_COPY


def _times(value: float) -> str:
    """Return a ratio with three digits that matter; what takes next to nothing has none."""
    return "<0.01" if value < 0.005 else number(value)


def _seconds(run: Callable[[], object]) -> float:
    """Return the median of as many turns as fit into one slice."""
    taken: list[float] = []
    begun = time.perf_counter()
    while not taken or time.perf_counter() - begun < SLICE:
        start = time.perf_counter()
        made = run()
        taken.append(time.perf_counter() - start)
        del made  # not while the clock runs, and before the next takes memory
    return statistics.median(taken)


def _extra(run: Callable[[], object], nbytes: int) -> float:
    """Return what *run* took at its peak beyond what there was, as a share of *nbytes*.

    Python's and NumPy's memory are seen by tracemalloc, Arrow's by a pool of the run's own.
    """
    gc.collect()
    pool = _own_pool()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        made = run()
        _, peak = tracemalloc.get_traced_memory()
        del made
    finally:
        tracemalloc.stop()
        _restore_pool()
    taken = peak - before + (pool.max_memory() if pool is not None else 0)
    return max(0, taken) / max(1, nbytes)


#: Buffers return their memory to the pool that gave it, so none of them may go away.
_POOLS: list[Any] = []


def _own_pool() -> Any:
    if "pyarrow" not in sys.modules:
        return None
    import pyarrow as pa

    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    return pool


def _restore_pool() -> None:
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        pa.set_memory_pool(_DEFAULT_POOL or pa.system_memory_pool())


def _default_pool() -> Any:
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        return None
    return pa.default_memory_pool()


_DEFAULT_POOL = _default_pool()


def aims(runs: Sequence[Run]) -> list[str]:
    """Return how far the project is from what it set itself, naming what is beyond it."""
    said = []
    for family, most in AIMS.items():
        ours = [run for run in runs if run.kind.family == family and not run.refused]
        found = [
            (run, step, against)
            for run in ours
            for step in ("dumps", "loads")
            if (against := run.against(step, "distributed")) is not None
        ]
        over = [each for each in found if each[2] > most]
        said.append(
            f"{family}, at most {most:g} times distributed's own: {len(found) - len(over)} of"
            f" {len(found)}{_named(over)}"
        )
    large = [
        (run, step, run.extra[step, "safeser"])
        for run in runs
        for step in ("dumps", "loads")
        if not run.refused and run.size >= LARGE
    ]
    copied = [each for each in large if each[0].copies(each[1])]
    said.append(
        f"From 1 MiB on, no copy: {len(large) - len(copied)} of {len(large)}{_named(copied)}"
    )
    return said


def _named(cases: Sequence[tuple[Run, str, float]]) -> str:
    worst = sorted(cases, key=lambda each: -each[2])
    names = [
        f"{run.kind.name} {SIZE_NAMES.get(run.size, run.size)} {step} ({number(value)})"
        for run, step, value in worst[:SHOWN]
    ]
    more = f" and {len(worst) - SHOWN} more" if len(worst) > SHOWN else ""
    return f"; not {', '.join(names)}{more}" if names else ""


def notes(*, rounds: int, load: tuple[float, float, float]) -> list[str]:
    return [
        *machine(PACKAGES),
        f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}; {rounds} rounds; load average"
        f" {load[0]:.1f} before and {os.getloadavg()[0]:.1f} after",
        "/ distributed, / pickle 5, / Arrow: median of the ratios of single rounds, above 1 is"
        " slower; extra: memory at the peak as a share of what is sent",
    ]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Times that everybody takes a turn.")] = 7,
    only: Annotated[str, typer.Option(help="Only types whose name or library has this.")] = "",
    largest: Annotated[int, typer.Option(min=1, help="Largest size, in bytes.")] = SIZES[-1],
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the table for the docs to this file.")
    ] = None,
) -> None:
    """Measure typed serialization beside distributed's own, pickle 5 and Arrow IPC."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    progress = Console(stderr=True)
    load = os.getloadavg()
    runs = []
    with progress.status("Starting") as status:
        for kind in TYPES:
            if not kind.usable or (only not in kind.name and only != kind.family):
                continue
            for size in SIZES:
                if size > min(kind.most, largest):
                    continue
                status.update(f"{kind.name}, {SIZE_NAMES[size]}")
                run = Run(kind, size)
                for at in range(rounds):
                    run.round(at)
                run.object = None  # only its numbers are still wanted
                runs.append(run)
    lines = [run.cells() for run in runs]
    known = [*aims(runs), *notes(rounds=rounds, load=load)]
    show_grid(console, HEADINGS, lines, known, markdown_file)


if __name__ == "__main__":
    typer.run(main)

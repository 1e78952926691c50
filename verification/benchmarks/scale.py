"""Compare many workers with nannies on safeser:// and tcp://.

The one rule: the two clusters take turns; each is stopped before the other starts, so that idle
workers of one do not slow the other. The order alternates from round to round.

One ``dask worker --nworkers`` starts the workers and their nannies. It measures the time from that
command until all workers have joined, processor time, memory and modules of a worker once it has
joined, tiny tasks, and the scheduler's processor time while idle.
"""

from __future__ import annotations

import datetime
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verification.benchmarks.clusters import TRANSPORTS, Cluster, StartError
from verification.benchmarks.report import (
    Quantity,
    grid,
    grid_markdown,
    machine,
    number,
    quartiles,
)

_COMPARED = ("safeser", "tcp")

#: The quartiles are those of the ratio.
HEADINGS = ("", "safeser", "tcp", "more", "ratio", "quartiles")


def measured(cluster: Cluster, *, tasks: int, idle: float) -> dict[str, float]:
    """Run and measure one *cluster*; return its numbers by the names of :func:`quantities`."""
    cluster.prepare()
    cluster.start_scheduler()
    start = time.perf_counter()
    cluster.start_workers()
    cluster.start_client()  # returns once all workers have joined
    found = {"join": time.perf_counter() - start}
    workers = cluster.worker_processes()
    found["start"] = statistics.median(sum(each.cpu_times()[:2]) for each in workers)
    found["memory"] = statistics.median(each.memory_info().rss for each in workers)
    found["modules"] = statistics.median(cluster.measure("modules", len(workers)))
    before = cluster.scheduler_seconds()
    (found["tasks"],) = cluster.measure("tasks", tasks)
    found["scheduler"] = cluster.scheduler_seconds() - before
    before = cluster.scheduler_seconds()
    time.sleep(idle)
    found["idle"] = cluster.scheduler_seconds() - before
    return found


def quantities(*, workers: int, tasks: int, idle: float) -> dict[str, Quantity]:
    """Return the name, unit and scale of each measured number."""
    return {
        "join": Quantity(f"{workers} workers with nannies join", "s", 1, False, 1),
        "start": Quantity("CPU of a worker until then", "s", 1, False, 1),
        "memory": Quantity("memory of a worker then", "MB", 1, False, 1e6),
        "modules": Quantity("modules of a worker then", "count", 1, False, 1),
        "tasks": Quantity(f"map and gather {tasks:,} tasks", "s", 1, False, 1),
        "scheduler": Quantity("CPU of the scheduler", "ms/task", 1, False, tasks / 1e3),
        "idle": Quantity("scheduler while idle", "% of a core", 1, False, idle / 100),
    }


def line(quantity: Quantity, taken: Mapping[str, Sequence[float]]) -> list[str]:
    """Return one row of the table: medians, also of the rounds' differences and ratios."""
    medians = [
        number(quantity.shown(statistics.median(taken[transport]))) for transport in _COMPARED
    ]
    rounds = list(zip(taken["safeser"], taken["tcp"], strict=True))
    ratios = [own / other for own, other in rounds]
    low, high = quartiles(ratios)
    more = quantity.shown(statistics.median(own - other for own, other in rounds))
    return [
        f"{quantity.name} ({quantity.unit})",
        *medians,
        f"{'-' if more < 0 else '+'}{number(abs(more))}",
        f"{statistics.median(ratios):.2f}",
        f"{low:.2f} to {high:.2f}",
    ]


def main(
    workers: Annotated[int, typer.Option(min=1, help="Workers of each cluster.")] = 30,
    tasks: Annotated[int, typer.Option(min=1, help="Tiny tasks to map.")] = 5_000,
    idle: Annotated[float, typer.Option(min=1, help="Seconds in which nothing happens.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over both transports.")] = 3,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="File for the table as Markdown.")
    ] = None,
) -> None:
    """Measure many workers on safeser:// beside tcp://, in turns; some minutes for each round."""
    console, progress = Console(), Console(stderr=True)
    load = os.getloadavg()
    shown = quantities(workers=workers, tasks=tasks, idle=idle)
    found: dict[str, dict[str, list[float]]] = {
        name: {transport: [] for transport in _COMPARED} for name in shown
    }
    with tempfile.TemporaryDirectory(prefix="safeser-scale-") as folder:
        for index in range(rounds):
            turn = _COMPARED if index % 2 == 0 else _COMPARED[::-1]
            for transport in turn:
                # A line each, not a status: what is not a terminal shows it too.
                progress.print(f"Round {index + 1} of {rounds}: {transport}://", highlight=False)
                place = Path(folder) / f"{transport}-{index}"
                cluster = Cluster(TRANSPORTS[transport], place, workers, nannies=True)
                try:
                    for name, value in measured(cluster, tasks=tasks, idle=idle).items():
                        found[name][transport].append(value)
                except StartError as error:
                    progress.print(f"benchmark: {error}", markup=False, soft_wrap=True)
                    raise typer.Exit(2) from error
                finally:
                    cluster.stop()
    lines = [line(each, found[name]) for name, each in shown.items()]
    known = [
        *machine(),
        f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}; {rounds} rounds in turns;"
        f" load average {load[0]:.1f} before",
    ]
    console.print(grid(HEADINGS, lines))
    for note in known:
        console.print(note, style="dim", highlight=False)
    if markdown_file is not None:
        text = grid_markdown(HEADINGS, lines)
        notes = "".join(f"- {note}\n" for note in known)
        markdown_file.write_text(f"{text}\n{notes}", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)

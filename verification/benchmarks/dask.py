"""Dask clusters on safeser://, beside the same on tcp:// and tls://.

The one rule: one run has all clusters up at once and lets them take turns, so that whatever else
the machine does falls on each of them alike. Which begins changes from round to round, A B C D,
B C D A, and so on: the first to transfer may pay for memory that the next ones reuse.

Each cluster is a scheduler, two workers with one thread each and one client, all of them processes
on loopback, started by Dask's own commands. On safeser:// policy ``default`` decides, with suite
authenticate in one cluster and encrypt in another, and ``dask-cluster`` in a third, where an
engineer's client seals what it submits; the audit log is written. The keys of tls:// are those of
``distributed.Security.temporary()``.
"""

from __future__ import annotations

import datetime
import enum
import os
import signal
import statistics
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from safeser.audit import verify
from verification.benchmarks.clusters import Cluster, StartError, running
from verification.benchmarks.report import Quantity, Row, machine, markdown, rows, table

MEGABYTE = 10**6


class Measure(enum.Enum):
    """What a client does while it is measured."""

    TASKS = "tasks"
    CALLS = "calls"
    SUM = "sum"
    TRANSFER = "transfer"
    SHUFFLE = "shuffle"


#: By which measure each quantity is found.
MEASURE_OF = {
    "tasks": "tasks",
    "cpu": "tasks",
    "scheduler": "tasks",
    "calls": "calls",
    "sum": "sum",
    "sum cpu": "sum",
    "scatter": "transfer",
    "gather": "transfer",
    "shuffle": "shuffle",
}


class Run:
    """One run over all clusters: every measure once a round, the transports taking turns."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        *,
        tasks: int,
        calls: int,
        chunks: int,
        size: int,
        transfers: int,
        shuffled: int,
        only: Collection[Measure] = tuple(Measure),
    ) -> None:
        self._clusters = clusters
        self._transfers = transfers
        amounts = {
            "tasks": tasks,
            "calls": calls,
            "sum": chunks,
            "transfer": size,
            "shuffle": shuffled,
        }
        self._amounts = {each.value: amounts[each.value] for each in Measure if each in only}
        # One list for each quantity and transport; those of one quantity are equally long.
        self._seconds = {name: {scheme: [] for scheme in clusters} for name in self.quantities()}

    _seconds: dict[str, dict[str, list[float]]]

    def quantities(self) -> dict[str, Quantity]:
        """Return what is shown, of what is measured."""
        amount = dict.fromkeys(MEASURE_OF.values(), 1) | self._amounts
        tasks, size, shuffled = amount["tasks"], amount["transfer"], amount["shuffle"]
        chunks = amount["sum"]
        mega, moved = number_of_megabytes(size), number_of_megabytes(shuffled)
        every = {
            "tasks": Quantity(f"map and gather {tasks:,} tasks", "tasks/s", tasks, True, 1),
            "cpu": Quantity("processor time, all processes", "ms/task", tasks, False, tasks / 1000),
            "scheduler": Quantity(
                "processor time, scheduler", "ms/task", tasks, False, tasks / 1000
            ),
            "calls": Quantity("one submit and result", "ms", 1, False, 1e-3),
            "sum": Quantity(f"sum of an array of {chunks:,} chunks", "s", 1, False, 1),
            "sum cpu": Quantity("processor time, client and scheduler", "s", 1, False, 1),
            "scatter": Quantity(f"scatter {mega} MB", "MB/s", size, True, MEGABYTE),
            "gather": Quantity(f"gather {mega} MB", "MB/s", size, True, MEGABYTE),
            "shuffle": Quantity(f"p2p shuffle of {moved} MB", "MB/s", shuffled, True, MEGABYTE),
        }
        return {name: each for name, each in every.items() if MEASURE_OF[name] in self._amounts}

    def warm_up(self) -> None:
        """Do everything once: imports, first connections, caches."""
        for measure, amount in self._amounts.items():
            for cluster in self._clusters.values():
                cluster.measure(measure, amount)

    def round(self, number: int) -> None:
        clusters = list(self._clusters.items())
        first = number % len(clusters)
        for measure, amount in self._amounts.items():
            for scheme, cluster in clusters[first:] + clusters[:first]:
                before, scheduling = cluster.cpu_seconds(), cluster.scheduler_seconds()
                asking = cluster.client_seconds()
                repeats = self._transfers if measure == "transfer" else 1
                each = [cluster.measure(measure, amount) for _ in range(repeats)]
                taken = each[0]
                if measure == "tasks":
                    self._note("tasks", scheme, taken[0])
                    self._note("cpu", scheme, cluster.cpu_seconds() - before)
                    self._note("scheduler", scheme, cluster.scheduler_seconds() - scheduling)
                elif measure == "sum":
                    used = cluster.scheduler_seconds() - scheduling
                    used += cluster.client_seconds() - asking
                    self._note("sum", scheme, taken[0])
                    self._note("sum cpu", scheme, used)
                elif measure == "calls":
                    self._note("calls", scheme, statistics.median(taken))
                elif measure == "shuffle":
                    self._note("shuffle", scheme, taken[0])
                else:
                    # A single one says more about where its memory came from than of what it took.
                    self._note("scatter", scheme, statistics.median(one[0] for one in each))
                    self._note("gather", scheme, statistics.median(one[1] for one in each))

    def _note(self, quantity: str, scheme: str, seconds: float) -> None:
        # A tiny run can end within one tick of the clock that counts processor time.
        self._seconds[quantity][scheme].append(max(seconds, 1e-3))

    def rows(self) -> list[Row]:
        return [
            row
            for name, quantity in self.quantities().items()
            for row in rows(quantity, self._seconds[name])
        ]


def number_of_megabytes(size: int) -> str:
    return f"{size / MEGABYTE:g}"


def notes(cluster: Cluster, *, rounds: int, load: tuple[float, float, float]) -> list[str]:
    """Return what a reader of the numbers has to know, the state of the audit log included."""
    found = verify(cluster.audit, key=cluster.audit_key)
    size = sum(path.stat().st_size for path in cluster.audit.iterdir())
    state = "verified" if found.ok else "does NOT verify"
    return [
        *machine(),
        f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}; {rounds} rounds after one to warm"
        f" up; load average {load[0]:.1f} before and {os.getloadavg()[0]:.1f} after",
        f"Each cluster: scheduler, {cluster.workers} workers of one thread without nannies,"
        " one client; Dask's defaults, no compression; scatter and gather go through the scheduler",
        "tls:// with key and certificate by distributed.Security.temporary();"
        " safeser:// with policy default, in suite authenticate and encrypt, and with policy"
        f" dask-cluster as sealed; an audit log of {size / MEGABYTE:.1f} MB that {state}",
        "time / tcp and time / tls: median of the ratios of single rounds, above 1 is slower; in"
        " brackets its interval at 95 %, from six rounds on",
    ]


def _stop(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)  # so that the clusters are stopped


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds after the one to warm up.")] = 7,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of one map.")] = 10_000,
    calls: Annotated[
        int, typer.Option(min=1, help="Calls of which a round takes the median.")
    ] = 30,
    chunks: Annotated[int, typer.Option(min=1, help="Chunks of the array to sum.")] = 10_000,
    size: Annotated[float, typer.Option(min=0.001, help="Megabytes to scatter and gather.")] = 64,
    transfers: Annotated[
        int, typer.Option(min=1, help="Transfers of which a round takes the median.")
    ] = 5,
    shuffled: Annotated[
        float, typer.Option("--shuffle", min=0.001, help="Megabytes to shuffle.")
    ] = 1000,
    workers: Annotated[int, typer.Option(min=1, help="Workers of each cluster.")] = 2,
    only: Annotated[
        list[Measure] | None, typer.Option(help="Measure this alone; may stand several times.")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the table for the docs to this file.")
    ] = None,
) -> None:
    """Measure safeser:// beside tcp:// and tls://, interleaved; half an hour on two cores."""
    signal.signal(signal.SIGTERM, _stop)
    console, progress = Console(), Console(stderr=True)
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="safeser-benchmark-") as folder:
        try:
            with (
                progress.status("Starting five clusters") as status,
                running(Path(folder), workers=workers) as up,
            ):
                run = Run(
                    up,
                    tasks=tasks,
                    calls=calls,
                    chunks=chunks,
                    size=round(size * MEGABYTE),
                    transfers=transfers,
                    shuffled=round(shuffled * MEGABYTE),
                    only=only or tuple(Measure),
                )
                steps = ["Warming up", *(f"Round {each + 1} of {rounds}" for each in range(rounds))]
                for number, step in enumerate(steps, -1):
                    status.update(step)
                    if not progress.is_terminal:
                        progress.print(step)
                    if number < 0:
                        run.warm_up()
                    else:
                        run.round(number)
        except StartError as error:
            progress.print(f"benchmark: {error}", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(2) from error
        known = notes(up["safeser"], rounds=rounds, load=load)
    lines = run.rows()
    console.print(table(lines))
    for note in known:
        console.print(note, style="dim", highlight=False)
    if markdown_file is not None:
        markdown_file.write_text(markdown(lines, known))


if __name__ == "__main__":
    typer.run(main)

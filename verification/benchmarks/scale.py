"""Compare many workers with nannies on safeser:// and tcp://.

The one rule: the two clusters take turns; each is stopped before the other starts, so that idle
workers of one do not slow the other. The order alternates from round to round.

One ``dask worker --nworkers`` starts the workers and their nannies. It measures the time from that
command until all workers have joined, processor time, memory and modules of a worker once it has
joined, tiny tasks, and the scheduler's processor time while idle.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from verification.benchmarks import report
from verification.benchmarks.clusters import TRANSPORTS, Cluster
from verification.benchmarks.report import Quantity, number, quartiles

_COMPARED = ("safeser", "tcp")


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
    before = cluster.cpu_seconds("scheduler")
    (found["tasks"],) = cluster.measure("tasks", tasks)
    found["scheduler"] = cluster.cpu_seconds("scheduler") - before
    before = cluster.cpu_seconds("scheduler")
    time.sleep(idle)
    found["idle"] = cluster.cpu_seconds("scheduler") - before
    return found


def quantities(*, workers: int, tasks: int, idle: float) -> dict[str, Quantity]:
    """Return the name, unit and scale of each measured number."""
    return {
        "join": Quantity(f"{workers} workers with nannies join", "s"),
        "start": Quantity("CPU of a worker until then", "s"),
        "memory": Quantity("memory of a worker then", "MB", 1e6),
        "modules": Quantity("modules of a worker then", "count"),
        "tasks": Quantity(f"map and gather {tasks:,} tasks", "s"),
        "scheduler": Quantity("CPU of the scheduler", "ms/task", tasks / 1e3),
        "idle": Quantity("scheduler while idle", "% of a core", idle / 100),
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


def main() -> None:
    options = report.options(__doc__, workers=30, tasks=5_000, idle=20.0, rounds=3)
    shown = quantities(workers=options.workers, tasks=options.tasks, idle=options.idle)
    found: dict[str, dict[str, list[float]]] = {
        name: {transport: [] for transport in _COMPARED} for name in shown
    }
    with tempfile.TemporaryDirectory(prefix="safeser-scale-") as folder:
        for index in range(options.rounds):
            for transport in report.turns(_COMPARED, index):
                print(f"Round {index + 1} of {options.rounds}: {transport}://", file=sys.stderr)
                place = Path(folder) / f"{transport}-{index}"
                cluster = Cluster(TRANSPORTS[transport], place, options.workers, nannies=True)
                try:
                    measures = measured(cluster, tasks=options.tasks, idle=options.idle)
                finally:
                    cluster.stop()
                for name, value in measures.items():
                    found[name][transport].append(value)
    headings = ("", "safeser", "tcp", "more", "ratio", "quartiles")
    report.show(headings, [line(each, found[name]) for name, each in shown.items()])
    report.show_notes(rounds=options.rounds)


if __name__ == "__main__":
    main()

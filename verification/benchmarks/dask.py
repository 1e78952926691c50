"""Dask clusters on safeser://, beside the same on tcp:// and tls://; half an hour on two cores.

The one rule: one run has all clusters up at once and lets them take turns, so that whatever else
the machine does falls on each of them alike.

Each cluster is a scheduler, two workers with one thread each and one client, all of them processes
on loopback, started by Dask's own commands. On safeser:// policy ``default`` decides in one
cluster, and ``dask-cluster`` in another, where an engineer's client seals what it submits; the
audit log is written. The keys of tls:// are those of ``distributed.Security.temporary()``. Sizes to
transfer and to shuffle are megabytes.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from safeser.audit import verify
from verification.benchmarks import report
from verification.benchmarks.clusters import Cluster, running
from verification.benchmarks.report import Quantity

MEGABYTE = 10**6
#: What a client does while it is measured.
MEASURES = ["tasks", "calls", "sum", "transfer", "shuffle"]


def quantities(options: argparse.Namespace) -> dict[str, Quantity]:
    """Return what is shown, of what is measured."""
    tasks, size, moved = options.tasks, options.size, options.shuffle
    return {
        "tasks": Quantity(f"map and gather {tasks:,} tasks", "tasks/s", rate=tasks),
        "cpu": Quantity("processor time, all processes", "ms/task", tasks / 1000),
        "scheduler": Quantity("processor time, scheduler", "ms/task", tasks / 1000),
        "calls": Quantity("one submit and result", "ms", 1e-3),
        "sum": Quantity(f"sum of an array of {options.chunks:,} chunks", "s"),
        "sum cpu": Quantity("processor time, client and scheduler", "s"),
        "scatter": Quantity(f"scatter {size:g} MB", "MB/s", rate=size),
        "gather": Quantity(f"gather {size:g} MB", "MB/s", rate=size),
        "shuffle": Quantity(f"p2p shuffle of {moved:g} MB", "MB/s", rate=moved),
    }


def measured(cluster: Cluster, measure: str, amount: int, transfers: int) -> dict[str, float]:
    """Return, in seconds, what one measure says of each of its quantities."""
    every, scheduler = cluster.cpu_seconds(), cluster.cpu_seconds("scheduler")
    client = cluster.cpu_seconds("client")
    repeats = transfers if measure == "transfer" else 1
    taken = [cluster.measure(measure, amount) for _ in range(repeats)]
    every, client = cluster.cpu_seconds() - every, cluster.cpu_seconds("client") - client
    scheduler = cluster.cpu_seconds("scheduler") - scheduler
    if measure == "transfer":
        # A single one says more about where its memory came from than of what it took.
        scattered, gathered = (statistics.median(each) for each in zip(*taken, strict=True))
        return {"scatter": scattered, "gather": gathered}
    found = {measure: statistics.median(taken[0])}
    if measure == "tasks":
        found |= {"cpu": every, "scheduler": scheduler}
    elif measure == "sum":
        found["sum cpu"] = scheduler + client
    return found


def _log(cluster: Cluster) -> str:
    size = sum(path.stat().st_size for path in cluster.audit.iterdir())
    good = verify(cluster.audit, key=cluster.folder / "keys" / "audit.key").ok
    state = "verified" if good else "does NOT verify"
    return f"the first one's audit log of {size / MEGABYTE:.1f} MB {state}"


def _stop(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)  # so that the clusters are stopped


def _run(
    up: Mapping[str, Cluster], options: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """Return what each transport took of each quantity, round by round."""
    amounts = {
        "tasks": options.tasks,
        "calls": options.calls,
        "sum": options.chunks,
        "transfer": round(options.size * MEGABYTE),
        "shuffle": round(options.shuffle * MEGABYTE),
    }
    amounts = {name: amounts[name] for name in options.only or MEASURES}
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: {name: [] for name in up})
    for at in range(-1, options.rounds):
        print(f"Round {at + 1} of {options.rounds}" if at >= 0 else "Warming up", file=sys.stderr)
        for measure, amount in amounts.items():
            for scheme in report.turns(list(up), max(at, 0)):
                # The first round is for imports, first connections and caches.
                taken = measured(up[scheme], measure, amount, options.transfers if at >= 0 else 1)
                for quantity, seconds in taken.items() if at >= 0 else ():
                    # A tiny run can end within one tick of the clock of processor time.
                    found[quantity][scheme].append(max(seconds, 1e-3))
    return found


def main() -> None:
    amounts = {"tasks": 10_000, "calls": 30, "chunks": 10_000, "size": 64.0, "shuffle": 1000.0}
    options = report.options(__doc__, rounds=7, **amounts, transfers=5, workers=2, only=MEASURES)
    signal.signal(signal.SIGTERM, _stop)
    with tempfile.TemporaryDirectory(prefix="safeser-benchmark-") as folder:
        with running(Path(folder), workers=options.workers) as up:
            found = _run(up, options)
        log = _log(up["safeser"])
    shown = quantities(options)
    lines = [
        row for name in shown if name in found for row in report.rows(shown[name], found[name])
    ]
    report.show(("", "transport", "median", "quartiles", "time / tcp", "time / tls"), lines)
    notes = (
        f"safeser:// with policy default, and with policy dask-cluster as sealed; {log}",
        f"Each cluster: {options.workers} workers of one thread without nannies; scatter and"
        " gather go through the scheduler",
        "time / tcp and time / tls: median of the rounds' ratios, above 1 is slower",
    )
    report.show_notes(*notes, rounds=options.rounds)


if __name__ == "__main__":
    main()

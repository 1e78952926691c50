"""The clusters of this benchmark, what is counted in them, and what many small calls cost there."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from verification.benchmarks import clusters
from verification.benchmarks.clusters import Cluster
from verification.benchmarks.serialization.counted import counts
from verification.benchmarks.serialization.driver import CASES
from verification.benchmarks.serialization.loop_watch import ask

__all__ = ["COMPARED", "MEASURES", "ROLES", "Cost", "Counts", "cost", "counted", "running"]

#: How the tables name each transport.
COMPARED = {"tcp": "tcp", "safeser": "code", "safeser sealed": "sealed"}

ROLES = ("client", "scheduler", "worker")

#: By name, what is timed.
MEASURES = {
    "mapped": "map(partial, numbers)",
    "submitted": "loop of submit(partial)",
    "arguments": "map(call, partials)",
    "records": "submit(f, list of records)",
}

#: Pickles and unpickles by role.
Counts = dict[str, tuple[int, int]]

_SETTLE = 0.3  # seconds until what was released is forgotten everywhere


def running(folder: Path) -> AbstractContextManager[dict[str, Cluster]]:
    """Start a cluster of two workers for each of :data:`COMPARED`, and stop them at the end."""
    package = "verification.benchmarks.serialization"
    more = {"driver": f"{package}.driver", "preload": f"{package}.loop_watch"}
    return clusters.running(folder, only=COMPARED, **more)


def counted(cluster: Cluster) -> dict[str, Counts]:
    """Return what each case takes on *cluster*, once everything that it needs was imported."""
    folder, roles = cluster.folder / "counted", cluster.roles()
    found: dict[str, Counts] = {}
    cluster.measure("case", 0)
    for number, name in enumerate(CASES):
        counts(folder, roles)
        cluster.measure("case", number)
        time.sleep(_SETTLE)
        found[name] = counts(folder, roles)
    cluster.measure("again", 0)
    counts(folder, roles)
    cluster.measure("again", 0)
    time.sleep(_SETTLE)
    found["key that is taken"] = counts(folder, roles)
    return found


class Cost(NamedTuple):
    """What one measure took.

    :param caller: seconds until the caller had its futures.
    :param client: processor time in seconds, as are *scheduler* and *worker*.
    :param to_scheduler: bytes that the client wrote.
    :param to_worker: bytes that the scheduler wrote to its worker.
    :param held: longest time between two turns of the scheduler's loop, seconds.
    :param client_held: the same of the client's loop.
    """

    caller: float
    client: float
    scheduler: float
    worker: float
    to_scheduler: float
    to_worker: float
    held: float
    client_held: float


def cost(cluster: Cluster, measure: str, amount: int) -> Cost:
    """Run *measure* of :data:`MEASURES` once on *cluster*."""
    before, sent = _seconds(cluster), ask(cluster.folder)["sent"]
    caller, to_scheduler, client_held = cluster.measure(measure, amount)
    told = ask(cluster.folder)
    client, scheduler, worker = (
        after - begun for after, begun in zip(_seconds(cluster), before, strict=True)
    )
    to_worker = told["sent"] - sent
    return Cost(
        caller, client, scheduler, worker, to_scheduler, to_worker, told["held"], client_held
    )


def _seconds(cluster: Cluster) -> tuple[float, float, float]:
    client, scheduler = cluster.client_seconds(), cluster.scheduler_seconds()
    return client, scheduler, cluster.cpu_seconds() - client - scheduler

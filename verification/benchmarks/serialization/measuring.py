"""The clusters of this benchmark, what is counted in them, and what many small calls cost there."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

from verification.benchmarks import clusters
from verification.benchmarks.clusters import Cluster
from verification.benchmarks.serialization.counted import counts
from verification.benchmarks.serialization.driver import CASES
from verification.benchmarks.serialization.loop_watch import ask

__all__ = ["COMPARED", "MEASURES", "ROLES", "Counts", "cost", "counted", "running"]

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


def cost(cluster: Cluster, measure: str, amount: int) -> dict[str, float]:
    """Run *measure* of :data:`MEASURES` once on *cluster*; return what it took, by its name.

    *client*, *scheduler* and *worker* are processor time, *caller* is the time until the caller had
    its futures, and a loop is held between two of its turns.
    """
    before, sent = _seconds(cluster), ask(cluster.folder)["sent"]
    caller, to_scheduler, client_held = cluster.measure(measure, amount)
    told = ask(cluster.folder)
    client, scheduler, worker = (
        after - begun for after, begun in zip(_seconds(cluster), before, strict=True)
    )
    return {
        "client (s)": client,
        "scheduler (s)": scheduler,
        "worker (s)": worker,
        "caller (s)": caller,
        "client to scheduler (MB)": to_scheduler / 1e6,
        "scheduler to worker (MB)": (told["sent"] - sent) / 1e6,
        "scheduler's loop held (ms)": told["held"] * 1e3,
        "client's loop held (ms)": client_held * 1e3,
    }


def _seconds(cluster: Cluster) -> tuple[float, float, float]:
    client, scheduler = cluster.cpu_seconds("client"), cluster.cpu_seconds("scheduler")
    return client, scheduler, cluster.cpu_seconds() - client - scheduler

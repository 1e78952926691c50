"""Clusters that a program starts by itself, step by step; prints what came out as JSON.

Each step's result is compared in tests/dask/clusters/test_live_usage.py. Run as a program, which is
imported again by each worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Nanny, Scheduler, SpecCluster, Worker, wait

import safeser
from safeser.dask.cluster import LocalCluster
from safeser.identities import make_identities


def until(probe: Any) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(0.02)
    raise TimeoutError("it did not happen")


def adapts(cluster: Any, client: Any) -> Any:
    """Workers come when there is work, and go when there is none."""
    cluster.adapt(minimum=0, maximum=1, interval="50ms", wait_count=2)
    until(lambda: not client.scheduler_info()["workers"])
    came = client.submit(lambda: 5, pure=False).result(timeout=60)
    until(lambda: not client.scheduler_info()["workers"])
    cluster.adapt(minimum=1, maximum=1)
    client.wait_for_workers(1, timeout=60)
    return came


def recomputes(client: Any) -> Any:
    """A worker dies with what it held: it is computed anew where it comes back."""
    arrays = client.map(np.arange, range(5, 8), pure=False)
    wait(arrays)
    [pid] = client.run(os.getpid).values()
    os.kill(pid, signal.SIGKILL)
    total = client.submit(lambda xs: sum(map(len, xs)), arrays, pure=False)
    [new] = (total.result(timeout=60) and client.run(os.getpid)).values()
    return [total.result(timeout=60), new != pid]


def spills(client: Any) -> Any:
    """More than the worker may hold goes to disk, and comes back from there."""
    arrays = client.map(lambda n: np.full(1_000_000, n), range(8), pure=False)
    wait(arrays)
    [on_disk] = client.run(lambda dask_worker: len(dask_worker.data.disk)).values()
    got = client.gather(arrays)
    [folder] = client.run(lambda dask_worker: dask_worker.local_directory).values()
    mode = os.stat(folder).st_mode & 0o077
    return [on_disk > 0, [int(each[0]) for each in got], len(got[0]), mode == 0]


def local() -> Any:
    out: dict[str, Any] = {}
    memory = {"target": 0.02, "spill": False, "pause": False, "terminate": False}
    limits = {f"distributed.worker.memory.{name}": value for name, value in memory.items()}
    options = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "1GiB"}
    with (
        dask.config.set(limits),
        LocalCluster(**options) as cluster,
        safeser.Client(cluster) as client,
    ):
        out["address"] = cluster.scheduler_address.startswith("safeser://127.0.0.1:")
        out["spills"] = spills(client)
        out["recomputes"] = recomputes(client)
        out["adapts"] = adapts(cluster, client)
        out["shows"] = "safeser://" in repr(cluster) and "Workers" in cluster._repr_html_()
        out["logs"] = sorted(str(name).partition(":")[0] for name in cluster.get_logs())
    return out


def spec(folder: Path) -> Any:
    """Servers that the program names itself: a worker in this process, one with a nanny."""
    make_identities(folder / "keys", ("scheduler", "worker", "nanny", "client"))
    roles = {
        name: {"identity": str(folder / "keys" / f"{name}.key")}
        for name in ("scheduler", "worker", "nanny", "client")
    }
    security = safeser.Security(policy="default", audit=str(folder / "audit"), roles=roles)
    shared = {"security": security, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    worker = {**shared, "nthreads": 1, "local_directory": str(folder)}
    scheduler = {"cls": Scheduler, "options": {**shared, "protocol": "safeser", "port": 0}}
    workers = {
        "here": {"cls": Worker, "options": worker},
        "there": {"cls": Nanny, "options": worker},
    }
    with (
        SpecCluster(
            workers=workers, scheduler=scheduler, worker=workers["there"], security=security
        ) as cluster,
        safeser.Client(cluster, security=security) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        pids = set(client.run(os.getpid).values())
        cluster.scale(3)
        client.wait_for_workers(3, timeout=60)
        return [os.getpid() in pids, len(pids), client.submit(lambda: 6).result(timeout=60)]


async def asynchronous() -> Any:
    out: list[Any] = []
    async with (
        LocalCluster(n_workers=1, threads_per_worker=1, asynchronous=True) as cluster,
        safeser.Client(cluster, asynchronous=True) as client,
    ):
        out.append(await client.submit(lambda x: x + 1, 1))
        out.append(await client.gather(client.map(lambda x: x * 2, range(3))))
        [array] = await client.scatter([np.arange(3)])
        out.append((await array).tolist())
        failing = client.submit(lambda: 1 / 0)
        try:
            await failing
        except ZeroDivisionError as error:
            out.append(str(error))
        out.append(len(await client.run(os.getpid)))
    return out


def main(folder: str) -> None:
    out: dict[str, Any] = {}
    for name, step in {
        "local": local,
        "spec": lambda: spec(Path(folder)),
        "asynchronous": lambda: asyncio.run(asynchronous()),
    }.items():
        begun = time.monotonic()
        try:
            out[name] = step()
        # What fails is what the test wants to hear of, whatever it is.
        except BaseException as error:
            traceback.print_exc()
            out[name] = f"{type(error).__name__}: {error}"
        print(f"{name}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    print(json.dumps(out))


if __name__ == "__main__":
    main(sys.argv[1])

"""Clusters that a program starts by itself; prints what came out as JSON.

Run as a program, which is imported again by each worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import dask
import distributed
import numpy as np
from distributed import wait

import safeser
from safeser.dask.cluster import LocalCluster


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


def needs_code(client: Any) -> Any:
    """A result that needs code fails once, and the client goes on."""
    future = client.submit(lambda: print)
    try:
        future.result(timeout=30)
    except safeser.PayloadError as error:
        named = "numbers, text, arrays or frames" in str(error)
        return [error.rule, named, client.submit(lambda: 7).result(timeout=30)]
    return None


async def awaited() -> Any:
    async with (
        LocalCluster(n_workers=1, threads_per_worker=1, asynchronous=True) as cluster,
        cluster.get_client() as client,
    ):
        return [type(client) is safeser.Client, await client.submit(sum, [1, 2])]


def main() -> None:
    out: dict[str, Any] = {"awaited": asyncio.run(awaited())}
    memory = {"target": 0.02, "spill": False, "pause": False, "terminate": False}
    limits = {f"distributed.worker.memory.{name}": value for name, value in memory.items()}
    options = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "1GiB"}
    with dask.config.set(limits), LocalCluster(**options) as cluster:
        with distributed.Client(cluster), cluster.get_client() as client:
            # The current one is not one of safeser's.
            own = type(client) is safeser.Client, cluster.get_client() is client
            out["clients"] = [*own, client.submit(sum, [1, 2]).result(timeout=60)]
        with cluster.get_client() as client:
            out["again"] = client.safeser.identity.principal
            out["address"] = cluster.scheduler_address.startswith("safeser://127.0.0.1:")
            out["spills"] = spills(client)
            out["recomputes"] = recomputes(client)
            out["code"] = needs_code(client)
            out["shows"] = "safeser://" in repr(cluster) and "Workers" in cluster._repr_html_()
            out["logs"] = sorted(str(name).partition(":")[0] for name in cluster.get_logs())
    out["left"] = os.path.exists(cluster.directory)
    # And one that is left open with its client, at the end of the program.
    kept.append(safeser.Client(n_workers=1, threads_per_worker=1))
    print(json.dumps(out))


kept: list[Any] = []

if __name__ == "__main__":
    main()

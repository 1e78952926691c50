"""A whole cluster and its client in one process, by Dask's own classes and no ``Security``.

Prints who each of them was to the others, and what other schemes did.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import dask
from distributed import Client, LocalCluster, Nanny, Scheduler, Worker
from distributed.comm import connect

from safeser.dask.settings import close_channels_in
from safeser.errors import ConfigError
from safeser.identities import make_identities

ROLES = ("scheduler", "worker", "nanny", "client")


def spoke_as(pool):
    comms = (*pool.available.values(), *pool.occupied.values())
    return sorted({comm.link.local for each in comms for comm in each})


async def refused(started) -> str:
    try:
        await started()
    except (ConfigError, RuntimeError) as error:
        while not isinstance(error, ConfigError):
            error = error.__cause__
        return error.rule
    return "started"


async def use(address, early, servers):
    scheduler, worker, nanny = servers
    async with Client(address, asynchronous=True) as client:
        here = client.submit(lambda: [1], workers=[worker.address], pure=False)
        there = client.submit(lambda x: x * 2, here, workers=[nanny.worker_address])
        back = client.submit(lambda x: x * 2, there, workers=[worker.address])
        result = await back
        await client.run(lambda: None, nanny=True)
        bare = await connect(address)
        answer = {
            "result": result,
            "registered": sorted({comm.comm.link.peer for comm in scheduler.stream_comms.values()}),
            "clients": sorted({comm.comm.link.peer for comm in scheduler.client_comms.values()}),
            "early": early.rpc.connection_args.get("safeser"),
            "scheduler": spoke_as(scheduler.rpc),
            "worker": spoke_as(worker.rpc),
            "nanny": spoke_as(nanny.rpc),
            "client": spoke_as(client.rpc),
            "bare": bare.link.local,
        }
        bare.abort()
    return answer


async def main(folder: Path) -> None:
    keys = folder / "keys"
    make_identities(keys, ROLES)
    settings = {role: {"identity": str(keys / f"{role}.key")} for role in ROLES}
    with dask.config.set({"safeser": {"audit": str(folder / "audit"), **settings}}):
        # Made before anything here has to do with safeser.
        scheduler = early = Scheduler(host="127.0.0.1", port=0, protocol="safeser", dashboard=False)
        async with (
            scheduler,
            Worker(scheduler.address, nthreads=1) as worker,
            Nanny(scheduler.address, nthreads=1) as nanny,
        ):
            answer = await use(scheduler.address, early, (scheduler, worker, nanny))
            plain = scheduler.address.replace("safeser://", "tcp://")
            answer["tcp"] = await refused(lambda: Client(plain, asynchronous=True))
            answer["inproc"] = await refused(
                lambda: LocalCluster(processes=False, asynchronous=True, dashboard_address=None)
            )
    close_channels_in(folder)
    print(json.dumps(answer))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

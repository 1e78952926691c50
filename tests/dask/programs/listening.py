"""What the processes of a cluster listen at and connect to, and what they refuse from inside.

Run as alice; arguments: the scheduler's address, and the numbers of the processes that were
started. Prints JSON.
"""

from __future__ import annotations

import json
import os
import sys

import psutil

import safeser

SCHEMES = ("tcp", "tls", "ws", "wss", "inproc", "ucx")


def sockets(numbers):
    """Return, for each process and its children, what it listens at and is connected to."""
    found = []
    for number in numbers:
        first = psutil.Process(number)
        for process in (first, *first.children(recursive=True)):
            kinds = {"LISTEN": [], "ESTABLISHED": []}
            for one in process.net_connections(kind="inet"):
                ends = [list(one.laddr), list(one.raddr)]
                kinds.setdefault(one.status, []).append(ends)
            found.append(kinds)
    return found


async def speaks(schemes):
    """Return what this process says when it is told to connect and listen by another scheme."""
    import traceback

    from distributed import Client, LocalCluster
    from distributed.comm.core import connect, listen

    async def handle(comm):
        raise AssertionError

    async def client(address):
        await Client(address, asynchronous=True, timeout=60)

    async def local():
        await LocalCluster(
            processes=False, n_workers=1, asynchronous=True, dashboard_address="127.0.0.1:0"
        )

    async def rule(call, *arguments):
        try:
            await call(*arguments)
        except Exception as error:
            said = error
            while said is not None and not hasattr(said, "rule"):
                said = said.__cause__ or said.__context__
            where = "".join(traceback.format_exception(error))[-1500:]
            return getattr(said, "rule", f"another error: {where}")
        return "done"

    said = {}
    for scheme in schemes:
        said[f"connect {scheme}"] = await rule(connect, f"{scheme}://127.0.0.1:1")
        said[f"listen {scheme}"] = await rule(listen, f"{scheme}://127.0.0.1:0", handle)
    said["client inproc"] = await rule(client, "inproc://127.0.0.1/1/1")
    said["client tcp"] = await rule(client, "tcp://127.0.0.1:1")
    # Starting one imports a good deal, and before Python 3.12 an import raises KeyError (of the
    # thread's number) where the garbage collector, meanwhile, ends an object that imports as well
    # (gh-91351 of CPython). It is told to start until it says why it may not.
    for _ in range(5):
        said["threads"] = await rule(local)
        if not said["threads"].startswith("another error"):
            break
    return said


def folder(dask_worker):
    return oct(os.stat(dask_worker.local_directory).st_mode & 0o7777)


def main(client, numbers):
    info = client.scheduler_info(n_workers=-1)
    workers = info["workers"]
    out = {
        "scheduler": info["address"],
        "workers": list(workers),
        "nannies": [one["nanny"] for one in workers.values() if one["nanny"]],
        "web": [
            info["services"]["dashboard"],
            *(one["services"]["dashboard"] for one in workers.values()),
        ],
        "folders": list(client.run(folder).values()),
        "inside": list(client.run(speaks, SCHEMES).values()),
    }
    out["inside"] += client.run(speaks, SCHEMES, nanny=True).values()
    out["inside"].append(client.run_on_scheduler(speaks, SCHEMES))
    out["inside"].append(client.sync(speaks, SCHEMES))
    held = client.map(abs, range(4))
    client.gather(held)
    out["processes"] = sockets([*numbers, os.getpid()])
    return out


if __name__ == "__main__":
    with safeser.Client(sys.argv[1], timeout=60) as alice:
        alice.wait_for_workers(2, timeout=100)
        print(json.dumps(main(alice, [int(number) for number in sys.argv[2:]])))

"""What the processes of a cluster listen at and connect to.

Run as alice; arguments: the scheduler's address, and the numbers of the processes that were
started. Prints JSON.
"""

from __future__ import annotations

import json
import os
import sys

import psutil

import safeser


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
    }
    held = client.map(abs, range(4))
    client.gather(held)
    out["processes"] = sockets([*numbers, os.getpid()])
    return out


if __name__ == "__main__":
    with safeser.Client(sys.argv[1], timeout=60) as alice:
        alice.wait_for_workers(2, timeout=100)
        print(json.dumps(main(alice, [int(number) for number in sys.argv[2:]])))

"""Which tasks run in a client that recreates tasks: what came of each attempt, as one JSON line."""

from __future__ import annotations

import json
import os
import sys

import dask.array as da
from distributed import wait

import safeser


def note(path):
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")


def divide(x=1):
    return x / 0


def add(x, y=1):
    return x + y


def spoiled(block, block_id=None):
    return divide() if block_id == (1,) else block


def outcome(call):
    try:
        return repr(call())
    except safeser.SafeserError as error:
        return [type(error).__name__, error.rule]
    except Exception as error:
        return [type(error).__name__, str(error)]


def told_lies(client, path):
    """Yield what the client makes of tasks and causes that it did not ask about."""
    swapped = client.submit(divide, key="swapped")
    framed = client.submit(divide, key="framed")
    below = client.submit(add, client.submit(divide, key="below"), key="framed-above")
    fine = client.submit(add, 1, key="swapped-fine")
    dressed = client.submit(divide, key="dressed")
    client.submit(note, path, key="again").result(timeout=60)
    again = client.submit(add, 1, key="again")
    wait([swapped, framed, below, fine, dressed, again])
    yield "error of another task", lambda: client.recreate_error_locally(swapped)
    yield "another task", lambda: client.recreate_task_locally(fine)
    yield "another cause", lambda: client.recreate_error_locally(framed)
    yield "another cause of a chain", lambda: client.recreate_error_locally(below)
    yield "an earlier task of the key", lambda: client.recreate_task_locally(again)
    yield "data for a task", lambda: client.recreate_task_locally(dressed)
    yield "data that leads to another", lambda: client.recreate_error_locally(dressed)


def told_the_truth(client):
    failing = client.submit(divide, key="failing")
    yield "itself", failing
    above = client.submit(add, client.submit(add, failing))
    yield "three graphs", above
    ones = da.ones(4, chunks=2).map_blocks(spoiled, dtype=float, meta=da.ones(1)._meta)
    yield "a collection", (ones.rechunk(4) + 1).sum().persist(optimize_graph=False)


def main(address, path):
    out = {"pid": os.getpid()}
    with safeser.Client(address) as client:
        client.wait_for_workers(2, timeout=60)
        victim = client.submit(note, path, key="victim")
        victim.result(timeout=60)
        out["lies"] = {name: outcome(call) for name, call in told_lies(client, path)}
        with open(path) as file:
            out["ran in"] = file.read().split()
        out["truth"] = {}
        for name, future in told_the_truth(client):
            wait(future)
            out["truth"][name] = outcome(lambda it=future: client.recreate_error_locally(it))
    print(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What one client gets under a key whose future it holds. Prints it as JSON; argument: address."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import warnings

import dask
import dask.array as da
from distributed import Queue, Variable, wait, worker_client
from steps import own

import safeser

out = {}


def tried(call):
    """Return what came, or the rule and text of the refusal, and what this client warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = call()
        except safeser.SafeserError as error:
            value = [error.rule, str(error)]
    return [value, [str(one.message) for one in caught if "this client holds" in str(one.message)]]


def add(x, y=0):
    return x + y


def mul(x, y=0):
    return x * y


class Counter:
    n = 0  # Dask looks for an actor's attributes in its class

    def __init__(self, start=0):
        self.n = start


def in_a_task():
    with worker_client() as client:
        first = client.submit(add, 2, 3, key="inner")
        found = [client.submit(add, 2, 3, key="inner").result()]
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found.append(client.submit(mul, 2, 3, key="inner").result())
                found += [str(one.message) for one in caught]
        except safeser.SafeserError as error:
            found.append(error.rule)
        return [*found, first.result()]


def main(client):
    first = client.submit(add, 2, 3, key="k")
    wait(first)
    other = client.submit(add, 1, 1, key="other")
    tries = {
        "same": lambda: client.submit(add, 2, 3, key="k").result(),
        "other_output": lambda: client.submit(mul, 2, 3, key="k").result(),
        "dependency": lambda: client.submit(add, other, 3, key="k").result(),
        "actor": lambda: client.submit(Counter, 1, key="k", actor=True).result(),
        "map": lambda: client.gather(client.map(mul, [2, 2], [3, 4], key=["k", "new"])),
        "get": lambda: client.get({"k": (mul, 2, 3)}, "k"),
        "compute": lambda: client.compute(named(mul)).result(),
        "persist": lambda: client.persist(named(mul)).compute(),
        "scatter": lambda: client.scatter({"k": 7})["k"].result(),
    }
    for name, call in tries.items():
        out[name] = tried(call)
    out["first"] = [first.status, first.result()]

    held = client.scatter({"scattered": 1})
    out["scatter_same"] = tried(lambda: client.scatter({"scattered": 1})["scattered"].result())
    out["scatter_other"] = tried(lambda: client.scatter({"scattered": 2})["scattered"].result())
    out["task_over_data"] = tried(lambda: client.submit(add, 4, key="scattered").result())
    out["scattered"] = held["scattered"].result()

    first.release()
    out["released"] = tried(lambda: client.submit(mul, 2, 3, key="k").result())
    out["in_a_task"] = client.submit(in_a_task, pure=False).result(timeout=60)
    out["honest"] = tried(lambda: honest(client))
    out["kept"] = len(client._kept) > 0
    del held
    handed(client)


def named(function):
    return dask.delayed(function)(2, 3, dask_key_name="k")


def handed(client):
    """What came from elsewhere under a key that this client then submits under."""
    with safeser.Client(sys.argv[1], timeout=30, set_as_default=False) as another:
        one = another.submit(add, 20, 3, key=own("handed"))
        Variable(own("one"), client=another).set(one)
        Queue(own("two"), client=another).put(one)
        futures = [
            Variable(own("one"), client=client).get(60),
            Queue(own("two"), client=client).get(60),
        ]
        wait(futures)
        out["handed_same"] = tried(lambda: client.submit(add, 20, 3, key=own("handed")).result())
        out["handed_other"] = tried(lambda: client.submit(mul, 20, 3, key=own("handed")).result())
        mapped = client.map(mul, [20], [3], key=[own("handed")])
        until(lambda: mapped[0].status == "error")
        out["handed_mapped"] = tried(lambda: mapped[0].result())
        out["handed"] = [[each.status, each.result()] for each in futures]


def until(probe):
    for _ in range(1200):
        if probe():
            return
        time.sleep(0.05)
    raise SystemExit("it did not happen")


def honest(client):
    """What one client may do in a notebook, cells run again, without any alarm."""
    kept = []
    for _ in range(2):
        x = da.ones((40, 40), chunks=20)
        y = (x + 1) * 2
        kept.append(client.compute(y.sum()))
        kept.append(client.persist(y))
        kept.append(client.compute(kept[-1].sum()))
        kept.append(client.persist(x))
        kept.append(client.compute(y.sum(), optimize_graph=False))
        kept.append(client.submit(lambda a: a + 1, 1))
        kept.append(client.submit(lambda a: a in {"x", "y"}, 1, key="lambda"))
        kept += client.map(lambda a: a * 2, range(3))
    return kept[0].result(timeout=60)


async def asynchronously(address):
    async with safeser.Client(address, timeout=30, asynchronous=True) as client:
        first = client.submit(add, 2, 3, key="a")
        await first
        out["async_same"] = tried(lambda: client.submit(add, 2, 3, key="a").status)
        out["async_other"] = tried(lambda: client.submit(mul, 2, 3, key="a").status)
        out["async_first"] = await first


if __name__ == "__main__":
    with safeser.Client(sys.argv[1], timeout=30) as client:
        client.wait_for_workers(1, timeout=60)
        main(client)
    asyncio.run(asynchronously(sys.argv[1]))
    print(json.dumps(out, default=str))

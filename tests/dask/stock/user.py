"""A day of a guarded client's user: ``python user.py ADDRESS TLS``; prints JSON."""

from __future__ import annotations

import asyncio
import io
import json
import operator
import sys
import threading
import time
import warnings
from contextlib import redirect_stdout

import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import scipy.sparse as sp
from distributed import Event, Lock, Queue, Variable, as_completed, progress, wait
from distributed.comm.core import connect, listen
from workload_tasks import Thing, at_second_try, divide, fail, greet, slow, warned

import safeser

FAMILIES = ["dask", "msgpack"]


def security(tls):
    if not tls:
        return None
    return distributed.Security(
        tls_ca_file=tls["ca-file"], tls_client_cert=tls["cert"], tls_client_key=tls["key"]
    )


#: A client that could not start may end the loop of the next one when it is collected (Dask's own).
_KEPT: list[BaseException] = []


def refusal(call):
    try:
        return f"not refused: {call()!r}"
    except Exception as error:
        _KEPT.append(error)
        return f"{type(error).__name__}: {error}"


def values(client):
    future = client.scatter(np.arange(4))
    return {
        "number": client.submit(operator.add, 1, 2).result(),
        "array": client.submit(np.arange, 3).result().tolist(),
        "text": client.submit(greet, "you").result(),
        "nested": client.gather(client.map(divmod, [7, 9], [2, 4])),
        "sum": client.submit(operator.mul, future, 2).result().tolist(),
        "direct": [a.tolist() for a in client.gather(client.map(np.arange, [1, 2]), direct=True)],
        "scattered": client.scatter(np.arange(2), direct=True).result().tolist(),
        "collection": da.ones((4, 4), chunks=2).cumsum(axis=0).compute().tolist()[-1],
        "first": sorted(f.result() for f in as_completed(client.map(abs, [-1, -2]))),
        "ran": list(client.run(int).values()),
        "on scheduler": client.run_on_scheduler(int),
    }


def frames(client):
    """What a stock worker could send only as a pickle, which it takes apart instead."""
    table = pd.DataFrame({"place": ["a", "b", "a"], "n": [1, 2, 3]})
    made = client.submit(pd.DataFrame, {"x": [1, None]})
    grouped = dd.from_pandas(table, npartitions=2).groupby("place").n.sum().compute()
    several = client.gather([made, client.submit(operator.add, 1, 2)])
    return {
        "frame": made.result().to_dict("list")["x"][0],
        "grouped": sorted(grouped.to_dict().items()),
        "several": [several[0].shape, several[1]],
        "direct": client.gather(made, direct=True).shape,
        "scalar": client.submit(np.int64, 3).result() + 0,
        "objects": client.submit(np.array, [1, "a"], dtype=object).result().tolist(),
        "sparse": client.submit(sp.csr_matrix, np.eye(2)).result().toarray().tolist(),
    }


def coordination(client):
    queue, variable, event = Queue("q"), Variable("v"), Event("e")
    queue.put({"a": [1]})
    variable.set(client.submit(operator.add, 2, 3))
    event.set()
    with Lock("l"):
        held = True
    got = threading.Event()
    client.subscribe_topic("mine", lambda found: got.set())
    # The subscription goes by the stream and the event by a request of its own, which may be first.
    for _ in range(100):
        client.log_event("mine", {"a": 1})
        if got.wait(0.1):
            break
    shown = io.StringIO()
    with redirect_stdout(shown):
        futures = client.map(slow, range(2))
        progress(futures, notebook=False)
        wait(futures)
    pending = client.submit(slow, 99)
    pending.cancel()
    client.set_metadata(["m"], {"x": 1})
    return {
        "queue": queue.get(),
        "variable": variable.get().result(),
        "event": event.wait(1),
        "lock": held,
        "topic": got.is_set(),
        "progress": "Completed" in shown.getvalue(),
        "cancelled": pending.cancelled(),
        "metadata": client.get_metadata(["m"]),
        "workers": len(client.scheduler_info()["workers"]),
    }


def errors(client):
    future = client.submit(fail, 1)
    error = future.exception()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        client.submit(warned, 1).result()
        deadline = time.monotonic() + 10
        while not heard and time.monotonic() < deadline:
            time.sleep(0.02)
    return {
        "class": type(error).__name__,
        "text": str(error),
        "trace": "in fail" in "".join(error.__notes__),
        "traceback": future.traceback(),
        "zero": refusal(client.submit(divide, 1, 0).result),
        "run": refusal(lambda: client.run(fail, 2)),
        "warned": [(str(each.message), each.category.__name__) for each in heard],
    }


def retried(client):
    """A stock scheduler also names what failed before that which is to be retried."""
    needed = client.submit(at_second_try)
    future = client.submit(operator.add, needed, 3)
    said = refusal(future.result)
    future.retry()
    return [said, future.result(timeout=30)]


def refused(client):
    told = {
        "object": refusal(client.submit(Thing).result),
        "complex": refusal(client.submit(complex, 1).result),
        "frozen": refusal(client.submit(frozenset, [1]).result),
        "dataset": refusal(lambda: (client.publish_dataset(d=Thing()), client.get_dataset("d"))[1]),
    }
    return {**told, "then": client.submit(operator.add, 40, 2).result()}


def schemes(client, scheme):
    """What else this process can speak."""
    arguments = client.connection_args

    async def ask(call):
        return await call

    def tried(make):
        return refusal(lambda: asyncio.run(ask(make())))

    async def handle(comm):
        raise AssertionError

    other = {"tcp": "tls", "tls": "tcp"}[scheme]
    somewhere = "127.0.0.1:1"
    return {
        "other scheme": tried(lambda: connect(f"{other}://{somewhere}", timeout=5, **arguments)),
        "safeser": tried(lambda: connect(f"safeser://{somewhere}", timeout=5, **arguments)),
        "without a guard": tried(lambda: connect(f"{scheme}://{somewhere}", timeout=5)),
        "ws": tried(lambda: connect(f"ws://{somewhere}", timeout=5, **arguments)),
        "inproc": tried(lambda: connect("inproc://1/2/3", timeout=5, **arguments)),
        "listen": tried(lambda: listen(f"{scheme}://127.0.0.1:0", handle)),
        "stock client": refusal(lambda: distributed.Client(f"{scheme}://{somewhere}", timeout=2)),
        "late": refusal(lambda: distributed.comm.registry.backends.update(tcp=None)),
    }


def main():
    address, tls = sys.argv[1], json.loads(sys.argv[2])
    scheme = address.partition("://")[0]
    with safeser.Client(address, deserializers=FAMILIES, security=security(tls)) as client:
        client.wait_for_workers(1)
        out = {"values": values(client), "schemes": schemes(client, scheme)}
        if tls:  # which only the transport has to do with
            print(json.dumps(out))
            return
        out |= {
            "frames": {name: str(value) for name, value in frames(client).items()},
            "coordination": coordination(client),
            "errors": errors(client),
            "retried": retried(client),
            "refused": refused(client),
            "asked": list(client.safeser.deserializers),
        }
    with safeser.Client(address) as client:
        out["again"] = client.submit(operator.add, 1, 1).result()
    print(json.dumps(out))


if __name__ == "__main__":
    main()

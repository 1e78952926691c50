"""A client of the hostile scheduler: ``python victim.py stock|guarded ADDRESSES``; prints JSON.

For each variant a new client does what a user would, notes what came of it, and then completes
another future.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import warnings

import distributed
from distributed import Future, Queue
from distributed.diagnostics.progressbar import ProgressBar
from hostile_scheduler import ELEMENTS, HANDSHAKES, REPLIES

FAMILIES = ["dask", "msgpack"]


def connect(kind, address):
    if kind == "stock":
        return distributed.Client(address, deserializers=FAMILIES, timeout=10)
    import safeser

    return safeser.Client(address, deserializers=FAMILIES, timeout=10)


def metadata(client):
    return client.get_metadata(["hit"])


def in_memory(client):
    future = client.k = Future("k", client)
    client.futures["k"].finish()
    return future


def feed(client):
    return client.sync(ProgressBar([Future("k", client)]).listen)


ACTIONS = {
    "queue": lambda client: Queue("q").get(timeout=5),
    "events": lambda client: client.get_events("t"),
    "dataset": lambda client: client.get_dataset("d"),
    "gather": lambda client: client.gather(in_memory(client), direct=False),
    "direct": lambda client: client.gather(in_memory(client), direct=True),
    "runspec": lambda client: client.sync(client.scheduler.get_runspec, key="k"),
    "run": lambda client: client.run(os.getpid),
    "scheduler": lambda client: client.run_on_scheduler(os.getpid),
    "feed": feed,
}


def element(client, variant):
    done = threading.Event()
    client.subscribe_topic("done", lambda event: done.set())
    client.k = Future("k", client)
    metadata(client)
    return "arrived" if done.wait(2) else "lost"


def finish(client):
    """Complete another future on the same client."""
    client.set_metadata(["variant"], "none")
    fine = Future("fine", client)
    assert client.get_metadata(["honest"]) == 42
    return fine.result(timeout=10).tolist()


def attack(kind, address, variant):
    said = {}
    client = connect(kind, address)
    client.set_metadata(["variant"], variant)
    try:
        if variant in ELEMENTS:
            said["got"] = element(client, variant)
        else:
            group = variant.partition(".")[0]
            said["got"] = repr(ACTIONS.get(group, metadata)(client))[:500]
    except BaseException as error:
        said["error"] = [type(error).__name__, str(error)[:500]]
    if kind == "guarded":
        future = getattr(client, "k", None)
        said["future"] = None if future is None else future.status
        said["then"] = finish(client)
        client.close()
    # A stock client whose report loop has ended cannot even be closed.
    return said


def main():
    kind, addresses = sys.argv[1], json.loads(sys.argv[2])
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    out = {variant: attack(kind, addresses[0], variant) for variant in (*REPLIES, *ELEMENTS)}
    for form, address in zip(HANDSHAKES, addresses[1:], strict=True):
        with contextlib.suppress(Exception):
            connect(kind, address).close()
        out[f"handshake.{form}"] = {}
    modules = [name for name in ("antigravity", "this") if name in sys.modules]
    print(json.dumps({"pid": os.getpid(), "said": out, "modules": modules}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

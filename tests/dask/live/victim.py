"""A client that asks hostile servers: ``python victim.py stock|safeser|guarded``, told by line.

For each line ``{"address", "does", "times"}`` a new client does so, and says what came of it; then,
unless it is stock Dask's, the same client completes another future. A guarded one is safeser's on
``tcp://``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
import warnings
from typing import Any

import distributed
from distributed import Future, Queue
from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin
from distributed.diagnostics.progressbar import ProgressBar

FAMILIES = ["dask", "msgpack"]
STOCK = sys.argv[1] == "stock"
KEPT: list[BaseException] = []


def connect(address: str) -> Any:
    if STOCK:
        return distributed.Client(address, deserializers=FAMILIES, timeout=30)
    import safeser

    return safeser.Client(address, deserializers=FAMILIES, timeout=30)


def in_memory(client: Any) -> Future:
    future = client.k = Future("k", client)
    client.futures["k"].finish()
    return future


def element(client: Any) -> str:
    """Wait for one element of the stream, which the server sends when it is asked for metadata."""
    arrived = threading.Event()
    client.subscribe_topic("done", lambda event: arrived.set())
    client.k = Future("k", client)
    client.get_metadata(["hit"])
    # That of stock Dask ends with an element that it cannot read; older releases hide it.
    listening = getattr(client, "_handle_report_task", None)
    deadline = time.monotonic() + (2 if STOCK and listening is None else 30)
    while not arrived.wait(0.01) and time.monotonic() < deadline:
        if STOCK and listening is not None and listening.done():
            break
    return "arrived" if arrived.is_set() else "lost"


async def feed(client: Any) -> None:
    await asyncio.wait_for(ProgressBar([Future("k", client)]).listen(), 10)


ACTIONS = {
    "nothing": lambda client: None,
    "metadata": lambda client: client.get_metadata(["hit"]),
    "element": element,
    "queue": lambda client: Queue("q", client=client).get(timeout=5),
    "events": lambda client: client.get_events("t"),
    "dataset": lambda client: client.get_dataset("d"),
    "gather": lambda client: client.gather(in_memory(client), direct=False),
    "direct": lambda client: client.gather(in_memory(client), direct=True),
    "runspec": lambda client: client.sync(client.scheduler.get_runspec, key="k"),
    "run": lambda client: client.run(os.getpid),
    "scheduler": lambda client: client.run_on_scheduler(os.getpid),
    "feed": lambda client: client.sync(feed, client),
    "worker-plugin": lambda client: client.register_plugin(WorkerPlugin(), name="p"),
    "nanny-plugin": lambda client: client.register_plugin(NannyPlugin(), name="p"),
    "no-plugin": lambda client: client.unregister_worker_plugin("p"),
}


def attacked(address: str, does: str, times: int) -> dict[str, Any]:
    said: dict[str, Any] = {"pid": os.getpid(), "got": [], "then": None}
    try:
        client = connect(address)
    except Exception as error:  # so does a refused handshake end
        # Dask's client, half made, stops its event loop when it is collected: by then, another's.
        KEPT.append(error)
        said["got"].append([type(error).__name__, str(error)[:300]])
        return said
    for _ in range(times):
        try:
            said["got"].append(repr(ACTIONS[does](client))[:300])
        except Exception as error:  # whatever comes of it, the next one is asked for
            said["got"].append([type(error).__name__, str(error)[:300]])
    if not STOCK:  # a stock client whose report loop has ended cannot even be closed
        said["then"] = client.submit(abs, -5, pure=False).result(timeout=30)
        client.close()
    return said


def main() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        told = json.loads(line)
        if told["does"] == "modules":
            print(json.dumps(sorted(sys.modules)), flush=True)
        else:
            print(json.dumps(attacked(**told)), flush=True)
    os._exit(0)


main()

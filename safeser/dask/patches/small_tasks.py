"""What a scheduler does in another way where clients submit many small tasks.

The one rule: only time is saved. Nothing of a connection is left out or put in another order, a
stream that was idle waits for nothing, and no guarantee depends on a row of these. Graphs of two
clients may pass each other: a small one no longer waits for a large one that the thread lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from safeser.dask.contents import opened_graph
from safeser.dask.patches.patch import Patch
from safeser.dask.transport.comm import SafeserComm

__all__ = ["INTERVAL", "ROWS", "SMALL_GRAPH"]

#: Seconds between two batches for one client, as between those for a worker. Dask has 2 ms, and 10
#: ms for what the client sends. A batch costs both ends several times as much as a report in it.
INTERVAL = 0.005

#: Tasks of a graph that are listed in the scheduler's event loop, in half a millisecond. To have a
#: thread do it takes about as long, and each hand-over of the interpreter's lock may take 5 ms.
SMALL_GRAPH = 500

#: What Dask's scheduler calls the streams to clients.
_TO_CLIENT = "Scheduler->Client"


def _start(stock: Callable[[Any], None], batched: Any, comm: Any) -> None:
    if isinstance(comm, SafeserComm) and comm.name == _TO_CLIENT:
        batched.interval = max(batched.interval, INTERVAL)
    stock(comm)


async def _offload(
    stock: Callable[..., Awaitable[Any]], func: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    tasks = opened_graph.number_of_tasks(kwargs.get("expr"))
    if tasks is not None and tasks <= SMALL_GRAPH:
        # A client's batch of graphs would keep the event loop for itself.
        await asyncio.sleep(0)
        return func(*args, **kwargs)
    return await stock(func, *args, **kwargs)


ROWS = (
    Patch(
        target="distributed.batched:BatchedSend.start",
        reason="A scheduler reports the end of tiny tasks to a client in batches of one or two,"
        " each of which is verified, decided and recorded.",
        needed=False,
        by=_start,
        source=(
            "distributed.batched:BatchedSend.__init__",
            "distributed.batched:BatchedSend.start",
            "distributed.batched:BatchedSend._background_send",
            "distributed.scheduler:Scheduler.add_client",
        ),
    ),
    Patch(
        target="distributed.scheduler:offload",
        reason="A graph of signed tasks, of which nothing has to be computed, is handed to a thread"
        " and back, which takes a fifth of what one submission costs.",
        needed=False,
        by=_offload,
        source=(
            "distributed.utils:offload",
            "distributed.scheduler:_materialize_graph",
            "distributed.scheduler:Scheduler.update_graph",
        ),
    ),
)

"""How often a scheduler writes to its clients.

The one rule: nothing is left out, put in another order, or kept from a stream that was idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeser.dask.patches.patch import Patch
from safeser.dask.transport.comm import SafeserComm

__all__ = ["INTERVAL", "ROWS"]

#: Seconds between two batches for one client, as between those for a worker. Dask has 2 ms, and 10
#: ms for what the client sends. A batch costs both ends several times as much as a report in it.
INTERVAL = 0.005

#: What Dask's scheduler calls the streams to clients.
_TO_CLIENT = "Scheduler->Client"


def _start(stock: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def start(self: Any, comm: Any) -> None:
        if isinstance(comm, SafeserComm) and comm.name == _TO_CLIENT:
            self.interval = max(self.interval, INTERVAL)
        stock(self, comm)

    return start


ROWS = (
    Patch(
        target="distributed.batched:BatchedSend.start",
        reason="A scheduler reports the end of tiny tasks to a client in batches of one or two,"
        " each of which is verified, decided and recorded.",
        process=("scheduler",),
        needed=False,
        replace=_start,
        source=(
            "distributed.batched:BatchedSend.__init__",
            "distributed.batched:BatchedSend.start",
            "distributed.batched:BatchedSend._background_send",
            "distributed.scheduler:Scheduler.add_client",
        ),
    ),
)

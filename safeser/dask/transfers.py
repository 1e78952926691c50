"""Whose requests for data may fill a worker's slots for transfers.

The one rule: no principal but the worker's own holds more than half of those that others leave, nor
all of them together the last quarter. Dask's worker keeps a slot until whoever asked has said that
the data came, and answers everybody else that it is busy: somebody who may read one value and never
says so would keep every other transfer of the cluster waiting.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from distributed.worker import Worker

__all__ = ["share_transfers"]


def share_transfers(worker: Any) -> None:
    """Have *worker* keep half of its slots for others; to be called before it listens."""
    if not isinstance(worker, Worker):
        return
    stock = worker.handlers["get_data"]
    held: Counter[str] = Counter()

    async def get_data(
        comm: Any, keys: Any, who: str | None = None, serializers: Any = None
    ) -> Any:
        # Named one by one: Dask hands over the serializers that were asked for only to handlers
        # with a parameter of that name.
        request = {"keys": keys, "who": who, "serializers": serializers}
        link = getattr(comm, "link", None)
        if link is None or link.peer == link.local:
            return await stock(comm, **request)
        limit = worker.transfer_outgoing_count_limit
        if limit is not False and not _has_room(held, link.peer, limit):
            return {"status": "busy"}  # as Dask says it; whoever asked asks again a little later
        held[link.peer] += 1
        try:
            return await stock(comm, **request)
        finally:
            held[link.peer] -= 1
            if not held[link.peer]:
                del held[link.peer]

    worker.handlers["get_data"] = get_data


def _has_room(held: Counter[str], principal: str, limit: int) -> bool:
    """Return whether *principal* may have one more of *limit* slots."""
    taken = held.total()
    others = taken - held[principal]
    return taken < limit - limit // 4 and held[principal] < max(1, (limit - others) // 2)

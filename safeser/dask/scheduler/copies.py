"""State whose values a worker is told to copy, and have it drop those of a former task of a key.

The one rule: a worker that is told to fetch a value is told whose value it is. A key that is
another author's by the time of the answer names no value that was copied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from safeser.dask.messages.author_statements import stating
from safeser.dask.scheduler.readers import Readers
from safeser.dask.servers import part_of

__all__ = ["acquire", "gathered_on"]

#: Why a worker is told to drop a copy.
_FORMER = "safeser-former"


def acquire(scheduler: Any, address: str, keys: Iterable[Any], stimulus: str) -> None:
    """Do what ``Scheduler.request_acquire_replicas`` does, and state whose the values are."""
    tasks = [scheduler.tasks[key] for key in keys]
    scheduler.stream_comms[address].send(
        {
            "op": "acquire-replicas",
            "who_has": {each.key: [state.address for state in each.who_has] for each in tasks},
            "nbytes": {each.key: each.nbytes for each in tasks},
            "authors": _authors_of(scheduler, tasks),
            "stimulus_id": stimulus,
        }
    )


async def gathered_on(
    scheduler: Any, stock: Callable[..., Awaitable[Any]], address: str, who_has: Any
) -> Any:
    """Do what ``Scheduler.gather_on_worker``, *stock*, does, and state whose the values are."""
    tasks = [scheduler.tasks[key] for key in who_has if key in scheduler.tasks]
    authors = _authors_of(scheduler, tasks)
    with stating("gather", authors=authors):
        failed = await stock(address, who_has)
    now = _authors_of(scheduler, filter(None, map(scheduler.tasks.get, authors)))
    former = [key for key, author in now.items() if author != authors[key] and key not in failed]
    for key in former:
        scheduler.release_worker_data(key, address, _FORMER)
    if former:
        dropped = {"op": "remove-replicas", "keys": former, "stimulus_id": _FORMER}
        scheduler.worker_send(address, dropped)
    return failed


def _authors_of(scheduler: Any, tasks: Iterable[Any]) -> dict[Any, str]:
    readers = part_of(scheduler, Readers)
    return {} if readers is None else {each.key: readers.owner_of(each) for each in tasks}

"""Scatter, copy and move values only to workers that may have those of their author.

The one rule: the scheduler tells no worker to take a value that this worker's context does not let
it have (:mod:`safeser.dask.groups.placement`). Dask chooses among all workers for that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from safeser.dask.groups.author_statements import stating
from safeser.dask.groups.placement import Placement
from safeser.dask.groups.readers import Readers
from safeser.dask.groups.replication import copied
from safeser.dask.servers import part_of
from safeser.errors import PolicyDenied

__all__ = ["acquire", "gathered_on", "keeping", "rebalanced", "replicated", "taking"]

#: Why a worker is told to drop a copy.
_FORMER = "safeser-former"

_Request = Callable[..., Awaitable[Any]]


def keeping(
    scheduler: Any, author: str, workers: Iterable[Any] | None
) -> Collection[str] | Iterable[Any] | None:
    """Return to which of *workers*, or of all if it is None, values of *author* may be brought.

    :raises PolicyDenied: if they are named, and some of them may not have those.
    """
    placement = part_of(scheduler, Placement)
    keepers = None if placement is None else placement.keepers_of(author)
    if keepers is None:
        return workers
    if workers is None:
        running = {state.address for state in scheduler.running}
        return [address for address in keepers if address in running]
    named = [scheduler.coerce_address(each) for each in workers]
    if not keepers.issuperset(named):
        raise PolicyDenied(
            f"{author!r} names workers that may not have its values",
            rule="worker-group.values",
            where="workers",
            fix="Leave out workers=, or name those of your own group.",
        )
    return named


async def replicated(
    scheduler: Any, stock: _Request, *, keys: Any, workers: Any = None, **rest: Any
) -> Any:
    """Copy the values of *keys* as *stock* does, each to workers that may have it."""
    placement = part_of(scheduler, Placement)
    if placement is None or not placement.divides:
        return await copied(stock, keys=keys, workers=workers, **rest)
    failed: list[Any] = []
    for keepers, group in _by_keepers(scheduler, placement, keys).items():
        among = workers
        if keepers is not None:
            named = keepers if workers is None else scheduler.workers_list(workers)
            running = {state.address for state in scheduler.running}
            among = [address for address in named if address in keepers and address in running]
            if not among:
                failed += group
                continue
        result = await copied(stock, keys=group, workers=among, **rest)
        failed += [] if result is None else result["keys"]
    return {"status": "partial-fail", "keys": failed} if failed else None


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


async def gathered_on(scheduler: Any, stock: _Request, address: str, who_has: Any) -> Any:
    """Do what ``Scheduler.gather_on_worker``, *stock*, does, and state whose the values are.

    A key that is another author's by the time of the answer names no value that was copied.
    """
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


def _by_keepers(
    scheduler: Any, placement: Placement, keys: Iterable[Any]
) -> dict[frozenset[str] | None, list[Any]]:
    """Return *keys* by the workers that may have their values, None for all."""
    groups: dict[frozenset[str] | None, list[Any]] = {}
    for key in keys:
        task = scheduler.tasks.get(key)
        groups.setdefault(None if task is None else placement.keepers(task), []).append(key)
    return groups


async def rebalanced(
    scheduler: Any, stock: _Request, *, keys: Any = None, workers: Any = None, **rest: Any
) -> Any:
    """Move values as *stock* does, but only among workers that may have the same ones."""
    placement = part_of(scheduler, Placement)
    if placement is None or not placement.divides:
        return await stock(keys=keys, workers=workers, **rest)
    keys = None if keys is None else set(keys)
    failed: set[Any] = set()
    among = list(scheduler.workers) if workers is None else list(workers)
    for group in placement.interchangeable(among):
        # Of all workers, some may have left while the values of another group moved.
        left = group if workers is not None else [at for at in group if at in scheduler.workers]
        result = await stock(keys=keys, workers=left, **rest)
        failed.update(result.get("keys", ()))
    return {"status": "partial-fail", "keys": list(failed)} if failed else {"status": "OK"}


def taking(scheduler: Any, task: Any, candidates: set[Any] | None) -> set[Any] | None:
    """Return those of *candidates*, or of all workers if it is None, that may have *task*'s value.

    None if all may.
    """
    placement = part_of(scheduler, Placement)
    keepers = placement.keepers(task) if placement is not None and placement.divides else None
    if keepers is None:
        return candidates
    among = scheduler.running if candidates is None else candidates
    return {state for state in among if state.address in keepers}

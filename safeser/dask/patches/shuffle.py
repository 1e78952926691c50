"""Shuffles and rechunks between workers: the files that a worker writes, and whose shards it takes.

The one rule: a part that a worker writes is one that the scheduler assigned to it.

Dask makes the name of a file of a partition's number, in the folder of the shuffle, and takes it
from the shards themselves (distributed 2026.8.0, ``shuffle/_core.py``): a column of text in place
of numbers, or a tuple of text, leads up from that folder, and one worker's bytes are appended to
any file that the user of another worker's process may write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

from distributed.comm import Comm
from distributed.shuffle._core import barrier_key

from safeser.channel.records import note_refusal
from safeser.dask.contents.shuffle_plans import AUTHOR
from safeser.dask.groups.authors import Authors, handing
from safeser.dask.groups.readers import Readers
from safeser.dask.patches.patch import Patch, without_comm
from safeser.dask.servers import part_of
from safeser.dask.settings import open_channels
from safeser.errors import PayloadError
from safeser.values import UNKNOWN, Context, Kind

__all__ = ["ROWS"]


# --- partitions ----------------------------------------------------------------------------------


def keeping_own(keeps: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``ShuffleRun._write_to_disk``, *keeps*, for this worker's own partitions alone."""

    async def write_to_disk(run: Any, data: Mapping[Any, Any]) -> None:
        _require_own(run, data)
        await keeps(run, data)

    return write_to_disk


def _require_own(run: Any, partitions: Iterable[Any]) -> None:
    """Refuse *partitions* unless *run* keeps each of them here.

    :raises PayloadError: which was recorded; the sender of a shard is not known here.
    """
    own = _own_partitions(run)
    for partition in partitions:
        # True and 1.0 are equal to 1, and are spelt otherwise.
        numbered = isinstance(partition, tuple) and all(
            isinstance(each, Integral) and not isinstance(each, bool) for each in partition
        )
        if numbered and partition in own:
            continue
        error = PayloadError(
            "a shard is of no part of the shuffle that this worker keeps",
            rule="shuffle.partition",
            where="data",
        )
        for channel in open_channels():
            told = Context(UNKNOWN, channel.identity.principal, Kind.DATA, "shuffle_receive")
            note_refusal(channel.audit, told, error)
        raise error


#: Which partitions each run of a shuffle keeps here, which does not change.
_known: WeakKeyDictionary[Any, frozenset[Any]] = WeakKeyDictionary()


def _own_partitions(run: Any) -> frozenset[Any]:
    """Return the parts that *run* keeps here, as they are named when they are written."""
    found = _known.get(run)
    if found is None:
        # Those of frames are numbers, those of arrays tuples of them.
        assigned = run.partitions_of.get(run.local_address, ())
        found = frozenset(each if isinstance(each, tuple) else (each,) for each in assigned)
        _known[run] = found
    return found


# --- whose it is ---------------------------------------------------------------------------------


def _create(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create(self: Any, shuffle_id: str, *args: Any, **kwargs: Any) -> Any:
        plan = stock(self, shuffle_id, *args, **kwargs)
        readers = part_of(self.scheduler, Readers)
        if readers is not None:
            barrier = self.scheduler.tasks[barrier_key(shuffle_id)]
            object.__setattr__(plan, AUTHOR, readers.owner_of(barrier))  # its class is frozen
        return plan

    return create


def _fetch(stock: Callable[..., Any]) -> Callable[..., Any]:
    async def fetch(self: Any, shuffle_id: str, *args: Any, **kwargs: Any) -> Any:
        plan = await stock(self, shuffle_id, *args, **kwargs)
        authors = part_of(self._plugin.worker, Authors)
        if authors is not None:
            authors.note_shuffle(shuffle_id, plan.run_id, getattr(plan, AUTHOR))
        return plan

    return fetch


def _send(stock: Callable[..., Any]) -> Callable[..., Any]:
    async def send(run: Any, address: str, shards: Any) -> Any:
        worker = run.rpc.server() if getattr(run.rpc, "server", None) is not None else None
        authors = None if worker is None else part_of(worker, Authors)
        if authors is None:
            return await stock(run, address, shards)
        with handing(run.id, authors.of_shuffle(run.id, run.run_id)):
            return await stock(run, address, shards)

    return send


def _shuffle_receive(stock: Callable[..., Any]) -> Callable[..., Any]:
    async def shuffle_receive(
        self: Any, comm: Any = None, /, *args: Any, shuffle_id: str, run_id: int, **shards: Any
    ) -> Any:
        authors = part_of(self.worker, Authors)
        if authors is not None and isinstance(comm, Comm) and comm.link.peer != comm.link.local:
            with suppress(Exception):  # which Dask's own meets again, and answers
                await self._get_shuffle_run(shuffle_id, run_id)
            author = authors.of_shuffle(shuffle_id, run_id)
            authors.require(comm.link, "shuffle_receive", author, f"shuffle {shuffle_id}")
        named = {"shuffle_id": shuffle_id, "run_id": run_id, **shards}
        return await stock(self, *without_comm(comm, args), **named)

    return shuffle_receive


# --- rows ----------------------------------------------------------------------------------------

_PLUGIN = "distributed.shuffle._worker_plugin"

ROWS = (
    Patch(
        target="distributed.shuffle._scheduler_plugin:ShuffleSchedulerPlugin._create",
        reason="The plan of a shuffle does not name its author.",
        process=("scheduler",),
        needed=True,
        replace=_create,
    ),
    Patch(
        target=f"{_PLUGIN}:_ShuffleRunManager._fetch",
        reason="A worker does not know the authors of its shards.",
        process=("worker",),
        needed=True,
        replace=_fetch,
    ),
    Patch(
        target="distributed.shuffle._core:ShuffleRun._send",
        reason="Shards go to whatever process answers at an address of the plan.",
        process=("worker",),
        needed=True,
        replace=_send,
    ),
    Patch(
        target=f"{_PLUGIN}:ShuffleWorkerPlugin.shuffle_receive",
        reason="A worker that may not read a shuffle's values adds some to it.",
        process=("worker",),
        needed=True,
        replace=_shuffle_receive,
    ),
    Patch(
        target="distributed.shuffle._core:ShuffleRun._write_to_disk",
        reason="A shard names the file that a worker appends it to, outside the shuffle's folder.",
        process=("worker",),
        needed=True,
        replace=keeping_own,
    ),
)

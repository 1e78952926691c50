"""Shuffles and rechunks between workers: what a worker joins, keeps and writes of others' shards.

The one rule: a part that a worker makes, keeps or writes is one that the scheduler assigned to it,
and every element of an array that it joins was sent.

Partitions. Dask makes the name of a file of a partition's number, in the folder of the shuffle, and
takes it from the shards themselves (distributed 2026.8.0, ``shuffle/_core.py``): a column of text
in place of numbers, or a tuple of text, leads up from that folder, and one worker's bytes are
appended to any file that the user of another worker's process may write. Dask also makes one table
for each number that a shard names before it looks at any of them, and each of these tables holds
the description of all columns and all categories (docs/explanation/upstream.md, 11): half a
megabyte with thirty thousand numbers took twelve gigabytes. So the numbers are checked first, and
what the tables repeat is bounded by ``limits.max_array``.

Arrays. Dask allocates the result of a rechunk by what the first pieces of each row and column say,
and writes each piece into its place as NumPy broadcasts it (docs/explanation/upstream.md, 10): a
list in place of a piece leaves elements unwritten, which are memory that the worker has used
for other users. All pieces get the type of the first: one element of a megabyte makes all others as
wide, and one message ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

from distributed.comm import Comm
from distributed.shuffle import _shuffle
from distributed.shuffle._core import barrier_key

from safeser.channel.records import note_refusal
from safeser.dask.contents.shuffle_plans import AUTHOR
from safeser.dask.groups.authors import Authors, handing
from safeser.dask.groups.readers import Readers
from safeser.dask.patches.patch import Patch, without_comm
from safeser.dask.servers import part_of
from safeser.dask.settings import open_channels
from safeser.errors import PayloadError
from safeser.values import UNKNOWN, Context, Kind, Limits

__all__ = ["ROWS"]

_PAIR = (tuple, list)

#: As much more do numbers take that are joined with longer ones.
_TWICE = 2


# --- partitions ----------------------------------------------------------------------------------


def keeping_own(keeps: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``ShuffleRun._write_to_disk``, *keeps*, for this worker's own partitions alone."""

    async def write_to_disk(run: Any, data: Mapping[Any, Any]) -> None:
        _require_own(run, data)
        await keeps(run, data)

    return write_to_disk


def dividing_own(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``_repartition_buffers`` of frames for this worker's own partitions alone."""
    del stock  # it has made all tables before it returns

    def repartition_buffers(run: Any, data: Any) -> dict[tuple[int], bytes]:
        table = _shuffle.buffers_to_table(data)
        _require_own(run, _numbers(table.column(run.column), len(_own_partitions(run))))
        parts = _shuffle.split_by_partition(table, run.column, run.drop_column)
        _require_bounded(table, list(parts.values()))
        return {(number,): _shuffle.serialize_table(part) for number, part in parts.items()}

    return repartition_buffers


def refused_shard(rule: str, reason: str) -> PayloadError:
    """Return the error that refuses a shard, once it is recorded; its sender is not known here."""
    error = PayloadError(reason, rule=rule, where="data")
    for channel in open_channels():
        told = Context(UNKNOWN, channel.identity.principal, Kind.DATA, "shuffle_receive")
        note_refusal(channel.audit, told, error)
    return error


def most_bytes() -> int:
    """Return the largest size of an array here; a larger one could not be sent either."""
    limits = (each.policy.limits.max_array for each in open_channels())
    return min(limits, default=Limits().max_array)


def is_numbered(partition: Any) -> bool:
    """Tell whether *partition* is a tuple of numbers, as those of arrays are."""
    # True and 1.0 are equal to 1, and are spelt otherwise.
    return isinstance(partition, tuple) and all(
        isinstance(each, Integral) and not isinstance(each, bool) for each in partition
    )


def _require_own(run: Any, partitions: Iterable[Any]) -> None:
    """Refuse *partitions* unless *run* keeps each of them here.

    :raises PayloadError: which was recorded.
    """
    own = _own_partitions(run)
    for partition in partitions:
        if not is_numbered(partition) or partition not in own:
            raise refused_shard(
                "shuffle.partition", "a shard is of no part of the shuffle that this worker keeps"
            )


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


def _numbers(column: Any, own: int) -> list[tuple[Any]]:
    """Return the partitions that *column* names, or one more than *own*, which is one too many."""
    import pyarrow as pa  # noqa: PLC0415 - only shuffles of frames need it

    found = column.unique() if pa.types.is_integer(column.type) else pa.nulls(1)
    return [(number,) for number in found[: own + 1].tolist()]


def _require_bounded(table: Any, parts: Sequence[Any]) -> None:
    """Refuse *parts* that repeat what describes *table*, and its categories, too often.

    :raises PayloadError: which was recorded.
    """
    described, most = int(table.schema.serialize().size), most_bytes() + int(table.nbytes)
    if len(parts) * (described + int(table.nbytes)) <= most:
        return  # as nearly all are: none of them is larger than the whole
    if sum(described + int(part.nbytes) for part in parts) > most:
        raise refused_shard(
            "shuffle.size", "all parts of a table have its categories, or its long description"
        )


# --- arrays --------------------------------------------------------------------------------------


def joining_whole(joins: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``convert_chunk``, *joins*, for pieces that make up a whole array.

    Pieces have one place each, make up a grid without gaps, and those beside each other are equally
    long.
    """

    def convert_chunk(shards: Iterable[Any]) -> Any:
        pieces = _pieces(shards)
        if pieces is None or not _is_grid(pieces):
            raise refused_shard(
                "shuffle.pieces", "the pieces of a part of a shuffle make up no whole array"
            )
        if _is_widened(pieces.values()):
            raise refused_shard(
                "shuffle.size", "few pieces have wide elements, which all of the others would get"
            )
        # A list, since an iterator is read once.
        return joins([list(pieces.items())])

    return convert_chunk


def _pieces(shards: Iterable[Any]) -> dict[tuple[int, ...], Any] | None:
    """Return the pieces of *shards* by their places, the latest of each place, as Dask does."""
    pieces = {}
    for piece in (each for shard in shards for each in shard):
        if type(piece) not in _PAIR or len(piece) != 2 or not is_numbered(piece[0]):
            return None
        pieces[piece[0]] = piece[1]
    return pieces


def _is_grid(pieces: dict[tuple[int, ...], Any]) -> bool:
    lengths: dict[tuple[int, int], int] = {}
    for place, piece in pieces.items():
        # Arrays say by their class how they are joined; other objects with a shape may hold
        # anything.
        is_array = hasattr(type(piece), "__array_function__")
        if not place or min(place) < 0 or not is_array or len(piece.shape) != len(place):
            return False
        for axis, (number, length) in enumerate(zip(place, piece.shape, strict=True)):
            if lengths.setdefault((axis, number), length) != length:
                return False
    ends = [max(axis) + 1 for axis in zip(*pieces, strict=False)]
    return len({len(place) for place in pieces}) == 1 and math.prod(ends) == len(pieces)


def _is_widened(pieces: Iterable[Any]) -> bool:
    """Tell whether *pieces* take far more with the widest type among them, and more than an array
    may take.
    """
    import numpy as np  # noqa: PLC0415 - only rechunks of arrays need it

    arrays = [piece for piece in pieces if isinstance(piece, np.ndarray)]
    width = max((array.itemsize for array in arrays), default=0)
    size = width * sum(array.size for array in arrays)
    return size > most_bytes() and size > _TWICE * sum(array.nbytes for array in arrays)


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

_ARROW = "distributed.shuffle._arrow"

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
    Patch(
        target="distributed.shuffle._shuffle:DataFrameShuffleRun._repartition_buffers",
        reason="A shard makes a table for each number that it names"
        " (docs/explanation/upstream.md, 11).",
        process=("worker",),
        needed=True,
        replace=dividing_own,
        source=(
            "distributed.shuffle._shuffle:DataFrameShuffleRun._repartition_buffers",
            "distributed.shuffle._shuffle:split_by_partition",
            f"{_ARROW}:buffers_to_table",
            f"{_ARROW}:serialize_table",
        ),
    ),
    Patch(
        target="distributed.shuffle._rechunk:convert_chunk",
        reason="Pieces that are no grid leave elements unwritten, which show memory of others"
        " (docs/explanation/upstream.md, 10).",
        process=("worker",),
        needed=True,
        replace=joining_whole,
    ),
)

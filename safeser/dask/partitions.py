"""Partitions of a shuffle's result that a worker keeps: those that the scheduler assigned to it.

The one rule: the number of such a partition is a number, and one of this worker's. Dask makes the
name of a file of it, in the folder of the shuffle, and takes it from the shards themselves
(distributed 2026.8.0, ``shuffle/_core.py``): a column of text in the place of numbers, or a tuple
of text, leads up from that folder, and one worker's bytes are appended to any file that the user of
another worker's process may write.

Dask also makes one table for each number that a shard names before it looks at any of them, and
each of these tables holds the description of all columns and all categories (docs/upstream.md):
half a megabyte with thirty thousand numbers took twelve gigabytes. So the numbers are checked
first, and what the tables repeat is bounded by ``limits.max_array``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from numbers import Integral
from typing import Any

from distributed.shuffle import _shuffle
from distributed.shuffle._core import ShuffleRun

from safeser.channel.records import note_refusal
from safeser.dask.settings import open_channels
from safeser.errors import PayloadError
from safeser.values import UNKNOWN, Context, Kind, Limits

__all__ = ["is_numbered", "keep_own_partitions", "most_bytes", "refused_shard"]


def keep_own_partitions() -> None:
    """Have shuffles of this process make and keep their own partitions alone; once is enough."""
    keeps = ShuffleRun._write_to_disk
    divides = _shuffle.DataFrameShuffleRun._repartition_buffers
    if hasattr(keeps, "__wrapped__"):
        return

    @wraps(keeps)
    async def keep(run: Any, data: Mapping[Any, Any]) -> None:
        _require_own(run, data)
        await keeps(run, data)

    @wraps(divides)
    def divide(run: Any, data: Any) -> dict[tuple[int], bytes]:
        table = _shuffle.buffers_to_table(data)
        _require_own(run, _numbers(table.column(run.column), len(_own_partitions(run))))
        parts = _shuffle.split_by_partition(table, run.column, run.drop_column)
        _require_bounded(table, list(parts.values()))
        return {(number,): _shuffle.serialize_table(part) for number, part in parts.items()}

    ShuffleRun._write_to_disk = keep
    _shuffle.DataFrameShuffleRun._repartition_buffers = divide


def refused_shard(rule: str, reason: str) -> PayloadError:
    """Return the error that refuses a shard, once it is recorded; its sender is not known here."""
    error = PayloadError(reason, rule=rule, where="data")
    for channel in open_channels():
        told = Context(UNKNOWN, channel.identity.principal, Kind.DATA, "shuffle_receive")
        note_refusal(channel.audit, told, error)
    return error


def most_bytes() -> int:
    """Return how large an array may be here: what is larger could not be sent either."""
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


def _own_partitions(run: Any) -> frozenset[Any]:
    """Return the parts that *run* keeps here, as they are named when they are written."""
    found: frozenset[Any] | None = vars(run).get(_KNOWN)
    if found is None:
        # Those of frames are numbers, those of arrays tuples of them.
        assigned = run.partitions_of.get(run.local_address, ())
        found = frozenset(each if isinstance(each, tuple) else (each,) for each in assigned)
        setattr(run, _KNOWN, found)
    return found


#: Where a run keeps what was found, which does not change.
_KNOWN = "safeser_own_partitions"


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

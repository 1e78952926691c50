"""Shuffles and rechunks between workers: the files that a worker writes, and whose shards it takes.

The one rule: a part that a worker writes is one that the scheduler assigned to it.

Dask makes the name of a file of a partition's number, in the folder of the shuffle, and takes it
from the shards themselves (distributed 2026.8.0, ``shuffle/_core.py``): a column of text in place
of numbers, or a tuple of text, leads up from that folder, and one worker's bytes are appended to
any file that the user of another worker's process may write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

from safeser.channel.records import note_refusal
from safeser.dask.patches.patch import Patch
from safeser.dask.settings import open_channels
from safeser.errors import PayloadError
from safeser.gate.values import UNKNOWN, Context, Kind

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


# --- rows ----------------------------------------------------------------------------------------


ROWS = (
    Patch(
        target="distributed.shuffle._core:ShuffleRun._write_to_disk",
        reason="A shard names the file that a worker appends it to, outside the shuffle's folder.",
        process=("worker",),
        replace=keeping_own,
    ),
)

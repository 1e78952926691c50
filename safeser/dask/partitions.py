"""Which parts of a shuffle's result a worker keeps: those that the scheduler assigned to it.

The one rule: the number of such a part is a number, and one of this worker's. Dask makes the name
of a file of it, in the folder of the shuffle, and takes it from the shards themselves (distributed
2026.8.0, ``shuffle/_core.py``): a column of text in the place of numbers, or a tuple of text, led
up from that folder, and one worker's bytes were appended to any file of another's user.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import wraps
from numbers import Integral
from typing import Any

from distributed.shuffle._core import ShuffleRun

from safeser.channel.records import note_refusal
from safeser.dask.settings import open_channels
from safeser.errors import PayloadError
from safeser.values import UNKNOWN, Context, Kind

__all__ = ["is_numbered", "keep_own_partitions", "own_partitions", "refused_shard", "require_own"]


def keep_own_partitions() -> None:
    """Have shuffles of this process keep no part that is another's; once is enough."""
    keeps = ShuffleRun._write_to_disk
    if hasattr(keeps, "__wrapped__"):
        return

    @wraps(keeps)
    async def keep(run: Any, data: Mapping[Any, Any]) -> None:
        require_own(run, data)
        await keeps(run, data)

    ShuffleRun._write_to_disk = keep


def require_own(run: Any, partitions: Iterable[Any]) -> None:
    """Refuse *partitions* unless *run* keeps each of them here.

    :raises PayloadError: which was recorded.
    """
    own = own_partitions(run)
    for partition in partitions:
        if not is_numbered(partition) or partition not in own:
            raise refused_shard(
                "shuffle.partition", "a shard is of no part of the shuffle that this worker keeps"
            )


def refused_shard(rule: str, reason: str, *, operation: str = "shuffle_receive") -> PayloadError:
    """Return the error that refuses a shard, once it is recorded; who sent it is not known here.

    :param operation: as part of which it arrived, or is put together with others.
    """
    error = PayloadError(reason, rule=rule, where="data")
    for channel in open_channels():
        told = Context(UNKNOWN, channel.identity.principal, Kind.DATA, operation)
        note_refusal(channel.audit, told, error)
    return error


def own_partitions(run: Any) -> frozenset[Any]:
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


def is_numbered(partition: Any) -> bool:
    """Tell whether *partition* is a tuple of numbers, as those of arrays are."""
    # True and 1.0 are equal to 1, and are spelt otherwise.
    return isinstance(partition, tuple) and all(
        isinstance(each, Integral) and not isinstance(each, bool) for each in partition
    )

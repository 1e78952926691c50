"""Tables that arrive in a shuffle, divided into the parts of its result that this worker keeps.

The one rule: no part is made that is another's, and all of them together take no more than an array
that may be sent. Dask makes as many parts as a table has numbers, and looks at these afterwards;
each is written with the description of all columns and with all categories (distributed 2026.8.0,
``shuffle/_shuffle.py``): half a megabyte with thirty thousand numbers took twelve gigabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any

from distributed.shuffle import _shuffle

from safeser.dask.joining import held_arrays, most_bytes, names_others, stored
from safeser.dask.partitions import own_partitions, refused_shard, require_own

__all__ = ["divide_little"]

#: The shuffle whose table is divided here.
_RUN: ContextVar[Any] = ContextVar("safeser_divides", default=None)


def divide_little() -> None:
    """Have shuffles of this process divide tables into their own parts; once is enough."""
    divides, takes = _shuffle.split_by_partition, _shuffle.DataFrameShuffleRun._repartition_buffers
    if hasattr(divides, "__wrapped__"):
        return

    @wraps(takes)
    def take(run: Any, data: Any) -> Any:
        token = _RUN.set(run)
        try:
            return takes(run, data)
        finally:
            _RUN.reset(token)

    @wraps(divides)
    def divide(table: Any, column: str, drop: bool) -> Any:
        run = _RUN.get()
        if run is None:  # some table, of no shuffle
            return divides(table, column, drop)
        _require_own(run, table.column(column))
        parts = divides(table, column, drop)
        if _repeated(list(parts.values())) > most_bytes():
            raise refused_shard(
                "shuffle.size", "all parts of a table have its categories, or its long description"
            )
        return parts

    _shuffle.DataFrameShuffleRun._repartition_buffers = take
    _shuffle.split_by_partition = divide


def _require_own(run: Any, column: Any) -> None:
    import pyarrow as pa  # noqa: PLC0415 - only shuffles of frames need it

    found = column.unique() if pa.types.is_integer(column.type) else pa.nulls(1)
    # One more than there are tells: there may be a million.
    require_own(run, ((number,) for number in found[: len(own_partitions(run)) + 1].tolist()))


def _repeated(parts: Sequence[Any]) -> int:
    """Return how many bytes *parts* of one table take for what each of them has whole."""
    total = len(parts) * int(parts[0].schema.serialize().size)
    if names_others(parts[0].schema):
        total += sum(map(_categories, parts))
    return total


def _categories(part: Any) -> int:
    total = 0
    arrays = [stored(chunk) for column in part.columns for chunk in column.chunks]
    while arrays:
        array = arrays.pop()
        if hasattr(array, "dictionary"):
            total += array.dictionary.nbytes
            array = stored(array.dictionary)
        arrays += map(stored, held_arrays(array))
    return total

"""Shards of a shuffle: bytes that Dask's handler opens by itself, as Arrow's stream format.

The one rule: nobody's tables are computed with before their buffers were looked through. Arrow's
reader believes offsets and indices as they come, and what sorts or splits such a table afterwards
reads memory that is not its own: another worker's bytes ended the process (distributed 2026.8.0,
``shuffle/_arrow.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safeser.errors import PayloadError

__all__ = ["check_shards"]


def check_shards(shards: Any, *, where: str) -> None:
    """Refuse *shards* unless each is what a shuffle sends: its number, and a table or arrays.

    A table is whatever Arrow would read as bytes, an array of bytes included. Shards of arrays are
    lists of arrays, each of which was validated as such.

    :raises PayloadError: naming the place.
    """
    for position, shard in enumerate(_items(shards, where)):
        at = f"{where}[{position}]"
        pair = _items(shard, at)
        if len(pair) != 2:
            raise _odd(at)
        if type(pair[1]) not in _LISTS:
            _check_table(pair[1], at)


_LISTS = (list, tuple)


def _items(value: Any, where: str) -> Sequence[Any]:
    # Of other types the handler may take other things for the items than a check does: of a
    # dictionary, it indexes the values and unpacks the keys.
    if type(value) not in _LISTS:
        raise _odd(where)
    items: Sequence[Any] = value
    return items


def _odd(where: str) -> PayloadError:
    return PayloadError("this is no shard of a shuffle", rule="shuffle.shard", where=where)


def _check_table(data: Any, where: str) -> None:
    import pyarrow as pa  # noqa: PLC0415 - only shuffles of frames need it

    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            reader.read_all().validate(full=True)
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        raise PayloadError(
            f"a shard of a shuffle is no sound table ({type(error).__name__})",
            rule="shuffle.table",
            where=where,
        ) from None

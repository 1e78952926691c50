"""Check shards of a shuffle: bytes in Arrow's stream format that Dask's handler opens by itself.

The one rule: the memory that a table takes is known before it is read, and its buffers are
validated before Dask computes with them. Arrow's reader trusts lengths, offsets and indices: thirty
kilobytes from another worker became two gigabytes, and other bytes ended the process (distributed
2026.8.0, ``shuffle/_arrow.py``).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from safeser.errors import PayloadError
from safeser.gate.values import Limits

__all__ = ["check_shards"]


def check_shards(shards: Any, limits: Limits, *, given: int, where: str) -> None:
    """Refuse *shards* unless each is what a shuffle sends: its number, and a table or arrays.

    A table is whatever Arrow would read as bytes, an array of bytes included. Shards of arrays are
    lists of arrays, each of which was validated as such.

    :param given: bytes that they arrived as. Each shard has its own: what names the same ones again
        is copied for each, and an array of one number a billion times over is written out.
    :raises PayloadError: naming the place.
    """
    left, decoded = given, limits.max_array
    for position, shard in enumerate(_items(shards, where)):
        at = f"{where}[{position}]"
        pair = _items(shard, at)
        if len(pair) != 2:
            raise _malformed(at)
        if type(pair[1]) in _LISTS:
            left -= _bytes_below(pair[1], most=left)
        else:
            left -= _size(pair[1])
        if left < 0:
            raise PayloadError(
                "the shards of a shuffle are larger than what arrived",
                rule="shuffle.size",
                where=at,
            )
        if type(pair[1]) not in _LISTS:
            decoded = _check_table(pair[1], limits, at, decoded=decoded)


def _bytes_below(parts: Any, *, most: int) -> int:
    """Return how many bytes arrays in lists hold; where it is more than *most*, perhaps less."""
    total = 0
    pending = [parts]
    while pending and total <= most:
        part = pending.pop()
        if type(part) in _LISTS:
            pending += part
        else:
            total += _size(part)
    return total


def _size(shard: Any) -> int:
    if type(shard) is int:  # of the place that an array has
        return 0
    size = getattr(shard, "nbytes", None)
    if isinstance(size, int):
        # Objects arrive as one byte or more, for which the array has eight.
        kind = getattr(shard, "dtype", None)
        return size - 7 * _objects(kind) * shard.size if getattr(kind, "hasobject", False) else size
    try:
        return memoryview(shard).nbytes
    except TypeError:
        return 0


def _objects(kind: Any) -> int:
    """Return how many objects each element of that *kind* refers to."""
    if kind.subdtype is not None:
        part, shape = kind.subdtype
        return int(math.prod(shape)) * _objects(part)
    if kind.names is not None:
        return sum(_objects(kind.fields[name][0]) for name in kind.names)
    return int(kind.hasobject)


_LISTS = (list, tuple)


def _items(value: Any, where: str) -> Sequence[Any]:
    # Of other types the handler may take other things for the items than a check does: of a
    # dictionary, it indexes the values and unpacks the keys.
    if type(value) not in _LISTS:
        raise _malformed(where)
    items: Sequence[Any] = value
    return items


def _malformed(where: str) -> PayloadError:
    return PayloadError("this is no shard of a shuffle", rule="shuffle.shard", where=where)


def _check_table(data: Any, limits: Limits, where: str, *, decoded: int) -> int:
    """Check one table; return how much of *decoded* its dictionary-encoded columns leave."""
    import pyarrow as pa  # noqa: PLC0415 - only shuffles of frames need it

    from safeser.families.arrow.streams import check_stream  # noqa: PLC0415

    try:
        return check_stream(data, limits, decoded=decoded)
    except PayloadError as error:
        raise _unsound(error.message, where) from None
    except (
        pa.ArrowException,
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        OSError,
        RuntimeError,
        SystemError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        # Arrow's, or of pandas' own code for its extensions.
        raise _unsound(type(error).__name__, where) from None


def _unsound(why: str, where: str) -> PayloadError:
    return PayloadError(
        f"a shard of a shuffle is no sound table ({why})", rule="shuffle.table", where=where
    )

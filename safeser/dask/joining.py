"""Pieces of arrays that a shuffle joins: a grid that fills the array which is made of them.

The one rule: what is joined has one piece for each place, and pieces beside each other are equally
long. Dask takes room for what the first pieces of each row and column say, and writes each piece
into its place as NumPy broadcasts it (distributed 2026.8.0, ``shuffle/_rechunk.py``): a list in the
place of a piece left parts unwritten, which are memory that the worker has used for others, and a
row beside a column, 256 kB in all, took ten gigabytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import wraps
from typing import Any

from distributed.shuffle import _rechunk

from safeser.dask.partitions import is_numbered, refused_shard

__all__ = ["join_in_full"]

_PAIR = (tuple, list)


def join_in_full() -> None:
    """Have shuffles of this process join whole arrays alone; once is enough."""
    joins = _rechunk.convert_chunk
    if hasattr(joins, "__wrapped__"):
        return

    @wraps(joins)
    def join(shards: Iterable[Any]) -> Any:
        pieces = _pieces(shards)
        if pieces is None or not _is_grid(pieces):
            raise refused_shard(
                "shuffle.pieces", "the pieces of a part of a shuffle make up no whole array"
            )
        # What was looked at, and no iterator, which is read once.
        return joins([list(pieces.items())])

    _rechunk.convert_chunk = join


def _pieces(shards: Iterable[Any]) -> dict[tuple[int, ...], Any] | None:
    """Return the pieces of *shards* by their places, the latest one of each, as Dask does."""
    pieces = {}
    for piece in (each for shard in shards for each in shard):
        if type(piece) not in _PAIR or len(piece) != 2 or not is_numbered(piece[0]):
            return None
        pieces[piece[0]] = piece[1]
    return pieces


def _is_grid(pieces: dict[tuple[int, ...], Any]) -> bool:
    lengths: dict[tuple[int, int], int] = {}
    for place, piece in pieces.items():
        # Arrays say by their class how they are joined; what else has a shape may hold anything.
        is_array = hasattr(type(piece), "__array_function__")
        if not place or min(place) < 0 or not is_array or len(piece.shape) != len(place):
            return False
        for axis, (number, length) in enumerate(zip(place, piece.shape, strict=True)):
            if lengths.setdefault((axis, number), length) != length:
                return False
    ends = [max(axis) + 1 for axis in zip(*pieces, strict=False)]
    return len({len(place) for place in pieces}) == 1 and math.prod(ends) == len(pieces)

"""Arrays that a worker joins from the pieces that other workers sent it in a rechunk.

The one rule: every element of the result was sent. Pieces have one place each, make up a grid
without gaps, and those beside each other are equally long.

Dask allocates the result by what the first pieces of each row and column say, and writes each piece
into its place as NumPy broadcasts it (distributed 2026.8.0, ``shuffle/_rechunk.py``; dask 2026.8.0,
``concatenate3``; docs/upstream.md): a list in the place of a piece leaves elements unwritten, which
are memory that the worker has used for other users. All pieces get the type of the first: one
element of a megabyte makes all others as wide, and one message ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import wraps
from typing import Any

from distributed.shuffle import _rechunk

from safeser.dask.partitions import is_numbered, most_bytes, refused_shard

__all__ = ["join_whole_arrays"]

_PAIR = (tuple, list)

#: As much more do numbers take that are joined with longer ones.
_TWICE = 2


def join_whole_arrays() -> None:
    """Have rechunks of this process join whole arrays alone; once is enough."""
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
        if _is_widened(pieces.values()):
            raise refused_shard(
                "shuffle.size", "few pieces have wide elements, which all of the others would get"
            )
        # A list, since an iterator is read once.
        return joins([list(pieces.items())])

    _rechunk.convert_chunk = join


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

"""Blocks of arrays, which other workers computed, joined by Dask's own tasks: all of it written.

The one rule: blocks are joined if they are lists of one depth that are equally long, and what is
made of them is not far larger than they are, where it is larger than an array that may be sent;
other rooms that Dask's tasks take for what blocks hold are empty and not used.

``finalize``, rechunks and overlaps take room for what the first block of each axis says, and write
one block after the other into it (dask 2026.8.0, ``array/core.py``, ``concatenate3``): a list in
the place of the first block left most of that unwritten, which is memory that the worker has used
for others, and a row beside a column took gigabytes. ``vindex`` and ``pad`` write into rooms like
that: of what is masked NumPy writes that it is so, and nothing in its place, and nothing at all of
a block without elements.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from typing import Any

import numpy as np

from safeser.dask.joining import most_bytes
from safeser.dask.partitions import refused_shard

__all__ = ["join_blocks_in_full"]

#: By module, what takes room without writing into it. Only who computes with arrays imports them:
#: they are watched for.
_ROOMS: Mapping[str, tuple[str, ...]] = {
    "dask.array.core": ("_vindex_merge",),
    "dask.array.creation": ("linear_ramp_chunk", "wrapped_pad_func"),
}
_OWN_NUMPY = "_numpy_of_empty_rooms"
_LISTS = (list, tuple)
#: As much more do blocks take that are joined with one of longer numbers.
_LONGER = 16


def join_blocks_in_full() -> None:
    """Have tasks of this process join whole arrays alone; once is enough."""
    for name in _ROOMS:
        if name in sys.modules:
            _guard(sys.modules[name])
    if not any(isinstance(each, _Watch) for each in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


class _Watch(MetaPathFinder):
    """Has the modules guarded once they were imported, by whoever finds them."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname not in _ROOMS:
            return None
        others = [each for each in sys.meta_path if each is not self]
        specs = (each.find_spec(fullname, path, target) for each in others)
        found: Any = next(filter(None, specs))
        runs = found.loader.exec_module

        def run(module: Any) -> None:
            runs(module)
            _guard(module)

        found.loader.exec_module = run
        return found


def _guard(module: Any) -> None:
    for name in _ROOMS[module.__name__]:
        _have_empty_rooms(module, name)
    if hasattr(module, "chunks_from_arrays"):
        _join_grids(module)


class _Emptying:
    """NumPy, for functions that take room: it holds zeros."""

    empty = staticmethod(np.zeros)
    empty_like = staticmethod(np.zeros_like)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _have_empty_rooms(module: Any, name: str) -> None:
    """Have the function of that *name* look up NumPy, in its *module*, by a name of its own.

    Graphs name it, by its module or by itself, so that it has to stay the object that it is, and be
    called as it is called.
    """
    function = getattr(module, name)
    code = function.__code__
    names = (_OWN_NUMPY if each == "np" else each for each in code.co_names)
    setattr(module, _OWN_NUMPY, _Emptying())
    function.__code__ = code.replace(co_names=tuple(names))


def _join_grids(core: Any) -> None:
    # What is called right before room is taken, and named by no graph, as ``concatenate3`` is.
    counts = core.chunks_from_arrays
    if hasattr(counts, "__wrapped__"):
        return

    @wraps(counts)
    def count(arrays: Any) -> Any:
        lengths, first = [], arrays
        while isinstance(first, _LISTS) and first:
            lengths.append(len(first))
            first = first[0]
        if not _is_grid(arrays, lengths):
            raise refused_shard(
                "blocks.grid",
                "the blocks of an array make up no whole one",
                operation="compute-task",
            )
        chunks = counts(arrays)
        taken = math.prod(map(sum, chunks)) * _width(first)
        if taken > most_bytes() and taken > _LONGER * _held(arrays):
            raise refused_shard(
                "blocks.size",
                "few blocks of an array would be written into far more room than they take",
                operation="compute-task",
            )
        return chunks

    core.chunks_from_arrays = count


def _is_grid(blocks: Any, lengths: Sequence[int]) -> bool:
    if not lengths:
        return not isinstance(blocks, _LISTS)
    return (
        isinstance(blocks, _LISTS)
        and len(blocks) == lengths[0]
        and all(_is_grid(part, lengths[1:]) for part in blocks)
    )


def _width(block: Any) -> int:
    """Return how many bytes an element takes of an array that gets the type of *block*."""
    return int(getattr(getattr(block, "dtype", None), "itemsize", 8))


def _held(blocks: Any) -> int:
    return sum(int(getattr(block, "nbytes", 8)) for block in _each(blocks))


def _each(blocks: Any) -> Iterator[Any]:
    if isinstance(blocks, _LISTS):
        for part in blocks:
            yield from _each(part)
    else:
        yield blocks

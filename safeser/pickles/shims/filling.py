"""Blocks that fill the array that Dask makes of them.

The one rule: what joins blocks is handed lists that leave no element of the result unwritten. Dask
takes room for as many blocks as the first lists hold, and whatever none is written to is memory
that others have used.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from safeser.errors import PolicyDenied

__all__ = ["in_full", "nothing_behind_masks", "places_in_full", "without_gaps"]


def in_full(blocks: Any) -> Any:
    """Return *blocks* as lists of one depth that are equally long, of which nothing is an iterator.

    :raises PolicyDenied: if they are not.
    """
    made = _listed(blocks)
    lengths, first = [], made
    while isinstance(first, list) and first:
        lengths.append(len(first))
        first = first[0]
    if not _is_grid(made, lengths):
        raise _refused("blocks that leave a part of the array out")
    return made


def _listed(blocks: Any) -> Any:
    """Return copies, which nobody else can change, and no iterator, which is read once."""
    if isinstance(blocks, list | tuple | Iterator):
        return [_listed(part) for part in blocks]
    return blocks


def _is_grid(blocks: Any, lengths: list[int]) -> bool:
    if not lengths:
        return not isinstance(blocks, list) or not blocks
    return (
        isinstance(blocks, list)
        and len(blocks) == lengths[0]
        and all(_is_grid(part, lengths[1:]) for part in blocks)
    )


def places_in_full(locations: Any, parts: Any) -> tuple[list[list[int]], list[Any]]:
    """Return *locations* and *parts*, if those have one for each part and name each place once.

    :raises PolicyDenied: if they do not.
    """
    places = [[int(place) for place in part] for part in locations]
    made = list(parts)
    named = [place for part in places for place in part]
    if len(places) != len(made) or sorted(named) != list(range(len(named))):
        raise _refused("places that leave a part of the array out")
    return places, made


def without_gaps(made: Any) -> Any:
    """Return *made*, which a function of NumPy's or Dask's has made, if fields fill its elements.

    NumPy writes the fields of an element, and leaves what is between them as it was.

    :raises PolicyDenied: if there is anything between them.
    """
    if isinstance(made, np.ndarray | np.void) and _has_gaps(made.dtype):
        raise _refused("elements with gaps between their fields")
    return made


def _has_gaps(dtype: np.dtype[Any]) -> bool:
    if dtype.subdtype is not None:
        return _has_gaps(dtype.subdtype[0])
    if dtype.names is None:
        return False
    end = 0
    fields: Any = dtype.fields
    for start, field in sorted(
        ((fields[name][1], fields[name][0]) for name in dtype.names), key=operator.itemgetter(0)
    ):
        if start > end or _has_gaps(field):
            return True
        end = max(end, start + field.itemsize)
    return end < dtype.itemsize


def nothing_behind_masks(made: Any) -> Any:
    """Clear what pandas has left where *made*, which it has just made, has no value.

    For a group of missing values it writes no quantile, and sends what was there before.
    """
    columns = [made.iloc[:, at] for at in range(made.shape[1])] if made.ndim == 2 else [made]
    for column in columns:
        array = column.array
        if hasattr(array, "_mask"):
            array._data[array._mask] = 0
    return made


def _refused(what: str) -> PolicyDenied:
    return PolicyDenied(
        f"{what} are none that an approved task may make",
        rule="submission.filling",
        fix="Give as many blocks as the array has, each at a place of its own, and packed types.",
    )

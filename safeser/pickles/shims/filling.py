"""Blocks that fill the array that Dask makes of them, and elements that their fields fill.

The one rule: what joins blocks is handed lists that leave no element of the result unwritten. Dask
takes room for as many blocks as the first lists hold, and whatever none is written to is memory
that others have used. So is what lies between the fields of an element that NumPy copied.
"""

from __future__ import annotations

import operator
import types
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from safeser.errors import PolicyDenied

__all__ = ["in_full", "no_gaps_in", "nothing_behind_masks", "places_in_full", "without_gaps"]

#: What holds nothing else; most of what tasks are given.
_LEAVES = frozenset((type(None), bool, int, float, complex, str, bytes, range, slice, np.dtype))
#: Numbers of ten bytes that take sixteen, or twice as many; the others stay as they were.
_PADDED = "gG" if np.finfo(np.longdouble).nmant == 63 else ""
_MEMBERS = (list, tuple, set, frozenset, deque)


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
    # Of what is masked NumPy writes that it is so, and nothing in its place.
    masked = any(part is np.ma.masked for part in made)
    if masked or len(places) != len(made) or sorted(named) != list(range(len(named))):
        raise _refused("places that leave a part of the array out")
    return places, made


def without_gaps(made: Any) -> Any:
    """Return *made*, which a task has made, if fields fill its elements, or those of its columns.

    NumPy writes the fields of an element, and leaves what is between them as it was. So it does
    with what the processor does not use of a long double.

    :raises PolicyDenied: if there is anything between them.
    """
    manager = getattr(made, "_mgr", None) if _is_of_pandas(made) else None
    for part in (made,) if manager is None else (block.values for block in manager.blocks):
        if isinstance(part, np.ndarray | np.generic) and _has_gaps(part.dtype):
            raise _refused(
                "elements with gaps in them",
                "Pack the fields (numpy.lib.recfunctions.repack_fields), and take long doubles as"
                " float64.",
            )
    return made


def _is_of_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas"


def no_gaps_in(values: Collection[Any]) -> None:
    """Refuse *values* that a task is to be given if fields do not fill elements that they hold.

    Whoever copies such an element leaves the gaps as they were, and whoever asks for its bytes is
    told them. So it is with an array whose mask is hard: NumPy makes room for others like it, and
    leaves what is masked there as it was. Somebody may have scattered it, or computed it with code.

    :raises PolicyDenied: if there is one, however deep in lists, mappings and frames.
    """
    _look_into(values, {})


def _look_into(values: Iterable[Any], seen: dict[int, Any]) -> None:
    if _LEAVES.issuperset(map(type, values)) or _are_rows(values):
        return
    for value in values:
        if type(value) in _LEAVES or id(value) in seen:
            continue
        held = _held(value)
        if held is not None:
            # One list can stand in many places. Kept, so that nothing else gets its address.
            seen[id(value)] = value
            for part in held:
                _look_into(part, seen)


def _are_rows(values: Iterable[Any]) -> bool:
    """Tell at once whether *values* are lists, tuples or dicts of leaves, as those of bags are."""
    (kind, *others) = set(map(type, values))
    if others or kind not in (list, tuple, dict):
        return False
    rows = chain(values, map(dict.values, values)) if kind is dict else values
    return _LEAVES.issuperset(map(type, chain.from_iterable(rows)))


def _held(value: Any) -> list[Any] | None:
    """Return what *value* holds, in lists, if it may hold an element with gaps.

    :raises PolicyDenied: if it is one itself, or an array of them.
    """
    if isinstance(value, np.ndarray | np.generic):
        without_gaps(value)
        if isinstance(value, np.ma.MaskedArray) and value.hardmask:
            raise _refused("arrays with a hard mask", "Call soften_mask() on them first.")
        return [_elements(value)] if value.dtype == object else None
    if isinstance(value, _MEMBERS):
        return [value]
    if isinstance(value, dict | types.MappingProxyType):
        return [value, value.values()]
    if isinstance(value, UserList | UserDict | ChainMap | types.SimpleNamespace):
        return [vars(value).values()]
    return _held_by_pandas(value) if _is_of_pandas(value) else None


def _elements(array: Any) -> list[Any]:
    made: list[Any] = np.ndarray.tolist(array.view(np.ndarray).reshape(-1))
    return made


def _held_by_pandas(value: Any) -> list[Any] | None:
    manager = getattr(value, "_mgr", None)
    if manager is not None:  # a frame or a series
        return [[block.values for block in manager.blocks], manager.axes]
    levels = getattr(value, "levels", None)
    if isinstance(levels, list):  # a group's could be a column
        return [levels]
    dtype: Any = getattr(value, "dtype", None)
    if hasattr(dtype, "categories"):
        return [(dtype.categories,)]
    if isinstance(dtype, np.dtype) and dtype.hasobject:
        return [(value.to_numpy(),)]
    inner = getattr(value, "_ndarray", None)  # of pandas' own arrays
    return [(inner,)] if isinstance(inner, np.ndarray) else None


def _has_gaps(dtype: np.dtype[Any]) -> bool:
    if dtype.subdtype is not None:
        return _has_gaps(dtype.subdtype[0])
    if dtype.names is None:
        return dtype.char in _PADDED
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


_EVERY_PLACE = "Give as many blocks as the array has, each at a place of its own."


def _refused(what: str, fix: str = _EVERY_PLACE) -> PolicyDenied:
    return PolicyDenied(
        f"{what} are none that an approved task may make", rule="submission.filling", fix=fix
    )

"""Reviewed functions for pandas' frames and series.

The one rule: pandas' block managers are never given a peer's state. Blocks are inert records until
their shapes fit the axes and their places cover each column once; then pandas makes the frame.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from safeser.pickles.advice import older
from safeser.pickles.shims.pandas.arrays import draft_of, unique
from safeser.pickles.shims.pandas.indexes import column, held, label
from safeser.pickles.shims.pandas.times import pd
from safeser.pickles.shims.site import Site, bad, begin, plain
from safeser.types import pandas as bounds

__all__ = ["SHIMS"]

_INT63 = 1 << 63
_BY_COLUMN = 6


@dataclass(frozen=True, slots=True)
class _Block:
    """Some columns of a frame that is being rebuilt; inert."""

    values: Any
    places: range | np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The columns of a frame, or the one of a series, and the index; inert."""

    blocks: tuple[_Block, ...]
    labels: Any
    index: Any


def _split(_: Site, name: str) -> Any:
    # Dask's own dict of frames, which overrides nothing but how its size is estimated.
    module, __, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind)()


def _overlapping(_: Site, name: str, parts: Any) -> Any:
    # A tuple by another name, which rolling windows pass on.
    if len(plain(parts, tuple)) != 3 or type(parts[0]) not in (pd.DataFrame, pd.Series):
        raise bad("arguments", "a partition with rows of its neighbours is something else")
    for rows in parts[1:]:
        plain(rows, int, type(None))
    module, __, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind)(parts)


# -- blocks ------------------------------------------------------------------------------------


def _block(site: Site, __: str, values: Any, places: Any, ndim: Any) -> _Block:
    if ndim != 2:
        raise bad("shape", "a block of a frame is somewhere else")
    if type(places) is not slice:
        numbers: np.ndarray[Any, Any] = plain(places, np.ndarray)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise bad("shape", "a block of a frame is somewhere else")
        return _Block(values, numbers.astype(np.int64))
    start, step = places.start, 1 if places.step is None else places.step
    # Backwards, pandas names no end where the first column is the last.
    stop = -1 if places.stop is None and type(step) is int and step < 0 else places.stop
    if any(type(part) is not int or not -_INT63 <= part < _INT63 for part in (start, stop, step)):
        raise bad("shape", "a block of a frame is somewhere else")
    return _Block(values, range(start, stop, step))


def _manager(site: Site, _: str, blocks: Any, axes: Any) -> _Blocks:
    labels, index = plain(axes, list)
    if not isinstance(labels, pd.Index) or not isinstance(index, pd.Index):
        raise bad("shape", "a frame is not held by two indexes")
    site.charge(len(labels))
    bounds.check_columns(len(labels), rows=len(index), limits=site.limits)
    taken, count = np.zeros(len(labels), bool), 0
    for block in plain(blocks, tuple):
        places = plain(block, _Block).places
        _check_shape(block.values, columns=len(places), rows=len(index))
        count += len(places)
        if count > len(labels):
            raise bad("shape", "two blocks of a frame overlap, or one is outside")
        where = np.asarray(places, np.int64)
        if len(where) and (where.min() < 0 or where.max() >= len(labels)):
            raise bad("shape", "two blocks of a frame overlap, or one is outside")
        taken[where] = True
    # As many places as columns, and each taken: none of them twice.
    if count != len(labels) or not taken.all():
        raise bad("shape", "a column of a frame is missing")
    return _Blocks(blocks, labels, index)


def _check_shape(values: Any, *, columns: int, rows: int) -> None:
    if held(values).ndim not in (1, 2) or (type(values) is np.ndarray and values.ndim == 1):
        raise bad("shape", "a column is not an array that pandas keeps")
    shape = values.shape if values.ndim == 2 else (1, len(values))
    # Counted before it is taken apart: columns without rows cost no bytes.
    if shape != (columns, rows):
        raise bad("shape", "a block of a frame has another shape than its axes")


def _single(_: Site, __: Any, state: Any) -> _Blocks:
    axes, values, items, rest = plain(state, tuple)
    inner = _exactly(_exactly(rest, "0.14.1")["0.14.1"], "axes", "blocks")
    (index,), (block,) = plain(inner["axes"], list), plain(inner["blocks"], list)
    only = _exactly(block, "values", "mgr_locs")["values"]
    (outside,), (beside,), (labels,) = (plain(part, list) for part in (axes, values, items))
    if not isinstance(index, pd.Index) or len(column(only)) != len(index):
        raise bad("shape", "a series has another length than its index")
    # pandas reads the inner ones only, and writes the same objects around it, labels as a slice.
    same = outside is index and beside is only and type(labels) is type(index)
    if not same or len(labels) != len(index):
        raise bad("state", "a series is held in two different ways")
    # Places that are not all of a series, as pandas spells them, are refused.
    places = block["mgr_locs"]
    count = len(index)
    if count:
        whole = plain(places, slice)
        sound = [plain(at, int) for at in (whole.start, whole.stop, whole.step)] == [0, count, 1]
    else:
        # pandas takes a slice of nothing for an array of nothing.
        sound = plain(places, np.ndarray).dtype == np.int64 and places.shape == (0,)
    if not sound:
        raise bad("shape", "a series is somewhere else")
    return _Blocks((_Block(only, range(1)),), None, index)


def _exactly(fields: Any, *names: str) -> dict[str, Any]:
    if set(plain(fields, dict)) != set(names):
        raise bad("state", "a series has other fields than it must have")
    return fields  # type: ignore[no-any-return]  # plain() proved it a dict


# -- frames and series -------------------------------------------------------------------------


def _frame(site: Site, draft: Any, state: Any) -> Any:
    kind, fields = draft_of(draft), dict(plain(state, dict))
    if "_data" in fields:
        raise bad("version", "a pandas before 1.1 wrote this", fix=older("pandas.tslib:Timestamp"))
    parts = plain(fields.pop("_mgr"), _Blocks)
    named = [field for field in ("_name", "name") if field in fields]
    if len(named) > (kind == "Series"):
        # pandas would set both, one after the other.
        raise bad("state", "a frame has a name, or a series two")
    name = label(site, fields.pop(named[0])) if named else None
    attributes, flags = plain(fields.pop("attrs", {}), dict), fields.pop("_flags", None)
    # pandas before 2 called the name so as well where it is stored.
    stored = [["_name"], ["name"]] if kind == "Series" else [[]]
    about: dict[str, list[Any]] = {"_typ": [kind.lower()], "_metadata": stored}
    if any(value not in about.get(field, ()) for field, value in fields.items()):
        raise bad("state", "a frame has no such field")
    if (kind == "Series") is not (parts.labels is None):
        raise bad("shape", "a frame is held like a series, or a series like a frame")
    if kind == "Series":
        values = parts.blocks[0].values
        made = pd.Series(values, index=parts.index, dtype=values.dtype, name=name, copy=False)
    else:
        made = _assembled(site, parts)
    made.attrs = attributes
    if flags is None:
        return made
    ((only, allowed),) = plain(flags, dict).items()
    if only != "allows_duplicate_labels":
        raise bad("state", "a frame has no such flag")
    if not plain(allowed, bool):
        for axis in made.axes:
            unique(site, axis)
        made.flags.allows_duplicate_labels = False
    return made


def _assembled(site: Site, parts: _Blocks) -> Any:
    together = getattr(getattr(pd.api, "internals", None), "create_dataframe_from_blocks", None)
    if together is None:
        # Some 80 us for each, whether or not a row bears them out.
        site.charge(len(parts.labels) << _BY_COLUMN)
        return _by_columns(parts)
    # It trusts all that was checked above: shapes, types, and places that cover each column once.
    blocks = [(_wide(block.values), np.asarray(block.places, np.intp)) for block in parts.blocks]
    return together(blocks, index=parts.index, columns=parts.labels)


def _wide(values: Any) -> Any:
    times = pd.arrays.DatetimeArray | pd.arrays.TimedeltaArray | pd.arrays.PeriodArray
    return values.reshape(1, -1) if values.ndim == 1 and isinstance(values, times) else values


def _by_columns(parts: _Blocks) -> Any:
    """Make a frame column by column where pandas has no API for blocks yet."""
    columns: dict[int, Any] = {}
    for block in parts.blocks:
        values = list(block.values) if block.values.ndim == 2 else [block.values]
        for place, part in zip(block.places, values, strict=True):
            columns[int(place)] = pd.Series(part, index=parts.index, dtype=part.dtype, copy=False)
    made = pd.DataFrame(dict(sorted(columns.items())), index=parts.index, copy=False)
    made.columns = parts.labels
    return made


SHIMS: dict[str, Callable[..., Any]] = {
    "block": _block,
    "empty": begin,
    "frame": _frame,
    "manager": _manager,
    "overlapping": _overlapping,
    "single": _single,
    "split": _split,
}

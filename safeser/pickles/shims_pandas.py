"""Reviewed functions for pandas frames, series and indexes, and the Arrow strings inside them.

The one rule: pandas' block managers and Arrow's raw arrays are never given a peer's state. Blocks
are taken apart into columns, each checked, and the public constructors make the frame anew; Arrow
validates every offset and every character before anybody reads one.
"""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from safeser.pickles.nodes import GlobalRef
from safeser.pickles.shims import Draft, Site, bad, plain, settled

__all__ = ["SHIMS"]

#: Untyped on purpose: pandas and Arrow are extras.
pd: Any = importlib.import_module("pandas")
pa: Any = importlib.import_module("pyarrow")

_STRINGS = {"string": pa.string(), "large_string": pa.large_string()}
_KINDS = "biufcmMO"
_INT63 = 1 << 63
# pandas takes some 80 us and 2 KB for a column, and one without rows under a numbered label costs
# its sender nothing.
_COLUMNS_FREE = 256
# pandas numbers its resolutions like this.
_UNITS = {7: "s", 8: "ms", 9: "us", 10: "ns"}


@dataclass(frozen=True, slots=True)
class _Block:
    """Some columns of a frame that is being rebuilt; inert."""

    values: Any
    places: range


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The columns of a frame, or the one of a series, and the index; inert."""

    columns: tuple[Any, ...]
    labels: Any
    index: Any


# -- Arrow strings -----------------------------------------------------------------------------


def _arrow_type(_: Site, __: str, alias: Any) -> Any:
    if plain(alias, str) not in _STRINGS:
        raise bad("arrow", "only Arrow arrays of text are accepted")
    return _STRINGS[alias]


def _arrow_buffer(site: Site, _: str, content: Any) -> Any:
    return pa.py_buffer(bytes(settled(site, content)))


def _arrow_array(site: Site, _: str, parts: Any) -> Any:
    kind, length, _nulls, offset, buffers, children, dictionary = plain(parts, tuple)
    if kind not in _STRINGS.values() or children != [] or dictionary is not None:
        raise bad("arrow", "only Arrow arrays of text are accepted")
    if not (0 <= plain(length, int) < _INT63 and 0 <= plain(offset, int) < _INT63):
        raise bad("arrow", "an Arrow array has an impossible size")
    for buffer in plain(buffers, list):
        plain(buffer, pa.Buffer, type(None))
        # The text is looked at, and the same bytes may be handed over again and again.
        site.charge_bytes(0 if buffer is None else buffer.size)
    made = pa.Array.from_buffers(kind, length, buffers, -1, offset)
    made.validate(full=True)
    return made


def _string_dtype(_: Site, __: str, storage: Any, missing: Any = pd.NA) -> Any:
    if storage not in ("pyarrow", "python") or not (missing is pd.NA or missing != missing):  # noqa: PLR0124 - only NaN is unlike itself
        raise bad("arguments", "a StringDtype is not one of pandas'")
    return pd.StringDtype(storage, np.nan if missing is not pd.NA else pd.NA)


def _empty(_: Site, name: str) -> Draft:
    return Draft(name)


def _string_array(_: Site, __: Any, state: Any) -> Any:
    fields = plain(state, dict)
    content, dtype = fields["_pa_array"], plain(fields["_dtype"], pd.StringDtype)
    if not isinstance(content, pa.Array) or content.type not in _STRINGS.values():
        raise bad("arrow", "an array of strings holds something else")
    return pd.arrays.ArrowStringArray(content, dtype=dtype)


# -- indexes and times -------------------------------------------------------------------------


def _label(site: Site, value: Any) -> Any:
    site.check_hashable(value)
    return value


def _index(site: Site, _: str, kind: Any, fields: Any) -> Any:
    given = dict(plain(fields, dict))
    name = _label(site, given.pop("name", None))
    if plain(kind, GlobalRef).qualname == "RangeIndex":
        start, stop, step = (plain(given.pop(part), int) for part in ("start", "stop", "step"))
        made = pd.RangeIndex(start, stop, step, name=name)
    else:
        content = _column(given.pop("data"))
        for item in content if content.dtype == object else ():
            _label(site, item)
        made = pd.Index(content, dtype=content.dtype, name=name)
    if given or len(made) > site.limits.max_array:
        raise bad("state", "an index has no such field")
    return made


def _ndarray_backed(_: Site, __: str, kind: Any, ___: Any, state: Any) -> Draft:
    if type(kind) is not GlobalRef or state is not None:
        raise bad("arguments", "a datetime array is begun in another way than pandas does")
    return Draft("times")


def _times_state(_: Site, draft: Any, state: Any) -> Any:
    # A third part keeps the frequency, which is worked out anew where it is asked for.
    dtype, values, *rest = plain(state, tuple)
    if len(rest) > 1:
        raise bad("state", "a datetime array has no such field")
    if plain(values, np.ndarray).dtype != dtype or values.dtype.kind not in "mM":
        raise bad("arguments", "a datetime array holds something else")
    return values if values.ndim == 2 and type(draft) is Draft else pd.array(values)


def _timestamp(_: Site, __: str, value: Any, ___: Any, zone: Any, unit: Any = 10) -> Any:
    moment: Any = np.datetime64
    made = pd.Timestamp(moment(plain(value, int), _UNITS[plain(unit, int)]))
    if zone is None:
        return made
    return made.tz_localize("UTC").tz_convert(plain(zone, datetime.timezone))


def _nat(_: Site, __: str, *args: Any) -> Any:
    if args not in ((), (None,)):
        raise bad("arguments", "NaT takes no arguments")
    return pd.NaT


# -- frames ------------------------------------------------------------------------------------


def _column(values: Any) -> Any:
    """Return *values* if they can be one column: one dimension of an accepted type."""
    if isinstance(values, pd.arrays.ArrowStringArray | pd.arrays.DatetimeArray):
        return values
    if plain(values, np.ndarray).ndim != 1 or values.dtype.kind not in _KINDS:
        raise bad("shape", "a column is not an array that pandas keeps")
    return values


def _block(_: Site, __: str, values: Any, places: Any, ndim: Any) -> _Block:
    bounds = plain(places, slice)
    parts = (bounds.start, bounds.stop, 1 if bounds.step is None else bounds.step)
    if ndim != 2 or any(type(part) is not int or not 0 <= part < _INT63 for part in parts):
        raise bad("shape", "a block of a frame is somewhere else")
    return _Block(values, range(*parts))


def _manager(site: Site, _: str, blocks: Any, axes: Any) -> _Blocks:
    labels, index = plain(axes, list)
    if not isinstance(labels, pd.Index) or not isinstance(index, pd.Index):
        raise bad("shape", "a frame is not held by two indexes")
    site.charge(len(labels))
    if len(labels) > _COLUMNS_FREE + site.given:
        raise bad("max-refs", "a frame has more columns than its pickle has bytes")
    columns: list[Any] = [None] * len(labels)
    for block in plain(blocks, tuple):
        if len(plain(block, _Block).places) > len(columns):
            raise bad("shape", "two blocks of a frame overlap, or one is outside")
        parts = _split(block, rows=len(index))
        for place, part in zip(block.places, parts, strict=True):
            if place >= len(columns) or columns[place] is not None:
                raise bad("shape", "two blocks of a frame overlap, or one is outside")
            columns[place] = part
    if any(column is None for column in columns):
        raise bad("shape", "a column of a frame is missing")
    return _Blocks(tuple(columns), labels, index)


def _split(block: _Block, *, rows: int) -> list[Any]:
    values = block.values
    wide = isinstance(values, np.ndarray) and values.ndim == 2
    # Counted before it is taken apart: columns without rows cost no bytes.
    if (len(values) if wide else 1) != len(block.places):
        raise bad("shape", "a block has not as many columns as it says")
    parts = list(values) if wide else [values]
    if any(len(_column(part)) != rows for part in parts):
        raise bad("shape", "a column of a frame has another length than its index")
    return parts


def _single(site: Site, __: Any, state: Any) -> _Blocks:
    axes, values, _items, _rest = plain(state, tuple)
    (index,), (column,) = plain(axes, list), plain(values, list)
    if not isinstance(index, pd.Index) or len(_column(column)) != len(index):
        raise bad("shape", "a series has another length than its index")
    return _Blocks((column,), None, index)


def _frame(site: Site, draft: Any, state: Any) -> Any:
    fields = plain(state, dict)
    held = plain(fields["_mgr"], _Blocks)
    if fields.get("attrs") or fields.get("_flags") not in (None, {"allows_duplicate_labels": True}):
        raise bad("state", "attributes and flags of a frame are not accepted")
    series = [
        pd.Series(column, index=held.index, dtype=column.dtype, copy=False)
        for column in held.columns
    ]
    if draft.kind == "pandas:Series":
        (only,) = series
        only.name = _label(site, fields.get("_name"))
        return only
    made = pd.DataFrame(dict(enumerate(series)), index=held.index, copy=False)
    made.columns = held.labels
    return made


SHIMS: dict[str, Callable[..., Any]] = {
    "arrow_array": _arrow_array,
    "arrow_buffer": _arrow_buffer,
    "arrow_type": _arrow_type,
    "block": _block,
    "empty": _empty,
    "frame": _frame,
    "index": _index,
    "manager": _manager,
    "nat": _nat,
    "single": _single,
    "string_array": _string_array,
    "string_dtype": _string_dtype,
    "times": _ndarray_backed,
    "times_state": _times_state,
    "timestamp": _timestamp,
}

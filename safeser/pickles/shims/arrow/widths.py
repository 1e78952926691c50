"""Compute the bytes that each element of an Arrow array takes once it is expanded.

The one rule: an element that is referred to several times counts each time, at every depth, and the
size is computed without expanding anything. The array has passed full validation before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeser.pickles.shims.arrow.types import pa

__all__ = ["widths_of"]

_is: Any = pa.types
_Widths = np.ndarray[Any, np.dtype[np.float64]]

#: Of texts, how long each of their offsets is.
_OFFSETS = {
    **dict.fromkeys((pa.lib.Type_STRING, pa.lib.Type_BINARY), np.int32),
    **dict.fromkeys((pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY), np.int64),
}
_VIEWS = (pa.lib.Type_STRING_VIEW, pa.lib.Type_BINARY_VIEW)


def widths_of(array: Any) -> _Widths:
    """Return a number for each element; as fractions, since a product of lengths may be any."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return widths_of(array.storage)
    if not len(array):
        return np.zeros(0)
    if kind.id in _OFFSETS:
        offsets = np.frombuffer(array.buffers()[1], _OFFSETS[kind.id])
        return np.diff(offsets[array.offset :][: len(array) + 1]).astype(np.float64)
    if kind.id in _VIEWS:
        sizes = np.frombuffer(array.buffers()[1], np.int32)[::4]
        return sizes[array.offset :][: len(array)].astype(np.float64)
    if _is.is_dictionary(kind):
        # What is missing is written as nothing.
        widths = np.append(widths_of(array.dictionary), 0.0)
        places = array.indices.cast(pa.int64()).fill_null(len(array.dictionary))
        return widths[places.to_numpy()]  # type: ignore[no-any-return]
    return _nested(array) if kind.num_fields else np.full(len(array), _width(kind))


def _width(kind: Any) -> float:
    if _is.is_null(kind) or _is.is_struct(kind):  # of no fields
        return 1.0
    return max(1.0, int(kind.bit_width) / 8)


def _nested(array: Any) -> _Widths:
    kind = array.type
    if _is.is_map(kind) or _is.is_list(kind) or _is.is_large_list(kind):
        parts = [array.keys, array.items] if _is.is_map(kind) else [array.values]
        return np.diff(_before(_together(parts))[array.offsets.to_numpy()])
    if _is.is_list_view(kind) or _is.is_large_list_view(kind):
        before, starts = _before(widths_of(array.values)), array.offsets.to_numpy()
        ends: _Widths = before[starts + array.sizes.to_numpy()]
        return ends - before[starts]  # type: ignore[no-any-return]
    if _is.is_fixed_size_list(kind):
        size = kind.list_size
        held = widths_of(array.values)[array.offset * size :][: len(array) * size]
        return held.reshape(len(array), size).sum(axis=1)  # type: ignore[no-any-return]
    runs = _is.is_run_end_encoded(kind)
    parts = [array.values] if runs else [array.field(at) for at in range(kind.num_fields)]
    if _is.is_struct(kind):
        return _together(parts)
    # Of runs and unions, none takes more than all.
    return np.full(len(array), sum(float(widths_of(part).sum()) for part in parts))


def _together(parts: list[Any]) -> _Widths:
    return np.sum([widths_of(part) for part in parts], axis=0)  # type: ignore[no-any-return]


def _before(widths: _Widths) -> _Widths:
    """Return what all elements before each take, and last what all of them do."""
    return np.concatenate([[0.0], np.cumsum(widths)])

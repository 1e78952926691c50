"""Reviewed functions for Arrow's arrays, chunked arrays, tables and scalars.

The one rule: whatever Arrow trusts is checked before Arrow receives it (types of children, numbers
of buffers, lengths without bytes behind them), and no element is read before Arrow's own full
validation of offsets, indexes, views and characters has passed.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.pickles.shims.arrow.types import pa, sound_type, width_of
from safeser.pickles.shims.arrow.widths import widths_of
from safeser.pickles.shims.site import Site, plain
from safeser.types import refused
from safeser.types.arrow import (
    check_whole,
    chunked,
    dictionary_of,
    empty_of,
    holds,
    holds_union,
    parts_of,
)

__all__ = ["SHIMS"]

_is: Any = pa.types

# Arrow adds the two, in 64 bits.
_MAX_LENGTH = 1 << 61
_UNCOUNTED = 3
_SCALARS = (type(None), bool, int, float, str, bytes, decimal.Decimal, uuid.UUID, np.float16)
# pandas' own stand for nanoseconds.
_TIMES = (datetime.date, datetime.time, datetime.timedelta)


# -- arrays ------------------------------------------------------------------------------------


def _array(site: Site, _: str, parts: Any) -> Any:
    made = _restored(site, parts)
    made.validate(full=True)
    _check_views(site, made)
    return made


def _restored(site: Site, parts: Any) -> Any:
    """Return one array whose buffers are large enough; its values were not looked at yet."""
    kind, length, nulls, offset, buffers, children, dictionary = plain(parts, tuple)
    for size in (length, offset):
        if not 0 <= plain(size, int) < _MAX_LENGTH:
            raise refused("arrow", "an Arrow array has an impossible size")
    plain(buffers, list), plain(children, list)
    if length and holds_union(sound_type(kind)):
        buffers = _without_bitmap(site, buffers, offset, length)
    whole = _whole(site, sound_type(kind), offset + length, buffers, children, dictionary)
    if offset:
        # Arrow validates none of what lies before the offset, and yet reads it to count bytes.
        whole.validate(full=True)
        whole = whole.slice(offset, length)
    # Arrow writes -1 where it has not counted them.
    if plain(nulls, int) not in (-1, whole.null_count):
        raise refused("arrow", "the null count of an Arrow array is wrong")
    return whole


def _without_bitmap(site: Site, buffers: list[Any], offset: int, length: int) -> list[Any]:
    """Return the *buffers* of a structure, none of whose elements is missing, without a bitmap."""
    if len(buffers) != 1 or buffers[0] is None:
        return buffers
    bitmap = plain(buffers[0], pa.Buffer)
    site.charge_bytes(bitmap.size)
    flags = pa.Array.from_buffers(pa.bool_(), offset + length, [None, bitmap])
    flags.validate(full=True)
    check_whole(flags.slice(offset, length).true_count < length)
    return [None]


def _whole(  # noqa: PLR0917 - what an array consists of
    site: Site, kind: Any, length: int, buffers: list[Any], children: list[Any], dictionary: Any
) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        storage = _whole(site, kind.storage_type, length, buffers, children, dictionary)
        return pa.ExtensionArray.from_storage(kind, storage)
    if _is.is_dictionary(kind):
        indexes = _flat(site, kind.index_type, length, buffers, children)
        values = _restored(site, dictionary)
        _check_type(values, kind.value_type)
        return dictionary_of(indexes, values, ordered=kind.ordered)
    if dictionary is not None:
        raise refused("arrow", "an Arrow array that is no dictionary has one")
    return _flat(site, kind, length, buffers, children)


def _flat(site: Site, kind: Any, length: int, buffers: list[Any], children: list[Any]) -> Any:
    below = [_restored(site, child) for child in children]
    if not length:
        # Arrow looks at no offset of an empty array when it validates, and follows the first one
        # when it joins or flattens. Of its parts it only wants that they are some.
        for buffer in buffers:
            plain(buffer, pa.Buffer, type(None))
        return empty_of(kind)
    expected = parts_of(kind)
    if len(below) != len(expected):
        raise refused("arrow", "an Arrow array has another number of children than its type")
    for child, part in zip(below, expected, strict=True):
        # Arrow asserts it, and a failed assertion ends the process.
        _check_type(child, part)
    _check_children(kind, length, below, children)
    for buffer in buffers:
        plain(buffer, type(None), pa.Buffer)
    if _is.is_run_end_encoded(kind):
        # Arrow's own nulls() gives runs a bitmap, at which its validation stops.
        buffers = [None]
    _check_backed(site, kind, length, buffers)
    if buffers and buffers[0] is not None and _is_view(kind):
        # Arrow validates no view of a null, and follows it when it casts.
        bare = pa.Array.from_buffers(kind, length, [None, *buffers[1:]], -1, 0, below)
        bare.validate(full=True)
    return pa.Array.from_buffers(kind, length, buffers, -1, 0, below)


def _is_view(kind: Any) -> bool:
    texts = _is.is_string_view(kind) or _is.is_binary_view(kind)
    return bool(texts or _is.is_list_view(kind) or _is.is_large_list_view(kind))


def _check_type(array: Any, expected: Any) -> None:
    if not array.type.equals(expected):
        raise refused("arrow", "a part of an Arrow array is of another type than declared")


def _check_children(kind: Any, length: int, below: list[Any], children: list[Any]) -> None:
    """Refuse children that are too short for *length* elements, or that no map may have.

    Arrow asserts the one when it makes a map and the other when it shows a list of fixed size.
    """
    each = kind.list_size if _is.is_fixed_size_list(kind) else 1
    aligned = _is.is_fixed_size_list(kind) or _is.is_struct(kind) or _is.is_union(kind)
    aligned = aligned and getattr(kind, "mode", "sparse") == "sparse"
    if aligned and any(len(child) < length * each for child in below):
        raise refused("arrow", "a part of an Arrow array is shorter than the array")
    if _is.is_map(kind):
        (pairs,), (state,) = below, children
        if (
            state[3]
            or pairs.null_count
            or pairs.field(0).null_count
            or len(pairs) != state[5][0][1]
        ):
            raise refused("arrow", "the keys of a map are missing, or are not where they must be")


def _check_backed(site: Site, kind: Any, length: int, buffers: list[Any]) -> None:
    """Refuse elements without bytes: a null pointer, or 2**60 rows in sixty bytes."""
    without = (
        _is.is_null(kind)
        or _is.is_run_end_encoded(kind)
        or (_is.is_struct(kind) and not kind.num_fields)
        or (_is.is_fixed_size_list(kind) and not kind.list_size)
        or (_is.is_fixed_size_binary(kind) and not kind.byte_width)
    )
    if without:
        site.charge(length >> _UNCOUNTED)
    elif any(buffer is None for buffer in buffers[1:]):
        raise refused("arrow", "an Arrow array has elements and no buffer for them")
    if buffers and buffers[0] is not None and (_is.is_null(kind) or _is.is_union(kind)):
        raise refused("arrow", "an Arrow array has a validity bitmap that its type cannot have")


def _check_views(site: Site, made: Any) -> None:
    """Charge for elements that several views share: ten bytes may refer to one megabyte."""
    pending = [made]
    while pending:
        part = pending.pop()
        kind = part.type
        if isinstance(kind, pa.BaseExtensionType):
            pending.append(part.storage)
        elif _is.is_dictionary(kind):
            pending.append(part.dictionary)
        elif _is.is_list_view(kind) or _is.is_large_list_view(kind):
            sizes = np.asarray(part.sizes)
            site.charge(max(0, int(sizes.sum()) - len(part.values)))
            # One wide element may be named by each view, and pandas has each view written out.
            written, held = widths_of(part).sum(), widths_of(part.values).sum()
            site.charge_bytes(math.ceil(max(0.0, written - held)))
            pending.append(part.values)
        elif _is.is_string_view(kind) or _is.is_binary_view(kind):
            buffers = part.buffers()
            sizes = np.frombuffer(buffers[1] or b"", np.int32)[::4]
            used = sizes[part.offset : part.offset + len(part)]
            held = sum(buffer.size for buffer in buffers[1:] if buffer is not None)
            site.charge_bytes(max(0, int(used.sum(dtype=np.int64)) - held))
        elif _is.is_run_end_encoded(kind):
            _check_runs(site, part)
            pending.append(part.values)
        elif _is.is_map(kind):
            pending += [part.keys, part.items]
        elif _is.is_struct(kind) or _is.is_union(kind):
            pending += [part.field(at) for at in range(kind.num_fields)]
        elif kind.num_fields:
            pending.append(part.values)


def _check_runs(site: Site, part: Any) -> None:
    """Refuse runs of too many elements: a conversion writes out each element by itself.

    Of numbers there are no more than is charged for as elements without bytes of their own.
    """
    kind = part.values.type
    if _is.is_fixed_size_binary(kind):
        sizes = np.full(len(part.values), kind.byte_width)
    elif _is.is_string(kind) or _is.is_binary(kind):
        sizes = np.diff(np.frombuffer(part.values.buffers()[1], np.int32))
    elif _is.is_large_string(kind) or _is.is_large_binary(kind):
        sizes = np.diff(np.frombuffer(part.values.buffers()[1], np.int64))
    elif kind.num_fields:
        sizes = np.full(len(part.values), part.values.nbytes)  # none takes more than all
    else:
        return
    sizes = sizes[part.values.offset : part.values.offset + len(part.values)]
    # A slice shows parts of its first and last run.
    ends = np.clip(np.asarray(part.run_ends).astype(np.int64) - part.offset, 0, len(part))
    site.check_standing(float((np.diff(ends, prepend=0) * sizes.astype(np.float64)).sum()))


# -- several arrays ----------------------------------------------------------------------------


def _chunked(site: Site, _: str, chunks: Any, kind: Any = None) -> Any:
    for chunk in plain(chunks, list):
        if not isinstance(chunk, pa.Array):
            raise refused("arrow", "a chunk is not an Arrow array")
        _check_type(chunk, sound_type(kind))
    return chunked(chunks, sound_type(kind))


def _columns(site: Site, columns: Any, schema: Any, kind: Any) -> list[Any]:
    if len(plain(columns, list)) != len(plain(schema, pa.Schema)):
        raise refused("arrow", "an Arrow table has another number of columns than its schema")
    for column, field in zip(columns, schema, strict=True):
        if not isinstance(column, kind):
            raise refused("arrow", "a column of an Arrow table is no chunked array")
        # Arrow would cast what is of another type.
        _check_type(column, field.type)
        if len(column) != len(columns[0]):
            raise refused("arrow", "the columns of an Arrow table have several lengths")
    return columns  # type: ignore[no-any-return]  # plain() proved it a list


def _table(site: Site, _: str, columns: Any, schema: Any) -> Any:
    kinds = (pa.ChunkedArray, pa.Array)
    made = pa.Table.from_arrays(_columns(site, columns, schema, kinds), schema=schema)
    made.validate()
    return made


def _batch(site: Site, _: str, columns: Any, schema: Any) -> Any:
    made = pa.RecordBatch.from_arrays(_columns(site, columns, schema, pa.Array), schema=schema)
    made.validate()
    return made


# -- scalars -----------------------------------------------------------------------------------


def _names_twice(kind: Any) -> bool:
    if not _is.is_struct(kind):
        return False
    names = [kind.field(at).name for at in range(kind.num_fields)]
    return len({*names}) < len(names)


def _scalar(site: Site, _: str, value: Any, kind: Any) -> Any:
    """Convert *value*, which is plain throughout: Arrow asks other objects for methods."""
    width = width_of(site, sound_type(kind))
    if holds(_names_twice, kind):  # Arrow makes such, and cannot read it
        raise refused("arrow", "a structure names two of its fields alike")
    pending, count = [value], 0
    while pending:
        part = pending.pop()
        count += 1
        if type(part) in (list, tuple):
            pending.extend(part)
        elif type(part) is dict:
            pending.extend(part)
            pending.extend(part.values())
        elif type(part) not in _SCALARS and not isinstance(part, _TIMES):
            raise refused("arrow", "the value of an Arrow scalar is not a plain one")
    # Each null takes the whole width of its type.
    site.charge_bytes(count * width)
    return pa.scalar(value, kind)


def _dictionary_scalar(site: Site, _: str, kind: Any, valid: Any, index: Any, values: Any) -> Any:
    if not _is.is_dictionary(sound_type(kind)) or not isinstance(index, pa.Scalar):
        raise refused("arrow", "the value of a dictionary scalar is something else")
    if not isinstance(values, pa.Array):
        raise refused("arrow", "the value of a dictionary scalar is something else")
    _check_type(values, kind.value_type)
    _check_type(index, kind.index_type)
    if index.is_valid is not plain(valid, bool):
        raise refused("arrow", "the value of a dictionary scalar is not the one at its index")
    indexes = pa.array([index.as_py()], kind.index_type)
    return dictionary_of(indexes, values, ordered=kind.ordered)[0]


SHIMS: dict[str, Callable[..., Any]] = {
    "array": _array,
    "batch": _batch,
    "chunked": _chunked,
    "dictionary_scalar": _dictionary_scalar,
    "scalar": _scalar,
    "table": _table,
}

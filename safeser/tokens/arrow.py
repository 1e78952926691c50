"""Canonical forms of Arrow's arrays and tables.

The one rule: values decide. Chunks, offsets, and what lies in memory under a null do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from safeser.tokens.graph import Form, Undetermined
from safeser.tokens.kinds import register
from safeser.tokens.reduction import describe_reduced

__all__: list[str] = []

_types = pa.types


def _consolidated(array: Any) -> Any:
    """Return a chunked array as one array."""
    chunks = array.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else None


def _describe_chunked(array: Any) -> Form:
    return Form(b"ChunkedArray", [array.type, _consolidated(array)], steps=("type", "values"))


def _describe_table(table: Any) -> Form:
    columns = [_chunked(each) for each in table.columns]
    return Form(b"Table" + type(table).__name__.encode(), [table.schema, columns])


def _chunked(column: Any) -> Any:
    return _consolidated(column) if isinstance(column, pa.ChunkedArray) else column


def _describe_array(array: Any) -> Form:
    bitmap = array.buffers()[0] if array.null_count else None
    valid = _bits(bitmap, array.offset, len(array)) if bitmap else None
    values = _layout(array.type)(array, valid)
    return Form(b"Array", [array.type, len(array), valid, *values])


def _layout(kind: Any) -> Callable[[Any, Any], list[Any]]:
    for test, layout in _LAYOUTS:
        if test(kind):
            return layout
    raise Undetermined(f"has a layout that is not known ({str(kind)[:40]})")


def _bits(buffer: Any, offset: int, length: int) -> Any:
    start = offset // 8
    bits = np.frombuffer(buffer, np.uint8)[start : (offset + length + 7) // 8]
    return np.unpackbits(bits, bitorder="little")[offset - start * 8 :][:length].view(bool)


def _booleans(array: Any, valid: Any) -> list[Any]:
    if not len(array):
        return []
    bits = _bits(array.buffers()[1], array.offset, len(array))
    return [bits if valid is None else bits & valid]


def _fixed(array: Any, valid: Any) -> list[Any]:
    width = array.type.bit_width // 8
    if not len(array) or not width:
        return []
    rows = np.frombuffer(array.buffers()[1], np.uint8)
    rows = rows[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)
    return [rows if valid is None else np.where(valid[:, None], rows, 0)]


def _offsets(array: Any, wide: bool) -> Any:
    kind = np.dtype(np.int64 if wide else np.int32)
    if not len(array):
        return np.zeros(1, kind)
    raw = np.frombuffer(array.buffers()[1], np.uint8)
    size = kind.itemsize
    return raw[array.offset * size : (array.offset + len(array) + 1) * size].view(kind)


def _variable(array: Any, valid: Any) -> list[Any]:
    wide = _types.is_large_string(array.type) or _types.is_large_binary(array.type)
    offsets = _offsets(array, wide)
    data = array.buffers()[2]
    flat = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    flat = flat[offsets[0] : offsets[-1]]
    if valid is not None and lengths[~valid].any():  # text that a null hides
        flat = flat[np.repeat(valid, lengths)]
        lengths = np.where(valid, lengths, 0)
    return [lengths.astype(np.int64), flat]


def _list(array: Any, valid: Any) -> list[Any]:
    wide = _types.is_large_list(array.type)
    lengths = np.diff(_offsets(array, wide)).astype(np.int64)
    if valid is not None:
        lengths = np.where(valid, lengths, 0)
    return [lengths, array.flatten()]  # without what a null hides


def _map(array: Any, valid: Any) -> list[Any]:
    lengths = np.diff(_offsets(array, False)).astype(np.int64)
    if valid is not None and lengths[~valid].any():
        raise Undetermined("hides entries under a null")
    first, last = int(array.offsets[0].as_py()), int(array.offsets[-1].as_py())
    size = last - first
    return [lengths, array.keys.slice(first, size), array.items.slice(first, size)]


def _is_fixed(kind: Any) -> bool:
    return bool(
        _types.is_primitive(kind) or _types.is_decimal(kind) or _types.is_fixed_size_binary(kind)
    )


def _is_variable(kind: Any) -> bool:
    return bool(
        _types.is_string(kind)
        or _types.is_binary(kind)
        or _types.is_large_string(kind)
        or _types.is_large_binary(kind)
    )


_LAYOUTS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], list[Any]]], ...] = (
    (lambda kind: isinstance(kind, pa.BaseExtensionType), lambda array, _: [array.storage]),
    (_types.is_null, lambda array, _: []),
    (_types.is_boolean, _booleans),
    (_is_fixed, _fixed),
    (_is_variable, _variable),
    (_types.is_map, _map),
    (lambda kind: _types.is_list(kind) or _types.is_large_list(kind), _list),
    (_types.is_fixed_size_list, lambda array, _: [array.flatten()]),
    (_types.is_struct, lambda array, _: list(array.flatten())),
    (_types.is_dictionary, lambda array, _: [array.indices, array.dictionary]),
)

register(_describe_array, pa.Array, subclasses=True)
register(_describe_chunked, pa.ChunkedArray)
register(_describe_table, pa.Table, pa.RecordBatch)
register(describe_reduced, pa.DataType, subclasses=True)

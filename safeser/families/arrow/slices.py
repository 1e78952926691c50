"""Encode Arrow arrays, slices included, without the elements outside the slice.

The one rule: a slice sends its own elements only. A buffer that begins where the elements begin is
sent as it is; offsets that would point outside the sent buffers are rewritten.

The parts of an array are those of Arrow's ``__reduce__``: type, length, nulls, offset, buffers,
children, dictionary. *first* below counts from the beginning of the buffers, which precedes the
array by its offset. Bitmaps are not shifted, so a slice may include up to seven more elements.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.families.arrow.layout import Writer
from safeser.families.arrow.types import storage_of
from safeser.families.plain import Unencodable
from safeser.types.arrow import check_dictionary, check_whole, holds_union

__all__ = ["write_array"]

#: Untyped on purpose: Arrow is an extra.
pa: Any = importlib.import_module("pyarrow")
_lib: Any = pa.lib

Numbers = np.ndarray[Any, Any]
State = tuple[Any, int, int, int, list[Any], list[Any], Any]

#: A view takes sixteen bytes: its size, and up to twelve of text or where the text lies.
_VIEW = 16
_INLINE = 12
#: Milliseconds.
_DAY = 86_400_000
#: Text that no view names is copied away from where it is more than twice what they do name.
_SLACK = 1 << 12


def write_array(writer: Writer, array: Any) -> None:
    """Write *array*; a dictionary that was written before is only named again."""
    _, (state,) = array.__reduce__()
    _write(writer, state, state[3], state[1], shared=pa.types.is_dictionary(state[0]))


def _write(writer: Writer, state: State, first: int, length: int, *, shared: bool = False) -> None:
    kind, dictionary = storage_of(state[0]), state[6]
    if dictionary is not None:
        kind = kind.index_type
    if length:
        _FORMS[kind.id](writer, kind, state, first, length)
    else:
        writer.put(0)
    if dictionary is not None:
        with _bounded(state[0]):
            check_dictionary(dictionary[0], used=_points(state, first, length))
        if shared and writer.again(_place(dictionary)):
            return
        _write(writer, dictionary, dictionary[3], dictionary[1])


@contextmanager
def _bounded(kind: Any) -> Iterator[None]:
    """Say that an array of *kind* cannot be sent where it is out of bounds."""
    try:
        yield
    except PayloadError as error:
        raise Unencodable(kind, error.message) from None


def _points(state: State, first: int, length: int) -> bool:
    """Whether some of the indexes of a dictionary's array are there."""
    bitmap = state[4][0]
    return bool(length) and (bitmap is None or bool(_valid(bitmap, first, length).any()))


def _place(state: State) -> object:
    """Return the address of a dictionary's values, if it identifies them."""
    kind, length, _, offset, buffers, children, dictionary = state
    if children or dictionary is not None:
        return None
    places = [None if buffer is None else (buffer.address, buffer.size) for buffer in buffers]
    return kind, length, offset, *places


def _begin(
    writer: Writer, state: State, first: int, length: int, *, buffers: int, bits: bool = False
) -> tuple[int, int]:
    """Write sizes and the bitmap; return where the elements begin that go, and how many do.

    :param buffers: how many the array has, its bitmap among them.
    :param bits: whether its values are bits too.
    """
    bitmap = state[4][0] if state[2] else None
    before = first % 8 if bits or bitmap is not None else 0
    writer.put(length, before, buffers)
    start, total = first - before, length + before
    writer.buffer(None if bitmap is None else _piece(bitmap, start // 8, (total + 7) // 8))
    return start, total


def _piece(buffer: Any, start: int, size: int) -> Any:
    if not size:
        return b""
    if buffer is None or start + size > buffer.size:
        raise Unencodable(buffer, "a buffer is smaller than its Arrow array")
    return buffer.slice(start, size)


def _numbers(buffer: Any, code: str, start: int, count: int) -> Numbers:
    width = np.dtype(code).itemsize
    return np.frombuffer(_piece(buffer, start * width, count * width), code)


def _memory(numbers: Numbers) -> memoryview:
    return np.ascontiguousarray(numbers).view(np.uint8).data


# -- elements of fixed width ---------------------------------------------------------------------


def _null(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    writer.put(length, 0, 1, -1)


def _flags(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    start, total = _begin(writer, state, first, length, buffers=2, bits=True)
    writer.buffer(_piece(state[4][1], start // 8, (total + 7) // 8))


def _fixed(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    start, total = _begin(writer, state, first, length, buffers=2)
    width = kind.bit_width // 8
    writer.buffer(_piece(state[4][1], start * width, total * width))


def _days(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    """Write dates in milliseconds, which Arrow itself finds invalid where one is no whole day."""
    bitmap, content = state[4]
    odd = _numbers(content, "<i8", first, length) % _DAY != 0
    if bitmap is not None:
        odd &= _valid(bitmap, first, length)
    if odd.any():
        raise Unencodable(state[0], "it holds a moment that is no whole day; cast it to timestamp")
    _fixed(writer, kind, state, first, length)


# -- elements behind offsets ---------------------------------------------------------------------


def _offsets(writer: Writer, code: str, state: State, start: int, total: int) -> tuple[int, int]:
    """Write offsets shifted to begin at zero; return the first and last original offset."""
    offsets = _numbers(state[4][1], code, start, total + 1)
    base, end = int(offsets[0]), int(offsets[-1])
    if not 0 <= base <= end:
        raise Unencodable(offsets, "the offsets of an Arrow array run backwards")
    writer.buffer(_memory(offsets if base == 0 else offsets - base))
    return base, end - base


def _text(code: str) -> Callable[..., None]:
    def write(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
        start, total = _begin(writer, state, first, length, buffers=3)
        base, size = _offsets(writer, code, state, start, total)
        writer.buffer(_piece(state[4][2], base, size))

    return write


def _list(code: str) -> Callable[..., None]:
    def write(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
        start, total = _begin(writer, state, first, length, buffers=2)
        base, size = _offsets(writer, code, state, start, total)
        (child,) = state[5]
        _write(writer, child, child[3] + base, size)

    return write


def _map(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    start, total = _begin(writer, state, first, length, buffers=2)
    base, size = _offsets(writer, "i4", state, start, total)
    (pairs,) = state[5]
    first = pairs[3] + base
    if not size:
        writer.put(0)
        return
    if pairs[2] and pairs[4][0] is not None and not _valid(pairs[4][0], first, size).all():
        raise Unencodable(kind, "a map has pairs that are missing")
    writer.put(size, 0, 1, -1)
    for child in pairs[5]:
        _write(writer, child, child[3] + first, size)


def _valid(bitmap: Any, start: int, total: int) -> Numbers:
    byte, bit = divmod(start, 8)
    octets = _numbers(bitmap, "u1", byte, (bit + total + 7) // 8)
    return np.unpackbits(octets, bitorder="little")[bit : bit + total].astype(bool)


# -- elements behind views -----------------------------------------------------------------------


def _list_view(code: str) -> Callable[..., None]:
    def write(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
        start, total = _begin(writer, state, first, length, buffers=3)
        _, *parts = state[4]
        offsets, sizes = (_numbers(part, code, start, total).copy() for part in parts)
        if state[2] and state[4][0] is not None:
            # Arrow ignores the views of nulls, and receivers refuse views that are out of range.
            sizes[~_valid(state[4][0], start, total)] = 0
        used = sizes > 0
        base = int(offsets[used].min()) if used.any() else 0
        end = int((offsets[used] + sizes[used]).max()) if used.any() else 0
        offsets = np.where(used, offsets - base, 0).astype(code)
        writer.buffer(_memory(offsets))
        writer.buffer(_memory(sizes))
        (child,) = state[5]
        _write(writer, child, child[3] + base, end - base)

    return write


def _view(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    bitmap, words, *texts = state[4]
    # Its size, four bytes of text, the number of the buffer and where the text lies in it.
    views = _numbers(words, "i4", first * 4, length * 4).reshape(-1, 4)
    if state[2] and bitmap is not None:
        views = np.where(_valid(bitmap, first, length)[:, None], views, 0).astype("i4")
    elsewhere = views[views[:, 0] > _INLINE, 0]
    held = sum(text.size for text in texts)
    if held > 2 * int(elsewhere.sum(dtype=np.int64)) + _SLACK:
        _compact(writer, kind, state, first, views)
        return
    start, _ = _begin(writer, state, first, length, buffers=2 + len(texts))
    before = np.zeros((first - start, 4), "i4")
    writer.buffer(_memory(np.concatenate([before, views]) if first > start else views))
    for text in texts:
        writer.buffer(text)


def _compact(writer: Writer, kind: Any, state: State, first: int, views: Numbers) -> None:
    _, _, *texts = state[4]
    whole = [None, pa.py_buffer(_memory(views)), *texts]
    plain = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
    made = pa.Array.from_buffers(kind, len(views), whole).cast(plain).cast(kind)
    _, ((_, length, _, offset, (_, views_, *texts), _, _),) = made.__reduce__()
    _, total = _begin(writer, state, first, length, buffers=2 + len(texts))
    fresh = _numbers(views_, "u1", offset * _VIEW, length * _VIEW)
    writer.buffer(_memory(np.concatenate([np.zeros((total - length) * _VIEW, "u1"), fresh])))
    for text in texts:
        writer.buffer(text)


# -- elements of parts ---------------------------------------------------------------------------


def _fixed_list(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    start, total = _begin(writer, state, first, length, buffers=1)
    (child,) = state[5]
    _write(writer, child, child[3] + start * kind.list_size, total * kind.list_size)


def _struct(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    if state[2] and state[4][0] is not None and holds_union(kind):
        with _bounded(state[0]):
            check_whole(not _valid(state[4][0], first, length).all())
        state = (*state[:2], 0, *state[3:])  # no nulls, and so no bitmap
    start, total = _begin(writer, state, first, length, buffers=1)
    for child in state[5]:
        _write(writer, child, child[3] + start, total)


def _sparse(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    writer.put(length, 0, 2, -1)
    writer.buffer(_piece(state[4][1], first, length))
    for child in state[5]:
        _write(writer, child, child[3] + first, length)


def _dense(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    codes = _numbers(state[4][1], "i1", first, length)
    places = _numbers(state[4][2], "i4", first, length).copy()
    spans = []
    for code in kind.type_codes:
        ours = codes == code
        base = int(places[ours].min()) if ours.any() else 0
        spans.append((base, int(places[ours].max()) + 1 - base if ours.any() else 0))
        places[ours] -= base
    writer.put(length, 0, 3, -1)
    writer.buffer(_memory(codes))
    writer.buffer(_memory(places))
    for child, (base, count) in zip(state[5], spans, strict=True):
        _write(writer, child, child[3] + base, count)


def _runs(writer: Writer, kind: Any, state: State, first: int, length: int) -> None:
    ends, values = state[5]
    code = f"i{kind.run_end_type.bit_width // 8}"
    numbers = _numbers(ends[4][1], code, ends[3], ends[1])
    begin = int(np.searchsorted(numbers, first, "right"))
    end = int(np.searchsorted(numbers, first + length - 1, "right")) + 1
    if end > len(numbers):
        raise Unencodable(kind, "its runs end too early")
    shown = np.minimum(numbers[begin:end] - first, length).astype(code)
    writer.put(length, 0, 1, -1)
    writer.put(end - begin, 0, 2, -1)
    writer.buffer(_memory(shown))
    _write(writer, values, values[3] + begin, end - begin)


_WIDE = (
    "INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 HALF_FLOAT FLOAT DOUBLE DATE32 DATE64 TIME32"
    " TIME64 TIMESTAMP DURATION INTERVAL_MONTH_DAY_NANO FIXED_SIZE_BINARY DECIMAL32 DECIMAL64"
    " DECIMAL128 DECIMAL256"
)
_FORMS: dict[int, Callable[[Writer, Any, State, int, int], None]] = {
    **{getattr(_lib, f"Type_{name}"): _fixed for name in _WIDE.split()},
    _lib.Type_DATE64: _days,
    _lib.Type_NA: _null,
    _lib.Type_BOOL: _flags,
    _lib.Type_STRING: _text("i4"),
    _lib.Type_BINARY: _text("i4"),
    _lib.Type_LARGE_STRING: _text("i8"),
    _lib.Type_LARGE_BINARY: _text("i8"),
    _lib.Type_STRING_VIEW: _view,
    _lib.Type_BINARY_VIEW: _view,
    _lib.Type_LIST: _list("i4"),
    _lib.Type_LARGE_LIST: _list("i8"),
    _lib.Type_LIST_VIEW: _list_view("i4"),
    _lib.Type_LARGE_LIST_VIEW: _list_view("i8"),
    _lib.Type_FIXED_SIZE_LIST: _fixed_list,
    _lib.Type_MAP: _map,
    _lib.Type_STRUCT: _struct,
    _lib.Type_SPARSE_UNION: _sparse,
    _lib.Type_DENSE_UNION: _dense,
    _lib.Type_RUN_END_ENCODED: _runs,
}

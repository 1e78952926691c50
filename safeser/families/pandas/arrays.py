"""Encode and decode pandas arrays, which hold the blocks of a frame or the values of an index.

The one rule: an array is built from checked numbers, flags and texts, and the result must have the
described dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.families.pandas import objects as pandas_objects
from safeser.families.pandas import text as pandas_text
from safeser.families.pandas.internals import dated, index_of, pd, periods
from safeser.families.pandas.offsets import (
    build_zone,
    check_zone,
    describe_zone,
    read_freq,
    read_period_freq,
    with_freq,
    write_freq,
    write_period_freq,
)
from safeser.families.pandas.parts import (
    TURNED,
    WRITEABLE,
    Array,
    Built,
    Loaded,
    Part,
    Reader,
    Writer,
    build_checked,
    charged,
    settled,
)
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, registry, required
from safeser.families.reviewed import reviewed
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles import Budget
from safeser.pickles.shims.pandas.arrays import SHIMS
from safeser.pickles.shims.site import Draft
from safeser.types import pandas as bounds

__all__ = ["add", "read_array", "read_block", "register", "write_array", "write_block"]

Write = Callable[[Writer, Any, str], list[Any]]
Read = Callable[[Reader, Any, int | None], Part]

_WRITERS: dict[type, Write] = {}
_READERS: dict[str, Read] = {}


def add(kind: str, classes: tuple[type, ...], write: Write, read: Read) -> None:
    """List how arrays of *classes* are described, under *kind*."""
    _READERS[kind] = read
    _WRITERS.update(dict.fromkeys(classes, write))


def write_array(writer: Writer, x: Any, where: str) -> list[Any]:
    """Return the description of the array *x*, or raise Unencodable with *where* it is."""
    write = _WRITERS.get(type(x))
    if write is None:
        writer.refuse(x, f"a column of {type(x.dtype).__name__[:40]} is not kept exactly", where)
    try:
        with writer.bounded(x, where):
            return write(writer, x, where)
    except Unencodable as error:
        if not error.path:
            error.path.append(where)
        raise


def read_array(reader: Reader, described: Any) -> Part:
    """Return the checked part of one dimension that *described* is."""
    return _read(reader, described, None)


def _read(reader: Reader, described: Any, columns: int | None) -> Part:
    if not isinstance(described, list | tuple) or not described:
        reader.refuse("a part of it is not described by a list")
    read = _READERS.get(described[0]) if type(described[0]) is str else None
    if read is None:
        reader.refuse("the kind of a part of it is not listed")
    return read(reader, described, columns)


def _shaped(array: Array, flags: int, columns: int | None) -> Array:
    """Return *array* as the rows or block that *flags* describe."""
    array = settled(array, flags)
    if columns is None:
        return array
    rows = len(array) // columns
    return array.reshape(rows, columns).T if flags & TURNED else array.reshape(columns, rows)


# Numbers, as NumPy has them; bare moments and durations among them.


def _write_numpy(writer: Writer, x: Array, where: str) -> list[Any]:
    if x.dtype == object:
        return pandas_objects.write(writer, x, where)
    return ["numbers", *writer.numbers(x, where=where)]


def _read_numbers(reader: Reader, described: Any, columns: int | None) -> Part:
    _, key, flags = reader.split(described, 3)
    array, flags = reader.numbers(key), reader.flags(flags)
    length = reader.rows(len(array), columns)
    if columns is not None and array.dtype.kind in "mM":
        moments: Built = lambda values: dated(_shaped(array, flags, columns))  # noqa: E731 - short
        return Part("numbers", length, moments, array.dtype)
    return Part("numbers", length, lambda values: _shaped(array, flags, columns), array.dtype)


# Dates with a zone: the instants in UTC, and the zone in which they are shown. And those without,
# where they stand alone.


def _write_dates(writer: Writer, x: Any, where: str) -> list[Any]:
    numbers = writer.numbers(x._ndarray, where=where)
    if isinstance(x.dtype, np.dtype):
        return ["numbers", *numbers]
    return ["dates", *numbers, describe_zone(x.tz)]


def _read_dates(reader: Reader, described: Any, columns: int | None) -> Part:
    _, key, flags, zone = reader.split(described, 4)
    array, flags = reader.numbers(key), reader.flags(flags)
    check_zone(reader.node, zone)
    if array.dtype.kind != "M" or zone is None:
        reader.refuse("its dates have no instants or no zone", "families.time-zone")
    length = reader.rows(len(array), columns)
    return Part(
        "dates", length, lambda values: dated(_shaped(array, flags, columns), build_zone(zone))
    )


# Periods: ordinals and a freq.


def _write_periods(writer: Writer, x: Any, where: str) -> list[Any]:
    numbers = writer.numbers(x._ndarray, where=where)
    return ["periods", *numbers, write_period_freq(writer, x.freq, where=where)]


def _read_periods(reader: Reader, described: Any, columns: int | None) -> Part:
    _, key, flags, freq = reader.split(described, 4)
    array, flags = reader.numbers(key), reader.flags(flags)
    if array.dtype != np.int64 or array.dtype.char != "l":
        reader.refuse("its ordinals have another dtype", "families.dtype")
    made = read_period_freq(reader, freq)
    length = reader.rows(len(array), columns)
    return Part(
        "periods", length, lambda values: periods(_shaped(array, flags, columns), made(values))
    )


# Intervals: two arrays of ends.


def _write_intervals(writer: Writer, x: Any, where: str) -> list[Any]:
    ends = [write_array(writer, end, where) for end in (x._left, x._right)]
    for (kind, *_), dtype in zip(ends, (x._left.dtype, x._right.dtype), strict=True):
        if kind != "dates" and not (kind == "numbers" and _can_end(dtype)):
            writer.refuse(x, "intervals between ends of such a type are not kept", where)
    freqs = [_write_freq(writer, end) for end in (x._left, x._right)]
    return ["intervals", x.closed, *ends, *freqs]


def _write_freq(writer: Writer, x: Any) -> list[Any] | None:
    # Before pandas 3.1 an array of moments has a freq, as an index has.
    freq = getattr(x, "_freq", None) if type(x) in _MOMENTS else None
    return write_freq(writer, freq, len(x))


def _read_intervals(reader: Reader, described: Any, columns: int | None) -> Part:
    _, closed, *ends, freq, other = reader.split(described, 6)
    if closed not in bounds.CLOSED or columns not in (None, 1):
        reader.refuse("it is closed on no side that pandas knows")
    left, right = (reader.within(read_array, end) for end in ends)
    limits = reader.limits
    starts = _followed(left.build, freq, read_freq(reader, freq), limits)
    stops = _followed(right.build, other, read_freq(reader, other), limits)
    for end in (left, right):
        sound = end.kind == "dates" or (end.kind == "numbers" and _can_end(end.dtype))
        if not sound or end.length != left.length:
            reader.refuse("its ends are of a wrong type or length", "families.child-type")

    def built(values: Loaded) -> Any:
        one, another = starts(values), stops(values)
        made = pd.arrays.IntervalArray.from_arrays(one, another, closed=closed, copy=False)
        required(made.left.dtype == one.dtype and made.right.dtype == another.dtype)
        return made

    return Part("intervals", left.length, built)


def _moments(array: Any) -> Any:
    return dated(array) if isinstance(array, np.ndarray) and array.dtype.kind in "mM" else array


def _can_end(dtype: Any) -> bool:
    numbers = dtype.kind in "iuf" and dtype.itemsize <= 8 and dtype != np.float16
    return dtype.isnative and (numbers or dtype.kind in "mM")


# Nullable numbers and flags: data and a mask.

_MASKED = {
    "b": pd.arrays.BooleanArray,
    "i": pd.arrays.IntegerArray,
    "u": pd.arrays.IntegerArray,
    "f": pd.arrays.FloatingArray,
}


def _write_masked(writer: Writer, x: Any, where: str) -> list[Any]:
    return [
        "masked",
        *writer.numbers(x._data, where=where),
        writer.numbers(x._mask, where=where)[1],
    ]


def _read_masked(reader: Reader, described: Any, columns: int | None) -> Part:
    _, key, flags, mask_flags = reader.split(described, 4)
    data, mask = reader.numbers(key), reader.numbers("|b1")
    for flag in (flags, mask_flags):
        reader.flags(flag, WRITEABLE)
    if len(mask) != len(data) or columns not in (None, 1):
        reader.refuse("its mask has another length than its data", "families.shape")
    kind = _MASKED.get(data.dtype.kind)
    odd = not data.dtype.isnative or data.dtype.itemsize > 8 or data.dtype == np.float16
    if kind is None or odd:
        reader.refuse("its data has a dtype that pandas has no nullable kind of", "families.dtype")
    # It writes to the one and then to the other.
    built: Built = lambda values: kind(settled(data, WRITEABLE), settled(mask, WRITEABLE))  # noqa: E731 - short
    return Part("masked", len(data), built)


# Text, and arrays of Arrow's.


def _read_text(reader: Reader, described: Any, columns: int | None) -> Part:
    if columns not in (None, 1):
        reader.refuse("a block of text has one column")
    return pandas_text.read(reader, described)


def _write_arrow(writer: Writer, x: Any, where: str) -> list[Any]:
    bounds.arrow_dtype(x._pa_array.type)
    writer.children.append((where, x._pa_array))
    return ["arrow"]


def _read_arrow(reader: Reader, described: Any, columns: int | None) -> Part:
    reader.split(described, 1)
    if columns not in (None, 1):
        reader.refuse("a block of Arrow's has one column")
    at = reader.child("pyarrow:ChunkedArray")

    def built(values: Loaded) -> Any:
        bounds.arrow_dtype(values[at].type)
        return pd.arrays.ArrowExtensionArray(values[at])

    return Part("arrow", None, built)


# Sparse numbers: those that are there, and where.


def _write_sparse(writer: Writer, x: Any, where: str) -> list[Any]:
    places, blocks = x.sp_index, hasattr(x.sp_index, "blocs")
    bounds.check_sparse_values(x.sp_values, places.length, writer.limits)
    bounds.sparse_dtype(x.dtype.subtype, x.dtype.fill_value)
    values = _write_numpy(writer, x.sp_values, where)
    for part in (places.blocs, places.blengths) if blocks else (places.indices,):
        writer.buffer(part)
    writer.children.append((where, x.dtype.fill_value))
    return ["sparse", values, blocks, places.length]


def _read_sparse(reader: Reader, described: Any, columns: int | None) -> Part:
    _, inner, blocks, length = reader.split(described, 4)
    found = reader.within(read_array, inner)
    if found.kind not in ("numbers", "objects"):
        reader.refuse("its values are no array of NumPy's", "families.child-type")
    if type(blocks) is not bool or type(length) is not int or columns not in (None, 1):
        reader.refuse("its places are not described")
    name = "BlockIndex" if blocks else "IntIndex"
    parts = [reader.numbers("<i4") for _ in range(1 + blocks)]
    at, limits = reader.child(), reader.limits

    def built(values: Loaded) -> Any:
        inside = values.site(limits)
        with reviewed(values.node):
            # The functions that restricted pickle uses: they hold each place against the others.
            places = SHIMS["sparse_index"](inside, f"sparse:{name}", length, *parts)
            state = {
                "_sparse_index": places,
                "_sparse_values": found.build(values),
                "_dtype": bounds.sparse_dtype(found.dtype, values[at]),
            }
            made = SHIMS["sparse"](inside, Draft("arrays:SparseArray"), state)
        required(type(made.dtype.fill_value) is type(values[at]))
        return made

    return Part("sparse", length, built)


# NumPy's arrays that pandas wraps, where they stand alone.


def _write_wrapped(writer: Writer, x: Any, where: str) -> list[Any]:
    bounds.check_wrapped(x._ndarray)
    return ["wrapped", _write_numpy(writer, x._ndarray, where)]


def _read_wrapped(reader: Reader, described: Any, columns: int | None) -> Part:
    _, inner = reader.split(described, 2)
    part = reader.within(read_array, inner)
    if part.kind not in ("numbers", "objects") or columns is not None:
        reader.refuse("it wraps a value that is no array", "families.child-type")
    return Part(
        "wrapped",
        part.length,
        lambda values: pd.arrays.NumpyExtensionArray(part.build(values)),
    )


# -- blocks ------------------------------------------------------------------------------------


def write_block(writer: Writer, x: Any, where: Callable[[int], str]) -> list[Any]:
    """Return the description of *x*, a row for each column; of objects one for each row.

    :param where: names the column in a row, for errors.
    """
    if type(x) is not np.ndarray or x.dtype != object:
        return [write_array(writer, x, where(0))]
    return [pandas_objects.write(writer, row, where(at)) for at, row in enumerate(x)]


def read_block(reader: Reader, described: Any, columns: int) -> Part:
    """Return the checked part that *described* is, as a block of *columns*."""
    return _read(reader, described, columns)


# -- arrays that stand alone -------------------------------------------------------------------


def _encode(x: Any, limits: Limits) -> Parts:
    if x.ndim != 1:
        raise Unencodable(x, "an array of pandas' that is a block is not kept; send its frame")
    writer = Writer(limits)
    meta: dict[str, Any] = {"array": write_array(writer, x, ""), "freq": _write_freq(writer, x)}
    if getattr(x, "_readonly", False):
        meta["readonly"] = True  # as pandas 3 hands out the array of an index
    return writer.parts(meta)


def _check(node: Node, limits: Limits) -> None:
    reader = Reader(node, limits)
    keys = ("array", "freq", *(("readonly",) if "readonly" in node.meta else ()))
    described, freq, *readonly = node.expect(*keys, frames=len(node.frames), children=None)
    if readonly not in ([], [True]) or not set(map(type, readonly)) <= {bool}:
        node.refuse("its flag is unknown", "families.header")
    part = read_array(reader, described)
    made = read_freq(reader, freq)
    reader.finish()
    moments = part.kind == "numbers" and part.dtype is not None and part.dtype.kind in "mM"
    if part.kind in ("numbers", "objects") and not moments:
        node.refuse("its kind is not an array of pandas'", "families.header")
    if freq is not None and not moments and part.kind != "dates":
        node.refuse("its kind has no freq", "families.header")
    node.value = _followed(part.build, freq, made, limits)


def _followed(build: Built, described: Any, made: Built, limits: Limits) -> Built:
    """Return a function that builds a pandas array, with its freq if one is described."""

    def built(values: Loaded) -> Any:
        array, freq = _moments(build(values)), made(values)
        if described is None:
            return array
        required(type(array) in _MOMENTS)
        index = with_freq(index_of(_MOMENTS[type(array)], array, None), freq, values, limits)
        required(getattr(index._values, "_freq", None) == freq)
        return index._values

    return built


#: Arrays of moments and durations, and the index of such.
_MOMENTS = {
    pd.arrays.DatetimeArray: pd.DatetimeIndex,
    pd.arrays.TimedeltaArray: pd.TimedeltaIndex,
}


def _decode(node: Node, values: list[Any], budget: Budget) -> Any:
    made = build_checked(node, values, budget)
    if "readonly" in node.meta:
        made._readonly = True
    return made


def register() -> None:
    """List pandas' arrays; called once, when the first is needed."""
    arrays = pd.arrays
    for kind, classes, write, read in (
        ("numbers", (np.ndarray,), _write_numpy, _read_numbers),
        ("objects", (), pandas_objects.write, pandas_objects.read),
        ("coded", (), pandas_objects.write, pandas_objects.read_coded),
        ("marked", (), pandas_objects.write, pandas_objects.read_marked),
        ("dates", (arrays.DatetimeArray, arrays.TimedeltaArray), _write_dates, _read_dates),
        ("periods", (arrays.PeriodArray,), _write_periods, _read_periods),
        ("intervals", (arrays.IntervalArray,), _write_intervals, _read_intervals),
        ("masked", tuple(set(_MASKED.values())), _write_masked, _read_masked),
        ("text", pandas_text.CLASSES, pandas_text.write, _read_text),
        ("arrow", (arrays.ArrowExtensionArray,), _write_arrow, _read_arrow),
        ("sparse", (arrays.SparseArray,), _write_sparse, _read_sparse),
        ("wrapped", (arrays.NumpyExtensionArray,), _write_wrapped, _read_wrapped),
    ):
        add(kind, classes, write, read)
    alone = tuple(kind for kind in _WRITERS if kind is not np.ndarray)
    registry.register(charged("pandas:array", alone, _encode, _check, _decode))

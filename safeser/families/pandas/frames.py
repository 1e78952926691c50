"""Encode and decode pandas frames and series block by block.

The one rule: a frame is sent exactly or refused, never altered. A block is sent as it is in memory,
and pandas receives it only when its shape fits the axes and the blocks cover each column once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.families.pandas.arrays import read_array, read_block, write_array, write_block
from safeser.families.pandas.indexes import apart, read_index, write_index
from safeser.families.pandas.internals import Places, blocks_of, frame_of, pd, series_of, values_of
from safeser.families.pandas.parts import Loaded, Part, Reader, Writer, charged
from safeser.families.plain import label
from safeser.families.registry import Parts, never_sent, registry, required
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.types import pandas as bounds

__all__ = ["register"]


#: Columns that Python counts faster than NumPy.
_FEW_COLUMNS = 32


def _column_at(columns: Any, place: int) -> str:
    try:
        return f" (column {label(columns[place])})"
    except (NotImplementedError, OverflowError, ValueError):  # a date in no year that Python has
        return f" (column {place})"


def _write_about(writer: Writer, x: Any) -> dict[str, Any]:
    """Return what a frame and a series have in common: index, attributes and flags."""
    attrs = x.attrs
    if attrs:
        writer.children.append((".attrs", attrs))
    return {
        "index": write_index(writer, x.index, ".index"),
        "attrs": bool(attrs),
        "unique": not x.flags.allows_duplicate_labels,
    }


def _read_about(reader: Reader) -> tuple[Part, Callable[[Loaded, Any], Any]]:
    """Return the checked index, and a function that sets the attributes and flags."""
    attrs, unique = reader.node.meta["attrs"], reader.node.meta["unique"]
    if type(attrs) is not bool or type(unique) is not bool:
        reader.refuse("its flags are not flags")
    at = reader.child("builtins:dict") if attrs else -1
    index = read_index(reader, reader.node.meta["index"])
    limits = reader.limits

    def finished(values: Loaded, made: Any) -> Any:
        if attrs:
            made.attrs = values[at]
        if unique:
            for axis in made.axes:
                apart(axis, values, limits)
            made.flags.allows_duplicate_labels = False
        return made

    return index, finished


# -- frames ------------------------------------------------------------------------------------


def _encode_frame(x: Any, limits: Limits) -> Parts:
    writer = Writer(limits)
    meta = _write_about(writer, x)
    columns = x.columns
    bounds.check_columns(len(columns), rows=len(x), limits=limits)
    meta["columns"] = write_index(writer, columns, ".columns")
    blocks: list[Any] = []
    for values, places in blocks_of(x):
        if isinstance(places, slice):
            spread: Any = range(len(columns))[places]
        else:
            spread = places
        blocks += _write_placed(writer, values, spread, columns)
    meta["blocks"] = blocks
    return writer.parts(meta)


def _write_placed(writer: Writer, values: Any, places: Any, columns: Any) -> list[Any]:
    """Return the descriptions of one block, each with the places of its columns."""
    if not len(places):
        return []
    described = write_block(writer, values, lambda at: _column_at(columns, int(places[at])))
    if len(described) == len(places):
        pairs = zip(described, places, strict=True)
        return [[part, int(place), 1, 1] for part, place in pairs]
    if isinstance(places, range):
        return [[described[0], places.start, len(places), places.step]]
    writer.buffer(np.asarray(places, np.int64))
    return [[described[0], None, len(places), 0]]


def _check_frame(node: Node, limits: Limits) -> None:
    node.expect(
        "index", "attrs", "unique", "columns", "blocks", frames=len(node.frames), children=None
    )
    reader = Reader(node, limits)
    index, finished = _read_about(reader)
    columns = read_index(reader, node.meta["columns"])
    blocks = _read_blocks(reader, index.length, columns.length)
    reader.finish()

    def built(values: Loaded) -> Any:
        rows, labels = index.build(values), columns.build(values)
        made = [(part.build(values), places) for part, places in blocks]
        # Only known after building: Arrow's arrays carry their own lengths.
        required(all(array.shape[-1] == len(rows) for array, _ in made))
        required(sum(len(places) for _, places in blocks) == len(labels))
        bounds.check_columns(len(labels), rows=len(rows), limits=limits)
        return finished(values, frame_of(made, rows, labels))

    node.value = built


def _read_blocks(reader: Reader, rows: int | None, count: int | None) -> list[tuple[Part, Places]]:
    """Return the checked blocks with the places of their columns: each of *count* once."""
    described = reader.node.meta["blocks"]
    if type(described) is not list and type(described) is not tuple:
        reader.refuse("its blocks are not a list")
    blocks, total = [], 0
    for block in described:
        inner, start, columns, step = reader.split(block, 4)
        if type(columns) is not int or columns <= 0:
            reader.refuse("a block has no columns", "families.shape")
        # Columns without rows take no bytes in a message, and pandas keeps two numbers for each.
        total += columns
        bounds.check_columns(total, rows=rows, limits=reader.limits)
        part = read_block(reader, inner, columns)
        if rows is not None and part.length is not None and part.length != rows:
            reader.refuse("a block has another number of rows than the index", "families.shape")
        blocks.append((part, _read_places(reader, start, columns, step)))
    _check_cover(reader, [places for _, places in blocks], count)
    return blocks


def _read_places(reader: Reader, start: Any, columns: int, step: Any) -> Places:
    if start is None and step == 0 and type(step) is int:
        places = reader.numbers("<i8")
        if len(places) != columns:
            reader.refuse("a block has more or fewer places than columns", "families.shape")
        return places.astype(np.intp)
    for number in (start, step):
        if type(number) is not int or not -(1 << 40) < number < 1 << 40:
            reader.refuse("the places of a block are not described")
    if not step:
        reader.refuse("a column is in two blocks, or in none", "families.shape")
    return range(start, start + columns * step, step)


def _check_cover(reader: Reader, blocks: list[Places], count: int | None) -> None:
    """Refuse places that do not cover each of *count* columns once: pandas believes them."""
    total = sum(map(len, blocks))
    sound = count is None or total == count
    if sound and len(blocks) == 1 and isinstance(blocks[0], range):
        sound = {blocks[0][0], blocks[0][-1]} == {0, total - 1}
    elif sound and total <= _FEW_COLUMNS:
        sound = sorted(int(place) for places in blocks for place in places) == [*range(total)]
    elif sound:
        taken = np.zeros(total, bool)
        for places in blocks:
            spread: Any = places
            if isinstance(places, range):
                low, high = sorted((places[0], places[-1]))
                spread = slice(low, high + 1, abs(places.step))
            else:
                low, high = places.min(), places.max()
            if low < 0 or high >= total:
                sound = False
                break
            taken[spread] = True
        # As many places as columns, and each taken: none of them twice.
        sound = sound and bool(taken.all())
    if not sound:
        reader.refuse("a column is in two blocks, or in none", "families.shape")


# -- series ------------------------------------------------------------------------------------


def _encode_series(x: Any, limits: Limits) -> Parts:
    writer = Writer(limits)
    meta = _write_about(writer, x)
    meta["name"] = writer.name(x.name)
    where = " (values)" if x.name is None else f" (column {label(x.name)})"
    meta["values"] = write_array(writer, values_of(x), where)
    return writer.parts(meta)


def _check_series(node: Node, limits: Limits) -> None:
    node.expect(
        "index", "attrs", "unique", "name", "values", frames=len(node.frames), children=None
    )
    reader = Reader(node, limits)
    index, finished = _read_about(reader)
    named = reader.name(node.meta["name"])
    part = read_array(reader, node.meta["values"])
    reader.finish()
    if part.kind == "wrapped":
        node.refuse("pandas would wrap its values", "families.child-type")
    if None not in (index.length, part.length) and index.length != part.length:
        node.refuse("it has another number of values than its index", "families.shape")

    def built(values: Loaded) -> Any:
        rows, array = index.build(values), part.build(values)
        required(len(array) == len(rows))
        return finished(values, series_of(array, rows, named(values)))

    node.value = built


#: How pandas' names for what is no data yet end: groupings, windows, resamplers.
_WAITING = ("GroupBy", "Groupby", "Grouper", "Rolling", "Expanding", "Window", "Resampler")


def register() -> None:
    """List pandas' containers; called once, when the first is needed."""
    typing = pd.api.typing
    waiting = [getattr(typing, name) for name in typing.__all__ if name.endswith(_WAITING)]
    advice = "it is a deferred computation; send the frame, and group it on the receiver"
    said = "deferred computations are not sent"
    registry.register(never_sent("pandas:GroupBy", tuple(waiting), advice, said))
    for cls, encode, check in (
        (pd.DataFrame, _encode_frame, _check_frame),
        (pd.Series, _encode_series, _check_series),
    ):
        name = f"pandas:{cls.__name__}"
        registry.register(charged(name, (cls,), encode, check, keeps=True))

"""Check Arrow IPC streams, which Dask's shuffles send, before Arrow's reader opens them.

The one rule: Arrow's reader receives a stream only if its metadata lets the reader do no more than
point into the received bytes: it declares no compression, and no extension type whose class Arrow
would call. The arrays that the reader returns are checked as other arrays are.

The metadata of a message is a FlatBuffer. Arrow has verified its offsets before it is read here,
but not the total size of many offsets that point to one place.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any, NoReturn

from safeser.errors import PayloadError
from safeser.families.arrow.types import is_flat, storage_of
from safeser.gate.values import Limits
from safeser.pickles.shims.arrow import arrays as reviewed
from safeser.pickles.shims.arrow.types import check_noted
from safeser.pickles.shims.site import Site
from safeser.types.arrow import holds, holds_list_view, measured

__all__ = ["check_stream", "decoded_size"]

#: Untyped on purpose: Arrow is an extra.
pa: Any = importlib.import_module("pyarrow")
_compute: Any = importlib.import_module("pyarrow.compute")

#: Version 5 of the format, which writers have used since 2020. Older ones said elsewhere that they
#: are compressed.
_V5 = 4
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
#: A type. All rows of such a column may share one text, and a sort copies it for each row.
_UNION = 14

#: pandas' own, and Arrow's that need nothing but their storage. Of others, Arrow calls what a class
#: of any library says, with bytes that the peer wrote.
_EXTENSIONS = frozenset(
    {
        b"arrow.bool8",
        b"arrow.json",
        b"arrow.opaque",
        b"arrow.uuid",
        b"pandas.interval",
        b"pandas.period",
    }
)
#: A frequency, or the side at which intervals are closed.
_MAX_EXTENSION = 1 << 10
#: Longer than any key that means something here.
_MAX_KEY = 1 << 6
#: Fewer bytes than any field, or pair of metadata, takes of a description.
_LEAST_PART = 16
_MAX_NESTING = 32

#: Of which an array has as many bytes as its length says, and none of another array's.
_SIMPLE = frozenset(
    number
    for name, number in vars(pa.lib).items()
    if name.startswith("Type_") and not name.endswith(("_NA", "_FIXED_SIZE_BINARY", "_VIEW"))
)
#: Bytes of each of their offsets.
_OFFSETS = {
    **dict.fromkeys((pa.lib.Type_STRING, pa.lib.Type_BINARY, pa.lib.Type_LIST, pa.lib.Type_MAP), 4),
    **dict.fromkeys(
        (pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY, pa.lib.Type_LARGE_LIST), 8
    ),
}


def check_stream(data: Any, limits: Limits, *, decoded: int) -> int:
    """Refuse *data*, any bytes, unless it is a stream of tables that can be computed with.

    :param decoded: bytes that its dictionary-encoded columns may stand for once written out.
    :returns: how many of these are left.
    :raises PayloadError: if it is none.
    :raises pyarrow.ArrowException: or another ordinary error, where Arrow finds it wrong.
    """
    content = pa.py_buffer(data)
    site = Site(limits, given=content.size)
    messages = iter(pa.MessageReader.open_stream(content))
    said = b"".join(bytes(first.metadata) for first in islice(messages, 1))
    (_check_remembered if len(said) <= _REMEMBERED else _check_schema)(said)
    for message in messages:
        _check_body(bytes(message.metadata))
    known: set[Any] = set()
    with pa.ipc.open_stream(content) as reader:
        for kind in reader.schema.types:
            measured(kind)
            if holds_list_view(kind):
                # Without a batch, Arrow ends the process as it makes a column of them.
                _refuse("holds list views, which no frame holds")
        for batch in reader:
            if batch.num_rows and not batch.num_columns:
                _refuse("has rows without any column")  # others Arrow compares with their columns
            for column in batch.columns:
                if not _has_known_dictionary(site, column, known):
                    _check_array(site, column)
                decoded -= decoded_size(column)
                if decoded < 0:
                    _refuse("refers to texts that take more than limits.max_array once expanded")
    return decoded


def _refuse(what: str) -> NoReturn:
    raise PayloadError(f"an Arrow stream {what}", rule="families.arrow")


# -- descriptions --------------------------------------------------------------------------------


class _Table:
    """A table of a FlatBuffer: fields by their numbers, each of which may be absent."""

    __slots__ = ("_at", "_data", "_fields", "_size")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - self._number("<i", at)
        self._size = self._number("<H", self._fields)

    def _number(self, code: str, at: int) -> int:
        if at < 0:
            _refuse("has an offset before its beginning")
        return int(struct.unpack_from(code, self._data, at)[0])

    def _place(self, field: int) -> int:
        slot = 4 + 2 * field
        offset = self._number("<H", self._fields + slot) if slot < self._size else 0
        return offset and self._at + offset

    def has(self, field: int) -> bool:
        return self._place(field) != 0

    def number(self, field: int, code: str) -> int:
        place = self._place(field)
        return self._number(code, place) if place else 0

    def text(self, field: int, most: int | None = None) -> bytes:
        """Return a text, or the beginning of one that is longer than *most*."""
        place = self._place(field)
        if not place:
            return b""
        start = place + self._number("<I", place)
        size = self._number("<I", start)
        size = size if most is None else min(size, most + 1)
        return self._data[start + 4 : start + 4 + size]

    def table(self, field: int) -> _Table:
        place = self._place(field)
        if not place:
            _refuse("lacks a part of its description")
        return _Table(self._data, place + self._number("<I", place))

    def tables(self, field: int) -> Iterator[_Table]:
        place = self._place(field)
        if not place:
            return
        start = place + self._number("<I", place)
        for each in range(start + 4, start + 4 + 4 * self._number("<I", start), 4):
            yield _Table(self._data, each + self._number("<I", each))


def _described(said: bytes) -> tuple[int, _Table]:
    """Return the kind of the message that *said* describes, and its fields."""
    root = _Table(said, struct.unpack_from("<I", said)[0])
    if root.number(0, "<h") != _V5:
        _refuse("is of another version of the format")
    return root.number(1, "<B"), root.table(2)


def _check_schema(said: bytes) -> None:
    kind, schema = _described(said)
    if kind != _SCHEMA:
        _refuse("does not begin with its schema")
    parts = iter(range(len(said) // _LEAST_PART))
    noted = [pair for pair in _each(schema, 2, parts) if pair.text(0, _MAX_KEY) == b"pandas"]
    if len(noted) > 1:
        _refuse("has pandas metadata more than once")
    for pair in noted:
        check_noted(pair.text(1))
    level = [schema]
    inner = 1  # the field of a schema that holds fields, and below that of a field
    for _ in range(_MAX_NESTING):
        level = [field for holder in level for field in _each(holder, inner, parts)]
        if not level:
            return
        for field in level:
            if field.number(2, "<B") == _UNION:
                _refuse("holds a union, which no frame holds")
            for pair in _each(field, 6, parts):
                _check_extension(pair)
        inner = 5
    _refuse("nests its types too deep")


def _each(holder: _Table, field: int, parts: Iterator[int]) -> Iterator[_Table]:
    """Yield the tables of a *field*, each of which takes one of all *parts* that there can be."""
    for table in holder.tables(field):
        if next(parts, None) is None:
            _refuse("refers to its parts too often")
        yield table


#: All shards of a shuffle begin with the same schema.
_check_remembered = lru_cache(maxsize=64)(_check_schema)
_REMEMBERED = 1 << 16


def _check_extension(pair: _Table) -> None:
    key = pair.text(0, _MAX_KEY)
    if key == b"ARROW:extension:name" and pair.text(1, _MAX_KEY) not in _EXTENSIONS:
        _refuse("names an extension that safeser does not list")
    if key == b"ARROW:extension:metadata" and len(pair.text(1, _MAX_EXTENSION)) > _MAX_EXTENSION:
        _refuse("describes an extension at too great length")


def _check_body(said: bytes) -> None:
    kind, batch = _described(said)
    if kind == _DICTIONARY:
        batch = batch.table(1)
    elif kind != _BATCH:
        _refuse("holds a message that is no table")
    if batch.has(3):
        _refuse("is compressed")


# -- arrays --------------------------------------------------------------------------------------


def _is_simple(kind: Any) -> bool:
    return kind.id in _SIMPLE and is_flat(kind)


def _has_known_dictionary(site: Site, array: Any, known: set[Any]) -> bool:
    """Check the indexes of *array* alone, and tell so, if its dictionary was checked before.

    A stream brings it once for all of its tables.
    """
    if not pa.types.is_dictionary(array.type) or not _is_simple(array.type.value_type):
        return False  # parts of others may change while their buffers stay
    values = array.dictionary
    places = [None if each is None else (each.address, each.size) for each in values.buffers()]
    dictionary = (str(array.type), len(values), *places)
    if dictionary not in known:
        known.add(dictionary)
        return False
    _check_array(site, array.indices)
    span = _compute.min_max(array.indices)
    low, high = span["min"].as_py(), span["max"].as_py()
    if low is not None and not 0 <= low <= high < len(values):
        _refuse("has an index outside its dictionary")
    return True


def _check_array(site: Site, array: Any) -> None:
    if _is_simple(array.type) and len(array):
        for buffer in array.buffers():
            # Several columns may share their bytes, and a sort copies each column.
            site.charge_bytes(0 if buffer is None else buffer.size)
        array.validate(full=True)
        return
    _, (state,) = array.__reduce__()
    _check_empty(state)
    reviewed.SHIMS["array"](site, "", state)


def _check_empty(state: Any) -> None:
    """Refuse offsets of arrays of no elements that lead nowhere.

    Arrow checks none of them, and follows the first when it joins arrays.
    """
    kind, length, _, _, buffers, children, dictionary = state
    width = _OFFSETS.get(storage_of(kind).id, 0)
    offsets = buffers[1] if width and not length else None
    if offsets is not None and offsets.size >= width:
        first = int.from_bytes(memoryview(offsets)[:width], "little", signed=True)
        held = [child[1] for child in children]
        held += [0 if buffer is None else buffer.size for buffer in buffers[2:]]
        if not 0 <= first <= min(held):
            _refuse("has an empty array with offsets outside its buffers")
    for child in (*children, *(() if dictionary is None else (dictionary,))):
        _check_empty(child)


# --- compute the size of dictionary-encoded Arrow arrays once every row is expanded ---------------
# The one rule: the size is computed without expanding anything. A text of one megabyte that 100,000
# rows refer to arrives as 1.1 MB and takes 100 GB as plain text: pandas and Arrow expand it to
# convert a column to another type, and Arrow expands any such column inside a list or a structure.


def decoded_size(array: Any) -> int:
    """Return the expanded size in bytes of the dictionary-encoded parts of *array*, at any depth.

    :param array: an array that was validated.
    """
    total = 0
    pending = [array] if holds(pa.types.is_dictionary, array.type) else []
    while pending:
        part = _stored(pending.pop())
        if pa.types.is_dictionary(part.type):
            total += _named_size(part)
        else:
            pending += _held(part)
    return total


def _named_size(array: Any) -> int:
    """Return how many bytes the values take that the rows of *array* name."""
    counted = array.indices.drop_null().value_counts()
    times = counted.field("counts")
    rows = _compute.sum(times).as_py() or 0
    values = _stored(array.dictionary)
    if not pa.types.is_dictionary(values.type) and not _held(values):
        try:
            # What is taken here is no larger than what it is counted as.
            texts = values.take(counted.field("values")).cast(pa.large_binary())
            lengths = _compute.multiply(_compute.binary_length(texts), times)
            return int(_compute.sum(lengths).as_py() or 0)
        except pa.ArrowNotImplementedError:
            with suppress(ValueError):  # a type without a fixed width
                return int(rows) * -(-int(values.type.bit_width) // 8)
    # At most as much for each row as all values take together.
    return int(rows) * (int(values.nbytes) + decoded_size(values))


def _stored(array: Any) -> Any:
    """Return the array in which *array* is stored: itself, but for extensions."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def _held(array: Any) -> list[Any]:
    """Return the arrays of which *array* is made."""
    if pa.types.is_struct(array.type):
        return [array.field(at) for at in range(array.type.num_fields)]
    if pa.types.is_map(array.type):
        return [array.keys, array.items]
    if hasattr(array, "flatten"):  # of all kinds of lists
        return [array.flatten()]
    return [array.values] if array.type.num_fields else []  # of runs, their values

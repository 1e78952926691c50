"""Encode Arrow tables, arrays, scalars and schemas, and decode them over the received buffers.

The one rule: Arrow's IPC reader receives no bytes of a peer. Reviewed factories make the types.
Arrays are built from buffers by the reviewed functions of restricted pickle, which check what Arrow
asserts and end with Arrow's own full validation.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from safeser.families.arrow import slices as arrow_slices
from safeser.families.arrow import types as arrow_types
from safeser.families.arrow.layout import Reader, Writer, checking
from safeser.families.arrow.types import storage_of
from safeser.families.plain import Unencodable, label
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles import Budget
from safeser.pickles.shims.arrow import arrays as reviewed
from safeser.types.arrow import chunked, dictionary_of, empty_of, parts_of

__all__ = ["register"]

#: Untyped on purpose: Arrow is an extra.
pa: Any = importlib.import_module("pyarrow")
_is: Any = pa.types

#: Elements that may lie before a slice, to begin with a whole byte of flags.
_BITS = 8


#: What reading or walking over one part of a type takes, beside what is charged for elements.
_PER_PART = 4


class _Form:
    """A type taken apart once, for all arrays that are of it.

    :param pairs: whether it is what the pairs of a map are.
    """

    __slots__ = ("dictionary", "kind", "pairs", "parts", "shared", "size")

    def __init__(self, kind: Any, *, pairs: bool = False) -> None:
        self.kind = kind
        self.pairs = pairs
        self.parts: list[_Form] = []
        self.dictionary: _Form | None = None
        self.shared = False
        self.size = 1
        if arrow_types.is_flat(kind):
            return
        storage = storage_of(kind)
        if _is.is_dictionary(storage):
            self.dictionary = _Form(storage.value_type)
            self.shared = storage is kind
            self.size += self.dictionary.size
        else:
            is_map = _is.is_map(storage)
            self.parts = [_Form(part, pairs=is_map) for part in parts_of(storage)]
            self.size += sum(part.size for part in self.parts)


class _Arrays:
    """Arrays whose sizes were read, and the parts to build them from."""

    __slots__ = ("_built", "_dictionaries", "_empty", "_fitting", "reader")

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._dictionaries: list[Any] = []
        self._built: dict[int, Any] = {}
        self._fitting: set[tuple[int, int]] = set()
        self._empty: dict[int, Any] = {}

    def read(self, form: _Form) -> Any:
        """Read the description of an array of *form* from the next words."""
        if not form.shared:
            return self._state(form, top=True)
        # Arrow compares the whole type when it joins indexes and dictionary, and then chunks.
        self.reader.site.charge(_PER_PART * form.size)
        indexes = self._state(_Form(form.kind.index_type), top=True)
        number = self.reader.word(int, type(None))
        if number is None:
            number = len(self._dictionaries)
            assert form.dictionary is not None  # without this, no dictionary would be shared
            self._dictionaries.append(self._state(form.dictionary, top=True))
        elif not 0 <= number < len(self._dictionaries):
            self.reader.refuse("it refers to a dictionary that it does not hold")
        return form, indexes, number

    def _state(self, form: _Form, *, top: bool = False) -> Any:
        length = self.reader.count()
        if not length and form.dictionary is None:
            if top:
                return (form,)
            # One word may stand for an empty array of ten thousand parts.
            self.reader.site.charge(_PER_PART * form.size)
        offset, buffers = self._buffers() if length else (0, [])
        children: list[Any] = []
        if length:
            children = [self._state(part) for part in form.parts]
        elif form.pairs:
            # The pairs of a map are asked how many keys they have.
            children = [_nothing_of(part) for part in form.parts]
        values = None if form.dictionary is None else self._state(form.dictionary)
        return form.kind, length, -1, offset, buffers, children, values

    def _buffers(self) -> tuple[int, list[Any]]:
        offset = self.reader.count()
        if offset >= _BITS:
            self.reader.refuse("its offset exceeds its length")
        return offset, [self.reader.buffer() for _ in self.reader.each()]

    def build(self, state: Any) -> Any:
        """Build the array; Arrow raises its own error if its validation fails."""
        if len(state) == 1:
            return self._nothing(state[0])
        if len(state) > 3:
            return reviewed.SHIMS["array"](self.reader.site, "", state)
        form, indexes, number = state
        values = self._built.get(number)
        if values is None:
            values = self._built[number] = self.build(self._dictionaries[number])
        # Once for all chunks: types of many parts are slow to compare.
        if (number, id(form)) not in self._fitting:
            if not values.type.equals(form.kind.value_type):
                self.reader.refuse("it refers to a dictionary of another type")
            self._fitting.add((number, id(form)))
        return dictionary_of(self.build(indexes), values, ordered=form.kind.ordered)

    def _nothing(self, form: _Form) -> Any:
        empty = self._empty.get(id(form))
        if empty is None:
            empty = self._empty[id(form)] = empty_of(form.kind)
        return empty


def _nothing_of(form: _Form) -> Any:
    """Return the description of an array of *form* without elements."""
    values = None if form.dictionary is None else _nothing_of(form.dictionary)
    return form.kind, 0, -1, 0, [], [], values


@dataclass(frozen=True, slots=True)
class _Plan:
    """The checked parts of one object, ready to be built."""

    arrays: _Arrays
    schema: Any
    columns: list[Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """The functions that write, read and build one of Arrow's classes."""

    write: Callable[[Writer, Any], None]
    read: Callable[[Reader], Any]
    build: Callable[[Any], Any] = lambda made: made

    def encode(self, x: Any, limits: Limits) -> Parts:
        writer = Writer()
        try:
            self.write(writer, x)
        except (BufferError, IndexError, ValueError) as error:
            raise Unencodable(x, f"Arrow cannot take it apart ({type(error).__name__})") from None
        try:
            return Parts({}, writer.frames(limits))
        except Unencodable as error:
            raise Unencodable(x, error.reason) from None  # of all of it, not of its words

    def check(self, node: Node, limits: Limits, budget: Budget) -> None:
        node.expect(frames=len(node.frames))
        with checking(node):
            reader = Reader(node.frames, limits, node.refuse, budget)
            node.value = self.read(reader)
            reader.end()

    def decode(self, node: Node, values: list[Any], _: Budget) -> Any:
        # What its reader holds is charged for both.
        with checking(node):
            return self.build(node.value)


# -- arrays --------------------------------------------------------------------------------------


def _own(x: Any) -> None:
    if type(x).__module__ != "pyarrow.lib":
        raise Unencodable(x, "it is a subclass that safeser does not list; send its storage")


def _write_array(writer: Writer, x: Any) -> None:
    arrow_types.write_type(writer, x.type)
    _own(x)
    arrow_slices.write_array(writer, x)


def _read_array(reader: Reader) -> _Plan:
    kind = arrow_types.read_type(reader)
    arrays = _Arrays(reader)
    return _Plan(arrays, kind, [arrays.read(_Form(kind))])


def _build_array(plan: _Plan) -> Any:
    return plan.arrays.build(plan.columns[0])


def _write_scalar(writer: Writer, x: Any) -> None:
    arrow_types.write_type(writer, x.type)
    _own(x)
    arrow_slices.write_array(writer, pa.repeat(x, 1))


def _read_scalar(reader: Reader) -> _Plan:
    plan = _read_array(reader)
    (state,) = plan.columns
    if len(state) == 3:
        _, state, _ = state
    if len(state) == 1 or state[1] != 1:
        reader.refuse("a scalar is one element")
    return plan


def _build_scalar(plan: _Plan) -> Any:
    return _build_array(plan)[0]


def _write_chunks(writer: Writer, column: Any) -> None:
    writer.put(column.num_chunks)
    for chunk in column.chunks:
        arrow_slices.write_array(writer, chunk)


def _write_chunked(writer: Writer, x: Any) -> None:
    arrow_types.write_type(writer, x.type)
    _write_chunks(writer, x)


def _read_chunked(reader: Reader) -> _Plan:
    kind = arrow_types.read_type(reader)
    arrays, form = _Arrays(reader), _Form(kind)
    return _Plan(arrays, kind, [arrays.read(form) for _ in reader.each()])


def _build_chunked(plan: _Plan) -> Any:
    return chunked([plan.arrays.build(chunk) for chunk in plan.columns], plan.schema)


# -- tables --------------------------------------------------------------------------------------


def _write_columns(writer: Writer, x: Any, *, write: Callable[[Writer, Any], None]) -> None:
    if not x.num_columns and x.num_rows:
        raise Unencodable(x, "it has rows without any column")
    arrow_types.write_schema(writer, x.schema)
    for position, column in enumerate(x.columns):
        try:
            write(writer, column)
        except Unencodable as error:
            error.path.append(f" (column {label(x.schema.names[position])})")
            raise


def _read_table(reader: Reader) -> _Plan:
    schema = arrow_types.read_schema(reader)
    arrays = _Arrays(reader)
    forms = [_Form(kind) for kind in schema.types]
    columns = [[arrays.read(form) for _ in reader.each()] for form in forms]
    return _Plan(arrays, schema, columns)


def _build_table(plan: _Plan) -> Any:
    columns = [
        chunked([plan.arrays.build(chunk) for chunk in chunks], kind)
        for chunks, kind in zip(plan.columns, plan.schema.types, strict=True)
    ]
    return reviewed.SHIMS["table"](plan.arrays.reader.site, "", columns, plan.schema)


def _read_batch(reader: Reader) -> _Plan:
    schema = arrow_types.read_schema(reader)
    arrays = _Arrays(reader)
    return _Plan(arrays, schema, [arrays.read(_Form(kind)) for kind in schema.types])


def _build_batch(plan: _Plan) -> Any:
    columns = [plan.arrays.build(column) for column in plan.columns]
    return reviewed.SHIMS["batch"](plan.arrays.reader.site, "", columns, plan.schema)


# -- the small ones ------------------------------------------------------------------------------


def _read_buffer(reader: Reader) -> Any:
    found = reader.buffer()
    if found is None:
        reader.refuse("its bytes are missing")
    return found


def _write_pairs(writer: Writer, x: Any) -> None:
    arrow_types.write_metadata(writer, list(x.items()))


def _read_pairs(reader: Reader) -> Any:
    found = arrow_types.read_metadata(reader)
    if found is None:
        reader.refuse("its pairs are missing")
    return found


_write_batch = partial(_write_columns, write=arrow_slices.write_array)
_write_table = partial(_write_columns, write=_write_chunks)

_KINDS: dict[str, tuple[_Kind, bool]] = {
    "Array": (_Kind(_write_array, _read_array, _build_array), True),
    "Buffer": (_Kind(Writer.buffer, _read_buffer), False),
    "ChunkedArray": (_Kind(_write_chunked, _read_chunked, _build_chunked), False),
    "DataType": (_Kind(arrow_types.write_type, arrow_types.read_type), True),
    "Field": (_Kind(arrow_types.write_field, arrow_types.read_field), False),
    "KeyValueMetadata": (_Kind(_write_pairs, _read_pairs), False),
    "RecordBatch": (_Kind(_write_batch, _read_batch, _build_batch), False),
    "Scalar": (_Kind(_write_scalar, _read_scalar, _build_scalar), True),
    "Schema": (_Kind(arrow_types.write_schema, arrow_types.read_schema), False),
    "Table": (_Kind(_write_table, _read_table, _build_table), False),
}


def register() -> None:
    """List Arrow's types; called once, when the first is needed."""
    for name, (kind, subclasses) in _KINDS.items():
        typed = Typed(
            f"pyarrow:{name}",
            (getattr(pa, name),),
            kind.encode,
            kind.check,
            kind.decode,
            subclasses=subclasses,
            budgeted=True,
        )
        registry.register(typed)

"""Describe NumPy dtypes in plain values, and build dtypes from checked descriptions.

The one rule: :mod:`safeser.types.numpy` states which dtypes are valid, and ``numpy.dtype`` receives
no text of a peer except a letter and a number from the tables here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import msgpack
import numpy as np

from safeser.errors import PayloadError
from safeser.families import plain
from safeser.families.plain import Unencodable, label
from safeser.types import numpy as bounds

__all__ = ["NUMBERS", "OBJECTS", "build", "describe", "has_gaps", "holds_objects"]

#: What describes the dtype of arrays of Python objects, which travel one by one.
OBJECTS = "objects"

# Letter to the item sizes that some platform gives it. The letter keeps C long and C long long
# apart where they are equally wide; kind and size stand in where the letter's width differs.
_LETTERS: dict[str, tuple[str, frozenset[int]]] = {
    "?": ("b", frozenset({1})),
    **{letter: ("i", frozenset({1, 2, 4, 8})) for letter in "bhilqp"},
    **{letter: ("u", frozenset({1, 2, 4, 8})) for letter in "BHILQP"},
    "e": ("f", frozenset({2})),
    "f": ("f", frozenset({4})),
    "d": ("f", frozenset({8})),
    "g": ("f", frozenset({8, 12, 16})),
    "F": ("c", frozenset({8})),
    "D": ("c", frozenset({16})),
    "G": ("c", frozenset({16, 24, 32})),
}
_TEXTS = ("S", "U", "V")
_TIMES = ("M", "m")
_UNITS = frozenset(
    ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic")
)

_NATIVE = "<" if sys.byteorder == "little" else ">"


def describe(dtype: np.dtype[Any]) -> Any:
    """Return the description of *dtype*; raises Unencodable where some of it would be lost.

    :raises PayloadError: if it is out of bounds.
    """
    if dtype.names is None and not dtype.metadata:
        spelled = _SPELLED.get((dtype.type, dtype.byteorder))
        if spelled is not None:
            return spelled
    bounds.check_dtype(dtype)
    return _describe(dtype, "")


def _describe(dtype: np.dtype[Any], where: str) -> Any:
    """Return the description of a checked *dtype*.

    :param where: which field has it, for the error.
    """
    if not dtype.metadata:
        return _describe_bare(dtype, where)
    # In bytes: sub-headers keep no tuples.
    return {"metadata": plain.encode(dict(dtype.metadata)), "of": _describe_bare(dtype, where)}


def _describe_bare(dtype: np.dtype[Any], where: str) -> Any:
    if dtype.names is not None:
        fields = []
        held: Any = dtype.fields
        for name in dtype.names or ():
            inner, offset, *title = held[name]
            fields.append([name, _describe(inner, f" of field {label(name)}"), offset, *title])
        described = {"fields": fields, "size": dtype.itemsize, "align": dtype.isalignedstruct}
        return described | {"record": True} if dtype.type is np.record else described
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": _describe(base, where), "shape": list(shape)}
    if dtype == np.dtype(object):
        return OBJECTS
    spelled = _SPELLED.get((dtype.type, dtype.byteorder))
    return _describe_sized(dtype, where) if spelled is None else spelled


def _describe_sized(dtype: np.dtype[Any], where: str) -> Any:
    """Return the description of a time, or of text or bytes of some size."""
    order = _NATIVE if dtype.byteorder == "=" else dtype.byteorder
    if dtype.kind in _TIMES:
        unit, step = np.datetime_data(dtype)
        if step == 1:
            return f"{order}{dtype.kind}8[{unit}]"
        return [dtype.kind, dtype.itemsize, order, unit, step]
    plain_one = dtype.char in _TEXTS and dtype.type in (np.bytes_, np.str_, np.void)
    if not plain_one or dtype.hasobject:
        raise Unencodable(dtype, f"the dtype{where} is not a plain NumPy one")
    return [dtype.char, dtype.itemsize, order]


def holds_objects(description: Any) -> bool:
    """Whether *description* is that of objects, with or without what a user attached to it."""
    if type(description) is dict and "metadata" in description:
        return bool(description.get("of") == OBJECTS)
    return bool(description == OBJECTS)


def _refuse(message: str) -> NoReturn:
    raise PayloadError(f"a dtype is refused: {message}", rule="families.dtype")


def build(description: Any) -> np.dtype[Any]:
    """Return the dtype that *description* stands for; anything unusual is a PayloadError."""
    if type(description) is str:
        known = _NAMED.get(description)
        if known is None:
            _refuse("it is not one of the plain dtypes that safeser knows")
        return known
    return _remembered(description) if type(description) is dict else _whole(description)


def _whole(description: Any) -> np.dtype[Any]:
    built = _Reading().built(description, bounds.MAX_NESTING)
    bounds.check_dtype(built)
    return built


def _remembered(description: dict[Any, Any]) -> np.dtype[Any]:
    """Return a dtype of its own for *description*, quickly if the same came before."""
    try:
        # Unlike equality, it tells True from 1, and what is nested in what.
        key = msgpack.packb(description, strict_types=True)
    except (TypeError, ValueError, OverflowError):  # it holds what no description holds
        return _whole(description)
    known = _records.get(key)
    if known is None:
        known = _whole(description)
        if len(key) > _MAX_KEY or not _is_flat(known):
            return known
        if len(_records) >= _MAX_RECORDS:
            _records.clear()
        _records[key] = known
    # Its receiver may rename its fields, in place. NumPy's copy=True copies no record; this does.
    return known.newbyteorder("|")


def _is_flat(dtype: np.dtype[Any]) -> bool:
    """Whether a copy of *dtype* is like it and shares no record, title or metadata with it."""
    fields = dtype.fields
    return (
        fields is not None
        and not dtype.metadata
        and all(
            len(field) == 2 and field[0].base.names is None and not field[0].metadata
            for field in fields.values()
        )
    )


#: Dtypes of records that came before, by their descriptions: an array's blocks have one.
_records: dict[bytes, np.dtype[Any]] = {}
#: Programs use fewer at a time; further dtypes of a peer do not grow the cache.
_MAX_RECORDS = 128
_MAX_KEY = 2048


class _Reading:
    """Reads one description; counts its fields before reading any."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = bounds.MAX_PARTS

    def built(self, description: Any, room: int) -> np.dtype[Any]:
        """Return the dtype of a *description* with at most *room* more inside each other."""
        if type(description) is str:
            return build(description)
        if isinstance(description, dict):
            keys = description.keys()
            if keys == {"metadata", "of"}:
                return self.noted(description, room)
            if room <= 0:
                _refuse(f"it is nested more than {bounds.MAX_NESTING} deep")
            if keys == {"base", "shape"}:
                base = self.built(description["base"], room - 1)
                return bounds.subarray(base, bounds.check_shape(description["shape"]))
            if keys == {"fields", "size", "align"}:
                return self.record(description, room)
            if keys == {"fields", "size", "align", "record"} and description["record"] is True:
                record: Any = np.record
                return np.dtype((record, self.record(description, room)))
        elif isinstance(description, (list, tuple)) and len(description) in (3, 5):
            return _single(list(description))
        _refuse("it is not described as safeser does")

    def noted(self, description: Mapping[str, Any], room: int) -> np.dtype[Any]:
        """Return a dtype with the metadata that its user attached."""
        attached, inner = description["metadata"], description["of"]
        if type(attached) is not bytes or (type(inner) is dict and "metadata" in inner):
            _refuse("its metadata are not described")
        values = plain.decode(attached)
        if type(values) is not dict or not values:
            _refuse("its metadata are not described")
        return bounds.with_metadata(self.built(inner, room), values)

    def record(self, description: Mapping[str, Any], room: int) -> np.dtype[Any]:
        listed, size, align = description["fields"], description["size"], description["align"]
        if type(size) is not int or type(align) is not bool:
            _refuse("its size or alignment is out of range")
        if not isinstance(listed, (list, tuple)):
            _refuse("its fields are not a list")
        self.left -= len(listed)
        if self.left < 0:
            _refuse(f"it has more than {bounds.MAX_PARTS} fields")
        return bounds.record([self.field(entry, room) for entry in listed], size, align=align)

    def field(self, entry: Any, room: int) -> bounds.Field:
        if not isinstance(entry, (list, tuple)) or len(entry) not in (3, 4):
            _refuse("a field is not described by name, dtype and offset")
        name, inner, offset, *title = entry
        if type(name) is not str or any(type(text) is not str for text in title):
            _refuse("a field's name or title is not text")
        if type(offset) is not int:
            _refuse("a field's offset is not a number")
        return bounds.Field(name, self.built(inner, room - 1), offset, *title)


def _single(description: list[Any]) -> np.dtype[Any]:
    letter, size, order, *rest = description
    if type(letter) is not str or type(size) is not int or order not in ("<", ">", "|"):
        _refuse("letter, size or byte order is wrong")
    if size < 0:
        _refuse("its size is out of range")
    if letter in _TIMES:
        if size != 8 or len(rest) != 2 or order == "|":
            _refuse("a date or duration has eight bytes, a unit and a step")
        unit, step = rest
        if type(unit) is not str or unit not in _UNITS:
            _refuse("its unit is unknown")
        if type(step) is not int or not 1 < step < 1 << 31 or unit == "generic":
            _refuse("its step is out of range")
        return np.dtype(f"{order}{letter}8[{step}{unit}]")
    if rest or letter not in _TEXTS:
        _refuse("it is neither text nor bytes nor a time; objects never are")
    if letter == "U" and size % 4:
        _refuse("the size of its text is not a multiple of four")
    try:
        return np.dtype(f"{order}{letter}{size // 4 if letter == 'U' else size}")
    except (TypeError, ValueError):  # NumPy keeps sizes as C ints
        _refuse("its size is out of range")


def has_gaps(dtype: np.dtype[Any]) -> bool:
    """Whether an element of *dtype* has bytes that no field shows; a view of some fields has.

    So has a long double that takes sixteen bytes and is ten.
    """
    if dtype.names is None:
        return bounds.is_padded(dtype) or (dtype.subdtype is not None and has_gaps(dtype.base))
    assert dtype.fields is not None
    held = [dtype.fields[name][0] for name in dtype.names]
    return sum(field.itemsize for field in held) < dtype.itemsize or any(map(has_gaps, held))


def _numbers() -> Iterator[tuple[str, np.dtype[Any]]]:
    """Yield each plain number and time by the text that stands for it, as ``<l8``."""
    for letter, (kind, sizes) in _LETTERS.items():
        for size in sizes:
            try:
                # Where the letter is of another width here, kind and size say which it is.
                fits = np.dtype(letter).itemsize == size
                dtype = np.dtype(letter if fits else f"{kind}{size}")
            except TypeError:  # numbers of that size do not exist on this platform
                continue
            for order in "|" if size == 1 else "<>":
                yield f"{order}{letter}{size}", _ordered(dtype, order)
    for letter in _TIMES:
        for unit in _UNITS:
            dtype = np.dtype(f"{letter}8" if unit == "generic" else f"{letter}8[{unit}]")
            for order in "<>":
                yield f"{order}{letter}8[{unit}]", _ordered(dtype, order)


def _ordered(dtype: np.dtype[Any], order: str) -> np.dtype[Any]:
    # newbyteorder marks even the native order, which then shows in the dtype's text.
    return dtype if order in ("|", _NATIVE) else dtype.newbyteorder("<" if order == "<" else ">")


#: Dtypes of numbers and times, which most arrays have, by what describes them.
NUMBERS: dict[str, np.dtype[Any]] = dict(_numbers())

#: And that of objects: harmless as a value, and refused wherever bytes would become elements.
_NAMED = {**NUMBERS, OBJECTS: np.dtype(object)}

#: What describes a number of this platform, by its class, which tells C long and C long long apart
#: as the letter does, and by the byte order that NumPy shows.
_SPELLED: dict[tuple[type, str], str] = {
    (dtype.type, dtype.byteorder): text
    for text, dtype in NUMBERS.items()
    if dtype.char == text[1] and dtype.kind not in _TIMES
}
# Zarr and HDF5 mark the native order, which makes no other dtype of it.
_SPELLED |= {(kind, _NATIVE): text for (kind, order), text in _SPELLED.items() if order == "="}

"""NumPy dtypes as descriptions of our own, and dtypes from descriptions that were checked.

The one rule: no dtype that can hold a pointer is ever built from a description, at any depth, and
no text of a peer reaches ``numpy.dtype`` unless it is a letter and a number from tables here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import msgpack
import numpy as np

from safeser.errors import PayloadError
from safeser.families.plain import Unencodable, label

__all__ = ["NUMBERS", "build", "check_shape", "describe", "has_gaps", "is_strict", "strict_fields"]

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

_MAX_ITEMSIZE = (1 << 31) - 1  # a C int inside NumPy
_MAX_DIMENSIONS = 64  # NumPy 2's own bound, 32 before it
_MAX_FIELDS = 4096  # each costs a description and a dtype; no honest record comes near
_MAX_NESTING = 16  # NumPy recurses over nested records in C
_NATIVE = "<" if sys.byteorder == "little" else ">"


def describe(dtype: np.dtype[Any], *, where: str = "") -> Any:
    """Return the description of *dtype*; raises Unencodable where some of it would be lost.

    :param where: name of the field that has it, for the error.
    """
    if dtype.metadata:
        of_field = f" of field {where}" if where else ""
        raise Unencodable(dtype, f"the dtype{of_field} carries metadata")
    if dtype.names is not None:
        return _describe_fields(dtype)
    spelled = _SPELLED.get((dtype.type, dtype.byteorder))
    return _describe_other(dtype, where) if spelled is None else spelled


def _describe_other(dtype: np.dtype[Any], where: str) -> Any:
    of_field = f" of field {where}" if where else ""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        if not dtype.itemsize:
            raise Unencodable(dtype, f"the dtype{of_field} is of a sub-array without bytes")
        return {"base": describe(base, where=where), "shape": list(shape)}
    if dtype.char == "T":
        return _describe_string(dtype)
    order = _NATIVE if dtype.byteorder == "=" else dtype.byteorder
    if dtype.kind in _TIMES:
        unit, step = np.datetime_data(dtype)
        if step == 1:
            return f"{order}{dtype.kind}8[{unit}]"
        return [dtype.kind, dtype.itemsize, order, unit, step]
    plain = dtype.char in _TEXTS and dtype.type in (np.bytes_, np.str_, np.void)
    if not plain or dtype.hasobject:
        raise Unencodable(dtype, f"the dtype{of_field} is not a plain NumPy one")
    return [dtype.char, dtype.itemsize, order]


def _describe_fields(dtype: np.dtype[Any]) -> dict[str, Any]:
    if dtype.type not in (np.void, np.record):
        raise Unencodable(dtype, "a record dtype with a scalar type of its own is not kept")
    fields = []
    spans = []
    assert dtype.names is not None
    assert dtype.fields is not None
    for name in dtype.names:
        inner, offset, *title = dtype.fields[name]
        if title and type(title[0]) is not str:
            raise Unencodable(dtype, "a field's title is not text")
        fields.append([name, describe(inner, where=label(name)), offset, *title])
        spans.append((offset, inner.itemsize))
    if _overlap(spans):
        raise Unencodable(dtype, "its fields overlap")
    described = {"fields": fields, "size": dtype.itemsize, "align": dtype.isalignedstruct}
    return described | {"record": True} if dtype.type is np.record else described


def _describe_string(dtype: Any) -> dict[str, Any]:
    missing: list[Any] = []
    if hasattr(dtype, "na_object"):
        missing = [dtype.na_object]
        if type(missing[0]) not in (str, float, type(None)):
            raise Unencodable(dtype, "its missing value is not None, NaN or text")
    return {"missing": missing, "coerce": dtype.coerce}


def _overlap(spans: list[tuple[int, int]]) -> bool:
    end = 0
    for offset, size in sorted(span for span in spans if span[1]):
        if offset < end:
            return True
        end = offset + size
    return False


def _refuse(message: str) -> NoReturn:
    raise PayloadError(f"a dtype is refused: {message}", rule="families.dtype")


def build(description: Any) -> np.dtype[Any]:
    """Return the dtype that *description* stands for; anything unusual is a PayloadError."""
    if type(description) is str:
        known = NUMBERS.get(description)
        if known is None:
            _refuse("it is not one of the plain dtypes that safeser knows; objects never are")
        return known
    return _remembered(description) if type(description) is dict else _whole(description)


def _whole(description: Any) -> np.dtype[Any]:
    return _build(description, _MAX_NESTING, [_MAX_FIELDS])


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
    """Whether a copy of *dtype* is like it and shares nothing: no records inside it, no titles."""
    fields = dtype.fields
    return fields is not None and all(
        len(field) == 2 and field[0].base.names is None for field in fields.values()
    )


#: Dtypes of records that came before, by their descriptions: an array's blocks have one.
_records: dict[bytes, np.dtype[Any]] = {}
#: Nobody has more at a time; whoever sends others makes it no larger.
_MAX_RECORDS = 128
_MAX_KEY = 2048


def _build(description: Any, room: int, fields: list[int]) -> np.dtype[Any]:
    if room <= 0:
        _refuse("it is nested too deep")
    if type(description) is str:
        return build(description)
    if isinstance(description, dict):
        if description.keys() == {"base", "shape"}:
            return _subarray(description, room, fields)
        if description.keys() == {"fields", "size", "align"}:
            return _record(description, room, fields)
        if description.keys() == {"fields", "size", "align", "record"}:
            if description["record"] is not True:
                _refuse("its elements are of an unknown class")
            record: Any = np.record
            return np.dtype((record, _record(description, room, fields)))
        if description.keys() == {"missing", "coerce"} and room == _MAX_NESTING:
            return _string(description)
    elif isinstance(description, (list, tuple)) and len(description) in (3, 5):
        return _single(list(description))
    _refuse("it is not described as safeser does")


def _single(description: list[Any]) -> np.dtype[Any]:
    letter, size, order, *rest = description
    if type(letter) is not str or type(size) is not int or order not in ("<", ">", "|"):
        _refuse("letter, size or byte order is wrong")
    if not 0 <= size <= _MAX_ITEMSIZE:
        _refuse("its size is out of range")
    if letter in _TIMES:
        return _time(letter, size, order, rest)
    if rest or letter not in _TEXTS:
        _refuse("it is neither text nor bytes nor a time; objects never are")
    if letter == "U" and size % 4:
        _refuse("the size of its text is not a multiple of four")
    return np.dtype(f"{order}{letter}{size // 4 if letter == 'U' else size}")


def _time(letter: str, size: int, order: str, rest: list[Any]) -> np.dtype[Any]:
    if size != 8 or len(rest) != 2 or order == "|":
        _refuse("a date or duration has eight bytes, a unit and a step")
    unit, step = rest
    if type(unit) is not str or unit not in _UNITS:
        _refuse("its unit is unknown")
    if type(step) is not int or not 1 < step < 1 << 31 or unit == "generic":
        _refuse("its step is out of range")
    return np.dtype(f"{order}{letter}8[{step}{unit}]")


def _string(description: Mapping[str, Any]) -> np.dtype[Any]:
    missing, coerce = description["missing"], description["coerce"]
    if type(coerce) is not bool or not isinstance(missing, (list, tuple)) or len(missing) > 1:
        _refuse("a text dtype has a flag, and one missing value or none")
    if not missing:
        return np.dtypes.StringDType(coerce=coerce)
    value = missing[0]
    if not (value is None or type(value) is str or (type(value) is float and math.isnan(value))):
        _refuse("a missing value is None, NaN or text")
    try:
        return np.dtypes.StringDType(coerce=coerce, na_object=value)
    except UnicodeEncodeError:
        _refuse("a missing value is no text")


def check_shape(shape: Any) -> tuple[int, ...]:
    """Return *shape* as a tuple of lengths that NumPy could have; their product is not judged."""
    if not isinstance(shape, (list, tuple)) or len(shape) > _MAX_DIMENSIONS:
        raise PayloadError("a shape is not a short list", rule="families.shape")
    for length in shape:
        if type(length) is not int or not 0 <= length < 1 << 62:
            raise PayloadError("a shape holds something else than lengths", rule="families.shape")
    return tuple(shape)


def _subarray(description: Mapping[str, Any], room: int, fields: list[int]) -> np.dtype[Any]:
    shape = check_shape(description["shape"])
    base = _build(description["base"], room - 1, fields)
    if not shape or base.subdtype is not None:
        _refuse("a sub-array has a shape, and no sub-array inside it")
    if len(shape) > 32 or math.prod(shape) * max(base.itemsize, 1) > _MAX_ITEMSIZE:
        _refuse("its sub-array is out of range")
    if not math.prod(shape) * base.itemsize:
        # It costs nothing to say, and whoever prints an element walks over all of it.
        _refuse("a sub-array has no bytes")
    built: np.dtype[Any] = np.dtype((base, shape))
    return built


def _record(description: Mapping[str, Any], room: int, fields: list[int]) -> np.dtype[Any]:
    listed, size, align = description["fields"], description["size"], description["align"]
    if type(size) is not int or not 0 <= size <= _MAX_ITEMSIZE or type(align) is not bool:
        _refuse("its size or alignment is out of range")
    if not isinstance(listed, (list, tuple)):
        _refuse("its fields are not a list")
    fields[0] -= len(listed)
    if fields[0] < 0:
        _refuse(f"it has more than {_MAX_FIELDS} fields")
    names: list[str] = []
    formats, offsets, titles, spans = [], [], [], []
    for entry in listed:
        name, inner, offset, title = _field(entry, room, fields)
        if offset + inner.itemsize > size:
            _refuse("a field ends outside of it")
        names.append(name)
        formats.append(inner)
        offsets.append(offset)
        titles.append(title)
        spans.append((offset, inner.itemsize))
    keys = [*names, *(title for title in titles if title is not None)]
    if len(set(keys)) != len(keys):
        _refuse("two of its fields have one name")
    if _overlap(spans):
        _refuse("its fields overlap")
    form: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
    if any(title is not None for title in titles):
        form["titles"] = titles
    try:
        built: np.dtype[Any] = np.dtype(form, align=align)
    except (ValueError, TypeError, OverflowError):
        _refuse("its fields do not fit together")
    if built.itemsize != size or built.hasobject:
        _refuse("its fields do not fit together")
    return built


def _field(entry: Any, room: int, fields: list[int]) -> tuple[str, np.dtype[Any], int, str | None]:
    if not isinstance(entry, (list, tuple)) or len(entry) not in (3, 4):
        _refuse("a field is not described by name, dtype and offset")
    name, inner, offset, *title = entry
    if type(name) is not str or any(type(text) is not str for text in title):
        _refuse("a field's name or title is not text")
    if type(offset) is not int or not 0 <= offset <= _MAX_ITEMSIZE:
        _refuse("a field's offset is out of range")
    return name, _build(inner, room - 1, fields), offset, title[0] if title else None


def has_gaps(dtype: np.dtype[Any]) -> bool:
    """Whether an element of *dtype* has bytes that no field shows; a view of some fields has.

    So has a long double that takes sixteen bytes and is ten.
    """
    if dtype.names is None:
        return is_padded(dtype) or (dtype.subdtype is not None and has_gaps(dtype.base))
    assert dtype.fields is not None
    held = [dtype.fields[name][0] for name in dtype.names]
    return sum(field.itemsize for field in held) < dtype.itemsize or any(map(has_gaps, held))


def is_padded(dtype: np.dtype[Any]) -> bool:
    """Whether *dtype* is of long doubles whose last six bytes, of sixteen, are nothing."""
    return dtype.char in "gG" and _X87


def is_strict(dtype: np.dtype[Any]) -> bool:
    """Whether some of the bytes of an array of *dtype* may be wrong; see :func:`strict_fields`."""
    if dtype.names is None:
        return dtype.char in _STRICT
    strict = _strict.get(dtype)
    if strict is None:
        assert dtype.fields is not None
        # A field may be a sub-array, whose own letter says nothing.
        strict = any(is_strict(dtype.fields[name][0].base) for name in dtype.names)
        if len(_strict) >= _MAX_RECORDS:
            _strict.clear()
        _strict[dtype] = strict
    return strict


_X87 = np.finfo(np.longdouble).nmant == 63 and np.dtype("g").itemsize == 16
_STRICT = frozenset("?UgG")
_strict: dict[np.dtype[Any], bool] = {}


def strict_fields(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the parts of *array* whose bytes may be wrong, at every depth.

    Those are flags, text and long doubles, which have more bits than numbers.
    """
    if array.dtype.names is not None:
        for name in array.dtype.names:
            yield from strict_fields(array[name])
    elif array.dtype.char in _STRICT:
        yield array


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

#: What describes a number of this platform, by its class, which tells C long and C long long apart
#: as the letter does, and by the byte order that NumPy shows.
_SPELLED: dict[tuple[type, str], str] = {
    (dtype.type, dtype.byteorder): text
    for text, dtype in NUMBERS.items()
    if dtype.char == text[1] and dtype.kind not in _TIMES
}

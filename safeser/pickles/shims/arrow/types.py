"""Reviewed functions for Arrow's types, fields, schemas and buffers.

The one rule: a type is made by Arrow's public factories from parts that are bounded here first.
Arrow trusts types: a scale or a type code that is out of range indexes a table in C++, and one
null of a wide type takes all of its width.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.pickles.shims.site import Site, plain
from safeser.types import refused
from safeser.types.arrow import MAX_WIDTH, measured

__all__ = ["SHIMS", "check_noted", "pa", "sound_type", "width_of"]

#: Untyped on purpose: Arrow is an extra.
pa: Any = importlib.import_module("pyarrow")
_is: Any = pa.types

_INT32 = (1 << 31) - 1
_UNITS = ("s", "ms", "us", "ns")
_NAMES = """
    null bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 halffloat float double
    date32[day] date64[ms] time32[s] time32[ms] time64[us] time64[ns]
    duration[s] duration[ms] duration[us] duration[ns] month_day_nano_interval
    binary large_binary binary_view string large_string string_view
"""
_ALIASES = frozenset(_NAMES.split())
# Digits that each width of decimal holds. Arrow looks powers of ten up by the scale, unchecked.
_DIGITS = {"decimal32": 9, "decimal64": 18, "decimal128": 38, "decimal256": 76}
# Resolving the name opens a file of that name below the time zone database.
_ZONE = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9_+-]{0,31}(?:/[A-Za-z0-9_+-]{1,31}){0,3}|[+-][0-9]{2}:[0-9]{2})\Z"
)
_MAX_NAME = 1 << 16


def width_of(site: Site, kind: Any) -> int:
    """Return how many elements one value of *kind* takes, null or not; refuse endless types."""
    return measured(kind)[1]


def sound_type(value: Any) -> Any:
    if not isinstance(value, pa.DataType):
        raise refused("arrow-type", "a part of an Arrow type is not a type")
    return value


def _measured(site: Site, kind: Any) -> Any:
    width_of(site, kind)
    return kind


def _count(value: Any, most: int) -> int:
    if not 0 <= plain(value, int) <= most:
        raise refused("arrow-type", "a size in an Arrow type is out of range")
    return value  # type: ignore[no-any-return]  # plain() proved it an int


def _name(value: Any) -> str:
    if len(plain(value, str)) > _MAX_NAME:
        raise refused("arrow-type", "a name in an Arrow type is too long")
    return value  # type: ignore[no-any-return]  # plain() proved it a str


# -- plain types -------------------------------------------------------------------------------


def _alias(_: Site, __: str, alias: Any) -> Any:
    if plain(alias, str) not in _ALIASES:
        raise refused("arrow-type", "that is not the name of one of Arrow's types")
    return pa.type_for_alias(alias)


def _decimal(_: Site, name: str, precision: Any, scale: Any) -> Any:
    factory = name.partition(":")[2]
    most = _DIGITS[factory]
    return getattr(pa, factory)(_count(precision, most), _count(scale, most))


def _timestamp(_: Site, __: str, unit: Any, zone: Any = None) -> Any:
    if plain(unit, str) not in _UNITS:
        raise refused("arrow-type", "that is not a unit of time")
    if zone is not None and not _ZONE.match(plain(zone, str)):
        raise refused("time-zone", "that cannot be the name of a time zone")
    return pa.timestamp(unit, zone)


def _binary(site: Site, _: str, width: Any) -> Any:
    return _measured(site, pa.binary(_count(width, _INT32)))


# -- nested types ------------------------------------------------------------------------------


def _item(value: Any) -> Any:
    return value if isinstance(value, pa.Field) else sound_type(value)


def _list(site: Site, name: str, item: Any, size: Any = None) -> Any:
    factory = name.partition(":")[2]
    if size is None:
        return _measured(site, getattr(pa, factory)(_item(item)))
    if factory != "list_":
        raise refused("arrow-type", "only plain lists have a fixed size")
    return _measured(site, pa.list_(_item(item), _count(size, _INT32)))


def _map(site: Site, _: str, key: Any, item: Any) -> Any:
    return _measured(site, pa.map_(_item(key), _item(item)))


def _fields(site: Site, fields: Any) -> list[Any]:
    return [plain(field, pa.Field) for field in plain(fields, list)]


def _struct(site: Site, _: str, fields: Any) -> Any:
    return _measured(site, pa.struct(_fields(site, fields)))


def _union(site: Site, _: str, fields: Any, mode: Any, codes: Any) -> Any:
    parts = _fields(site, fields)
    numbers = [_count(code, 127) for code in plain(codes, list)]
    # Arrow keeps a table of 128 entries that codes index.
    if len(set(numbers)) != len(parts) or len(numbers) != len(parts):
        raise refused("arrow-type", "the codes of a union are not one for each of its parts")
    if mode not in ("dense", "sparse"):
        raise refused("arrow-type", "a union is dense or sparse")
    return _measured(site, pa.union(parts, mode, numbers))


def _dictionary(site: Site, _: str, index: Any, value: Any, ordered: Any = False) -> Any:
    if not _is.is_integer(sound_type(index)):
        raise refused("arrow-type", "the indexes of a dictionary are not integers")
    return _measured(site, pa.dictionary(index, sound_type(value), plain(ordered, bool)))


def _run_end(site: Site, _: str, ends: Any, value: Any) -> Any:
    if sound_type(ends) not in (pa.int16(), pa.int32(), pa.int64()):
        raise refused("arrow-type", "run ends are 16, 32 or 64 bit integers")
    return _measured(site, pa.run_end_encoded(ends, sound_type(value)))


# -- extension types ---------------------------------------------------------------------------


def _extension(_: Site, name: str) -> Any:
    return getattr(pa, name.partition(":")[2])()


def _json(_: Site, __: str, storage: Any) -> Any:
    return pa.json_(sound_type(storage))


def _opaque(site: Site, _: str, storage: Any, name: Any, vendor: Any) -> Any:
    return _measured(site, pa.opaque(sound_type(storage), _name(name), _name(vendor)))


def _tensor(
    site: Site, _: str, kind: Any, shape: Any, names: Any = None, turned: Any = None
) -> Any:
    if not _is.is_primitive(sound_type(kind)):
        raise refused("arrow-type", "the elements of a tensor are not numbers")
    sizes = [_count(size, MAX_WIDTH) for size in plain(shape, list, tuple)]
    if math.prod(size for size in sizes if size) > MAX_WIDTH:
        raise refused("arrow-type", "an Arrow type has too many parts or is too wide")
    if names is not None:
        names = [_name(name) for name in plain(names, list, tuple)]
        if len(names) != len(sizes):
            raise refused("arrow-type", "a tensor has another number of names than of dimensions")
    if turned is not None:
        turned = [_count(axis, len(sizes)) for axis in plain(turned, list, tuple)]
        if sorted(turned) != [*range(len(sizes))]:
            raise refused("arrow-type", "the axes of a tensor are no permutation")
    return _measured(site, pa.fixed_shape_tensor(kind, sizes, names, turned))


# -- fields, schemas, buffers ------------------------------------------------------------------


def _metadata(site: Site, value: Any) -> Any:
    if value is None or isinstance(value, pa.KeyValueMetadata):
        return value
    for pair in plain(value, dict).items():
        for part in pair:
            site.charge_bytes(len(plain(part, bytes)))
    return value


def _key_values(site: Site, _: str, pairs: Any) -> Any:
    for pair in plain(pairs, list):
        key, value = plain(pair, tuple)
        site.charge_bytes(len(plain(key, bytes)) + len(plain(value, bytes)))
    return pa.KeyValueMetadata(pairs)


def _field(
    site: Site, _: str, name: Any, kind: Any, nullable: Any = True, metadata: Any = None
) -> Any:
    return pa.field(
        _name(name), sound_type(kind), plain(nullable, bool), metadata=_metadata(site, metadata)
    )


def _schema(site: Site, _: str, fields: Any, metadata: Any = None) -> Any:
    held = _metadata(site, metadata)
    for key, value in () if held is None else held.items():
        if key == _NOTED:
            check_noted(value)
    return pa.schema(_fields(site, fields), metadata=held)


#: The key under which pandas notes what a table was made of, as JSON.
_NOTED = b"pandas"
#: What pandas noted of columns; names and attributes are the user's own, and types of nothing.
_NOTED_TYPES = ("columns", "column_indexes")
_NOTED_NAMES = ("name", "field_name")
#: pandas opens the file whose path follows, wherever a time zone is called so.
_FILE_ZONE = "dateutil/"
#: Fields of a column that name its type, and names of text types that NumPy does not have.
_TEXTS = {
    "pandas_type": frozenset({"bytes", "string", "unicode"}),
    "numpy_type": frozenset({"str", "string"}),
}
#: Types of NumPy's of which each element is as wide as the type says, or as the longest is.
_WIDE = "SUV"
#: Longer than any but Arrow's own, of which NumPy makes nothing.
_MAX_NOTED = 1 << 8
_OF_ARROW = "[pyarrow]"
#: Levels of rows that are counted: honest tables have one.
_MAX_RANGES = 16


def check_noted(noted: bytes) -> None:
    """Refuse pandas metadata that names a file, which ``to_pandas`` would open.

    Arrow has pandas make a type of each noted text, and a type of times has a zone in it. Names of
    columns are made to be of the noted type: with ``S1000000000``, each took a gigabyte. And each
    column or level of rows that is noted is made: a range of 60 bytes has a number for each row.
    """
    try:
        found = json.loads(noted.decode())
    except (ValueError, RecursionError):
        raise refused("arrow-type", "what pandas noted with an Arrow table is malformed") from None
    if isinstance(found, dict):
        _check_noted_once(found)
    pending = [found.get(name) for name in _NOTED_TYPES] if isinstance(found, dict) else []
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            for name, texts in _TEXTS.items():
                said = part.get(name)
                known = type(said) is str and (said in texts or said.endswith(_OF_ARROW))
                if said is None or known:
                    continue
                if type(said) is not str or len(said) > _MAX_NOTED or _is_wide(said):
                    why = "the pandas metadata names a dtype that no column has"
                    raise refused("arrow-type", why)
            pending += [held for name, held in part.items() if name not in _NOTED_NAMES]
        elif isinstance(part, list):
            pending += part
        elif isinstance(part, str) and _FILE_ZONE in part:
            raise refused(
                "time-zone", "a time zone that pandas noted with an Arrow table is a file"
            )


def _check_noted_once(found: dict[str, Any]) -> None:
    """Refuse metadata of which Arrow makes one column, or one level of rows, repeatedly."""
    columns, levels = found.get("columns"), found.get("index_columns")
    if levels is not None and type(levels) is not list:
        raise refused("arrow-type", "what pandas noted with an Arrow table is malformed")
    held = [each for each in columns or () if isinstance(each, dict)]
    names = [repr(each.get("field_name") or each.get("name")) for each in held]
    kept = [each for each in levels or () if isinstance(each, str)]
    if len(set(names)) < len(names) or len(set(kept)) < len(kept):
        raise refused("arrow-type", "pandas noted a column of an Arrow table several times")
    if len(levels or ()) - len(kept) > _MAX_RANGES:
        raise refused("arrow-type", "pandas noted too many ranges with an Arrow table")


def _is_wide(said: str) -> bool:
    try:
        return np.dtype(said).kind in _WIDE
    except (TypeError, ValueError, SyntaxError):  # a pandas dtype, or an invalid one
        return False


def _buffer(site: Site, _: str, content: Any) -> Any:
    """Return an immutable buffer at an address where Arrow may read numbers."""
    view = memoryview(plain(content, bytes, bytearray, memoryview))
    if type(content) is bytes:
        return pa.py_buffer(content)
    # Arrow follows offsets without looking once they were checked, and frames of a message start
    # at any address.
    return pa.py_buffer(bytes(view))


SHIMS: dict[str, Callable[..., Any]] = {
    "alias": _alias,
    "binary": _binary,
    "buffer": _buffer,
    "decimal": _decimal,
    "dictionary": _dictionary,
    "extension": _extension,
    "field": _field,
    "json": _json,
    "key_values": _key_values,
    "list": _list,
    "map": _map,
    "opaque": _opaque,
    "run_end": _run_end,
    "schema": _schema,
    "struct": _struct,
    "tensor": _tensor,
    "timestamp": _timestamp,
    "union": _union,
}

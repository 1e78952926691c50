"""Encode Arrow types, fields and schemas as words, and decode them by the reviewed factories.

The one rule: a type is sent only if decoding its description gives an equal type, metadata
included; a property that Arrow's Python API does not expose is refused rather than lost.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NoReturn

from safeser.errors import PayloadError
from safeser.families.arrow.layout import Reader, Writer
from safeser.families.plain import DEFAULTS, Unencodable, label
from safeser.pickles.shims.arrow import types as arrow_types
from safeser.types import arrow as bounds

#: Untyped on purpose: Arrow is an extra.
pa: Any = importlib.import_module("pyarrow")
_is: Any = pa.types

_LISTS = {
    pa.lib.Type_LIST: "list_",
    pa.lib.Type_LARGE_LIST: "large_list",
    pa.lib.Type_LIST_VIEW: "list_view",
    pa.lib.Type_LARGE_LIST_VIEW: "large_list_view",
}
_DECIMALS = {
    pa.lib.Type_DECIMAL32: "decimal32",
    pa.lib.Type_DECIMAL64: "decimal64",
    pa.lib.Type_DECIMAL128: "decimal128",
    pa.lib.Type_DECIMAL256: "decimal256",
}


def storage_of(kind: Any) -> Any:
    """Return the type in which values of *kind* are stored: itself, but for extensions."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


#: Types of which nothing hangs below: no children, no dictionary, no storage of another type.
_FLAT = frozenset(
    number
    for name, number in vars(pa.lib).items()
    if name.startswith("Type_")
    and not any(
        part in name for part in ("LIST", "STRUCT", "MAP", "UNION", "DICTIONARY", "RUN_END")
    )
)


def is_flat(kind: Any) -> bool:
    """Whether arrays of *kind* have buffers and nothing else."""
    return kind.id in _FLAT


# -- writing -------------------------------------------------------------------------------------


def write_type(writer: Writer, kind: Any) -> None:
    """Describe *kind*, or raise Unencodable if some of it would be lost."""
    if is_flat(kind):
        words = _words_of(kind)
        if words is None:
            raise _lost(kind)
        writer.put(*words)
        return
    bounds.measured(kind)
    alone = Writer()
    _write_parts(alone, kind)
    if not _gives(alone, read_type, kind):
        raise _lost(kind)
    writer.append(alone)


def write_field(writer: Writer, field: Any) -> None:
    """Describe *field*, or raise Unencodable if some of it would be lost."""
    _write_name(writer, field, write_type)


def write_schema(writer: Writer, schema: Any) -> None:
    """Describe *schema*, or raise Unencodable that names the field of which some would be lost."""
    writer.put(len(schema))
    for field in schema:
        try:
            write_field(writer, field)
        except Unencodable as error:
            error.path.append(f" (field {label(_text(field))})")
            raise
    _write_own_metadata(writer, schema)


def write_metadata(writer: Writer, pairs: Any) -> None:
    """Describe metadata, which maps bytes to bytes: a list of pairs, or None."""
    if pairs is None:
        writer.put(None)
        return
    writer.put(len(pairs))
    for key, value in pairs:
        writer.buffer(key)
        writer.buffer(value)


@functools.lru_cache(maxsize=1024)
def _words_of(kind: Any) -> tuple[Any, ...] | None:
    """Return the words for a type without parts, or None if they would not give it again.

    Only such types are remembered: those that differ in the metadata of a part count as equal.
    """
    words: tuple[Any, ...] = (str(kind),)
    if kind.id in _DECIMALS:
        words = (_DECIMALS[kind.id], kind.precision, kind.scale)
    elif _is.is_timestamp(kind):
        words = ("timestamp", kind.unit, kind.tz)
    elif _is.is_fixed_size_binary(kind):
        words = ("fixed", kind.byte_width)
    alone = Writer()
    alone.put(*words)
    return words if _gives(alone, read_type, kind) else None


def _gives(alone: Writer, read: Callable[[Reader], Any], sent: Any) -> bool:
    """Whether *read* decodes the words in *alone* to exactly *sent*."""

    def refuse(message: str, rule: str) -> NoReturn:
        raise PayloadError(message, rule=rule)

    frames = [memoryview(frame).cast("B") for frame in alone.frames(DEFAULTS)]
    try:
        made = read(Reader(frames, DEFAULTS, refuse))
    except PayloadError:
        return False
    return bool(made.equals(sent, check_metadata=True))


def _lost(value: Any) -> Unencodable:
    shown = label(_text(value))
    return Unencodable(value, f"the Arrow {type(value).__name__} {shown} is not kept exactly")


def _text(value: Any) -> str:
    try:
        return str(value.name if isinstance(value, pa.Field) else value)
    except UnicodeDecodeError:
        return "of a name that is not UTF-8"


def _write_name(writer: Writer, field: Any, write: Callable[[Writer, Any], None]) -> None:
    try:
        writer.put(field.name, field.nullable)
    except UnicodeDecodeError:
        raise _lost(field) from None
    _write_own_metadata(writer, field)
    write(writer, field.type)


def _write_own_metadata(writer: Writer, holder: Any) -> None:
    metadata = holder.metadata
    if metadata is None:
        writer.put(None)
        return
    if not holder.equals(holder.with_metadata(metadata), check_metadata=True):
        # Arrow's Python shows a dict, in which the last of two equal keys hides the first.
        raise Unencodable(holder, "a key of its metadata occurs twice")
    write_metadata(writer, list(metadata.items()))


def _write_parts(writer: Writer, kind: Any) -> None:
    def fields(*parts: Any) -> None:
        for part in parts:
            _write_name(writer, part, _write_parts)

    if is_flat(kind):
        write_type(writer, kind)
    elif isinstance(kind, pa.BaseExtensionType):
        _write_extension(writer, kind)
    elif kind.id in _LISTS:
        writer.put(_LISTS[kind.id])
        fields(kind.value_field)
    elif _is.is_fixed_size_list(kind):
        writer.put("fixed_list", kind.list_size)
        fields(kind.value_field)
    elif _is.is_map(kind):
        writer.put("map", kind.keys_sorted)
        fields(kind.key_field, kind.item_field)
    elif _is.is_struct(kind):
        writer.put("struct", kind.num_fields)
        fields(*kind)
    elif _is.is_union(kind):
        writer.put("union", kind.mode, kind.num_fields, *kind.type_codes)
        fields(*kind)
    elif _is.is_dictionary(kind):
        writer.put("dictionary", kind.ordered)
        _write_parts(writer, kind.index_type)
        _write_parts(writer, kind.value_type)
    elif _is.is_run_end_encoded(kind):
        writer.put("runs")
        _write_parts(writer, kind.run_end_type)
        _write_parts(writer, kind.value_type)
    else:
        raise _lost(kind)


def _write_extension(writer: Writer, kind: Any) -> None:
    name = type(kind).__name__
    if type(kind).__module__ != "pyarrow.lib" or name not in _EXTENSIONS:
        # Reading it would call what its class says, with bytes that the peer wrote.
        raise Unencodable(
            kind,
            f"the extension type {label(kind.extension_name)} is not one that safeser lists;"
            " send its storage",
        )
    writer.put(_EXTENSIONS[name])
    if name == "JsonType":
        _write_parts(writer, kind.storage_type)
    elif name == "OpaqueType":
        writer.put(kind.type_name, kind.vendor_name)
        _write_parts(writer, kind.storage_type)
    elif name == "FixedShapeTensorType":
        for numbers in (kind.shape, kind.dim_names, kind.permutation):
            writer.put(None if numbers is None else len(numbers), *(numbers or ()))
        _write_parts(writer, kind.value_type)


_EXTENSIONS = {
    "UuidType": "uuid",
    "Bool8Type": "bool8",
    "JsonType": "json",
    "OpaqueType": "opaque",
    "FixedShapeTensorType": "tensor",
}


# -- reading -------------------------------------------------------------------------------------


def read_type(reader: Reader) -> Any:
    """Return the type that the next words describe."""
    return _read(reader, bounds.MAX_NESTING)


def read_field(reader: Reader, room: int = bounds.MAX_NESTING) -> Any:
    """Return the field that the next words describe."""
    name, nullable = reader.word(str), reader.word(bool)
    metadata = read_metadata(reader)
    return _make(reader, "field", "", name, _read(reader, room), nullable, metadata)


def read_schema(reader: Reader) -> Any:
    """Return the schema that the next words describe."""
    fields = [read_field(reader) for _ in reader.each()]
    return _make(reader, "schema", "", fields, read_metadata(reader))


def read_metadata(reader: Reader) -> Any:
    """Return the metadata of a field or schema from the next words and buffers, or None."""
    if reader.absent():
        return None
    pairs = [(reader.content(), reader.content()) for _ in reader.each()]
    return _make(reader, "key_values", "", pairs)


def _make(reader: Reader, kind: str, factory: str, *parts: Any) -> Any:
    """Call the reviewed function for a *kind* of type; some ask which *factory* makes it."""
    return arrow_types.SHIMS[kind](reader.site, f"pyarrow:{factory}", *parts)


def _read(reader: Reader, room: int) -> Any:
    if room <= 0:
        reader.refuse("its types are nested too deep")
    name = reader.word(str)
    read = _READERS.get(name)
    return _alias(name) if read is None else read(reader, name, room - 1)


@functools.lru_cache(maxsize=64)
def _alias(name: str) -> Any:
    # It charges for nothing, so that no budget need know of it.
    return arrow_types.SHIMS["alias"](None, "", name)


def _made(kind: str, *parts: Callable[[Reader, int], Any]) -> Callable[[Reader, str, int], Any]:
    """Return what reads *parts* in this order, and makes a type of that *kind* of them."""
    return lambda reader, name, room: _make(
        reader, kind, name, *[part(reader, room) for part in parts]
    )


def _word(*kinds: type) -> Callable[[Reader, int], Any]:
    return lambda reader, _: reader.word(*kinds)


def _read_fixed_list(reader: Reader, name: str, room: int) -> Any:
    size = reader.word(int)
    return _make(reader, "list", "list_", read_field(reader, room), size)


def _read_map(reader: Reader, name: str, room: int) -> Any:
    ordered = reader.word(bool)
    key, item = read_field(reader, room), read_field(reader, room)
    if key.nullable:
        # Arrow asserts it when it makes the type.
        reader.refuse("the keys of a map may be missing")
    made = _make(reader, "map", "", key, item)
    return pa.map_(key, item, keys_sorted=True) if ordered else made


def _read_union(reader: Reader, name: str, room: int) -> Any:
    mode = reader.word(str)
    codes = [reader.word(int) for _ in reader.each()]
    fields = [read_field(reader, room) for _ in codes]
    return _make(reader, "union", "", fields, mode, codes)


def _read_dictionary(reader: Reader, name: str, room: int) -> Any:
    ordered = reader.word(bool)
    index, value = _read(reader, room), _read(reader, room)
    return _make(reader, "dictionary", "", index, value, ordered)


def _read_opaque(reader: Reader, name: str, room: int) -> Any:
    named, vendor = reader.word(str), reader.word(str)
    return _make(reader, "opaque", "", _read(reader, room), named, vendor)


def _read_tensor(reader: Reader, name: str, room: int) -> Any:
    shape = [reader.word(int) for _ in reader.each()]
    names = None if reader.absent() else [reader.word(str) for _ in reader.each()]
    turned = None if reader.absent() else [reader.word(int) for _ in reader.each()]
    return _make(reader, "tensor", "", _read(reader, room), shape, names, turned)


_READERS: dict[str, Callable[[Reader, str, int], Any]] = {
    **dict.fromkeys(_DECIMALS.values(), _made("decimal", _word(int), _word(int))),
    **dict.fromkeys(_LISTS.values(), _made("list", read_field)),
    "timestamp": _made("timestamp", _word(str), _word(str, type(None))),
    "fixed": _made("binary", _word(int)),
    "fixed_list": _read_fixed_list,
    "map": _read_map,
    "struct": _made(
        "struct", lambda reader, room: [read_field(reader, room) for _ in reader.each()]
    ),
    "union": _read_union,
    "dictionary": _read_dictionary,
    "runs": _made("run_end", _read, _read),
    "uuid": _made("extension"),
    "bool8": _made("extension"),
    "json": _made("json", _read),
    "opaque": _read_opaque,
    "tensor": _read_tensor,
}

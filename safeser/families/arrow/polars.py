"""Encode and decode polars frames and series as Arrow tables, in family ``dask``.

The one rule: polars receives only Arrow types, metadata and dates that it writes itself. On any
other it panics, which ``except Exception`` does not catch: on types when it reads them, on dates
beyond the calendar when they are printed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from safeser.families import plain
from safeser.families.arrow.layout import checking
from safeser.families.plain import Unencodable, label
from safeser.families.registry import Parts, Typed, never_sent, registry
from safeser.families.tree import Node
from safeser.gate.values import Limits

__all__ = ["register"]

#: Untyped on purpose: both are extras.
pa: Any = importlib.import_module("pyarrow")
pl: Any = importlib.import_module("polars")
_compute: Any = importlib.import_module("pyarrow.compute")

Described = str | list[Any]

_MAX_NESTING = 32

#: Types without parameters, and what they are in Arrow.
_PLAIN: dict[str, Any] = {
    "Binary": pa.binary_view(),
    "Boolean": pa.bool_(),
    "Date": pa.date32(),
    "Float16": pa.float16(),
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "Int8": pa.int8(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "Null": pa.null(),
    "String": pa.string_view(),
    "Time": pa.time64("ns"),
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
    "Categorical": pa.dictionary(pa.uint32(), pa.string_view()),
}
_UNITS = ("ms", "us", "ns")
#: How many a unit has in a day, and the days from year 1 to 9999 less one at either end: a zone
#: moves what is shown by hours.
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_FIRST_DAY, _LAST_DAY = -719_161, 2_932_895
#: Days of the longest timedelta. Only milliseconds can be more.
_MOST_DAYS = 999_999_999


# -- types ---------------------------------------------------------------------------------------


def _describe(kind: Any) -> Described:
    """Return *kind* as a plain value, or raise Unencodable if safeser does not list it."""
    name = type(kind).__name__
    if name == "Categorical" and kind != pl.Categorical():
        raise Unencodable(kind, "named categories are not supported")
    if name in _PLAIN:
        return name
    parts = _PARTS.get(name)
    if parts is None or (name == "Array" and not kind.size):
        raise Unencodable(kind, f"polars' type {label(str(kind))} is not kept exactly")
    return [name, *parts(kind)]


_PARTS: dict[str, Callable[[Any], list[Any]]] = {
    "Array": lambda kind: [kind.size, _describe(kind.inner)],
    "Datetime": lambda kind: [kind.time_unit, kind.time_zone],
    "Decimal": lambda kind: [kind.precision, kind.scale],
    "Duration": lambda kind: [kind.time_unit],
    "Enum": lambda kind: [kind.categories.to_list()],
    "List": lambda kind: [_describe(kind.inner)],
    "Struct": lambda kind: [[[field.name, _describe(field.dtype)] for field in kind.fields]],
}


def _arrow(described: Any, room: int = _MAX_NESTING) -> Any:
    """Return the Arrow type of *described*; ValueError or TypeError if it describes none."""
    if type(described) is str:
        if described not in _PLAIN:
            raise ValueError
        return _PLAIN[described]
    if room <= 0 or type(described) is not list or not described:
        raise ValueError
    name, *parts = described
    made = _ARROW.get(_text(name))
    if made is None:
        raise ValueError
    return made(room - 1, *parts)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError
    return value


def _unit(value: Any) -> str:
    if value not in _UNITS:
        raise ValueError
    return _text(value)


def _enum(room: int, categories: Any) -> Any:
    if type(categories) is not list or not all(type(each) is str for each in categories):
        raise TypeError
    if len(set(categories)) != len(categories):
        raise ValueError
    index = next((kind for kind, most in _INDEXES if len(categories) < most), pa.uint32())
    return pa.dictionary(index, pa.string_view(), ordered=True)


#: The smallest type whose numbers, less one for what is missing, are enough.
_INDEXES = ((pa.uint8(), 1 << 8), (pa.uint16(), 1 << 16))


def _array(room: int, size: Any, inner: Any) -> Any:
    if not _count(size):
        raise ValueError
    return pa.list_(pa.field("item", _arrow(inner, room)), size)


_ARROW: dict[str, Callable[..., Any]] = {
    "Array": _array,
    "Datetime": lambda room, unit, zone: pa.timestamp(
        _unit(unit), None if zone is None else _text(zone)
    ),
    "Decimal": lambda room, precision, scale: pa.decimal128(_count(precision), _count(scale)),
    "Duration": lambda room, unit: pa.duration(_unit(unit)),
    "Enum": _enum,
    "List": lambda room, inner: pa.large_list(pa.field("item", _arrow(inner, room))),
    "Struct": lambda room, fields: pa.struct(
        [pa.field(_text(name), _arrow(inner, room)) for name, inner in fields]
    ),
}


def _polars(described: Any) -> Any:
    """Return the polars type of a description that :func:`_arrow` checked."""
    if type(described) is str:
        return getattr(pl, described)()
    name, *parts = described
    if name == "List":
        return pl.List(_polars(parts[0]))
    if name == "Array":
        return pl.Array(_polars(parts[1]), parts[0])
    if name == "Struct":
        return pl.Struct([pl.Field(field, _polars(inner)) for field, inner in parts[0]])
    return getattr(pl, name)(*parts)


def _has_enum(described: Any) -> bool:
    if type(described) is str:
        return False
    name, *parts = described
    if name == "Struct":
        return any(_has_enum(inner) for _, inner in parts[0])
    return name == "Enum" or (name in ("List", "Array") and _has_enum(parts[-1]))


# -- dates ---------------------------------------------------------------------------------------


def _check_dates(table: Any, refuse: Callable[[str], NoReturn]) -> None:
    """Refuse dates outside the years 1 to 9999, and durations beyond timedelta's range."""
    for column in table.columns:
        if _is_dated(column.type):
            for chunk in column.chunks:
                for dates in _dates_in(chunk):
                    _check_span(dates, refuse)


def _size(kind: Any) -> int:
    return 1 + sum(_size(kind.field(at).type) for at in range(kind.num_fields))


def _is_dated(kind: Any) -> bool:
    if _is_date(kind):
        return True
    return any(_is_dated(kind.field(at).type) for at in range(kind.num_fields))


def _is_date(kind: Any) -> bool:
    long = pa.types.is_duration(kind) and kind.unit == "ms"
    return bool(long or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _dates_in(array: Any) -> Iterator[Any]:
    kind = array.type
    if not len(array):
        return
    if _is_date(kind):
        yield array
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _dates_in(array.field(at))
    elif kind.num_fields:
        yield from _dates_in(array.values)


def _check_span(dates: Any, refuse: Callable[[str], NoReturn]) -> None:
    kind = dates.type
    days = pa.types.is_date32(kind)
    each = 1 if days else _DAY[kind.unit]
    span = _compute.min_max(dates.view(pa.int32() if days else pa.int64()))
    low, high = span["min"].as_py(), span["max"].as_py()
    if low is None:
        return
    if pa.types.is_duration(kind):
        if max(-low, high) > _MOST_DAYS * each:
            refuse("it holds durations of more than a billion days")
    elif not _FIRST_DAY * each <= low <= high <= _LAST_DAY * each:
        refuse("it holds dates outside of the years 1 to 9999")


# -- frames --------------------------------------------------------------------------------------


def _encode(x: Any, limits: Limits) -> Parts:
    frame = x.to_frame() if isinstance(x, pl.Series) else x
    if frame.height and not frame.width:
        raise Unencodable(x, "it has rows without any column")
    described, fields = [], []
    for name, kind in frame.schema.items():
        try:
            described.append([name, _describe(kind)])
            fields.append(pa.field(name, _arrow(described[-1][1])))
        except (Unencodable, ValueError, TypeError) as error:
            reason = getattr(error, "reason", "") or f"its type {label(str(kind))} is not kept"
            raise _in_column(kind, reason, name) from None
    table = _exported(frame, pa.schema(fields))

    def refuse(message: str) -> NoReturn:
        raise Unencodable(x, f"{message}, with which polars panics")

    _check_dates(table, refuse)
    return Parts({}, [plain.encode(described, limits=limits)], [("", table)])


def _in_column(value: Any, reason: str, name: str) -> Unencodable:
    failure = Unencodable(value, reason)
    failure.path.append(f" (column {label(name)})")
    return failure


def _exported(frame: Any, schema: Any) -> Any:
    """Return *frame* as a table of *schema*, without the metadata that polars adds."""
    try:
        table = frame.to_arrow(compat_level=pl.CompatLevel.newest())
    except (pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise Unencodable(frame, f"polars cannot export it ({type(error).__name__})") from None
    for column, field in zip(table.columns, schema, strict=True):
        if not column.type.equals(field.type):
            raise _in_column(frame, "polars has another Arrow type for it", field.name)
    return pa.Table.from_arrays(table.columns, schema=schema)


def _check(node: Node, limits: Limits) -> None:
    node.expect(frames=1, children=1)
    (child,) = node.children
    if child.yields != "pyarrow:Table" or child.value is None:
        node.refuse("it does not hold an Arrow table", "families.child-type")
    described = node.plain(node.frames[0], limits)
    single = node.type == "polars:Series"
    if type(described) is not list or (single and len(described) != 1):
        node.refuse("it does not list its columns", "families.header")
    with checking(node):
        expected = pa.schema([pa.field(_text(name), _arrow(inner)) for name, inner in described])
        if not child.value.schema.equals(expected, check_metadata=True):
            node.refuse("the types of its table differ from its description", "families.child-type")
    chunks = zip(expected.types, child.value.columns, strict=True)
    if sum(_size(kind) * len(states) for kind, states in chunks) > limits.elements:
        # polars takes each of them apart, and a word may stand for one of ten thousand parts.
        node.refuse("its chunks have more parts than max_memory allows", "families.memory")
    if len(set(expected.names)) != len(expected):
        node.refuse("two of its columns have the same name", "families.header")
    node.value = described


def _decode(node: Node, values: list[Any]) -> Any:
    (table,) = values

    def refuse(message: str) -> NoReturn:
        node.refuse(message, "families.content")

    _check_dates(table, refuse)
    # Positions stand in for the names: polars has names of its own for the empty one.
    places = [str(at) for at in range(table.num_columns)]
    try:
        frame = pl.from_arrow(table.rename_columns(places), rechunk=False)
        kinds = [_polars(described) for _, described in node.value]
        enums = {
            place: kind
            for place, kind, (_, described) in zip(places, kinds, node.value, strict=True)
            if _has_enum(described)
        }
        frame = frame.cast(enums) if enums else frame
    except pl.exceptions.PanicException:
        node.refuse("polars cannot import it", "families.build")
    frame.columns = table.column_names
    if list(frame.schema.values()) != kinds:
        node.refuse("polars reads other types in it", "families.build")
    return frame.to_series(0) if node.type == "polars:Series" else frame


def register() -> None:
    """List polars' types, and Arrow's, which they hold; called once."""
    registry.named("pyarrow:Table")
    plan = "a lazy frame is a plan, which may hold code"
    for typed in (
        Typed("polars:DataFrame", (pl.DataFrame,), _encode, _check, _decode),
        Typed("polars:Series", (pl.Series,), _encode, _check, _decode),
        never_sent("polars:LazyFrame", (pl.LazyFrame,), f"{plan}: collect() it first", plan),
    ):
        registry.register(typed)

"""Standard library values of family ``dask``: scalars as plain descriptions, buffers uncopied.

The one rule: a constructor is called only with values whose types and ranges were checked before,
and never in a way that opens a file or takes more memory than arrived.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import math
import pathlib
import re
import struct
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

from safeser.families import plain, zones
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.values import Limits

__all__ = ["register"]

#: gcd is quadratic: of two integers of 8 KiB it takes milliseconds, of 8 MiB hours.
_MAX_FRACTION_BITS = 8 * 8192

#: The default context's own largest exponent; beyond it ``int()`` of a short text fills the memory.
_MAX_EXPONENT = 999_999
_DECIMAL = re.compile(
    r"-?(?:[0-9]+(?:\.[0-9]+)?(?:E[+-][0-9]{1,18})?|s?NaN[0-9]*|Infinity)\Z", re.ASCII
)

_FACTORIES: dict[str, type | None] = {
    "": None,
    **{
        kind.__name__: kind
        for kind in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)
    },
}


#: Returns the time zone that a description names.
_Zone: TypeAlias = Callable[[Any], dt.tzinfo | None]


def _require(right: object) -> None:
    """Raise what receiving turns into a refusal that names the type."""
    if not right:
        raise ValueError


def _scalar(
    name: str,
    cls: type,
    describe: Callable[[Any], object],
    build: Callable[[Any], Any],
) -> None:
    """Register *cls* with its description as one plain value; building it is checking it."""

    def check(node: Node, limits: Limits) -> None:
        node.value = _described(node, build, limits)[1]

    registry.register(
        Typed(name, (cls,), _writer(describe), check, lambda node, _: node.value),
    )


def _zoned(
    name: str,
    cls: type,
    describe: Callable[[Any], object],
    build: Callable[[Any, _Zone], Any],
) -> None:
    """Register *cls* like :func:`_scalar`; checked with a stand-in for its time zone."""

    def check(node: Node, limits: Limits) -> None:
        node.value, _ = _described(node, lambda value: build(value, zones.check), limits)

    def decode(node: Node, values: list[Any]) -> Any:
        return build(node.value, zones.build)

    registry.register(Typed(name, (cls,), _writer(describe), check, decode))


def _writer(describe: Callable[[Any], object]) -> Callable[[Any, Limits], Parts]:
    return lambda x, limits: Parts({"value": plain.encode(describe(x), limits=limits)})


def _described(node: Node, build: Callable[[Any], Any], limits: Limits) -> tuple[Any, Any]:
    """Return the description in *node* and what *build* makes of it, or refuse the node."""
    (value,) = node.expect("value")
    if type(value) is not bytes:
        node.refuse("its value is not bytes", "families.header")
    described = plain.decode(value, limits=limits)
    try:
        return described, build(described)
    except (ValueError, TypeError, ArithmeticError, LookupError):
        node.refuse("its value does not describe such an object", "families.value")


def _ints(value: Any, count: int) -> tuple[int, ...]:
    _require(type(value) is tuple and len(value) == count)
    _require(all(type(number) is int for number in value))
    return tuple(value)


def _complex(value: Any) -> complex:
    real, imag = value
    _require(type(value) is tuple and type(real) is float and type(imag) is float)
    return complex(real, imag)


def _range(value: Any) -> range:
    return range(*_ints(value, 3))


def _timedelta(value: Any) -> dt.timedelta:
    days, seconds, microseconds = _ints(value, 3)
    _require(0 <= seconds < 86_400 and 0 <= microseconds < 1_000_000)
    return dt.timedelta(days, seconds, microseconds)


def _datetime(value: Any, zone_of: _Zone) -> dt.datetime:
    _require(type(value) is tuple and len(value) == 9)
    fields = _ints(value[:7], 7)
    fold, zone = value[7:]
    _require(type(fold) is int)
    year, month, day, hour, minute, second, microsecond = fields
    return dt.datetime(
        year, month, day, hour, minute, second, microsecond, zone_of(zone), fold=fold
    )


def _time(value: Any, zone_of: _Zone) -> dt.time:
    _require(type(value) is tuple and len(value) == 6)
    hour, minute, second, microsecond = _ints(value[:4], 4)
    _require(type(value[4]) is int)
    return dt.time(hour, minute, second, microsecond, zone_of(value[5]), fold=value[4])


def _describe_datetime(x: dt.datetime) -> tuple[object, ...]:
    when = (x.year, x.month, x.day, x.hour, x.minute, x.second, x.microsecond)
    return (*when, x.fold, zones.describe(x.tzinfo))


def _describe_time(x: dt.time) -> tuple[object, ...]:
    return (x.hour, x.minute, x.second, x.microsecond, x.fold, zones.describe(x.tzinfo))


def _zone(value: Any, zone_of: _Zone) -> dt.tzinfo:
    zone = zone_of(value)
    _require(zone is not None)
    assert zone is not None
    return zone


def _in_range(x: decimal.Decimal) -> bool:
    exponent = x.as_tuple().exponent
    if isinstance(exponent, str):  # NaN or Infinity
        return True
    return max(abs(exponent), abs(x.adjusted())) <= _MAX_EXPONENT


def _describe_decimal(x: decimal.Decimal) -> str:
    if not _in_range(x):
        raise Unencodable(x, "its exponent is beyond a million")
    return str(x)


def _decimal(value: Any) -> decimal.Decimal:
    _require(type(value) is str and _DECIMAL.match(value))
    built = decimal.Decimal(value)
    _require(_in_range(built))
    return built


def _describe_fraction(x: fractions.Fraction) -> tuple[int, int]:
    if max(x.numerator.bit_length(), x.denominator.bit_length()) > _MAX_FRACTION_BITS:
        raise Unencodable(x, "its numerator or denominator is larger than 8 KiB")
    return x.numerator, x.denominator


def _fraction(value: Any) -> fractions.Fraction:
    numerator, denominator = _ints(value, 2)
    _require(max(numerator.bit_length(), denominator.bit_length()) <= _MAX_FRACTION_BITS)
    _require(denominator > 0 and math.gcd(numerator, denominator) == 1)
    return fractions.Fraction(numerator, denominator)


def _uuid(value: Any) -> uuid.UUID:
    number, safe = value
    _require(type(value) is tuple and type(number) is bytes)
    _require(safe is None or type(safe) is int)
    return uuid.UUID(bytes=number, is_safe=uuid.SafeUUID(safe))


def _path(cls: type[pathlib.PurePath]) -> Callable[[Any], pathlib.PurePath]:
    def build(value: Any) -> pathlib.PurePath:
        _require(type(value) is str)
        path = cls(value)
        _require(str(path) == value)  # one spelling: what was judged is what is built
        return path

    return build


def _encode_buffer(x: bytes | bytearray, limits: Limits) -> Parts:
    return Parts({}, [x])


def _check_buffer(node: Node, limits: Limits) -> None:
    node.expect(frames=1)


def _decode_bytes(node: Node, values: list[Any]) -> bytes:
    view = node.frames[0]
    whole = view.obj
    if type(whole) is bytes and len(whole) == view.nbytes:
        return whole
    return view.tobytes()


def _decode_bytearray(node: Node, values: list[Any]) -> bytearray:
    return bytearray(node.frames[0])


_FORMATS = frozenset("?cbBhHiIlLqQnNfd")


def _encode_memoryview(x: memoryview, limits: Limits) -> Parts:
    if x.format not in _FORMATS:
        raise Unencodable(x, "its format is not that of one native number")
    if x.nbytes == 0 and x.ndim > 1:
        raise Unencodable(x, "it is empty in more than one dimension")
    flat = x.cast("B") if x.c_contiguous and x.ndim else memoryview(x.tobytes())
    meta = {"format": x.format, "shape": list(x.shape or ()), "writeable": not x.readonly}
    return Parts(meta, [flat])


def _check_memoryview(node: Node, limits: Limits) -> None:
    form, shape, writeable = node.expect("format", "shape", "writeable", frames=1)
    if type(form) is not str or form not in _FORMATS or type(writeable) is not bool:
        node.refuse("its format or flag is unknown", "families.header")
    if not isinstance(shape, (list, tuple)) or len(shape) > 32:
        node.refuse("its shape is not a list of at most 32 lengths", "families.shape")
    if not all(type(length) is int and length >= 0 for length in shape):
        node.refuse("its shape holds something else than lengths", "families.shape")
    if len(shape) != 1 and 0 in shape:
        node.refuse("it is empty in more than one dimension", "families.shape")
    itemsize = struct.calcsize(form)
    if math.prod(shape) * itemsize != node.frames[0].nbytes:
        node.refuse("its shape does not fit its frame", "families.shape")
    if form == "?" and node.frames[0].tobytes().translate(None, b"\0\1"):
        node.refuse("it holds flags that are neither 0 nor 1", "families.content")


def _decode_memoryview(node: Node, values: list[Any]) -> memoryview:
    view: memoryview[Any] = node.frames[0]
    if node.meta["writeable"] and view.readonly:
        view = memoryview(bytearray(view))
    shape = list(node.meta["shape"])
    form: Any = node.meta["format"]  # checked; typeshed wants the letter itself
    view = view.cast(form) if len(shape) == 1 else view.cast(form, shape)
    return view if node.meta["writeable"] else view.toreadonly()


def _encode_slice(x: slice, limits: Limits) -> Parts:
    return Parts({}, (), [(".start", x.start), (".stop", x.stop), (".step", x.step)])


def _check_slice(node: Node, limits: Limits) -> None:
    node.expect(children=3)


def _decode_slice(node: Node, values: list[Any]) -> slice:
    return slice(*values)


def _holds(node: Node, kind: str) -> None:
    """Refuse *node* unless its one child is a *kind* of plain elements or a collection."""
    if node.children[0].yields != f"builtins:{kind}":
        node.refuse(f"it does not hold a {kind}", "families.child-type")


def _encode_deque(x: collections.deque[Any], limits: Limits) -> Parts:
    return Parts({"maxlen": x.maxlen}, (), [("", list(x))])


def _check_deque(node: Node, limits: Limits) -> None:
    (maxlen,) = node.expect("maxlen", children=1)
    if maxlen is not None and (type(maxlen) is not int or not 0 <= maxlen < 1 << 63):
        node.refuse("its maxlen is not a length", "families.header")
    _holds(node, "list")


def _decode_deque(node: Node, values: list[Any]) -> collections.deque[Any]:
    maxlen = node.meta["maxlen"]
    _require(maxlen is None or len(values[0]) <= maxlen)
    return collections.deque(values[0], maxlen)


def _encode_dict(x: dict[Any, Any], limits: Limits) -> Parts:
    if vars(x):
        raise Unencodable(x, "it has attributes of its own")
    return Parts({}, (), [("", dict(x))])


def _check_dict(node: Node, limits: Limits) -> None:
    node.expect(children=1)
    _holds(node, "dict")


def _encode_defaultdict(x: collections.defaultdict[Any, Any], limits: Limits) -> Parts:
    for name, factory in _FACTORIES.items():
        if x.default_factory is factory:
            return Parts({"factory": name}, (), [("", dict(x))])
    raise Unencodable(x, "its default factory is not one of the listed builtin types")


def _check_defaultdict(node: Node, limits: Limits) -> None:
    (factory,) = node.expect("factory", children=1)
    if type(factory) is not str or factory not in _FACTORIES:
        node.refuse("its default factory is not listed", "families.factory")
    _holds(node, "dict")


def _decode_defaultdict(node: Node, values: list[Any]) -> collections.defaultdict[Any, Any]:
    return collections.defaultdict(_FACTORIES[node.meta["factory"]], values[0])


def register() -> None:
    """List the standard library's types; called once, when safeser.families is imported."""
    _scalar("builtins:complex", complex, lambda x: (x.real, x.imag), _complex)
    _scalar("builtins:range", range, lambda x: (x.start, x.stop, x.step), _range)
    _scalar(
        "datetime:date",
        dt.date,
        lambda x: (x.year, x.month, x.day),
        lambda v: dt.date(*_ints(v, 3)),
    )
    _zoned("datetime:datetime", dt.datetime, _describe_datetime, _datetime)
    _zoned("datetime:time", dt.time, _describe_time, _time)
    _scalar(
        "datetime:timedelta",
        dt.timedelta,
        lambda x: (x.days, x.seconds, x.microseconds),
        _timedelta,
    )
    _zoned("datetime:timezone", dt.timezone, zones.describe, _zone)
    _zoned("zoneinfo:ZoneInfo", zones.ZoneInfo, zones.describe, _zone)
    _scalar("decimal:Decimal", decimal.Decimal, _describe_decimal, _decimal)
    _scalar("fractions:Fraction", fractions.Fraction, _describe_fraction, _fraction)
    _scalar("uuid:UUID", uuid.UUID, lambda x: (x.bytes, x.is_safe.value), _uuid)
    for path in (pathlib.PurePosixPath, pathlib.PureWindowsPath, type(pathlib.Path())):
        _scalar(f"pathlib:{path.__name__}", path, str, _path(path))
    for typed in (
        Typed("builtins:bytes", (bytes,), _encode_buffer, _check_buffer, _decode_bytes),
        Typed("builtins:bytearray", (bytearray,), _encode_buffer, _check_buffer, _decode_bytearray),
        Typed(
            "builtins:memoryview",
            (memoryview,),
            _encode_memoryview,
            _check_memoryview,
            _decode_memoryview,
        ),
        Typed("builtins:slice", (slice,), _encode_slice, _check_slice, _decode_slice),
        Typed(
            "collections:deque", (collections.deque,), _encode_deque, _check_deque, _decode_deque
        ),
        Typed(
            "collections:OrderedDict",
            (collections.OrderedDict,),
            _encode_dict,
            _check_dict,
            lambda node, values: collections.OrderedDict(values[0]),
        ),
        Typed(
            "collections:Counter",
            (collections.Counter,),
            _encode_dict,
            _check_dict,
            lambda node, values: collections.Counter(values[0]),
        ),
        Typed(
            "collections:defaultdict",
            (collections.defaultdict,),
            _encode_defaultdict,
            _check_defaultdict,
            _decode_defaultdict,
        ),
    ):
        registry.register(typed)

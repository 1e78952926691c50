"""Encode and decode scalars of the standard library, each as one plain description.

The one rule: the functions of :mod:`safeser.types.stdlib`, which bound the size, call each
constructor, and only with values of the types that it accepts.
"""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import ipaddress
import pathlib
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

from safeser.families import plain
from safeser.families.registry import Parts, Typed, registry
from safeser.families.stdlib import columns, zones
from safeser.families.stdlib.columns import Column
from safeser.families.tree import Node
from safeser.types import stdlib as bounds
from safeser.values import Limits

__all__ = ["register"]

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
    *,
    width: int | None = None,
) -> None:
    """Register *cls* with its description as one plain value; building it is checking it.

    :param width: how many plain values that is in a column; None for what is never many.
    """

    def check(node: Node, limits: Limits) -> None:
        node.value = _described(node, build, limits)[1]

    registry.register(
        Typed(name, (cls,), _writer(describe), check, lambda node, _: node.value),
    )
    if width is not None:
        columns.add(cls, Column(name, width, describe, lambda row, _: build(row)))


def _zoned(
    name: str,
    cls: type,
    describe: Callable[[Any], object],
    build: Callable[[Any, _Zone], Any],
    *,
    width: int | None = None,
) -> None:
    """Register *cls* like :func:`_scalar`; checked with a stand-in for its time zone."""

    def check(node: Node, limits: Limits) -> None:
        node.value, _ = _described(node, lambda value: build(value, zones.check), limits)

    def decode(node: Node, values: list[Any]) -> Any:
        return build(node.value, zones.build)

    registry.register(Typed(name, (cls,), _writer(describe), check, decode))
    if width is not None:
        columns.add(cls, Column(name, width, describe, build, zoned=True))


def _writer(describe: Callable[[Any], object]) -> Callable[[Any, Limits], Parts]:
    return lambda x, limits: Parts({"value": plain.encode(describe(x), limits=limits)})


def _described(node: Node, build: Callable[[Any], Any], limits: Limits) -> tuple[Any, Any]:
    """Return the description in *node* and what *build* makes of it, or refuse the node."""
    (value,) = node.expect("value")
    if type(value) is not bytes:
        node.refuse("its value is not bytes", "families.header")
    described = node.plain(value, limits)
    try:
        return described, build(described)
    except (ValueError, TypeError, ArithmeticError, LookupError):
        node.refuse("its value does not describe such an object", "families.value")


def _ints(value: Any, count: int) -> tuple[int, ...]:
    # One comparison of types, as columns ask it a million times.
    _require(type(value) is tuple and len(value) == count and set(map(type, value)) == {int})
    return value  # type: ignore[no-any-return]  # it was just found to be a tuple of them


def _complex(value: Any) -> complex:
    real, imag = value
    _require(type(value) is tuple and type(real) is float and type(imag) is float)
    return complex(real, imag)


def _range(value: Any) -> range:
    return bounds.integer_range(*_ints(value, 3))


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


def _describe_decimal(x: decimal.Decimal) -> str:
    text = str(x)
    bounds.decimal_of(text)
    return text


def _decimal(value: Any) -> decimal.Decimal:
    _require(type(value) is str)
    return bounds.decimal_of(value)


def _describe_fraction(x: fractions.Fraction) -> tuple[int, int]:
    bounds.fraction_of(x.numerator, x.denominator)
    return x.numerator, x.denominator


def _fraction(value: Any) -> fractions.Fraction:
    numerator, denominator = _ints(value, 2)
    made = bounds.fraction_of(numerator, denominator)
    _require((made.numerator, made.denominator) == (numerator, denominator))
    return made


def _describe_range(x: range) -> tuple[int, int, int]:
    bounds.integer_range(x.start, x.stop, x.step)
    return x.start, x.stop, x.step


def _uuid(value: Any) -> uuid.UUID:
    number, safe = value
    _require(type(value) is tuple and type(number) is bytes)
    _require(safe is None or type(safe) is int)
    return uuid.UUID(bytes=number, is_safe=uuid.SafeUUID(safe))


def _path(cls: type[pathlib.PurePath]) -> Callable[[Any], pathlib.PurePath]:
    def build(value: Any) -> pathlib.PurePath:
        _require(type(value) is str)
        path = bounds.path_of(cls, (value,))
        _require(str(path) == value)  # one spelling: what was judged is what is built
        return path

    return build


_OTHER_PATH = "WindowsPath" if type(pathlib.Path()) is pathlib.PosixPath else "PosixPath"

_ADDRESSES = (
    ipaddress.IPv4Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Address,
    ipaddress.IPv6Interface,
    ipaddress.IPv6Network,
)


def _describe_path(x: pathlib.PurePath) -> str:
    text = str(x)
    bounds.path_of(type(x), (text,))
    return text


def _address(cls: type) -> Callable[[Any], Any]:
    def build(value: Any) -> Any:
        _require(type(value) is str)
        built = bounds.address_of(cls, value)
        _require(str(built) == value)
        return built

    return build


def _describe_address(x: Any) -> str:
    text = str(x)
    bounds.address_of(type(x), text)
    return text


def _never(*_: Any) -> Any:
    raise AssertionError  # no object is of such a class, and every header is refused


def register() -> None:
    """List the standard library's scalars; called once, when safeser.families is imported."""
    _scalar("builtins:complex", complex, lambda x: (x.real, x.imag), _complex, width=2)
    _scalar("builtins:range", range, _describe_range, _range)
    _scalar(
        "datetime:date",
        dt.date,
        lambda x: (x.year, x.month, x.day),
        lambda v: dt.date(*_ints(v, 3)),
        width=3,
    )
    _zoned("datetime:datetime", dt.datetime, _describe_datetime, _datetime, width=8)
    _zoned("datetime:time", dt.time, _describe_time, _time, width=5)
    _scalar(
        "datetime:timedelta",
        dt.timedelta,
        lambda x: (x.days, x.seconds, x.microseconds),
        _timedelta,
        width=3,
    )
    _zoned("datetime:timezone", dt.timezone, zones.describe, _zone)
    _zoned("zoneinfo:ZoneInfo", zones.ZoneInfo, zones.describe, _zone)
    _scalar("decimal:Decimal", decimal.Decimal, _describe_decimal, _decimal, width=0)
    _scalar("fractions:Fraction", fractions.Fraction, _describe_fraction, _fraction, width=2)
    _scalar("uuid:UUID", uuid.UUID, lambda x: (x.bytes, x.is_safe.value), _uuid, width=2)
    for path in (pathlib.PurePosixPath, pathlib.PureWindowsPath, type(pathlib.Path())):
        _scalar(f"pathlib:{path.__name__}", path, _describe_path, _path(path), width=0)

    def check(node: Node, limits: Limits) -> None:
        node.refuse(
            "such a path exists on another kind of system only; send its pure kind instead",
            "families.platform",
        )

    registry.register(Typed(f"pathlib:{_OTHER_PATH}", (), _never, check, _never))
    for kind in _ADDRESSES:
        _scalar(f"ipaddress:{kind.__name__}", kind, _describe_address, _address(kind), width=0)

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
from functools import partial
from typing import Any, TypeAlias

from safeser.families import plain
from safeser.families.registry import Parts, Typed, never_sent, registry, required
from safeser.families.stdlib import columns, zones
from safeser.families.stdlib.columns import Column
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.types import stdlib as bounds

__all__ = ["register"]

#: Returns the time zone that a description names.
_Zone: TypeAlias = Callable[[Any], dt.tzinfo | None]


def _scalar(
    name: str,
    cls: type,
    describe: Callable[[Any], object],
    build: Callable[..., Any],
    *,
    width: int | None = None,
    zoned: bool = False,
) -> None:
    """Register *cls* with its description as one plain value; building it is checking it.

    :param width: how many plain values that is in a column; None for what is never many.
    :param zoned: whether *build* also takes what makes its time zone, for which a stand-in is
        there when it is checked.
    """

    def check(node: Node, limits: Limits) -> None:
        (value,) = node.expect("value")
        if type(value) is not bytes:
            node.refuse("its value is not bytes", "families.header")
        described = node.plain(value, limits)
        try:
            made = build(described, zones.check) if zoned else build(described)
        except (ValueError, TypeError, ArithmeticError, LookupError):
            node.refuse("its value does not describe such an object", "families.value")
        node.value = described if zoned else made

    registry.register(
        Typed(
            name,
            (cls,),
            lambda x, limits: Parts({"value": plain.encode(describe(x), limits=limits)}),
            check,
            lambda node, _: build(node.value, zones.build) if zoned else node.value,
        )
    )
    if width is not None:
        made_of = build if zoned else lambda row, _: build(row)
        columns.add(cls, Column(name, width, describe, made_of, zoned=zoned))


def _ints(value: Any, count: int) -> tuple[int, ...]:
    # One comparison of types, as columns ask it a million times.
    required(type(value) is tuple and len(value) == count and set(map(type, value)) == {int})
    return value  # type: ignore[no-any-return]  # it was just found to be a tuple of them


def _complex(value: Any) -> complex:
    real, imag = value
    required(type(value) is tuple and type(real) is float and type(imag) is float)
    return complex(real, imag)


def _range(value: Any) -> range:
    return bounds.integer_range(*_ints(value, 3))


def _timedelta(value: Any) -> dt.timedelta:
    days, seconds, microseconds = _ints(value, 3)
    required(0 <= seconds < 86_400 and 0 <= microseconds < 1_000_000)
    return dt.timedelta(days, seconds, microseconds)


def _datetime(value: Any, zone_of: _Zone) -> dt.datetime:
    required(type(value) is tuple and len(value) == 9)
    fields = _ints(value[:7], 7)
    fold, zone = value[7:]
    required(type(fold) is int)
    year, month, day, hour, minute, second, microsecond = fields
    return dt.datetime(
        year, month, day, hour, minute, second, microsecond, zone_of(zone), fold=fold
    )


def _time(value: Any, zone_of: _Zone) -> dt.time:
    required(type(value) is tuple and len(value) == 6)
    hour, minute, second, microsecond = _ints(value[:4], 4)
    required(type(value[4]) is int)
    return dt.time(hour, minute, second, microsecond, zone_of(value[5]), fold=value[4])


def _describe_datetime(x: dt.datetime) -> tuple[object, ...]:
    when = (x.year, x.month, x.day, x.hour, x.minute, x.second, x.microsecond)
    return (*when, x.fold, zones.describe(x.tzinfo))


def _describe_time(x: dt.time) -> tuple[object, ...]:
    return (x.hour, x.minute, x.second, x.microsecond, x.fold, zones.describe(x.tzinfo))


def _zone(value: Any, zone_of: _Zone) -> dt.tzinfo:
    zone = zone_of(value)
    required(zone is not None)
    assert zone is not None
    return zone


def _spelled(x: Any, make: Callable[[str], Any]) -> str:
    """Return the text of *x*, of which *make* makes it again, or refuse it."""
    text = str(x)
    make(text)
    return text


def _decimal(value: Any) -> decimal.Decimal:
    required(type(value) is str)
    return bounds.decimal_of(value)


def _read(value: Any, make: Callable[[str], Any]) -> Any:
    """Return what *make* makes of a text; it has one spelling: what was judged is what is built."""
    required(type(value) is str)
    made = make(value)
    required(str(made) == value)
    return made


def _describe_fraction(x: fractions.Fraction) -> tuple[int, int]:
    bounds.fraction_of(x.numerator, x.denominator)
    return x.numerator, x.denominator


def _fraction(value: Any) -> fractions.Fraction:
    numerator, denominator = _ints(value, 2)
    made = bounds.fraction_of(numerator, denominator)
    required((made.numerator, made.denominator) == (numerator, denominator))
    return made


def _describe_range(x: range) -> tuple[int, int, int]:
    bounds.integer_range(x.start, x.stop, x.step)
    return x.start, x.stop, x.step


def _uuid(value: Any) -> uuid.UUID:
    number, safe = value
    required(type(value) is tuple and type(number) is bytes)
    required(safe is None or type(safe) is int)
    return uuid.UUID(bytes=number, is_safe=uuid.SafeUUID(safe))


def _path_of(cls: type[pathlib.PurePath], text: str) -> pathlib.PurePath:
    return bounds.path_of(cls, (text,))


_OTHER_PATH = "WindowsPath" if type(pathlib.Path()) is pathlib.PosixPath else "PosixPath"

_ADDRESSES = (
    ipaddress.IPv4Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Address,
    ipaddress.IPv6Interface,
    ipaddress.IPv6Network,
)


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
    _scalar("datetime:datetime", dt.datetime, _describe_datetime, _datetime, width=8, zoned=True)
    _scalar("datetime:time", dt.time, _describe_time, _time, width=5, zoned=True)
    _scalar(
        "datetime:timedelta",
        dt.timedelta,
        lambda x: (x.days, x.seconds, x.microseconds),
        _timedelta,
        width=3,
    )
    _scalar("datetime:timezone", dt.timezone, zones.describe, _zone, zoned=True)
    _scalar("zoneinfo:ZoneInfo", zones.ZoneInfo, zones.describe, _zone, zoned=True)
    describe_decimal = partial(_spelled, make=bounds.decimal_of)
    _scalar("decimal:Decimal", decimal.Decimal, describe_decimal, _decimal, width=0)
    _scalar("fractions:Fraction", fractions.Fraction, _describe_fraction, _fraction, width=2)
    _scalar("uuid:UUID", uuid.UUID, lambda x: (x.bytes, x.is_safe.value), _uuid, width=2)
    paths = (pathlib.PurePosixPath, pathlib.PureWindowsPath, type(pathlib.Path()))
    named: list[tuple[str, type, Callable[[str], Any]]] = [
        *(("pathlib", cls, partial(_path_of, cls)) for cls in paths),
        *(("ipaddress", cls, partial(bounds.address_of, cls)) for cls in _ADDRESSES),
    ]
    for module, cls, make in named:
        describe, read = partial(_spelled, make=make), partial(_read, make=make)
        _scalar(f"{module}:{cls.__name__}", cls, describe, read, width=0)
    other = "such a path exists on another kind of system only; send its pure kind instead"
    registry.register(
        never_sent(f"pathlib:{_OTHER_PATH}", (), other, other, rule="families.platform")
    )

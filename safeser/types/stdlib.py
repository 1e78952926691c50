"""Check values of the standard library against bounds, and call their constructors.

The one rule: every operation on a checked value (printing, comparing, copying, arithmetic,
conversion) ends within time and memory that are bounded by the size of its encoding.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import pathlib
import re
import zoneinfo
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

from safeser.types import refused
from safeser.types.numpy import ASKED

#: Raising a Decimal to a fraction takes the cube of its digits: 14 s for these, minutes for four
#: times as many.
_MAX_DIGITS = 1 << 14
#: ``int()`` of a Decimal takes the square of what it writes out: half a second for 65,536 digits,
#: 90 s for ``1e999999``.
_MAX_EXPONENT = 1 << 16
_DECIMAL = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:E[+-]?[0-9]{1,18})?|Infinity|s?NaN[0-9]*)\Z",
    re.ASCII | re.IGNORECASE,
)
#: gcd takes the square: milliseconds for two integers of 8 KiB, hours for 8 MiB.
_MAX_FRACTION_BITS = 8 * 8192
#: The constructor of a range divides by its step. Real ones fit 64 bits, or a few more.
_MAX_RANGE_BITS = 1024
_INT63 = 1 << 63

#: The longest path of Windows; others end at 4 KiB.
_MAX_PATH = 1 << 15
#: All parents of a path together are as long as half the square of its parts.
_MAX_PATH_PARTS = 1 << 11
#: An address of 39 characters, a prefix, and the name of an interface as scope.
_MAX_ADDRESS = 64
#: The longest name of a fixed offset; the longest of the database is 31.
_MAX_ZONE_NAME = 256
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,3}\Z", re.ASCII)

#: What a defaultdict may make for a missing key, by the name of the type.
FACTORIES: dict[str, type] = {
    kind.__name__: kind
    for kind in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)
}
#: What may stand among the maps of a ChainMap; each can be read like a dict.
_MAPPINGS = (dict, OrderedDict, Counter, defaultdict, UserDict, ChainMap)
#: The one attribute that an OrderedDict may have: which version each module's part is of.
_VERSIONS = "_metadata"


# -- numbers ---------------------------------------------------------------------------------------


def decimal_of(text: str) -> decimal.Decimal:
    """Return the Decimal that *text* spells."""
    if len(text) > _MAX_DIGITS:
        raise refused("decimal", f"a Decimal has more than {_MAX_DIGITS} digits")
    if not _DECIMAL.match(text):
        raise refused("decimal", "a Decimal is not plain decimal text")
    made = decimal.Decimal(text)
    if made.is_finite() and abs(made.adjusted()) > _MAX_EXPONENT:
        raise refused("decimal", f"a Decimal has an exponent beyond {_MAX_EXPONENT}")
    return made


def fraction_of(numerator: int, denominator: int) -> fractions.Fraction:
    """Return the Fraction of two integers."""
    if max(numerator.bit_length(), denominator.bit_length()) > _MAX_FRACTION_BITS:
        raise refused("fraction", "the numerator or denominator of a Fraction exceeds 8 KiB")
    if not denominator:
        raise refused("fraction", "the denominator of a Fraction is zero")
    return fractions.Fraction(numerator, denominator)


def integer_range(start: int, stop: int, step: int) -> range:
    """Return the range between two integers."""
    if max(map(int.bit_length, (start, stop, step))) > _MAX_RANGE_BITS or not step:
        raise refused(
            "range", f"a bound of a range exceeds {_MAX_RANGE_BITS} bits, or its step is 0"
        )
    return range(start, stop, step)


# -- names -----------------------------------------------------------------------------------------


def path_of(kind: type[pathlib.PurePath], parts: Sequence[str]) -> pathlib.PurePath:
    """Return the path of class *kind* that *parts* make."""
    if sum(map(len, parts)) + len(parts) - 1 > _MAX_PATH:
        raise refused("path", f"a path is longer than {_MAX_PATH} characters")
    if any("\0" in part for part in parts):
        raise refused("path", "a path holds a NUL, which ends a path in C")
    made = kind(*parts)
    if len(made.parts) > _MAX_PATH_PARTS:
        raise refused("path", f"a path has more than {_MAX_PATH_PARTS} parts")
    return made


def address_of(kind: Any, value: str | int) -> Any:
    """Return the address, network or interface of class *kind* that *value* spells."""
    if type(value) is str and len(value) > _MAX_ADDRESS:
        raise refused("address", "an address, or the name of its scope, is too long")
    return kind(value)


def is_attribute(name: Any) -> bool:
    """Whether *name* is one that source code could spell, and by which nothing asks an object."""
    plain = type(name) is str and name.isidentifier() and not name.startswith("__")
    return plain and name not in ASKED


def check_attributes(names: Iterable[Any]) -> None:
    """Refuse names that source code could not spell as attributes, and those of the interpreter."""
    for name in names:
        if not is_attribute(name):
            raise refused("attribute", "an attribute has a name that is not plain")


# -- time zones ------------------------------------------------------------------------------------


def fixed_zone(offset: datetime.timedelta, *name: str) -> datetime.timezone:
    """Return the zone at *offset*, which may have a *name*."""
    if any(len(text) > _MAX_ZONE_NAME for text in name):
        raise refused("time-zone", f"the name of a time zone exceeds {_MAX_ZONE_NAME} characters")
    return datetime.timezone(offset, *name)


def check_zone_key(key: Any) -> None:
    """Refuse *key* if no zone of the database can be called so; looks nothing up."""
    if type(key) is not str or not _ZONE.match(key):
        raise refused("time-zone", "that cannot be the name of a time zone")


def zone_of(key: Any, *, cached: bool = True) -> zoneinfo.ZoneInfo:
    """Return the zone called *key* of this machine's database: the key is a path in it."""
    check_zone_key(key)
    if key not in _zone_keys():
        raise refused(
            "time-zone",
            "a time zone is not in this system's zone database",
            fix="Install the package tzdata on both sides if the zone should exist.",
        )
    return zoneinfo.ZoneInfo(key) if cached else zoneinfo.ZoneInfo.no_cache(key)


@functools.cache
def _zone_keys() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


# -- containers ------------------------------------------------------------------------------------


def deque_of(members: Sequence[Any], longest: int | None) -> deque[Any]:
    """Return the deque of *members*, of which *longest* would drop none."""
    if longest is not None and not len(members) <= longest < _INT63:
        raise refused("deque", "the maxlen of a deque is out of range, or drops some of it")
    return deque(members, longest)


def chain_of(maps: list[Any]) -> ChainMap[Any, Any]:
    """Return the ChainMap over *maps* itself, which may be empty."""
    if any(type(part) not in _MAPPINGS for part in maps):
        raise refused("chain-map", "a ChainMap holds a mapping of an unlisted class")
    made: ChainMap[Any, Any] = ChainMap()
    made.maps = maps
    return made


def ordered_of(made: OrderedDict[Any, Any], attributes: dict[str, Any]) -> OrderedDict[Any, Any]:
    """Return *made* with its *attributes*: none, or the versions of a PyTorch state dict."""
    if not attributes:
        return made
    if attributes.keys() != {_VERSIONS} or type(attributes[_VERSIONS]) is not OrderedDict:
        raise refused("ordered-dict", "an OrderedDict has attributes of its own")
    setattr(made, _VERSIONS, attributes[_VERSIONS])
    return made

"""Reviewed functions for the standard library's values: they check, then call the constructor.

The one rule: no raw state. :mod:`safeser.types.stdlib` states which values are valid, and a value
that its own constructor refuses is refused.
"""

from __future__ import annotations

import array
import codecs
import datetime
import decimal
import fractions
import ipaddress
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from safeser.pickles.nodes import GlobalRef
from safeser.pickles.shims.site import Draft, Site, bad, begin, plain
from safeser.types import stdlib as bounds

__all__ = ["SHIMS"]

_ARRAYS = frozenset("bBhHiIlLqQfdu")

_FRACTION = re.compile(r"(-?[0-9]+)(?:/([0-9]+))?\Z")


def _complex(_: Site, __: str, real: Any, imaginary: Any) -> complex:
    return complex(plain(real, float, int), plain(imaginary, float, int))


def _bytearray(site: Site, _: str, *args: Any) -> bytearray:
    # bytearray(n) is a memory bomb of 30 bytes: text and bytes only.
    if not args:
        return bytearray()
    if len(args) == 2:
        return bytearray(_latin1(site, "", *args))
    (only,) = args
    return bytearray(plain(only, bytes))


def _bytes(_: Site, __: str, *args: Any) -> bytes:
    # Protocols 0 to 2 write b"" as bytes(); bytes(n) is as bad as bytearray(n).
    if args:
        raise bad("arguments", "builtins:bytes takes no arguments here")
    return b""


def _latin1(site: Site, _: str, text: Any, codec: Any) -> bytes:
    # How protocols 0 to 2 write bytes. Other codecs inflate or run code.
    if codec not in ("latin1", "latin-1"):
        raise bad("arguments", "bytes as text must be latin1")
    return plain(text, str).encode("latin-1")  # type: ignore[no-any-return]  # it is a str


def _range(_: Site, __: str, start: Any, stop: Any, step: Any = 1) -> range:
    return bounds.integer_range(*(plain(part, int) for part in (start, stop, step)))


def _slice(_: Site, __: str, start: Any, stop: Any, step: Any) -> slice:
    # Whatever labels a row: df.loc["2024-02-01":] asks for moments, others for numbers.
    return slice(start, stop, step)


def _set(site: Site, _: str, members: Any = ()) -> set[Any]:
    return set(_frozenset(site, "", members))


def _frozenset(site: Site, _: str, members: Any = ()) -> frozenset[Any]:
    return site.frozen(plain(members, list, tuple))


def _none_type(_: Site, __: str, instance: Any) -> Any:
    for singleton in (None, ..., NotImplemented):
        if instance is singleton:
            return type(singleton)
    raise bad("arguments", "builtins:type may only ask for the type of None")


def _ordered(site: Site, _: str, pairs: Any = ()) -> OrderedDict[Any, Any]:
    made: OrderedDict[Any, Any] = OrderedDict()
    for pair in plain(pairs, list, tuple):
        key, value = plain(pair, list, tuple)
        site.check_key(made, key)
        made[key] = value
    return made


def _ordered_state(_: Site, made: Any, state: Any) -> OrderedDict[Any, Any]:
    return bounds.ordered_of(made, plain(state, dict))


def _defaultdict(_: Site, __: str, factory: Any = None) -> defaultdict[Any, Any]:
    if factory is None:
        return defaultdict(None)
    return defaultdict(bounds.FACTORIES[plain(factory, GlobalRef).qualname])


def _counter(site: Site, _: str, counts: Any = None) -> Counter[Any]:
    made: Counter[Any] = Counter()
    if counts is not None:
        dict.update(made, plain(counts, dict))
    return made


def _deque(site: Site, _: str, members: Any = (), longest: Any = None) -> deque[Any]:
    # deque(range(10**12), maxlen=1) never ends.
    return bounds.deque_of(plain(members, list, tuple), plain(longest, int, type(None)))


def _date(_: Site, __: str, raw: Any) -> datetime.date:
    high, low, month, day = plain(raw, bytes)
    return datetime.date(high << 8 | low, month, day)


def _zone(value: Any) -> Any:
    return None if value is None else plain(value, datetime.timezone, zoneinfo.ZoneInfo)


def _time(_: Site, __: str, raw: Any, zone: Any = None) -> datetime.time:
    hour, minute, second, high, mid, low = plain(raw, bytes)
    return datetime.time(
        hour & 0x7F, minute, second, high << 16 | mid << 8 | low, _zone(zone), fold=hour >> 7
    )


def _datetime(_: Site, __: str, raw: Any, zone: Any = None) -> datetime.datetime:
    y1, y2, month, day, hour, minute, second, high, mid, low = plain(raw, bytes)
    micro = high << 16 | mid << 8 | low
    return datetime.datetime(
        y1 << 8 | y2, month & 0x7F, day, hour, minute, second, micro, _zone(zone), fold=month >> 7
    )


def _timedelta(_: Site, __: str, days: Any, seconds: Any, micro: Any) -> datetime.timedelta:
    return datetime.timedelta(plain(days, int), plain(seconds, int), plain(micro, int))


def _timezone(_: Site, __: str, offset: Any, *name: Any) -> datetime.timezone:
    texts = (plain(text, str) for text in name)
    return bounds.fixed_zone(plain(offset, datetime.timedelta), *texts)


def _decimal(site: Site, __: str, text: Any) -> decimal.Decimal:
    return bounds.decimal_of(plain(text, str))


def _fraction(site: Site, __: str, *args: Any) -> fractions.Fraction:
    if len(args) == 1:
        match = _FRACTION.match(plain(args[0], str))
        if match is None:
            raise bad("arguments", "a Fraction is not plain text")
        # int() of some 4,300 digits and more is CPython's own refusal.
        return bounds.fraction_of(int(match[1]), int(match[2] or 1))
    numerator, denominator = (plain(part, int) for part in args)
    site.charge((numerator.bit_length() + denominator.bit_length()) >> 5)
    return bounds.fraction_of(numerator, denominator)


def _uuid_state(_: Site, draft: Any, state: Any) -> uuid.UUID:
    fields = dict(plain(state, dict))
    value, safe = fields.pop("int"), fields.pop("is_safe", None)
    if fields or type(draft) is not Draft:
        raise bad("state", "uuid:UUID has no such field")
    return uuid.UUID(int=plain(value, int), is_safe=uuid.SafeUUID(safe))


def _path(site: Site, name: str, *parts: Any) -> pathlib.PurePath:
    texts = tuple(plain(part, str) for part in parts)
    return bounds.path_of(getattr(pathlib, name.partition(":")[2]), texts)


def _address(_: Site, name: str, value: Any) -> Any:
    return bounds.address_of(getattr(ipaddress, name.partition(":")[2]), plain(value, str, int))


def _array_list(site: Site, _: str, code: Any, numbers: Any) -> array.array[Any]:
    # How protocols 0 to 2 write arrays.
    if plain(code, str) not in _ARRAYS:
        raise bad("arguments", "an array of that type is not accepted")
    return array.array(code, plain(numbers, list))


def _array(site: Site, _: str, kind: Any, code: Any, form: Any, raw: Any) -> array.array[Any]:
    if plain(code, str) not in _ARRAYS or type(kind) is not GlobalRef:
        raise bad("arguments", "an array of that type is not accepted")
    made: array.array[Any] = array.array(code)
    if made.__reduce_ex__(3)[1][2] != plain(form, int):
        raise bad("arguments", "an array comes from a machine of another layout")
    plain(raw, bytes)
    if code == "u":
        # Raw bytes can be code points that no string may hold; decoding refuses them.
        little = sys.byteorder == "little"
        decode = codecs.utf_32_le_decode if little else codecs.utf_32_be_decode
        return array.array(code, decode(raw, "surrogatepass", True)[0])
    made.frombytes(raw)
    return made


SHIMS: dict[str, Callable[..., Any]] = {
    "address": _address,
    "array": _array,
    "array_list": _array_list,
    "bytearray": _bytearray,
    "bytes": _bytes,
    "complex": _complex,
    "counter": _counter,
    "date": _date,
    "datetime": _datetime,
    "decimal": _decimal,
    "defaultdict": _defaultdict,
    "deque": _deque,
    "fraction": _fraction,
    "frozenset": _frozenset,
    "latin1": _latin1,
    "none_type": _none_type,
    "ordered": _ordered,
    "ordered_state": _ordered_state,
    "path": _path,
    "range": _range,
    "set": _set,
    "slice": _slice,
    "time": _time,
    "timedelta": _timedelta,
    "timezone": _timezone,
    "uuid": begin,
    "uuid_state": _uuid_state,
}

"""Reviewed functions for the standard library's named tuples and small states.

The one rule: every part has exactly the plain type of its name, within bounds, so that C code that
receives such a tuple (``time.strftime``) finds no unexpected value in it.
"""

from __future__ import annotations

import decimal
import io
import itertools
import os
import random
import re
import time
import urllib.parse
import zoneinfo
from collections.abc import Callable
from typing import Any

from safeser.pickles.shims.site import Draft, Site, bad, begin, begun, plain
from safeser.types import refused
from safeser.types.stdlib import zone_of

__all__ = ["SHIMS"]

_INT32 = 1 << 31
_INT63 = 1 << 63
_MAX_NAME = 256


def _within(value: Any, bound: int, *, least: int | None = None) -> int:
    if not (-bound if least is None else least) <= plain(value, int) < bound:
        raise refused("number", "an integer is out of range")
    return value  # type: ignore[no-any-return]  # plain() proved it an int


def _short(value: Any) -> str | None:
    if value is not None and len(plain(value, str)) > _MAX_NAME:
        raise refused("text", "a text is too long")
    return value  # type: ignore[no-any-return]  # None, or plain() proved it a str


# -- tuples ------------------------------------------------------------------------------------


def _struct_time(_: Site, __: str, parts: Any, more: Any = None) -> time.struct_time:
    if len(plain(parts, tuple)) != 9:
        raise bad("arguments", "a struct_time has nine parts")
    for part in parts:
        _within(part, _INT32)
    extra = {} if more is None else plain(more, dict)
    if not extra.keys() <= {"tm_zone", "tm_gmtoff"}:
        raise bad("arguments", "a struct_time has no such part")
    _short(extra.get("tm_zone"))
    if extra.get("tm_gmtoff") is not None:
        _within(extra["tm_gmtoff"], _INT32)
    make: Any = time.struct_time
    return make(parts, extra)  # type: ignore[no-any-return]  # typeshed does not know the dict


def _numbers(site: Site, name: str, parts: Any, more: Any = None) -> Any:
    kind: Any = {"os:stat_result": os.stat_result, "os:terminal_size": os.terminal_size}[name]
    extra = {} if more is None else plain(more, dict)
    for part in plain(parts, tuple):
        _within(part, 2 * _INT63)
    for part, value in extra.items():
        # In nanoseconds, a signed 64-bit number of seconds stays below this.
        number = 0 if value is None else plain(value, int, float)
        if not plain(part, str).startswith("st_") or abs(number) > 1e30:
            raise bad("arguments", f"{name} has no such part")
    return kind(parts, extra)


_TUPLES: dict[str, tuple[Any, tuple[type, ...]]] = {
    "urllib.parse:DefragResult": (urllib.parse.DefragResult, (str,) * 2),
    "urllib.parse:DefragResultBytes": (urllib.parse.DefragResultBytes, (bytes,) * 2),
    "urllib.parse:ParseResult": (urllib.parse.ParseResult, (str,) * 6),
    "urllib.parse:ParseResultBytes": (urllib.parse.ParseResultBytes, (bytes,) * 6),
    "urllib.parse:SplitResult": (urllib.parse.SplitResult, (str,) * 5),
    "urllib.parse:SplitResultBytes": (urllib.parse.SplitResultBytes, (bytes,) * 5),
}


def _named_tuple(_: Site, name: str, *parts: Any) -> Any:
    kind, types = _TUPLES[name]
    if len(parts) != len(types):
        raise bad("arguments", f"{name} has another number of parts")
    return kind(*(plain(part, wanted) for part, wanted in zip(parts, types, strict=True)))


def _decimal_tuple(site: Site, _: str, sign: Any, digits: Any, exponent: Any) -> Any:
    for digit in plain(digits, tuple):
        _within(digit, 10, least=0)
    if exponent not in ("F", "n", "N"):
        _within(exponent, _INT63)
    return decimal.DecimalTuple(_within(sign, 2, least=0), digits, exponent)


# -- decimal contexts --------------------------------------------------------------------------

# Each operation in it may take that many digits; real ones have some dozens.
_MAX_PRECISION = 10_000
_SIGNALS = frozenset(decimal.Context().flags)


def _signals(site: Site, value: Any) -> list[Any]:
    if any(signal not in _SIGNALS for signal in plain(value, list)):
        raise bad("arguments", "a decimal context has a signal that is none")
    return value  # type: ignore[no-any-return]  # plain() proved it a list


def _context(  # noqa: PLR0917 - the arguments are those of the pickle
    site: Site,
    _: str,
    precision: Any,
    rounding: Any,
    lowest: Any,
    highest: Any,
    capitals: Any,
    clamp: Any,
    flags: Any,
    traps: Any,
) -> decimal.Context:
    for number in (lowest, highest, capitals, clamp):
        plain(number, int)
    return decimal.Context(
        _within(precision, _MAX_PRECISION + 1, least=1),
        plain(rounding, str),
        lowest,
        highest,
        capitals,
        clamp,
        _signals(site, flags),
        _signals(site, traps),
    )


# -- streams in memory -------------------------------------------------------------------------


def _stream_state(draft: Any, state: Any, count: int) -> tuple[Any, ...]:
    if type(draft) is not Draft or len(plain(state, tuple)) != count or state[-1] is not None:
        raise bad("state", "the state of a stream has another form")
    return state  # type: ignore[no-any-return]  # plain() proved it a tuple


def _bytes_io(site: Site, draft: Any, state: Any) -> io.BytesIO:
    content, position, _ = _stream_state(draft, state, 3)
    site.charge_bytes(len(plain(content, bytes, bytearray)))
    made = io.BytesIO(content)
    # Writing far behind the end would take all the memory in between.
    made.seek(_within(position, len(content) + 1, least=0))
    return made


def _string_io(site: Site, draft: Any, state: Any) -> io.StringIO:
    text, newline, position, _ = _stream_state(draft, state, 4)
    site.charge_bytes(4 * len(plain(text, str)))
    if newline not in (None, "", "\n", "\r", "\r\n"):
        raise bad("arguments", "a stream has line ends of its own")
    # The text is what writing made of it; writing it again must not change it once more.
    given = text.replace("\r\n", "\n") if newline == "\r\n" else text
    made = io.StringIO(given, newline)
    if made.getvalue() != text:
        raise bad("values", "a stream holds line ends that it would not have written")
    made.seek(_within(position, len(text) + 1, least=0))
    return made


# -- random numbers ----------------------------------------------------------------------------

_TWISTER = 624


def _random_state(site: Site, draft: Any, state: Any) -> random.Random:
    begun(draft, "a generator of random numbers")
    version, words, spare = plain(state, tuple)
    if version != 3 or len(plain(words, tuple)) != _TWISTER + 1:
        raise bad("state", "the state of a generator has another form")
    for word in words:
        _within(word, 1 << 32, least=0)
    # The last one is the position: behind the end, drawing reads foreign memory.
    _within(words[-1], _TWISTER + 1, least=0)
    plain(spare, float, type(None))
    if not words[0] >> 31 and not any(words[1:-1]):
        # No seed leads to this state; it draws only 0, and normalvariate() never returns.
        raise refused("random-state", "a generator of random numbers stands still")
    made = random.Random(0)  # noqa: S311 - it is the kind that was sent
    made.setstate((version, words, spare))
    return made


# -- iterators ---------------------------------------------------------------------------------


def _count(_: Site, __: str, start: Any, step: Any = 1) -> Any:
    # As long as a range of 2**63: only the receiver's program iterates it.
    return itertools.count(plain(start, int, float), plain(step, int, float))


def _repeat(_: Site, __: str, value: Any, times: Any) -> Any:
    return itertools.repeat(value, _within(times, _INT63, least=0))


def _iterator(_: Site, __: str, over: Any) -> Any:
    return iter(plain(over, list, tuple, str, range, bytes, bytearray))


def _iterator_at(_: Site, made: Any, position: Any) -> Any:
    # Each of them cuts the position to what it has.
    made.__setstate__(_within(position, _INT63, least=0))
    return made


# -- regular expressions -----------------------------------------------------------------------

_MAX_PATTERN = 1000
_MAX_CLASSES = 32
# Compiling is pure Python, some dozens of microseconds for each character; a class of all
# characters takes some fifteen milliseconds.
_COMPILE_COST = 256
_CLASS_COST = 1 << 15
# A character by its name: re would import a module to look it up.
_NAMED = re.compile(r"(?<!\\)(?:\\\\)*\\N")
_FLAGS = int(re.A | re.I | re.L | re.M | re.S | re.X | re.U)


def _pattern(site: Site, _: str, text: Any, flags: Any) -> re.Pattern[Any]:
    """Compile a bounded pattern. Matching it is the receiver's doing, and may take for ever.

    Without regard to case, a class of all characters is walked one by one: [\\0-\\U0010ffff] takes
    a second.
    """
    if len(plain(text, str, bytes)) > _MAX_PATTERN or plain(flags, int) & ~_FLAGS:
        raise refused("pattern", "a regular expression is too long or has unknown flags")
    source = text if type(text) is str else text.decode("latin-1")
    folds, classes = flags & re.I or "(?" in source, source.count("[")
    if _NAMED.search(source):
        raise refused("pattern", "a regular expression has characters by their names")
    if classes > _MAX_CLASSES or (folds and not _narrow(source)):
        raise refused("pattern", "a regular expression is too costly to compile")
    site.charge(len(source) * _COMPILE_COST)
    site.charge(0 if _narrow(source) else classes * _CLASS_COST)
    return re.compile(text, flags)


def _narrow(source: str) -> bool:
    """Tell that no class spans more than ASCII: there is nothing to write such a range with."""
    return source.isascii() and not re.search(r"\\[xuUN0-7]", source) if "[" in source else True


# -- time zones --------------------------------------------------------------------------------

_ZONE_COST = 2000
#: Bytes of the tables of a time zone that is no part of the cache, which no size of it shows.
_ZONE_SIZE = 1 << 14


def _zone(site: Site, _: str, key: Any, cached: Any) -> zoneinfo.ZoneInfo:
    if plain(cached, int, bool) not in (0, 1):
        raise bad("arguments", "a time zone has another form")
    site.charge(_ZONE_COST)
    if not cached:
        site.budget.charge_memory(0, _ZONE_SIZE)
    return zone_of(plain(key, str), cached=bool(cached))


SHIMS: dict[str, Callable[..., Any]] = {
    "begin": begin,
    "bytes_io": _bytes_io,
    "context": _context,
    "count": _count,
    "decimal_tuple": _decimal_tuple,
    "iterator": _iterator,
    "iterator_at": _iterator_at,
    "named_tuple": _named_tuple,
    "numbers": _numbers,
    "pattern": _pattern,
    "random": begin,
    "random_state": _random_state,
    "repeat": _repeat,
    "string_io": _string_io,
    "struct_time": _struct_time,
    "zone": _zone,
}

"""Encode and decode pandas date offsets and time zones.

The one rule: an offset is one of pandas' own classes with bounded numbers, and an index gets a freq
only after all its values were checked against it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import importlib
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.families.pandas.internals import pin_freq
from safeser.families.pandas.parts import Built, Loaded, Reader, Writer
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, required
from safeser.families.reviewed import reviewed
from safeser.families.stdlib import zones
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles.shims.pandas.times import walked
from safeser.types import pandas as bounds

_room: Any = importlib.import_module("pandas._libs.tslibs.offsets")
# pandas imports it when the first calendar is made, which is after a payload was decided.
importlib.import_module("pandas.tseries.holiday")

_NAMES = (
    "BHalfYearBegin BHalfYearEnd BQuarterBegin BQuarterEnd BYearBegin BYearEnd BusinessDay"
    " BusinessHour BusinessMonthBegin BusinessMonthEnd CustomBusinessDay CustomBusinessHour"
    " CustomBusinessMonthBegin CustomBusinessMonthEnd DateOffset Day Easter FY5253 FY5253Quarter"
    " HalfYearBegin HalfYearEnd Hour LastWeekOfMonth Micro Milli Minute MonthBegin MonthEnd Nano"
    " QuarterBegin QuarterEnd Second SemiMonthBegin SemiMonthEnd Week WeekOfMonth YearBegin YearEnd"
)
#: pandas' own classes; some are there since pandas 3 only.
OFFSETS: dict[str, Any] = {
    name: getattr(_room, name) for name in _NAMES.split() if hasattr(_room, name)
}
_NAME_OF = {kind: name for name, kind in OFFSETS.items()}
_PLAIN = frozenset({type(None), bool, int, str})
_WEEKDAY: Any = importlib.import_module("dateutil.relativedelta").weekday
_DAY = 86_400_000_000_000
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_NAT = -(1 << 63)


# -- offsets -----------------------------------------------------------------------------------


def write_offset(writer: Writer, x: Any, *, where: str = ".freq") -> list[Any]:
    """Return the description of the offset *x*, or raise Unencodable."""
    name = _NAME_OF.get(type(x))
    if name is None:
        writer.refuse(x, "it is a date offset of a class that is not pandas' own", where)
    if name == "DateOffset":
        parts: Any = {span: _written(value) for span, value in x.kwds.items()}
        count, normalize = x.n, x.normalize
    else:
        _, (count, normalize, *parts) = x.__reduce__()[:2]
    described = [name, count, normalize, parts]
    with writer.bounded(x, where):
        if not _rebuilds(x, described):
            writer.refuse(x, "its freq cannot be rebuilt from its parts", where)
    if type(parts) is list and not set(map(type, parts)) <= _PLAIN:
        writer.children.append((where, tuple(parts)))
        described[3] = None
    return described


def _written(span: Any) -> Any:
    """Return a span as plain values: a weekday as its day and its number in a month."""
    return [span.weekday, span.n] if type(span) is _WEEKDAY else span


def _rebuilds(x: Any, described: list[Any]) -> bool:
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        made = _made(described, described[3])
        return type(made) is type(x) and bool(made == x)
    return False


def read_offset(reader: Reader, described: Any) -> Built:
    """Return a function that builds the described offset, after checking its bounds."""
    name, count, normalize, parts = reader.split(described, 4)
    if type(name) is not str or name not in OFFSETS:
        reader.refuse("its freq is none of pandas' offsets", "families.freq")
    if type(count) is not int or type(normalize) is not bool:
        reader.refuse("its freq is not described", "families.freq")
    if name == "DateOffset":
        if type(parts) is not dict:
            reader.refuse("its freq is not described", "families.freq")
    elif parts is None:
        at = reader.child("builtins:tuple")
        return lambda values: _made([name, count, normalize], values[at])
    elif type(parts) not in (list, tuple) or not set(map(type, parts)) <= _PLAIN:
        reader.refuse("its freq is not described", "families.freq")
    return lambda values: _made([name, count, normalize], parts)


def read_period_freq(reader: Reader, described: Any) -> Built:
    """Return a function that builds the freq of periods, from a bounded set."""
    build = read_offset(reader, described)

    def built(values: Loaded) -> Any:
        freq = build(values)
        bounds.check_period_freq(freq)
        return freq

    return built


def write_period_freq(writer: Writer, x: Any, *, where: str = ".freq") -> list[Any]:
    """Return the description of a freq of periods, or raise Unencodable."""
    with writer.bounded(x, where):
        bounds.check_period_freq(x)
    return write_offset(writer, x, where=where)


def _made(described: list[Any], parts: Any) -> Any:
    name, count, normalize = described[:3]
    if name == "DateOffset":
        spans = {span: _read_span(value) for span, value in parts.items()}
        return bounds.date_offset(count, normalize, spans)
    parts = [tuple(part) if type(part) is list else part for part in parts]
    if any(type(part) is tuple for part in parts):
        return bounds.offset_of(name, count, normalize, parts)  # a calendar, perhaps a large one
    return _offset(name, count, normalize, *parts)


def _read_span(written: Any) -> Any:
    if type(written) not in (list, tuple):
        return written
    day, nth = written
    required(type(day) is int and type(nth) in (int, type(None)))
    return bounds.weekday_of(day, nth)


@functools.lru_cache(maxsize=256, typed=True)
def _offset(name: str, count: int, normalize: bool, *parts: Any) -> Any:
    return bounds.offset_of(name, count, normalize, parts)


def encode_offset(x: Any, limits: Limits) -> Parts:
    writer = Writer(limits)
    return writer.parts({"offset": write_offset(writer, x, where="")})


def check_offset(node: Node, limits: Limits) -> None:
    reader = Reader(node, limits)
    if node.meta.keys() != {"offset"}:
        node.refuse("its keys must be exactly offset", "families.header")
    node.value = read_offset(reader, node.meta["offset"])
    reader.finish()


# -- the freq of an index ----------------------------------------------------------------------


def write_freq(writer: Writer, freq: Any, length: int) -> list[Any] | None:
    """Return the description of an index's *freq*, or None if it has none."""
    if freq is None:
        return None
    described = write_offset(writer, freq)
    with writer.bounded(freq, ".freq"):
        bounds.check_walk(freq, length, writer.limits)
    return described


def read_freq(reader: Reader, described: Any) -> Built:
    """Return a function that builds the freq that :func:`write_freq` described."""
    if described is None:
        return lambda values: None
    return read_offset(reader, described)


def with_freq(index: Any, freq: Any, values: Loaded, limits: Limits) -> Any:
    """Return *index* with *freq*, which its values must follow."""
    if freq is None:
        return index
    with reviewed(values.node):
        walked(values.site(limits), freq, len(index))
    step = _step(index, freq)
    if step is None:
        index.freq = freq  # pandas compares it with the values
        return index
    numbers = index.asi8
    if len(numbers):
        # In Python's integers: the difference of two of NumPy's may wrap around.
        first, last = int(numbers[0]), int(numbers[0]) + step * (len(numbers) - 1)
        required(first != _NAT and abs(last) < 1 << 63 and int(numbers[-1]) == last)
        required((np.diff(numbers) == step).all())
    return pin_freq(index, freq)


def _step(index: Any, freq: Any) -> int | None:
    """Return the constant step between neighbours of *index* in its own unit, or None."""
    is_day = isinstance(freq, _room.Day)
    if not (is_day or isinstance(freq, _room.Tick)) or (is_day and getattr(index, "tz", None)):
        return None  # a day in a zone is not always 24 hours
    nanos = freq.n * _DAY if is_day else freq.nanos
    step, odd = divmod(nanos, _NANOS[index.unit])
    required(not odd and not freq.normalize)
    return int(step)


# -- time zones --------------------------------------------------------------------------------


def describe_zone(zone: Any) -> Any:
    """Return the description of a zone as it may stand in a header: a list, or None."""
    if type(zone).__module__.partition(".")[0] == "pytz":
        # What pandas 2 makes of a name.
        pytz = _pytz()
        if pytz is not None and zone.zone in pytz.all_timezones_set:
            return ["pytz", zone.zone]
        raise Unencodable(zone, "its time zone is none that pytz lists")
    described = zones.describe(zone)
    return None if described is None else list(described)


def _pytz() -> Any:
    try:
        import pytz  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415 - may be missing
    except ModuleNotFoundError:
        return None
    return pytz


def check_zone(node: Node, described: Any) -> None:
    """Refuse *node* unless a header describes a zone or none; looks nothing up."""
    if not isinstance(described, list | tuple | None):
        node.refuse("its time zone is not described", "families.time-zone")
    if described is not None and len(described) == 2:
        if described[0] != "pytz" or type(described[1]) is not str:
            node.refuse("its time zone is not described", "families.time-zone")
        return
    try:
        zones.check(None if described is None else tuple(described))
    except (ValueError, TypeError, OverflowError):
        node.refuse("its time zone is not described", "families.time-zone")


def build_zone(described: Any) -> dt.tzinfo | None:
    """Return the zone that a checked header describes, or None."""
    if described is None or len(described) != 2:
        return zones.build(None if described is None else tuple(described))
    pytz = _pytz()
    if pytz is None or described[1] not in pytz.all_timezones_set:
        raise PayloadError(
            "a time zone of pytz is not known here",
            rule="families.time-zone",
            fix="Install pytz on both sides, or use zoneinfo.ZoneInfo.",
        )
    zone: dt.tzinfo = pytz.timezone(described[1])
    return zone

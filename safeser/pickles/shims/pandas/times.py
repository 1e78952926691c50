"""Reviewed functions for pandas' timestamps, periods, intervals and offsets, and for cftime.

The one rule: every repeat count is bounded, every text has one of a few forms, and the public
constructors make the value.
"""

from __future__ import annotations

import datetime
import importlib
import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.pickles.nodes import GlobalRef
from safeser.pickles.shims.site import Site, bad, begin, begun, plain
from safeser.types import pandas as bounds

__all__ = ["SHIMS", "pd", "walked", "zone"]

#: Untyped on purpose: pandas is an extra.
pd: Any = importlib.import_module("pandas")
_offsets: Any = importlib.import_module("pandas._libs.tslibs.offsets")
_UTC: Any = importlib.import_module("dateutil.tz").tzutc()

# pandas numbers its resolutions like this.
_RESOLUTIONS = {7: "s", 8: "ms", 9: "us", 10: "ns"}
_INT64 = 1 << 63
# What pandas takes to make a calendar of so many holidays.
_PER_PART = 64


def zone(value: Any) -> Any:
    """Return *value* if it is a time zone whose own code is the standard library's, or None."""
    if value is None or value is _UTC or type(value) in (datetime.timezone, zoneinfo.ZoneInfo):
        return value
    raise bad("time-zone", "a time zone is not of an accepted type")


def offset(value: Any) -> Any:
    if not isinstance(value, _offsets.BaseOffset):
        raise bad("arguments", "a frequency is not a date offset")
    return value


def walked(site: Site, value: Any, elements: int) -> Any:
    """Return the frequency *value*, charged for what it takes to check it against each element."""
    site.charge(bounds.check_walk(offset(value), elements, site.limits))
    return value


def _number(value: Any) -> int:
    if not -_INT64 <= plain(value, int) < _INT64:
        raise bad("arguments", "an integer is out of range")
    return value  # type: ignore[no-any-return]  # plain() proved it an int


# -- moments and spans -------------------------------------------------------------------------


def _timestamp(_: Site, __: str, value: Any, freq: Any, where: Any, unit: Any = 10) -> Any:
    if freq is not None:
        raise bad("arguments", "a Timestamp has no frequency")
    moment: Any = np.datetime64
    made = pd.Timestamp(moment(_number(value), _RESOLUTIONS[plain(unit, int)]))
    if where is None:
        return made
    return made.tz_localize("UTC").tz_convert(zone(where))


def _timedelta(_: Site, __: str, value: Any, unit: Any) -> Any:
    span: Any = np.timedelta64
    return pd.Timedelta(span(_number(value), _RESOLUTIONS[plain(unit, int)]))


def _nat(_: Site, __: str, *args: Any) -> Any:
    if args not in ((), (None,)):
        raise bad("arguments", "NaT takes no arguments")
    return pd.NaT


def _utc(_: Site, __: str) -> Any:
    return _UTC


def _period(_: Site, __: str, value: Any, freq: Any, ordinal: Any) -> Any:
    if value is not None:
        raise bad("arguments", "a Period is made in another way than pandas does")
    bounds.check_period_freq(freq)
    return pd.Period(ordinal=_number(ordinal), freq=freq)


def _interval(_: Site, __: str, left: Any, right: Any, closed: Any = "right") -> Any:
    bounds.check_interval_end(left)
    bounds.check_interval_end(right)
    return pd.Interval(left, right, plain(closed, str))


# -- date offsets ------------------------------------------------------------------------------


def _offset(site: Site, name: str, count: Any = 1, normalize: Any = False, *rest: Any) -> Any:
    # pandas makes a calendar of holidays each time.
    site.charge(_PER_PART * sum(len(part) if type(part) is tuple else 1 for part in rest))
    kind = name.partition(":")[2]
    return bounds.offset_of(kind, plain(count, int), plain(normalize, bool), rest)


def _spans(fields: dict[Any, Any], *others: str) -> dict[str, Any]:
    return {
        plain(name, str): value
        for name, value in fields.items()
        if value is not None and name not in others
    }


def _agree(sent: dict[Any, Any], made: dict[str, Any]) -> None:
    """Refuse fields that are not those of the object made from them, each of the same type."""
    if sent.keys() != made.keys():
        raise bad("state", "a date offset has not the fields that it must have")
    for name, value in made.items():
        if type(value) is not type(sent[name]) or value != sent[name]:
            raise bad("state", "a field of a date offset does not fit the others")


def _date_offset_state(_: Site, draft: Any, state: Any) -> Any:
    begun(draft, "a date offset")
    fields = dict(plain(state, dict))
    plain(fields.pop("_cache", {}), dict)
    spans = _spans(fields, "n", "normalize", "_offset", "_use_relativedelta")
    count, normalize = fields.get("n"), fields.get("normalize")
    made = bounds.date_offset(plain(count, int), plain(normalize, bool), spans)
    # Not only what it repeats, but how: pandas would add the sent span, not one made from names.
    _agree(fields, made.__getstate__())
    return made


def _delta_state(_: Site, draft: Any, state: Any) -> Any:
    begun(draft, "a date offset")
    fields = plain(state, dict)
    made = bounds.relative_delta(_spans(fields, "_has_time"))
    # The constructor carries over and rounds; what was sent has been through it.
    _agree(fields, made.__dict__)
    return made


def _weekday_state(_: Site, draft: Any, state: Any) -> Any:
    begun(draft, "a date offset")
    nothing, fields = plain(state, tuple)
    if nothing is not None or set(plain(fields, dict)) != {"weekday", "n"}:
        raise bad("state", "a weekday has no such field")
    return bounds.weekday_of(plain(fields["weekday"], int), plain(fields["n"], int, type(None)))


_CLOCK = ("hour", "minute", "second", "microsecond")
_DERIVED = ("dayofwk", "dayofyr")


def _cftime(_: Site, __: str, kind: Any, date: Any, more: Any) -> Any:
    """Make a moment of a calendar of climate models; cftime checks that the calendar has it."""
    fields = dict(plain(more, dict))
    derived = {name: plain(fields.pop(name), int) for name in _DERIVED}
    numbers = [plain(part, int) for part in (*plain(date, tuple), *map(fields.pop, _CLOCK))]
    calendar, zero = plain(fields.pop("calendar"), str), plain(fields.pop("has_year_zero"), bool)
    cftime = importlib.import_module("cftime")
    made = getattr(cftime, plain(kind, GlobalRef).qualname)(
        *numbers, calendar=calendar, has_year_zero=zero
    )
    # What cftime derives once it is asked is -1 before.
    told = any(day not in (-1, getattr(made, name)) for name, day in derived.items())
    if fields or told or (made.calendar, made.has_year_zero) != (calendar, zero):
        raise bad("arguments", "a moment of a calendar contradicts itself")
    return made


SHIMS: dict[str, Callable[..., Any]] = {
    "cftime": _cftime,
    "date_offset": begin,
    "date_offset_state": _date_offset_state,
    "delta_state": _delta_state,
    "interval": _interval,
    "nat": _nat,
    "offset": _offset,
    "period": _period,
    "timedelta": _timedelta,
    "timestamp": _timestamp,
    "utc": _utc,
    "weekday_state": _weekday_state,
}

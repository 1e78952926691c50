"""Encode and decode time zones: fixed offsets, and keys of the installed zone database.

The one rule: a key is compared with the list of installed zones before any file is opened for it,
and only when its payload is loaded: the database may be a package, whose modules are then imported.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from safeser.families.plain import Unencodable
from safeser.pickles.stock import PickleError
from safeser.types import stdlib as bounds

__all__ = ["ZoneInfo", "build", "check", "describe"]


def describe(zone: dt.tzinfo | None) -> tuple[object, ...] | None:
    """Return *zone* as a plain value; zones of other libraries are not kept exactly."""
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        offset = zone.utcoffset(None)
        named = zone.__getinitargs__()[1:]  # type: ignore[attr-defined]  # undocumented in typeshed
        name = named[0] if named else None
        if type(name) not in (str, type(None)):
            raise Unencodable(zone, "its name is not a text")
        bounds.fixed_zone(offset, *named)
        return (offset.days, offset.seconds, offset.microseconds, name)
    if type(zone) is ZoneInfo and not _is_from_file(zone):
        bounds.zone_of(zone.key)
        return (zone.key,)
    raise Unencodable(
        zone, "only datetime.timezone and installed zoneinfo.ZoneInfo time zones are kept"
    )


def _is_from_file(zone: ZoneInfo) -> bool:
    """Whether *zone* came from ``ZoneInfo.from_file``, whose caller chooses any key."""
    try:
        zone.__reduce__()
    except PickleError:  # nothing else tells
        return True
    return False


def build(value: Any) -> dt.tzinfo | None:
    """Return the zone that *value* describes; ValueError or TypeError if it describes none."""
    return _zone(value, bounds.zone_of)


def check(value: Any) -> dt.tzinfo | None:
    """Return a stand-in for the zone that *value* describes; look nothing up.

    :raises ValueError: or TypeError, if it describes none, whatever is installed.
    """
    return _zone(value, _stand_in)


def _zone(value: Any, named: Callable[[object], dt.tzinfo]) -> dt.tzinfo | None:
    if value is None:
        return None
    if type(value) is not tuple:
        raise ValueError
    if len(value) == 1:
        return named(value[0])
    days, seconds, microseconds, name = value
    if not all(type(number) is int for number in value[:3]):
        raise ValueError
    offset = dt.timedelta(days, seconds, microseconds)
    if type(name) not in (str, type(None)):
        raise ValueError
    return bounds.fixed_zone(offset, *(() if name is None else (name,)))


def _stand_in(key: object) -> dt.tzinfo:
    bounds.check_zone_key(key)
    return dt.UTC

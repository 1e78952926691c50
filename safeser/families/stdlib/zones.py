"""Time zones as plain descriptions: fixed offsets, and keys of the installed zone database.

The one rule: a key is looked up in the list of installed zones before anything opens a file for it,
and only when its payload is loaded: the database may be a package, whose parts are then imported.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
import zoneinfo
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from safeser.errors import PayloadError
from safeser.families.plain import Unencodable
from safeser.pickles.stock import PickleError

__all__ = ["ZoneInfo", "build", "check", "describe"]

#: The longest name that a fixed offset may carry.
_MAX_NAME = 100

#: What a key looks like; the list of installed zones has the last word.
_KEY = re.compile(r"(?=.{1,100}\Z)[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*\Z", re.ASCII)


def describe(zone: dt.tzinfo | None) -> tuple[object, ...] | None:
    """Return *zone* as a plain value; zones of other libraries are not kept exactly."""
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        offset = zone.utcoffset(None)
        named = zone.__getinitargs__()[1:]  # type: ignore[attr-defined]  # undocumented in typeshed
        name = named[0] if named else None
        if name is not None and (type(name) is not str or len(name) > _MAX_NAME):
            raise Unencodable(zone, "its name is not a short text")
        return (offset.days, offset.seconds, offset.microseconds, name)
    if type(zone) is ZoneInfo and zone.key in _keys() and not _is_from_file(zone):
        return (zone.key,)
    raise Unencodable(
        zone, "only datetime.timezone and installed zoneinfo.ZoneInfo time zones are kept"
    )


def _is_from_file(zone: ZoneInfo) -> bool:
    """Whether *zone* was read from a file of its maker's, who may call it by any key."""
    try:
        zone.__reduce__()
    except PickleError:  # nothing else tells
        return True
    return False


def build(value: Any) -> dt.tzinfo | None:
    """Return the zone that *value* describes; ValueError or TypeError if it describes none."""
    return _zone(value, _installed)


def check(value: Any) -> dt.tzinfo | None:
    """Return what can stand in for the zone that *value* describes; looks nothing up.

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
    if name is None:
        return dt.timezone(offset)
    if type(name) is not str or len(name) > _MAX_NAME:
        raise ValueError
    return dt.timezone(offset, name)


@functools.cache
def _keys() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _stand_in(key: object) -> dt.tzinfo:
    if type(key) is not str or not _KEY.match(key):
        raise ValueError
    return dt.UTC


def _installed(key: object) -> ZoneInfo:
    if type(key) is not str or key not in _keys():
        raise PayloadError(
            "a time zone is not in this system's zone database",
            rule="families.time-zone",
            fix="Install the package tzdata on both sides if the zone should exist.",
        )
    return ZoneInfo(key)

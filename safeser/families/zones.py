"""Time zones as plain descriptions: fixed offsets, and keys of the installed zone database.

The one rule: a key is looked up in the list of installed zones before anything opens a file for it.
"""

from __future__ import annotations

import datetime as dt
import functools
import zoneinfo
from typing import Any
from zoneinfo import ZoneInfo

from safeser.errors import PayloadError
from safeser.families.plain import Unencodable

__all__ = ["ZoneInfo", "build", "describe"]

#: The longest name that a fixed offset may carry.
_MAX_NAME = 100


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
    if type(zone) is ZoneInfo and zone.key in _keys():
        return (zone.key,)
    raise Unencodable(
        zone, "only datetime.timezone and installed zoneinfo.ZoneInfo time zones are kept"
    )


def build(value: Any) -> dt.tzinfo | None:
    """Return the zone that *value* describes; ValueError or TypeError if it describes none."""
    if value is None:
        return None
    if type(value) is not tuple:
        raise ValueError
    if len(value) == 1:
        return _installed(value[0])
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


def _installed(key: object) -> ZoneInfo:
    if type(key) is not str or key not in _keys():
        raise PayloadError(
            "a time zone is not in this system's zone database",
            rule="families.time-zone",
            fix="Install the package tzdata on both sides if the zone should exist.",
        )
    return ZoneInfo(key)

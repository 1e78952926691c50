"""Moments as people name them on a command line: ``1h``, ``yesterday``, ``2026-11-26T20:00``.

The one rule: everything is UTC, as the log is, and a text that could mean two moments is refused.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from safeser.errors import ConfigError

__all__ = ["moment_of"]

_AGO = re.compile(r"([0-9]{1,6})([smhdw])\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment_of(text: str, *, now: datetime) -> int:
    """Return the moment that *text* names, in microseconds since 1970.

    :raises ConfigError: if it names none.
    """
    ago = _AGO.match(text)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if ago is not None:
            found = now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        elif text in ("today", "yesterday"):
            found = midnight - timedelta(days=text == "yesterday")
        else:
            found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text!r} names no moment",
            rule="config.audit",
            fix="Write 90s, 30m, 1h, 2d or 1w for that long ago, today, yesterday, or a date and"
            " time in UTC: 2026-11-26, 2026-11-26T20:00.",
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1e6)

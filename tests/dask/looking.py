"""A preload: this process looks at its policy, roster and key ten times a second.

It counts its patience with a peer that has not looked yet in looks, and has as much as ever.
"""

from __future__ import annotations

from safeser.channel import door, records, watcher

_TIMES = 10
watcher.INTERVAL /= _TIMES
records.PATIENCE *= _TIMES
door.PATIENCE = records.PATIENCE

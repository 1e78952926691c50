"""A preload: this process looks at its policy, roster and key ten times a second."""

from __future__ import annotations

from safeser.channel import watcher

watcher.INTERVAL = 0.1

"""Preload of a worker whose cluster handles Ctrl-C: the terminal sends it to workers as well.

The one rule: importing it in a worker's main thread ignores SIGINT there; SIGTERM still ends it.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)

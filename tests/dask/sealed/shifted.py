"""A preload: statements are signed and compared by a clock that a test sets, as a file says.

The file named by ``SHIFTED`` holds how many seconds that clock is ahead. A client looks all the
time at whether a statement is due.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

from safeser.dask.clients import sealing
from safeser.dask.scheduler import statement_renewals
from safeser.dask.sealed import graph, verification

AHEAD = Path(os.environ["SHIFTED"])


def now():
    return time.time() + float(AHEAD.read_text())


def go_to(seconds):
    """Set the clock of all processes, each of which reads either the old file or the new one."""
    written = AHEAD.with_suffix(".new")
    written.write_text(str(seconds))
    written.replace(AHEAD)


clock = SimpleNamespace(time=now)
for module in (sealing, graph, verification):
    module.time = clock
sealing._EVERY = 0.05
statement_renewals.PAUSE = 0.05

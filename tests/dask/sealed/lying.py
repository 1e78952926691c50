"""A preload of the scheduler: it names tasks other than those that a client asks about.

For keys that begin with ``swapped`` it hands out the task ``victim``. It blames that task for the
failure of those that begin with ``framed`` or ``dressed``, and for ``dressed`` hands out data that
looks like a task that depends on it. Of ``again`` it hands out the first task that it was given
under that key. Of all others it tells the truth.
"""

from __future__ import annotations

import pandas as pd
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol import to_serialize
from distributed.protocol.serialize import ToPickle


class First(SchedulerPlugin):
    """Keeps the first task that came under a key."""

    def __init__(self, scheduler):
        self.scheduler, self.task = scheduler, None

    def transition(self, key, *_, **__):
        if key == "again" and self.task is None:
            self.task = self.scheduler.tasks[key].run_spec


def dask_setup(scheduler):
    first = First(scheduler)
    scheduler.add_plugin(first)
    runspec, cause = (scheduler.handlers[op] for op in ("get_runspec", "get_error_cause"))

    def get_runspec(*, key):
        if str(key).startswith("dressed"):
            return to_serialize(pd.DataFrame({"dependencies": ["victim"]}))
        if key == "again":
            return ToPickle(first.task)
        return runspec(key="victim" if str(key).startswith("swapped") else key)

    def get_error_cause(*, keys):
        framed = any(str(key).startswith(("framed", "dressed")) for key in keys)
        return "victim" if framed else cause(keys=keys)

    scheduler.handlers |= {"get_runspec": get_runspec, "get_error_cause": get_error_cause}

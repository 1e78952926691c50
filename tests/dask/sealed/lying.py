"""A preload of the scheduler: it names tasks other than those that a client asks about.

For keys that begin with ``swapped`` it hands out the task ``victim``. It blames that task for the
failure of those that begin with ``framed`` or ``dressed``, and for the latter hands out data that
looks like a task that depends on it. Of all others it tells the truth.
"""

from __future__ import annotations

import pandas as pd
from distributed.protocol import to_serialize


def dask_setup(scheduler):
    runspec, cause = (scheduler.handlers[op] for op in ("get_runspec", "get_error_cause"))

    def get_runspec(*, key):
        if str(key).startswith("dressed"):
            return to_serialize(pd.DataFrame({"dependencies": ["victim"]}))
        return runspec(key="victim" if str(key).startswith("swapped") else key)

    def get_error_cause(*, keys):
        framed = any(str(key).startswith(("framed", "dressed")) for key in keys)
        return "victim" if framed else cause(keys=keys)

    scheduler.handlers |= {"get_runspec": get_runspec, "get_error_cause": get_error_cause}

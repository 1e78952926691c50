"""What safeser says of classes that are registered with distributed's own decorators.

The one rule: the registration itself is distributed's.
"""

from __future__ import annotations

from safeser.dask.clients.decorated import reporting
from safeser.dask.patches.patch import ANY, Patch

__all__ = ["ROWS"]

ROWS = (
    Patch(
        target="dask.utils:Dispatch.register",
        reason="distributed takes functions that no policy lets safeser call, and headers that"
        " pickle the class; without a word to the one who registers them, objects of the class"
        " travel by another family.",
        process=ANY,
        needed=False,
        replace=reporting,
    ),
)

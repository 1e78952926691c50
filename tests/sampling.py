"""Every so many-th case of an enumeration, the same each time; all with SAFESER_EXHAUSTIVE=1."""

from __future__ import annotations

import os

EXHAUSTIVE = os.environ.get("SAFESER_EXHAUSTIVE", "") not in ("", "0")


def every(step: int) -> int:
    """Return *step*, or 1 where each case is asked for."""
    return 1 if EXHAUSTIVE else step

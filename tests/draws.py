"""How many examples of Hypothesis a test draws: all of them, or in ``make fast`` a few."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

__all__ = ["FAST", "draws"]

#: Whether ``make fast`` runs the tests.
FAST = os.environ.get("SAFESER_TESTS") == "fast"

#: Enough to notice that a property no longer holds at all.
_FEW = 10


def draws(count: int, **others: Any) -> settings:
    """Return settings for a property that draws *count* examples, and Hypothesis's *others*."""
    return settings(max_examples=min(count, _FEW) if FAST else count, **others)

"""NumPy's sources of random numbers: the names, listed without importing numpy.random.

The one rule: numpy.random is imported when an object of a type that is listed here is sent or
loaded, and for nothing else; NumPy itself waits for that too.
"""

from __future__ import annotations

__all__ = ["NAMES", "load"]

NAMES = (
    "numpy.random:BitGenerator",
    "numpy.random:Generator",
    "numpy.random:RandomState",
    "numpy.random:SeedSequence",
)


def load() -> None:
    """Import numpy.random and register its types."""
    from safeser.families import random_states  # noqa: PLC0415 - it imports numpy.random

    random_states.register()

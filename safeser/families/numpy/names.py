"""NumPy's sources of random numbers and polynomials: the names, listed without importing either.

The one rule: numpy.random and numpy.polynomial are imported when an object of a type that is listed
here is sent or loaded, and for nothing else; NumPy itself waits for that too.
"""

from __future__ import annotations

from safeser.families.registry import registry

__all__ = ["register"]

_RANDOM = (
    "numpy.random:BitGenerator",
    "numpy.random:Generator",
    "numpy.random:RandomState",
    "numpy.random:SeedSequence",
)

_POLYNOMIALS = ("numpy:poly1d", "numpy.polynomial:series")


def _load_random() -> None:
    from safeser.families.numpy import random_states

    random_states.register()


def _load_polynomials() -> None:
    from safeser.families.numpy import polynomials

    polynomials.register()


def register() -> None:
    """List the names; called once, when safeser.families is imported."""
    registry.register_lazy("numpy", _RANDOM, _load_random)
    registry.register_lazy("numpy", _POLYNOMIALS, _load_polynomials)

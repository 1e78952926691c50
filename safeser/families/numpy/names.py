"""List the names of NumPy's subclasses of arrays, random generators, polynomials and results.

The one rule: numpy.ma, numpy.char, numpy.random and numpy.polynomial are imported only when an
object of a listed type is sent or loaded.
"""

from __future__ import annotations

from typing import Any

from safeser.families.reduced import Reducers, Row, list_rows
from safeser.families.registry import loading, registry

__all__ = ["register"]

_PROFILES = ("numpy",)
_KINDS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_UNIQUE = ("All", "Counts", "Inverse")
_SERIES = ("Chebyshev", "Hermite", "HermiteE", "Laguerre", "Legendre", "Polynomial")


def _reducers() -> Reducers:
    from numpy.random import RandomState

    return {RandomState: _reduced_state}


def _reduced_state(x: Any) -> Any:
    """Return how *x* is made again: around its source, which has a state of its own."""
    make, arguments, state = x.__reduce__()
    return make, arguments, {"has_gauss": state["has_gauss"], "gauss": state["gauss"]}


_RANDOM = {
    "numpy.random:BitGenerator": Row(_PROFILES, tuple(f"numpy.random:{kind}" for kind in _KINDS)),
    "numpy.random:Generator": Row(_PROFILES, ("numpy.random:Generator",)),
    "numpy.random:RandomState": Row(_PROFILES, ("numpy.random:RandomState",), _reducers),
    "numpy.random:SeedSequence": Row(_PROFILES, ("numpy.random:SeedSequence",)),
}

_MADE = {
    "numpy:result": Row(
        _PROFILES,
        (
            *(f"numpy.linalg._linalg:{of}Result" for of in ("Eig", "Eigh", "QR", "SVD", "Slogdet")),
            *(f"numpy.lib._arraysetops_impl:Unique{of}Result" for of in _UNIQUE),
        ),
    ),
    "numpy:poly1d": Row(_PROFILES, ("numpy:poly1d",)),
    "numpy.polynomial:series": Row(
        _PROFILES, tuple(f"numpy.polynomial:{kind}" for kind in _SERIES)
    ),
}


_KINDS_OF_ARRAYS = (
    "numpy.ma:MaskedArray",
    "numpy.ma:masked",
    "numpy:matrix",
    "numpy:chararray",
    "numpy:recarray",
    "numpy:memmap",
)


def register() -> None:
    """List the names; called once, when safeser.families is imported."""
    registry.register_lazy("numpy", _KINDS_OF_ARRAYS, loading("numpy.kinds"))
    list_rows("numpy", _RANDOM)
    list_rows("numpy", _MADE)

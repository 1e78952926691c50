"""Hide attributes of a peer's choice from NumPy's array protocols.

The one rule: a class whose ``__getattr__`` looks up its instances' content (the attributes of an
xarray, the keys of scikit-learn's ``Bunch`` and of SciPy's results) returns nothing for the names
by which NumPy asks for an object's memory. ``np.asarray`` asks the instance, not its class, and
trusts the address in the plain values that it gets. Notebooks and Dask ask so too. Labels of
pandas' indexes are refused instead (:func:`safeser.types.pandas.check_labels`).
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from safeser.types.numpy import ASKED

__all__ = ["hide_memory", "hide_memory_of"]

#: Classes that :func:`hide_memory_of` changes, when they are first used.
_ANSWERING = frozenset(
    (
        "scipy._lib._util:_RichResult",
        "scipy.optimize._optimize:OptimizeResult",
        "sklearn.utils._bunch:Bunch",
        "xarray.core.common:AttrAccessMixin",
    )
)


def hide_memory_of(found: type) -> None:
    """Call :func:`hide_memory` for the listed bases of *found*, before live.py records them."""
    for base in found.__mro__:
        if f"{base.__module__}:{base.__qualname__}" in _ANSWERING:
            hide_memory(base)


def hide_memory(kind: Any) -> None:
    """Make instances of *kind* raise AttributeError for the names in :data:`ASKED`, and others."""
    stock = kind.__getattr__
    if hasattr(stock, "hides_memory"):
        return

    @wraps(stock)
    def attribute(self: Any, name: str) -> Any:
        if name in ASKED or name.startswith("__"):
            raise AttributeError(name)
        return stock(self, name)

    attribute.hides_memory = True  # type: ignore[attr-defined]  # a mark of ours
    kind.__getattr__ = attribute

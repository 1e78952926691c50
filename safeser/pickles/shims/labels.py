"""Attributes that a peer chose are no attributes to NumPy.

The one rule: a class whose instances answer for attributes out of what they hold (the attributes of
an xarray, the keys of scikit-learn's ``Bunch``) never answers for the names by which NumPy asks
where an object's memory is. ``np.asarray`` asks the instance, not its class, and takes the address
as it is, out of plain values alone. Labels of pandas' indexes are refused instead
(:func:`safeser.types.pandas.check_labels`).
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from safeser.types.numpy import MEMORY

__all__ = ["hide_memory", "hide_memory_of"]

#: All classes that this process does so for, once it needs them.
_ANSWERING = frozenset(
    (
        "sklearn.utils._bunch:Bunch",
        "xarray.core.common:AttrAccessMixin",
    )
)


def hide_memory_of(found: type) -> None:
    """Do so for *found* now, if it ever will be: whoever looks at it again sees it as it was."""
    for base in found.__mro__:
        if f"{base.__module__}:{base.__qualname__}" in _ANSWERING:
            hide_memory(base)


def hide_memory(kind: Any) -> None:
    """Have instances of *kind* answer for :data:`MEMORY` as their class does: they are no such."""
    stock = kind.__getattr__
    if hasattr(stock, "hides_memory"):
        return

    @wraps(stock)
    def attribute(self: Any, name: str) -> Any:
        if name in MEMORY:
            raise AttributeError(name)
        return stock(self, name)

    attribute.hides_memory = True  # type: ignore[attr-defined]  # a mark of ours
    kind.__getattr__ = attribute

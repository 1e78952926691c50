"""Check the elements, indexes and print limits of SciPy's sparse matrices.

The one rule: SciPy's compiled code reads and writes memory at these indexes without a check.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeser.types import refused

__all__ = ["check_maxprint", "check_numbers", "check_reach"]


def check_numbers(dtype: np.dtype[Any]) -> None:
    """Refuse *dtype* of elements that SciPy's compiled code cannot compute with."""
    if dtype.kind not in "biufc":
        raise refused("scipy", "the elements of a sparse matrix are no plain numbers")
    if not dtype.isnative:
        raise refused("scipy", "the elements of a sparse matrix are not in native byte order")


def check_maxprint(count: object) -> None:
    """Refuse to print *count* elements of a sparse matrix."""
    if type(count) is not int or count < 0:
        raise refused("scipy", "maxprint of a sparse matrix is no number of elements")


def check_reach(shape: tuple[int, ...], *indexes: np.ndarray[Any, Any]) -> None:
    """Refuse a *shape* in which SciPy cannot count: it does so in the type of the *indexes*."""
    if any(part.dtype.itemsize < 8 for part in indexes) and max(shape) > np.iinfo(np.int32).max:
        raise refused("scipy", "the shape of a sparse matrix is beyond what its indexes reach")

"""Which values of a peer's have a text that is not much longer than what came.

The one rule: only types whose text was looked at; whatever else is to be shown is named by its
type. NumPy leaves out elements only along axes that are longer than six: one byte that fills an
array of eleven axes of six is a text of a gigabyte, and holds up whoever prints it for minutes.
Frames, tensors and estimators print arrays that are in them.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from numbers import Number
from typing import Any

import numpy as np

from safeser.dask.reader import LEAVES

__all__ = ["is_brief", "named"]

_ATOMS = LEAVES | {
    *(complex, range, bytearray, Decimal),
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta),
}
_SHORT = (str, BaseException, Number, datetime.date, datetime.timedelta)
_HOLDS = frozenset({tuple, list, set, frozenset})

#: The most elements and bytes of an array that is printed, as it would be without leaving any out.
_MOST_ELEMENTS, _MOST_BYTES = 1000, 1 << 16


def is_brief(value: Any) -> bool:
    """Tell whether the text of *value* is bounded by its size in a message."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        kind = type(part)
        if kind in _ATOMS:
            continue
        if kind is dict:
            waiting += part
            waiting += part.values()
        elif kind in _HOLDS:
            waiting += part
        elif not _is_atom(part):
            return False
    return True


def _is_atom(value: Any) -> bool:
    if type(value) is np.ndarray:
        plain = value.dtype.kind in "biufcmMSUT"
        return plain and value.size <= _MOST_ELEMENTS and _bytes_of(value) <= _MOST_BYTES
    if isinstance(value, np.generic):
        return not isinstance(value, np.void)
    # Of errors a peer's arguments are small, or its message is all that came. Whatever a worker may
    # tell of itself (operations/shapes.py) can be printed, or no client would hear of workers.
    return isinstance(value, _SHORT)


def _bytes_of(array: np.ndarray[Any, Any]) -> int:
    """Return how much *array* would be if none of it were repeated."""
    if array.dtype.kind == "T":  # texts of any length, which are elsewhere
        return sum(map(len, array.flat))
    return array.nbytes


def named(value: Any) -> str:
    """Return what stands for a *value* that is not printed."""
    kind = type(value)
    return f"<{kind.__module__}.{kind.__qualname__}>"

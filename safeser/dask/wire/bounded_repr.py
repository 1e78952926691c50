"""Decide whether the repr of a received value has bounded size.

The one rule: the repr of listed types alone is made, since their size in a message bounds it; any
other value is shown by its type. NumPy leaves out elements only along axes that are longer than
six: one byte that fills an array of eleven axes of six has a repr of a gigabyte, and stalls every
process that prints it for minutes. Frames, tensors and estimators print arrays that are in them.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from numbers import Number
from typing import Any

import numpy as np

from safeser.dask.wire.reader import LEAVES

__all__ = ["has_bounded_repr", "type_name"]

_ATOMS = LEAVES | {
    *(complex, range, bytearray, Decimal),
    *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta),
}
_SHORT = (str, BaseException, Number, datetime.date, datetime.timedelta)
_HOLDS = frozenset({tuple, list, set, frozenset})

#: The most elements and bytes of an array that is printed, as it would be without leaving any out.
_MOST_ELEMENTS, _MOST_BYTES = 1000, 1 << 16


def has_bounded_repr(value: Any, *, ranges: bool = True) -> bool:
    """Tell whether the size of *value* in a message bounds its repr.

    :param ranges: whether ranges count: their repr is short, and they may have any length.
    """
    waiting = [value]
    while waiting:
        part = waiting.pop()
        kind = type(part)
        if kind in _ATOMS and (ranges or kind is not range):
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
    # The arguments of a peer's error are small, or its message is all that came.
    return isinstance(value, _SHORT)


def _bytes_of(array: np.ndarray[Any, Any]) -> int:
    """Return how many bytes *array* takes once no element stands for several."""
    if array.dtype.kind == "T":  # texts of any length, outside of the array's own memory
        return sum(map(len, array.flat))
    return array.nbytes


def type_name(value: Any) -> str:
    """Return the name of the type of *value*, which is shown in place of its repr."""
    kind = type(value)
    return f"<{kind.__module__}.{kind.__qualname__}>"

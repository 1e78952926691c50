"""Convert headers of NumPy arrays of stock Dask to those of safeser.

The one rule: a dtype is a letter, a size and a unit out of tables here; no text of a peer reaches
NumPy unless it has exactly that form, and no pickle does. (Raw bytes under the dtype ``|O`` are
object pointers of the peer's choice: they crash a stock client.) Records, matrices and masked
arrays are written on the cluster as typed values, see :mod:`safeser.dask.clients.stock_frames`.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from safeser.dask.contents.unreadable import malformed, unreadable
from safeser.families.numpy import dtypes
from safeser.types import numpy as bounds

__all__ = ["holding", "translated", "typed"]

Made = tuple[dict[str, Any], list[Any]]

_DTYPE = re.compile(
    r"[<>|=]?(?:[biufc][0-9]{1,2}|[SU][0-9]{1,9}"
    r"|[mM]8(?:\[[0-9]{0,9}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?)",
    re.ASCII,
)
_KEYS = frozenset({"dtype", "shape", "strides", "writeable"})
_OPTIONAL = frozenset({"broadcast_to", "matrix"})
_OBJECTS = "it holds Python objects, which stock Dask sends as a pickle"


def translated(meta: dict[str, Any], frames: list[Any]) -> Made:
    """Return safeser's header and frames of an array."""
    if meta.get("pickle"):
        unreadable("numpy:ndarray", because=_OBJECTS)
    if meta.get("matrix"):
        unreadable("numpy:matrix")
    if not meta.keys() >= _KEYS or not meta.keys() <= _KEYS | _OPTIONAL or len(frames) != 1:
        malformed("it is not described as an array is")
    dtype = _dtype(meta["dtype"])
    shape = bounds.check_shape(meta["shape"])
    writeable = meta["writeable"]
    if type(writeable) is not tuple or len(writeable) != 1 or type(writeable[0]) is not bool:
        malformed("it does not say whether it is writeable")
    described: dict[str, Any] = {
        "shape": list(shape),
        "order": _order(meta["strides"], shape, dtype.itemsize),
        "writeable": writeable[0],
        "dtype": dtypes.describe(dtype),
    }
    if meta.get("broadcast_to") is not None:
        whole = bounds.check_shape(meta["broadcast_to"])
        # One number seen many times is read-only: writing to one element would change all.
        described.update(shape=list(whole), base=list(shape), writeable=False)
        if whole == shape:
            del described["base"]
    return typed("numpy:ndarray", described), frames


def _order(strides: Any, shape: tuple[int, ...], itemsize: int) -> str:
    """Return in which order elements follow each other; they lie without gaps in either."""
    if type(strides) is not tuple or len(strides) != len(shape):
        malformed("its strides do not fit its shape")
    if 0 in shape or strides == () or _fits(strides, shape, itemsize):
        return "C"
    if _fits(strides[::-1], shape[::-1], itemsize):
        return "F"
    malformed("its elements do not lie one after the other")


def _fits(strides: Any, shape: tuple[int, ...], itemsize: int) -> bool:
    step = itemsize
    for stride, length in zip(reversed(strides), reversed(shape), strict=True):
        if length != 1 and stride != step:  # the step along an axis of one is never taken
            return False
        step *= length
    return True


def _dtype(described: Any) -> np.dtype[Any]:
    match described:
        case (0, str() as text):
            return _plain_dtype(text)
        case (0, tuple()) | (1, bytes()):
            unreadable("numpy:ndarray", because="its elements are records")
    malformed("its dtype is described in no known way")


def _plain_dtype(text: str) -> np.dtype[Any]:
    if not _DTYPE.fullmatch(text):
        if text.lstrip("<>|=").startswith("O"):
            unreadable("numpy:ndarray", because=_OBJECTS)
        malformed("its dtype is none that numbers, times or text have")
    try:
        return np.dtype(text)
    except (TypeError, ValueError, OverflowError):
        malformed("its dtype is none that this NumPy has")


def typed(name: str, meta: dict[str, Any]) -> dict[str, Any]:
    """Return the header of a value of the type *name*."""
    return {"serializer": "dask", "type": name, "sub-header": meta}


def holding(header: dict[str, Any], parts: list[Made]) -> Made:
    """Return the header and frames of a value with that *header*, which consists of *parts*."""
    headers, lengths = [inner for inner, _ in parts], [len(own) for _, own in parts]
    frames = [frame for _, own in parts for frame in own]
    return {**header, "sub-headers": headers, "frame-lengths": lengths}, frames

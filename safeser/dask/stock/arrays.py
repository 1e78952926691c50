"""Convert headers of NumPy arrays of stock Dask to those of safeser.

The one rule: a dtype is a letter, a size and a unit out of tables here, or a record of such; no
text of a peer reaches NumPy unless it has exactly that form, and no pickle does. (Raw bytes under
the dtype ``|O`` are object pointers of the peer's choice: they crash a stock client.)
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from safeser import pickles
from safeser.dask.contents.unreadable import malformed, unreadable
from safeser.families.numpy import dtypes
from safeser.types import numpy as bounds

__all__ = ["holding", "masked", "translated", "typed"]

Made = tuple[dict[str, Any], list[Any]]

_DTYPE = re.compile(
    r"[<>|=]?(?:[biufc][0-9]{1,2}|[SU][0-9]{1,9}"
    r"|[mM]8(?:\[[0-9]{0,9}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?)",
    re.ASCII,
)
_KEYS = frozenset({"dtype", "shape", "strides", "writeable"})
_OPTIONAL = frozenset({"broadcast_to", "matrix"})
_MASKED = frozenset({"data-header", "nframes", "fill-value"})

_OBJECTS = "it holds Python objects, which stock Dask sends as a pickle"


def translated(meta: dict[str, Any], frames: list[Any]) -> Made:
    """Return safeser's header and frames of an array, or of a matrix if it says that it is one."""
    if meta.get("pickle"):
        unreadable("numpy:ndarray", because=_OBJECTS)
    matrix = meta.get("matrix", False)
    if type(matrix) is not bool:
        malformed("it says neither that it is a matrix nor that it is none")
    header, frames = _array(meta, frames)
    if not matrix:
        return header, frames
    return holding(typed("numpy:matrix", {}), [(header, frames)])


def _array(meta: dict[str, Any], frames: list[Any]) -> Made:
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
        case (0, tuple() as fields):
            return _record_dtype(fields)
        case (1, bytes() as pickled):
            record = pickles.dtype_record(pickled)
            if record is None:
                unreadable("numpy:dtype", because="its pickle is not that of plain fields")
            return dtypes.build(_described(record))
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


def _record_dtype(fields: tuple[Any, ...]) -> np.dtype[Any]:
    """Return the dtype of fields that follow each other, each with a name."""
    described, at = [], 0
    for field in fields:
        match field:
            case (str() as name, str() as text) if name:
                inner = _plain_dtype(text)
                described.append([name, dtypes.describe(inner), at])
                at += inner.itemsize
            case _:
                malformed("a field of its dtype is described in no known way")
    return dtypes.build({"fields": described, "size": at, "align": False})


def _described(record: pickles.DtypeRecord | str) -> Any:
    if isinstance(record, str):
        return dtypes.describe(_plain_dtype(record))
    fields = [[name, _described(inner), offset] for name, inner, offset in record.fields]
    return {"fields": fields, "size": record.size, "align": record.align}


def masked(meta: dict[str, Any], frames: list[Any]) -> Made:
    """Return safeser's header and frames of a masked array."""
    if not meta.keys() >= _MASKED or not meta.keys() <= _MASKED | {"mask-header"}:
        malformed("it is not described as a masked array is")
    count, data = meta["nframes"], meta["data-header"]
    if type(count) is not int or not 0 <= count <= len(frames) or type(data) is not dict:
        malformed("its data are not described")
    parts = [translated(data, frames[:count])]
    if "mask-header" in meta:
        if type(meta["mask-header"]) is not dict:
            malformed("its mask is not described")
        parts.append(translated(meta["mask-header"], frames[count:]))
    elif count != len(frames):
        malformed("it has more frames than data")
    kept = _fill(meta["fill-value"], _dtype(data.get("dtype")))
    flags = {"hardmask": False, "sharedmask": False, "mask": len(parts) == 2}
    header = typed("numpy.ma:MaskedArray", {**flags, "fill": kept is not None})
    return holding(header, [*parts, *(kept or ())])


def _fill(fill: Any, dtype: np.dtype[Any]) -> list[Made] | None:
    """Return the number that stands for what is masked, or None for the dtype's own."""
    match fill:
        case (False, (bool() | int() | float()) as number):
            # As text it would be as long as the dtype says, which no frame has borne out.
            if dtype.kind not in "biufcmM":
                malformed("its fill value is a number, and its elements are none")
            try:
                value = np.array(number, dtype)
            except (TypeError, ValueError, OverflowError):
                malformed("its fill value is none of its dtype")
            described: dict[str, Any] = {"shape": [], "order": "C", "writeable": True}
            described["dtype"] = dtypes.describe(dtype)
            return [(typed("numpy:ndarray", described), [value.tobytes()])]
        case (True, bytes()):
            # A pickle that says no more than how masked elements print: NumPy's default does.
            return None
    malformed("its fill value is none")


def typed(name: str, meta: dict[str, Any]) -> dict[str, Any]:
    """Return the header of a value of the type *name*."""
    return {"serializer": "dask", "type": name, "sub-header": meta}


def holding(header: dict[str, Any], parts: list[Made]) -> Made:
    """Return the header and frames of a value with that *header*, which consists of *parts*."""
    headers, lengths = [inner for inner, _ in parts], [len(own) for _, own in parts]
    frames = [frame for _, own in parts for frame in own]
    return {**header, "sub-headers": headers, "frame-lengths": lengths}, frames

"""Reviewed functions for NumPy's arrays, scalars and dtypes.

The one rule: NumPy's own reconstruct and setstate functions never see a peer's state. A forged
dtype flag or an object dtype over raw bytes turns those bytes into object pointers, so a dtype is
made anew from its parts and must reduce to exactly the state that was sent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.pickles.nodes import GlobalRef
from safeser.pickles.shims.site import Draft, Site, bad, begun, plain, settled
from safeser.types import numpy as bounds

__all__ = ["SHIMS"]

_CODE = re.compile(
    r"(?:b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|[SUV][0-9]{1,10}|O8?|[Mm]8)\Z"
)
# No code of NumPy's, so none that a peer can write.
_RECORD = "V record"
_ORDERS = ("<", ">", "|", "=")
_UNIT = re.compile(rb"(?:generic|Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\Z")
_INT32 = 1 << 31


# -- dtypes ------------------------------------------------------------------------------------


def _dtype(_: Site, __: str, code: Any, align: Any, copy: Any) -> Draft:
    # A record's dtype names the class of its elements where others have a code.
    if type(code) is GlobalRef:
        code = _RECORD
    # copy=True everywhere: without it the state would be set on the dtype all arrays share. NumPy
    # before 1.20 wrote both flags as numbers.
    flags = plain(align, bool, int), plain(copy, bool, int)
    if flags != (False, True) or not (code == _RECORD or _CODE.match(plain(code, str))):
        raise bad("dtype", "a dtype is not one that NumPy pickles")
    return Draft("dtype", code)


def _dtype_state(site: Site, draft: Any, state: Any) -> np.dtype[Any]:
    (code,) = begun(draft, "a dtype").parts
    if len(plain(state, tuple)) not in (8, 9):
        raise bad("dtype", "the state of a dtype has another form")
    metadata, state = _metadata(site, code, state)
    made = _dtype_from(site, code, state)
    bounds.check_itemsize(made, site.limits)
    site.charge(bounds.check_dtype(made))
    # Byte order, sizes, alignment, flags, offsets: all of it is either ours or not accepted.
    if not _same(made.__reduce__()[2], state):
        raise bad("dtype", "the state of a dtype contradicts itself")
    return bounds.with_metadata(made, metadata)


def _metadata(
    site: Site, code: str, state: tuple[Any, ...]
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return a copy of a dtype's metadata, and its state without them."""
    if len(state) < 9:
        return {}, state
    times = code in ("M8", "m8")
    attached = state[8][0] if times else state[8]
    if not attached and times:
        return {}, state
    plain(attached, dict)
    if state[0] != 4:
        raise bad("dtype", "the state of a dtype has another form")
    rest: tuple[Any, ...] = (({}, state[8][1]),) if times else ()
    # Only that, and a unit, make it the fourth version.
    return dict(attached), (4 if times else 3, *state[1:8], *rest)


def _dtype_from(site: Site, code: str, state: tuple[Any, ...]) -> np.dtype[Any]:
    order, subarray, names, fields = state[1], state[2], state[3], state[4]
    if plain(order, str) not in _ORDERS:
        raise bad("dtype", "the byte order of a dtype is none")
    if (names is None) != (fields is None):
        raise bad("dtype", "a dtype has names or fields, and not the other")
    if (subarray, names) != (None, None) and not code.startswith("V"):
        raise bad("dtype", "a dtype has fields or a shape and is a number too")
    if code == _RECORD and (subarray is not None or names is None):
        raise bad("dtype", "a record has no fields")
    if subarray is not None:
        base, shape = plain(subarray, tuple)
        return bounds.subarray(_sound_dtype(base), plain(shape, tuple))
    if names is not None:
        made = _structured(site, state, plain(names, tuple), plain(fields, dict))
        return np.dtype((np.record, made)) if code == _RECORD else made
    if code in ("M8", "m8"):
        metadata, (unit, *numbers) = state[8]
        one, two, three = (plain(number, int) for number in numbers)
        known = _UNIT.match(plain(unit, bytes)) and 0 < one < _INT32 and (two, three) == (1, 1)
        if metadata or not known:
            raise bad("dtype", "the unit of a datetime dtype is not one of NumPy's")
        text = code if unit == b"generic" else f"{code}[{one}{unit.decode()}]"
        return _ordered(np.dtype(text), order)
    return _ordered(np.dtype(code), order)


def _ordered(dtype: np.dtype[Any], order: str) -> np.dtype[Any]:
    # Only where it isn't the machine's own: NumPy shows an order that was set as one.
    native = order in ("=", "|") or (order == "<") == (sys.byteorder == "little")
    return dtype if native else dtype.newbyteorder(">" if order == ">" else "<")


def _structured(
    site: Site, state: tuple[Any, ...], names: tuple[Any, ...], fields: dict[Any, Any]
) -> np.dtype[Any]:
    held = []
    for name in names:
        base, offset, *title = fields[plain(name, str)]
        named = plain(title[0], str) if title else None
        held.append(bounds.Field(name, _sound_dtype(base), plain(offset, int), named))
    # NPY_ALIGNED_STRUCT; the comparison afterwards refuses it where it isn't true.
    aligned = bool(plain(state[7], int) & 0x80)
    return bounds.record(held, plain(state[5], int), align=aligned)


def _sound_dtype(value: Any) -> np.dtype[Any]:
    if not isinstance(value, np.dtype):
        raise bad("dtype", "a part of a dtype is not a dtype")
    return value


def _same(ours: Any, sent: Any) -> bool:
    """Compare states whose numbers, names and types must match exactly (True is not 1 here)."""
    if isinstance(ours, np.dtype):
        same = isinstance(sent, np.dtype) and ours == sent
        return same and (ours.flags, ours.alignment) == (sent.flags, sent.alignment)
    # The unit's metadata is {} or None, by NumPy's version.
    if type(ours) is not type(sent):
        return not ours and not sent and {type(ours), type(sent)} == {dict, type(None)}
    if isinstance(ours, tuple | list):
        return len(ours) == len(sent) and all(map(_same, ours, sent))
    if isinstance(ours, dict):
        return ours.keys() == sent.keys() and all(_same(ours[key], sent[key]) for key in ours)
    return bool(ours == sent)


# -- arrays ------------------------------------------------------------------------------------


def _shape(value: Any) -> tuple[int, ...]:
    return bounds.check_shape(plain(value, tuple))


def _from_bytes(
    site: Site, raw: Any, dtype: Any, shape: tuple[int, ...], order: Any
) -> np.ndarray[Any, Any]:
    """Return a view on *raw*; the array is as writable as the buffer is."""
    bounds.check_elements(_sound_dtype(dtype), ndim=len(shape))
    view = memoryview(plain(raw, bytes, bytearray, memoryview))
    count = bounds.check_extent(shape, dtype.itemsize, site.limits)
    if not view.contiguous or view.nbytes != count * dtype.itemsize:
        raise bad("shape", "an array's bytes are not as many as its shape says")
    if not view.nbytes:
        site.charge(count)
        # np.empty would widen the elements and take memory that no byte stands for.
        return np.ndarray(shape, dtype, bytearray(), order=order)
    made = np.frombuffer(view.cast("B"), dtype=dtype)
    if bounds.is_strict(dtype):
        made = bounds.sound(made)
    return made.reshape(shape, order=order)


def _frombuffer(  # noqa: PLR0917 - the arguments are those of the pickle
    site: Site, _: str, raw: Any, dtype: Any, shape: Any, order: Any, axes: Any = None
) -> np.ndarray[Any, Any]:
    if bounds.is_strict(_sound_dtype(dtype)):
        raw = settled(site, raw)
    if order == "K" and axes is not None:
        # A transposed array: laid out in C order along its own axes, then turned.
        if sorted(plain(axis, int) for axis in plain(axes, tuple)) != [*range(len(_shape(shape)))]:
            raise bad("shape", "the axes of an array are no permutation")
        return _from_bytes(site, raw, dtype, shape, "C").transpose(axes)
    if order not in ("C", "F") or axes is not None:
        raise bad("shape", "the order of an array is neither C nor F")
    return _from_bytes(site, raw, dtype, _shape(shape), order)


def _raw(content: Any) -> bytes:
    """Return bytes that Python 2 may have written as text; NumPy reads them so too."""
    if type(content) is str and content.isascii():
        return content.encode()
    return plain(content, bytes)  # type: ignore[no-any-return]  # plain() proved it bytes


def _scalar(site: Site, _: str, dtype: Any, raw: Any) -> Any:
    raw = _raw(raw)
    if not _sound_dtype(dtype).itemsize:
        return np.zeros((), dtype)[()]
    return _from_bytes(site, bytearray(raw), dtype, (1,), "C")[0]


def _reconstruct(_: Site, __: str, kind: Any, shape: Any, code: Any) -> Draft:
    if type(kind) is not GlobalRef or not _begins(shape, code):
        raise bad("shape", "an array is begun in another way than NumPy does")
    return Draft("array", kind.name)


def _begins(shape: Any, code: Any) -> bool:
    """Tell whether state is set on an empty array of bytes, as NumPy writes it."""
    # False is equal to 0, and NumPy does not take it.
    sound = type(shape) is tuple and shape == (0,) and type(shape[0]) is int
    return sound and code in (b"b", "b")


def _array_state(site: Site, draft: Any, state: Any) -> np.ndarray[Any, Any]:
    (kind,) = begun(draft, "an array").parts
    made = _plain_array(site, state)
    return _as_subclass(made, kind.partition(":")[2])  # type: ignore[no-any-return]  # an ndarray


def _as_subclass(made: Any, kind: str) -> Any:
    """Return *made* as one of NumPy's own subclasses, none of which trusts its elements more."""
    if kind == "ndarray":
        return made
    bounds.check_kind(kind, ndim=made.ndim, dtype=made.dtype)
    # A memmap comes without its file: it is an array in memory that only says so.
    return made.view(bounds.chararray() if kind == "chararray" else _SUBCLASSES[kind])


_SUBCLASSES: dict[str, Any] = {"matrix": np.matrix, "memmap": np.memmap, "recarray": np.recarray}


def _plain_array(site: Site, state: Any) -> np.ndarray[Any, Any]:
    version, shape, dtype, fortran, content = plain(state, tuple)
    if plain(version, int) != 1 or plain(fortran, bool, int) not in (0, 1):
        raise bad("shape", "the state of an array has another form")
    order: Any = "F" if fortran else "C"
    if _sound_dtype(dtype).hasobject:
        return _object_array(site, _shape(shape), dtype, content, order)
    # Over a copy of the bytes and not by copying elements, which would leave padding unset and so
    # hand over what this process last kept in that memory.
    made = _from_bytes(site, bytearray(_raw(content)), dtype, _shape(shape), order)
    # NumPy turns plain numbers into the machine's byte order on this way, and only on this.
    if dtype.kind in "iufcmM" and not dtype.isnative:
        return made.astype(dtype.newbyteorder("="), order=order)
    return made


def _object_array(
    site: Site, shape: tuple[int, ...], dtype: Any, content: Any, order: Any
) -> np.ndarray[Any, Any]:
    """Make an object array from a list of objects that were judged and built like all others."""
    if dtype != np.dtype(object):
        raise bad("object-dtype", "objects inside a structured dtype are not accepted")
    if len(plain(content, list)) != bounds.check_extent(shape, dtype.itemsize, site.limits):
        raise bad("shape", "an array has not as many objects as its shape says")
    flat = np.empty(len(content), dtype)
    for at, item in enumerate(content):
        flat[at] = item
    # The list is in logical order whatever the layout is.
    return np.asarray(flat.reshape(shape), order=order)


def _masked(_: Site, __: str, kind: Any, base: Any, shape: Any, code: Any) -> Draft:
    named = type(kind) is GlobalRef and type(base) is GlobalRef
    if not named or not _begins(shape, code):
        raise bad("shape", "a masked array is begun in another way than NumPy does")
    return Draft("masked")


def _masked_state(site: Site, draft: Any, state: Any) -> Any:
    begun(draft, "an array")
    version, shape, dtype, fortran, content, mask, fill = plain(state, tuple)
    _sound_dtype(dtype)
    if not (fill is None or isinstance(fill, np.generic | int | float | complex | str | bytes)):
        fill = plain(fill, np.ndarray)[()]
    values = _plain_array(site, (version, shape, dtype, fortran, content))
    # One flag for each element, or for each field of it.
    flags: Any = np.ma.make_mask_descr(dtype)
    hidden = _plain_array(site, (version, shape, flags, fortran, mask))
    return np.ma.MaskedArray(values, mask=hidden, fill_value=fill)


SHIMS: dict[str, Callable[..., Any]] = {
    "array_state": _array_state,
    "dtype": _dtype,
    "dtype_state": _dtype_state,
    "frombuffer": _frombuffer,
    "masked": _masked,
    "masked_state": _masked_state,
    "reconstruct": _reconstruct,
    "scalar": _scalar,
}

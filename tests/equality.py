"""Equality to the letter: exact types, signs of zero, sharing, order, and an object's own state.

The one rule: two values are the same if nobody who holds either could tell which one it is.
"""

from __future__ import annotations

import copyreg
import struct
import types
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import numpy as np

__all__ = ["difference"]

_ATOMS = (type(None), bool, int, str, bytes, type(...), type(NotImplemented), type)
_MISSING = object()


def difference(left: Any, right: Any) -> str:
    """Return where *left* and *right* first differ, as a path, or the empty string."""
    paired: dict[int, int] = {}
    kept: list[Any] = []
    pending: list[tuple[str, Any, Any]] = [("", left, right)]
    while pending:
        path, a, b = pending.pop()
        kind = type(a)
        if kind is not type(b):
            return f"{path}: {kind.__name__} and {type(b).__name__}"
        if kind in _ATOMS or isinstance(a, type):
            if a is not b and (isinstance(a, type) or a != b):
                return path or "."
        elif kind.__module__ == "pyarrow.lib" and kind.__name__.endswith("Array"):
            # Counts of nulls are counted anew; the rest is what Arrow calls equal.
            if a.type != b.type or not a.equals(b):
                return f"{path}: arrays differ"
        elif kind is float:
            if struct.pack(">d", a) != struct.pack(">d", b):
                return path or "."
        elif id(a) in paired:
            if paired[id(a)] != id(b):
                return f"{path}: shared on one side only"
        else:
            # Empty tuples and frozensets are one object in CPython, wherever they come from.
            if not (kind in (tuple, frozenset) and not a):
                paired[id(a)] = id(b)
                kept += (a, b)
            if kind is np.ndarray and not _same_array(a, b):
                return f"{path}: arrays differ"
            parts = zip_longest(_parts(a), _parts(b), fillvalue=("", _MISSING))
            for number, ((name, x), (_, y)) in enumerate(parts):
                if x is _MISSING or y is _MISSING:
                    return f"{path}: lengths differ"
                pending.append((f"{path}.{name or number}", x, y))
    return ""


def _same_array(a: np.ndarray, b: np.ndarray) -> bool:
    return (
        a.dtype == b.dtype
        and a.dtype.flags == b.dtype.flags
        and a.shape == b.shape
        and a.strides == b.strides
        and a.flags.writeable == b.flags.writeable
        and (a.dtype.hasobject or _bytes(a) == _bytes(b))
    )


def _bytes(array: np.ndarray) -> bytes:
    # safeser makes the bytes of flags 0 and 1; NumPy takes any but 0 for true.
    return (array != 0 if array.dtype == bool else array).tobytes()


def _parts(made: Any) -> Iterator[tuple[str, Any]]:
    """Yield what makes *made* what it is, by name or in order."""
    kind = type(made)
    if kind in (list, tuple):
        # pandas' arrays carry what they have computed so far in their state.
        yield from (("", item) for item in made if type(item) is not dict or "_cache" not in item)
    elif kind is dict:
        for key, item in made.items():
            yield "key", key
            yield "", item
    elif kind in (set, frozenset):
        # Order is no part of a set; text that tells equal members of two types apart is.
        yield from (("", item) for item in sorted(made, key=_member_order))
    elif kind.__module__ == "pyarrow.lib" and kind.__name__ == "Buffer":
        yield "bytes", made.to_pybytes()  # arrays of Arrow cannot be written to, either way
    elif kind.__name__ in ("cKDTree", "KDTree") and kind.__module__.startswith("scipy."):
        nodes, *rest = made.__getstate__()
        # Numbers 5 and 6 of the nine in each node are addresses, which are found anew.
        yield "nodes", np.delete(np.frombuffer(nodes.tobytes()).reshape(made.size, 9), (5, 6), 1)
        yield from (("", part) for part in rest)
    elif kind.__name__.endswith("Block") and hasattr(made, "mgr_locs"):
        # A slice of one place can be spelt in many ways, of which pandas keeps none.
        yield from (("", part) for part in (made.values, made.ndim, made.mgr_locs.as_array))
    elif kind is bytearray:
        yield "bytes", bytes(made)
    elif kind is memoryview:
        yield "bytes", bytes(made)
        yield "readonly", made.readonly
    elif kind is np.ma.MaskedArray:
        # The default fill value is made when it is asked for, or when state is set: no difference.
        yield from (("", part) for part in (made.data, made.mask, made.fill_value, made.hardmask))
    elif kind is np.ndarray:
        if made.dtype.hasobject:
            yield from (("", item) for item in made.ravel().tolist())
    elif kind in (range, slice):
        yield from (("", part) for part in (made.start, made.stop, made.step))
    elif kind is complex:
        yield from (("", part) for part in (made.real, made.imag))
    elif isinstance(made, np.generic):
        yield "dtype", str(made.dtype)
        yield "bytes", made.tobytes()
    elif isinstance(made, np.dtype):
        yield "dtype", repr(made)
        yield "flags", made.flags
    elif kind is types.FunctionType:
        yield "function", id(made)  # loading never makes one
    elif isinstance(made, BaseException):
        yield "args", made.args
        yield "state", made.__dict__
    else:
        reducer = copyreg.dispatch_table.get(kind)
        reduced = reducer(made) if reducer else made.__reduce_ex__(4)
        if isinstance(reduced, str):
            yield "name", reduced
            return
        for number, part in enumerate(_told_apart(reduced)):
            # The fourth and fifth of what __reduce_ex__ gives are iterators, and end.
            filled = number in (3, 4) and part is not None
            yield "", (list(part) if filled else _function(part))


def _member_order(member: Any) -> str:
    """Return text that puts members of equal sets in one order."""
    kind = type(member)
    if kind is float:
        text = struct.pack(">d", member).hex()  # NaNs have a sign and a payload that repr hides
    elif kind is frozenset:
        text = str(sorted(map(_member_order, member)))
    elif kind is tuple:
        text = str([_member_order(part) for part in member])
    else:
        text = repr(member)
    return f"{kind.__name__} {text}"


def _told_apart(reduced: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the parts of a reduction without what its object's users cannot see."""
    for part in reduced:
        if type(part) is dict and set(map(type, part)) == {str}:
            # Attributes have no order, and pandas' arrays keep what they have computed so far.
            yield {name: part[name] for name in sorted(part) if name != "_cache"}
        else:
            yield part


def _function(part: Any) -> Any:
    return f"{part.__module__}.{part.__qualname__}" if callable(part) else part

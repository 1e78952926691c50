"""SciPy's sparse matrices and arrays of family ``dask``, over the buffers that arrived.

The one rule: SciPy's compiled code trusts indexes, so each is checked against the shape by the
constructors that were reviewed for pickles, before the object that holds them is handed out.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from safeser.families import plain
from safeser.families.numpy import dtypes
from safeser.families.numpy.arrays import aligned, array_child
from safeser.families.plain import Unencodable, label
from safeser.families.registry import Parts, Typed, registry
from safeser.families.reviewed import reviewed, site
from safeser.families.tree import Node
from safeser.pickles.shims.scipy import SHIMS
from safeser.pickles.shims.site import Draft
from safeser.types import numpy as bounds
from safeser.types import scipy as sparse_bounds
from safeser.values import Limits

__all__ = ["register"]

#: Untyped on purpose: SciPy is an extra.
sparse: Any = importlib.import_module("scipy.sparse")

#: What a matrix remembers about itself, once somebody asked for it.
_FLAGS = ("_has_sorted_indices", "_has_canonical_format", "has_canonical_format")

#: Fields of each format that are arrays of numbers, in the order in which they travel.
_ARRAYS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data",),  # and one array of coordinates for each dimension
    "dia": ("data", "offsets"),
}
_SHIMS = {"coo": "coordinates", "dia": "diagonals"}

#: What an index in a dok's keys may be.
_INDEXES: tuple[type, ...] = (int, np.int32, np.int64)


def _meta(x: Any, *fields: str) -> dict[str, Any]:
    """Return what *x* says about itself beside *fields*; refuses what SciPy did not put there."""
    state = vars(x)
    for name in state:
        if name not in ("_shape", "maxprint", *_FLAGS, *fields):
            raise Unencodable(x, f"it has an attribute of its own, {label(name)}")
    sparse_bounds.check_maxprint(x.maxprint)
    flags = {name: bool(state[name]) for name in _FLAGS if name in state}
    return {"shape": [int(n) for n in x.shape], "maxprint": x.maxprint, "flags": flags}


def _whole(array: Any) -> Any:
    """Return *array* without items that are one number seen many times, which SciPy would read."""
    if type(array) is np.ndarray and 0 in array.strides and array.size > 1:
        copy = array.copy()
        copy.flags.writeable = array.flags.writeable
        return copy
    return array


def _encode_arrays(x: Any, limits: Limits) -> Parts:
    sparse_bounds.check_numbers(x.dtype)
    fields = _ARRAYS[x.format]
    meta = _meta(x, *fields, "coords")
    children = [(f".{name}", _whole(getattr(x, name))) for name in fields]
    if x.format == "coo":
        children += [(f".coords[{n}]", _whole(part)) for n, part in enumerate(x.coords)]
    return Parts(meta, (), children)


def _check_meta(node: Node, children: int | None) -> tuple[dict[str, Any], Any]:
    """Return the state that reviewed constructors take, without its arrays, and dtype if any."""
    objects = "dtype" in node.meta
    keys = ("shape", "maxprint", "flags", *(("dtype",) if objects else ()))
    shape, maxprint, flags, *dtype = node.expect(*keys, children=children)
    if type(flags) is not dict or any(name not in _FLAGS for name in flags):
        node.refuse("its flags are not known", "families.header")
    state = {"_shape": bounds.check_shape(shape), "maxprint": maxprint, **flags}
    return state, dtypes.build(dtype[0]) if dtype else None


def _check_arrays(node: Node, limits: Limits) -> None:
    name = node.type.partition(":")[2]
    fields = _ARRAYS[name[:3]]
    state, dtype = _check_meta(node, None if name.startswith("coo") else len(fields))
    coords = len(state["_shape"]) if name.startswith("coo") else 0
    if dtype is not None or len(node.children) != len(fields) + coords:
        node.refuse("its parts are not those of its format", "families.child-count")
    parts = [array_child(node, position) for position in range(len(node.children))]
    state.update(zip(fields, parts, strict=False))
    if coords:
        state["coords"] = tuple(parts[1:])
    with reviewed(node):
        node.value = SHIMS[_SHIMS.get(name[:3], "compressed")](
            site(node, limits), Draft(node.type), state
        )


def _decode_arrays(node: Node, values: list[Any]) -> Any:
    """Hand out what was checked, over the same numbers as their own nodes built them."""
    made, parts = node.value, [aligned(value) for value in values]
    fields = dict(zip(_ARRAYS[made.format], parts, strict=False))
    if made.format == "coo":
        fields["coords"] = tuple(parts[1:])
    made.__dict__.update(fields)
    return made


# -- formats that keep Python objects ------------------------------------------------------------


def _encode_values(x: Any, values: list[Any]) -> Any:
    """Return *values* as an array if all are scalars of the matrix's own dtype, else themselves."""
    if all(type(value) is x.dtype.type for value in values):
        return np.array(values, x.dtype)
    return values


def _encode_lil(x: Any, limits: Limits) -> Parts:
    sparse_bounds.check_numbers(x.dtype)
    meta = {**_meta(x, "rows", "data", "dtype"), "dtype": dtypes.describe(x.dtype)}
    lengths = np.array([len(row) for row in x.rows], np.int64)
    columns = [column for row in x.rows for column in row]
    values = [value for row in x.data for value in row]
    if any(type(column) is not int for column in columns) or len(values) != len(columns):
        raise Unencodable(x, "its rows do not hold one integer for each value")
    children = [
        (" (lengths)", lengths),
        (".rows", np.array(columns, np.int64)),
        (".data", _encode_values(x, values)),
    ]
    return Parts(meta, (), children)


def _check_values(node: Node, position: int, dtype: Any, count: int) -> None:
    child = node.children[position]
    if child.yields == "builtins:list":
        held = len(child.value) if child.serializer == "msgpack" else len(child.children)
    else:
        array = array_child(node, position, ndim=1)
        if array.dtype != dtype:
            node.refuse("its values are of another dtype", "families.child-type")
        held = len(array)
    if held != count:
        node.refuse("it has another number of values than of indexes", "families.shape")


def _check_lil(node: Node, limits: Limits) -> None:
    state, dtype = _check_meta(node, 3)
    if dtype is None or len(state["_shape"]) != 2:
        node.refuse("it has no dtype or two dimensions", "families.header")
    lengths = array_child(node, 0, ndim=1)
    columns = array_child(node, 1, ndim=1)
    if (lengths.dtype, columns.dtype) != (np.int64, np.int64):
        node.refuse("its indexes are of another dtype", "families.child-type")
    if len(lengths) != state["_shape"][0] or (len(lengths) and lengths.min() < 0):
        node.refuse("its rows are not as many as its shape says", "families.shape")
    # Each is at least zero and at most all of them, so that the sum cannot overflow.
    if (lengths > len(columns)).any() or int(lengths.sum()) != len(columns):
        node.refuse("its rows do not hold as many values as they say", "families.shape")
    _check_values(node, 2, dtype, len(columns))
    node.value = ({**state, "dtype": dtype}, limits)


def _decode_lil(node: Node, values: list[Any]) -> Any:
    state, limits = node.value
    lengths, columns, numbers = (list(part) for part in (values[0], values[1].tolist(), values[2]))
    rows, data = np.empty(len(lengths), object), np.empty(len(lengths), object)
    start = 0
    for at, length in enumerate(lengths):
        rows[at], data[at] = columns[start : start + length], numbers[start : start + length]
        start += length
    with reviewed(node):
        return SHIMS["lists"](
            site(node, limits), Draft(node.type), {**state, "rows": rows, "data": data}
        )


def _encode_dok(x: Any, limits: Limits) -> Parts:
    sparse_bounds.check_numbers(x.dtype)
    meta = {**_meta(x, "_dict", "dtype"), "dtype": dtypes.describe(x.dtype)}
    keys = [key if type(key) is tuple else (key,) for key in x._dict]
    try:
        kinds = [[_INDEXES.index(type(part)) for part in key] for key in keys]
    except ValueError:
        raise Unencodable(x, "its keys are not indexes") from None
    shape = (len(keys), len(x.shape))
    children = [
        (" (keys)", np.array([[int(part) for part in key] for key in keys], np.int64)),
        (" (types of keys)", np.array(kinds, np.uint8)),
        (" (values)", _encode_values(x, list(x._dict.values()))),
    ]
    children[:2] = [(name, part.reshape(shape)) for name, part in children[:2]]
    return Parts(meta, (), children)


def _check_dok(node: Node, limits: Limits) -> None:
    state, dtype = _check_meta(node, 3)
    if dtype is None:
        node.refuse("it has no dtype", "families.header")
    keys, kinds = array_child(node, 0, ndim=2), array_child(node, 1, ndim=2)
    if keys.dtype != np.int64 or kinds.dtype != np.uint8 or keys.shape != kinds.shape:
        node.refuse("its keys are not indexes", "families.child-type")
    if keys.shape[1] != len(state["_shape"]) or (kinds.size and kinds.max() >= len(_INDEXES)):
        node.refuse("its keys do not fit its shape", "families.shape")
    _check_values(node, 2, dtype, len(keys))
    node.value = ({**state, "dtype": dtype}, limits)


def _decode_dok(node: Node, values: list[Any]) -> Any:
    state, limits = node.value
    keys: list[Any] = [
        tuple(_INDEXES[kind](part) for kind, part in zip(kinds, key, strict=True))
        for key, kinds in zip(values[0].tolist(), values[1].tolist(), strict=True)
    ]
    if len(state["_shape"]) == 1:
        keys = [key for (key,) in keys]
    plain.check_keys(keys, where=node.where)
    content = dict(zip(keys, list(values[2]), strict=True))
    with reviewed(node):
        return SHIMS["keys"](site(node, limits), Draft(node.type), {**state, "_dict": content})


def register() -> None:
    """List SciPy's sparse types; called once, by safeser.families.science.names."""
    for kind in ("array", "matrix"):
        for name in _ARRAYS:
            _list(f"{name}_{kind}", _encode_arrays, _check_arrays, _decode_arrays)
        _list(f"lil_{kind}", _encode_lil, _check_lil, _decode_lil)
        _list(f"dok_{kind}", _encode_dok, _check_dok, _decode_dok)


def _list(name: str, encode: Any, check: Any, decode: Any) -> None:
    cls = getattr(sparse, name)
    registry.register(Typed(f"scipy.sparse:{name}", (cls,), encode, check, decode))

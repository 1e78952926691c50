"""Reviewed functions for SciPy's sparse matrices, search trees and results.

The one rule: SciPy's compiled code trusts its indices, so each index is checked against the shape
here, in arrays that have no other references. What cannot be checked (a search tree's nodes) is
rebuilt from the data, and compared.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from safeser.pickles.nodes import GlobalRef
from safeser.pickles.profiles import Profile
from safeser.pickles.shims.site import Draft, Site, bad, begin, begun, plain
from safeser.types import refused
from safeser.types import scipy as bounds
from safeser.types.numpy import writable

__all__ = ["BEHIND", "SHIMS", "identical", "indexes", "numbers", "repeated"]

#: Untyped on purpose: SciPy is an extra.
sparse: Any = importlib.import_module("scipy.sparse")
spatial: Any = importlib.import_module("scipy.spatial")

_INT63 = 1 << 63
_MAX_DIMS = 64
_ROW_COST = 12
#: Bytes of one index and one value as objects, beside the table or list that holds them.
_PER_ELEMENT = 160
#: Bytes of the two lists of a row of lil, without what stands in them.
_PER_ROW = 160
#: What an index in a dict of keys may be.
_KINDS: tuple[Any, ...] = (int, np.int32, np.int64)


# -- what every format needs -------------------------------------------------------------------


def numbers(value: Any, *, ndim: int, kinds: str = "biufc") -> Any:
    """Return *value* if it is an array of *ndim* dimensions of plain numbers in native order."""
    dtype = plain(value, np.ndarray).dtype
    if value.ndim != ndim or dtype.kind not in kinds or not dtype.isnative:
        raise refused("scipy", "an array is not one of plain numbers of the right dimensions")
    return value


def indexes(site: Site, value: Any, *, below: int, low: int = 0) -> Any:
    """Return *value*, a one-dimensional array of indexes in ``[low, below)``.

    It is a copy where a pickle may hand the same memory to another array that is written to later.
    """
    given = numbers(value, ndim=1, kinds="i")
    if given.dtype.itemsize not in (4, 8):
        raise refused("scipy", "indexes must be of 32 or 64 bits")
    if given.size and not (given.min() >= low and given.max() < below):
        raise refused("scipy", "an index is out of range")
    if not site.shared and given.flags.c_contiguous:
        return given
    return np.array(given, order="C")


def repeated(values: Any) -> bool:
    """Tell whether one of the integers is there twice. np.unique hashes, and peers collide."""
    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())


def _shape(value: Any, *, dims: int = 0) -> tuple[int, ...]:
    for size in plain(value, tuple):
        if not 0 <= plain(size, int) < _INT63:
            raise refused("scipy", "a sparse matrix has an impossible shape")
    if not 0 < len(value) <= _MAX_DIMS or (dims and len(value) != dims):
        raise refused("scipy", "the dimensions of a sparse matrix do not fit its format")
    return value  # type: ignore[no-any-return]  # plain() proved it a tuple


def _fields(draft: Any, state: Any, *names: str) -> dict[str, Any]:
    """Return the fields of *state*, of which all but flags must be there."""
    begun(draft)
    given = plain(state, dict)
    if not set(names) <= set(given):
        raise refused("scipy", "a field of an object is missing")
    if not set(given) <= {*names, *_FLAGS}:
        raise bad("state", "an object has a field that its class does not")
    return given  # type: ignore[no-any-return]  # plain() proved it a dict


_FLAGS = frozenset(
    ("maxprint", "has_canonical_format", "_has_canonical_format", "_has_sorted_indices")
)


def _finished(draft: Draft, given: Mapping[str, Any], checked: dict[str, Any]) -> Any:
    """Return the object with *checked* fields, past any code of its class."""
    kind = getattr(sparse, draft.kind.partition(":")[2])
    made = object.__new__(kind)
    parts = {name: _changeable(part) for name, part in checked.items()}
    made.__dict__.update(parts, maxprint=_maxprint(given))
    return made


def _changeable(part: Any) -> Any:
    """Return *part*, whose arrays SciPy changes in place, one after the other."""
    if type(part) is tuple:
        return tuple(map(_changeable, part))
    return writable(part) if type(part) is np.ndarray else part


def _maxprint(given: Mapping[str, Any]) -> int:
    """Return how many elements are printed."""
    count = given.get("maxprint", 50)
    bounds.check_maxprint(count)
    return count  # type: ignore[no-any-return]  # an int


def _number_type(value: Any) -> Any:
    if not isinstance(value, np.dtype):
        raise refused("scipy", "the elements of a sparse matrix are no plain numbers")
    bounds.check_numbers(value)
    return value


# -- compressed formats: csr, csc, bsr -----------------------------------------------------------


def _compressed(site: Site, draft: Any, state: Any) -> Any:
    given = _fields(draft, state, "_shape", "indptr", "indices", "data")
    name = draft.kind.partition(":")[2]
    lines = name == "csr_array"
    shape = _shape(given["_shape"], dims=0 if lines else 2)
    if len(shape) > 2:
        raise refused("scipy", "the dimensions of a sparse matrix do not fit its format")
    major, minor = shape if len(shape) == 2 else (1, shape[0])
    if name.startswith("csc"):
        major, minor = minor, major
    data = numbers(given["data"], ndim=3 if name.startswith("bsr") else 1)
    if data.ndim == 3:
        _, rows, columns = data.shape
        if not rows or not columns or major % rows or minor % columns:
            raise refused("scipy", "blocks do not fill a sparse matrix")
        major, minor = major // rows, minor // columns
    indices = indexes(site, given["indices"], below=minor)
    indptr = indexes(site, given["indptr"], below=len(indices) + 1)
    if indptr.dtype != indices.dtype or len(indices) != len(data) or len(indptr) != major + 1:
        raise refused("scipy", "the parts of a sparse matrix are not of one size")
    bounds.check_reach(shape, indices)
    if indptr[0] != 0 or (len(indptr) > 1 and (indptr[1:] < indptr[:-1]).any()):
        raise refused("scipy", "the rows of a sparse matrix overlap")
    checked = {"_shape": shape, "indptr": indptr, "indices": indices, "data": data}
    checked |= _order(given, indptr, indices)
    return _finished(draft, given, checked)


def _order(given: Mapping[str, Any], indptr: Any, indices: Any) -> dict[str, Any]:
    """Return the flags about order, after checking those that are set."""
    flags = {
        flag: plain(given[flag], bool)
        for flag in ("_has_sorted_indices", "_has_canonical_format")
        if flag in given
    }
    if any(flags.values()):
        used = indices[: indptr[-1]]
        starts = np.zeros(len(used) + 1, bool)
        starts[indptr] = True
        step = np.diff(used)
        inside = ~starts[1 : len(used)]
        if (step[inside] < (1 if flags.get("_has_canonical_format") else 0)).any():
            raise refused("scipy", "a sparse matrix is declared sorted, and is not")
    return flags


# -- the others ----------------------------------------------------------------------------------


def _coordinates(site: Site, draft: Any, state: Any) -> Any:
    if type(state) is dict and "coords" not in state and {"row", "col"} <= set(state):
        # SciPy's form before 1.13.
        rest = {name: part for name, part in state.items() if name not in ("row", "col")}
        state = {**rest, "coords": (state["row"], state["col"])}
    given = _fields(draft, state, "_shape", "coords", "data")
    matrix = draft.kind.endswith("_matrix")
    shape = _shape(given["_shape"], dims=2 if matrix else 0)
    data = numbers(given["data"], ndim=1)
    if len(plain(given["coords"], tuple)) != len(shape):
        raise refused("scipy", "the parts of a sparse matrix are not of one size")
    coords = tuple(
        indexes(site, part, below=size) for part, size in zip(given["coords"], shape, strict=True)
    )
    if any(len(part) != len(data) or part.dtype != coords[0].dtype for part in coords):
        raise refused("scipy", "the parts of a sparse matrix are not of one size")
    bounds.check_reach(shape, *coords)
    canonical = plain(given.get("has_canonical_format", False), bool)
    if canonical and len(data) > 1:
        site.charge(len(data))
        same = np.ones(len(data) - 1, bool)
        order = np.lexsort(coords[::-1])
        for part in coords:
            same &= np.diff(part[order]) == 0
        if same.any():
            raise refused("scipy", "a sparse matrix is declared free of duplicates, and is not")
    checked = {"_shape": shape, "coords": coords, "data": data, "has_canonical_format": canonical}
    return _finished(draft, given, checked)


def _diagonals(site: Site, draft: Any, state: Any) -> Any:
    given = _fields(draft, state, "_shape", "data", "offsets")
    shape = _shape(given["_shape"], dims=2)
    # SciPy adds offsets to sizes; within these it cannot overflow.
    offsets = indexes(site, given["offsets"], low=-shape[0], below=shape[1] + 1)
    data = numbers(given["data"], ndim=2)
    if len(offsets) != len(data) or repeated(offsets):
        raise refused("scipy", "the parts of a sparse matrix are not of one size")
    if offsets.dtype.itemsize == 4 and max(*shape, data.shape[1]) >= 1 << 30:
        raise refused("scipy", "a sparse matrix is larger than its indexes reach")
    return _finished(draft, given, {"_shape": shape, "data": data, "offsets": offsets})


def _number(value: Any) -> Any:
    if type(value) not in (bool, int, float, complex):
        _number_type(getattr(plain(value, *_SCALARS), "dtype", None))
    return value


_SCALARS = tuple({np.dtype(code).type for code in "?bhilqpBHILQPefdgFDG"})


def _listed(site: Site, values: Any, count: int) -> list[Any]:
    """Return *count* values, which may have come as an array, as the list that SciPy keeps."""
    given = values if type(values) is list else numbers(values, ndim=1)
    if len(given) != count:
        raise refused("scipy", "the parts of a sparse matrix are not of one size")
    site.charge(2 * count)
    site.budget.charge_memory(0, _PER_ELEMENT * count)
    # The elements of an array are scalars of its dtype.
    return given if type(given) is list else list(given)


def _rows_of(site: Site, given: dict[str, Any]) -> dict[str, Any]:
    """Return the state of rows that came as one array each of lengths, columns and values."""
    lengths, columns, values = (given.pop(name) for name in ("lengths", "columns", "values"))
    counts = numbers(lengths, ndim=1, kinds="i")
    # A row takes two lists, however few bytes its length takes: compared and charged before any.
    if len(counts) != _shape(given.get("_shape"), dims=2)[0]:
        raise refused("scipy", "the parts of a sparse matrix are not of one size")
    site.charge(_ROW_COST * len(counts))
    site.budget.charge_memory(0, _PER_ROW * len(counts))
    # Each is at least zero and at most all of them, so that the sum cannot overflow.
    most = len(numbers(columns, ndim=1, kinds="i"))
    if len(counts) and not 0 <= counts.min() <= counts.max() <= most:
        raise refused("scipy", "the rows of a sparse matrix are longer than all of them")
    total = int(counts.sum())
    if total != most:
        raise refused("scipy", "the parts of a sparse matrix are not of one size")
    held = _listed(site, values, total)
    listed = columns.tolist(), held
    made = np.empty(len(counts), object), np.empty(len(counts), object)
    start = 0
    for at, length in enumerate(counts.tolist()):
        for part, each in zip(made, listed, strict=True):
            part[at] = each[start : start + length]
        start += length
    return {**given, "rows": made[0], "data": made[1]}


def _lists(site: Site, draft: Any, state: Any) -> Any:
    if type(state) is dict and "lengths" in state:
        state = _rows_of(site, {"columns": None, "values": None, **state})
    given = _fields(draft, state, "_shape", "dtype", "rows", "data")
    shape = _shape(given["_shape"], dims=2)
    made = {"_shape": shape, "dtype": _number_type(given["dtype"])}
    rows, data = given["rows"], given["data"]
    for part in (rows, data):
        if plain(part, np.ndarray).dtype != object or part.shape != shape[:1]:
            raise refused("scipy", "the parts of a sparse matrix are not of one size")
    copies = np.empty(len(rows), object), np.empty(len(rows), object)
    for at, (columns, values) in enumerate(zip(rows, data, strict=True)):
        # Two lists, each of which takes as much as some dozen elements.
        site.charge(_ROW_COST + len(plain(columns, list)))
        last = -1
        for column in columns:
            if not last < plain(column, int) < shape[1]:
                raise refused("scipy", "an index is out of range")
            last = column
        if len(columns) != len(plain(values, list)):
            raise refused("scipy", "the parts of a sparse matrix are not of one size")
        site.copied(columns)
        site.copied(values)
        copies[0][at], copies[1][at] = list(columns), [_number(value) for value in values]
    return _finished(draft, given, {**made, "rows": copies[0], "data": copies[1]})


def begin_keys(_: Site, __: str, kind: Any, base: Any, content: Any) -> Draft:
    # copyreg._reconstructor(kind, dict, content): SciPy keeps the same content in its state.
    if type(kind) is not GlobalRef or type(base) is not GlobalRef:
        raise bad("arguments", "a sparse matrix is not created as SciPy creates it")
    plain(content, dict)
    return Draft(kind.name)


def _content_of(site: Site, given: dict[str, Any]) -> dict[str, Any]:
    """Return the state of keys that came as one array each of indexes, their types and values."""
    keys, kinds, values = (given.pop(name) for name in ("keys", "kinds", "values"))
    count, width = numbers(keys, ndim=2, kinds="i").shape
    if numbers(kinds, ndim=2, kinds="u").shape != keys.shape or kinds.max(initial=0) >= len(_KINDS):
        raise refused("scipy", "the keys of a sparse matrix are not indexes")
    if width != len(_shape(given.get("_shape"))):
        raise refused("scipy", "the keys of a sparse matrix are not indexes")
    held = _listed(site, values, count)
    parts: list[Any] = [
        tuple(_KINDS[kind](part) for part, kind in zip(key, types, strict=True))
        for key, types in zip(keys.tolist(), kinds.tolist(), strict=True)
    ]
    if width == 1:
        parts = [key for (key,) in parts]
    content: dict[Any, Any] = {}
    # Their hashes are those of the integers that they are.
    site.hashable.update(_KINDS[1:])
    for key, value in zip(parts, held, strict=True):
        site.check_key(content, key)
        content[key] = value
    if len(content) != count:
        raise refused("scipy", "a sparse matrix has a key twice")
    return {**given, "_dict": content}


def _keys(site: Site, draft: Any, state: Any) -> Any:
    if type(state) is dict and "keys" in state:
        state = _content_of(site, {"kinds": None, "values": None, **state})
    given = _fields(draft, state, "_shape", "dtype", "_dict")
    shape = _shape(given["_shape"], dims=2 if draft.kind.endswith("_matrix") else 0)
    if len(shape) > 2:
        raise refused("scipy", "the dimensions of a sparse matrix do not fit its format")
    content = plain(given["_dict"], dict)
    for key, value in content.items():
        parts = (key,) if len(shape) == 1 else plain(key, tuple)
        for part, size in zip(parts, shape, strict=True):
            if not 0 <= plain(part, *_KINDS) < size:
                raise refused("scipy", "an index is out of range")
        _number(value)
    kind = getattr(sparse, draft.kind.partition(":")[2])
    made = kind(shape, dtype=_number_type(given["dtype"]))
    made._dict.update(content)
    made.maxprint = _maxprint(given)
    return made


# -- search trees --------------------------------------------------------------------------------


# SciPy's node; SciPy computes its two addresses from the two numbers at its end.
_NODE = np.dtype(
    [
        *((name, np.intp) for name in ("split_dim", "children")),
        ("split", np.float64),
        *((name, np.intp) for name in ("start", "end", "less", "greater", "_less", "_greater")),
    ],
    align=True,
)
# Unbalanced, a tree may be a thousand levels deep for each dimension, on the stack.
_UNBALANCED = 1 << 12
_FORMS = ((True, True), (True, False), (False, True), (False, False))


def identical(sent: Any, made: Any) -> bool:
    """Tell whether *sent* equals *made* exactly: one number, or one array with its layout."""
    if type(sent) is not type(made):
        return False
    if type(made) is not np.ndarray:
        return bool(sent == made)
    # Names of fields are part of the type; what SciPy and scikit-learn keep is contiguous.
    shaped = sent.dtype == made.dtype and sent.shape == made.shape and sent.flags.c_contiguous
    return bool(shaped) and sent.tobytes() == made.tobytes()


def _search_tree(site: Site, draft: Any, state: Any) -> Any:
    """Rebuild the tree from its data, and refuse nodes and ranges that differ from it.

    SciPy reads them without any check. Building is deterministic; how the sender built is tried.
    """
    begun(draft)
    nodes, data, _n, _m, leafsize, _highest, _lowest, _indices, box, _box = plain(state, tuple)
    if numbers(data, ndim=2, kinds="f").dtype != np.float64 or not data.shape[1]:
        raise refused("scipy", "the points of a search tree are no numbers")
    if not 0 < plain(leafsize, int) < _INT63:
        raise refused("scipy", "a search tree has an impossible field")
    if box is not None:
        numbers(box, ndim=1, kinds="f")
    kind = getattr(spatial, draft.kind.partition(":")[2])
    for balanced, compact in _FORMS if len(data) <= _UNBALANCED else _FORMS[:2]:
        # Building sorts the points, some log2(n) times.
        site.charge_bytes(3 * data.nbytes)
        site.charge(len(data) * max(1, len(data).bit_length()) >> 2)
        made = kind(
            data,
            leafsize=leafsize,
            boxsize=box,
            copy_data=True,
            balanced_tree=balanced,
            compact_nodes=compact,
        )
        own = made.__getstate__()
        if all(map(identical, state[1:], own[1:])) and _same_nodes(nodes, own[0]):
            return made
    raise refused(
        "scipy",
        "a search tree is not the one that SciPy builds from its points"
        " (or it is large, and was built with balanced_tree=False)",
        fix="Send the points, and build the tree where it is used.",
    )


def _same_nodes(sent: Any, made: Any) -> bool:
    if type(sent) is not np.ndarray or (sent.dtype, sent.shape) != (made.dtype, made.shape):
        return False
    ours, theirs = (np.frombuffer(part.tobytes(), _NODE) for part in (made, sent))
    told = [name for name in _NODE.names or () if name not in ("less", "greater")]
    return all(ours[name].tobytes() == theirs[name].tobytes() for name in told)


# -- results -----------------------------------------------------------------------------------

#: What results that compute intervals keep behind the fields that they show, each of which their
#: constructors take without its underscore.
BEHIND = {
    "TtestResult": ("df", "_alternative", "_standard_error", "_estimate"),
    "PearsonRResult": ("_alternative", "_n", "_x", "_y", "_axis"),
}


@cache
def _entry(name: str) -> tuple[Any, frozenset[str]]:
    """Return the class *name* and its fields. Its instances do not answer for NumPy's protocols."""
    scipy = Profile.named("scipy")
    entry = scipy.entries[name]
    kind = scipy.object_of(entry)
    declared = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return kind, entry.fields or frozenset(field.name for field in declared)


def _result(_: Site, name: str) -> Any:
    # A dict; one of these classes has a constructor that wants what is set afterwards.
    return dict.__new__(_entry(name)[0])


def _named_tuple(_: Site, name: str, *parts: Any, **more: Any) -> Any:
    return Draft(name, parts, more) if more else _entry(name)[0](*parts)


def _named_tuple_state(_: Site, draft: Any, state: Any) -> Any:
    kind, (parts, more) = _entry(draft.kind)[0], draft.parts
    # Both are the same dict, of which the class's own __new__ ignores the first.
    if plain(state, dict).keys() != more.keys() or any(state[n] is not more[n] for n in more):
        raise bad("state", "a result is told its attributes twice")
    rest, behind = dict(state), BEHIND.get(kind.__name__, kind._extra_fields)
    made = kind(*parts, **{name.lstrip("_"): rest.pop(name) for name in behind})
    # Other names of its parts, as are listed.
    vars(made).update(rest)
    return made


def _record_state(_: Site, draft: Any, state: Any) -> Any:
    kind, fields = _entry(draft.kind)
    if plain(state, dict).keys() - {"correlation"} != fields:
        raise bad("state", "a result does not have exactly the fields of its class")
    made = object.__new__(kind)
    vars(made).update(state)
    return made


_INVERSE = {"dtype", "shape", "sk", "yk", "n_corrs", "rho"}


def _inverse_state(_: Site, draft: Any, state: Any) -> Any:
    if plain(state, dict).keys() != _INVERSE:
        raise bad("state", "an inverse Hessian does not have exactly the fields of its class")
    rho = numbers(state["rho"], ndim=1, kinds="f")
    with np.errstate(all="ignore"):
        made = _entry(draft.kind)[0](
            *(numbers(state[name], ndim=2, kinds="f") for name in ("sk", "yk"))
        )
    told = (state["dtype"], plain(state["shape"], tuple), plain(state["n_corrs"], int), rho.shape)
    if told != (made.dtype, made.shape, made.n_corrs, made.rho.shape):
        raise refused("scipy", "the fields of an inverse Hessian contradict each other")
    made.rho = rho
    return made


SHIMS: dict[str, Callable[..., Any]] = {
    "begin": begin,
    "begin_keys": begin_keys,
    "compressed": _compressed,
    "coordinates": _coordinates,
    "diagonals": _diagonals,
    "inverse": begin,
    "inverse_state": _inverse_state,
    "keys": _keys,
    "lists": _lists,
    "named_tuple": _named_tuple,
    "named_tuple_state": _named_tuple_state,
    "record": begin,
    "record_state": _record_state,
    "result": _result,
    "search_tree": _search_tree,
}

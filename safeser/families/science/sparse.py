"""Reduce SciPy's sparse matrices to their parts; those of Python objects to a few arrays.

The one rule: the constructors that were reviewed for pickles read either form and check each index
against the shape.
"""

from __future__ import annotations

import copyreg
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.pickles.names import shown
from safeser.types import scipy as bounds

__all__ = ["reducers"]

#: What an index in a dok's keys may be.
_INDEXES: tuple[type, ...] = (int, np.int32, np.int64)
#: Attributes of SciPy's objects, including results that their properties cache.
_FIELDS = frozenset(
    (
        *("_shape", "maxprint", "data", "indices", "indptr", "offsets", "coords", "rows", "dtype"),
        *("_dict", "_has_sorted_indices", "_has_canonical_format", "has_canonical_format"),
    )
)


def _odd(message: str) -> PayloadError:
    return PayloadError(message, rule="pickle.unwritable")


def _state(x: Any, *left_out: str) -> dict[str, Any]:
    """Return the state of *x* without some of it; refuse what SciPy did not put there."""
    bounds.check_numbers(x.dtype)
    bounds.check_maxprint(x.maxprint)
    for name in vars(x):
        if name not in _FIELDS:
            raise _odd(f"it has an attribute of its own, {shown(name)}")
    return {name: value for name, value in vars(x).items() if name not in left_out}


def _reduced(x: Any) -> Any:
    return copyreg.__newobj__, (type(x),), _state(x)  # type: ignore[attr-defined]  # undocumented


def _values(x: Any, values: list[Any]) -> Any:
    """Return *values* as an array if all are scalars of the matrix's own dtype, else themselves."""
    if all(type(value) is x.dtype.type for value in values):
        return np.array(values, x.dtype)
    return values


def _reduced_lil(x: Any) -> Any:
    columns = [column for row in x.rows for column in row]
    values = [value for row in x.data for value in row]
    lengths = [len(row) for row in x.rows]
    if any(type(column) is not int for column in columns) or lengths != [*map(len, x.data)]:
        raise _odd("its rows do not hold one integer for each value")
    state = _state(x, "rows", "data")
    state["lengths"] = np.array(lengths, np.int64)
    state["columns"] = np.array(columns, np.int64)
    state["values"] = _values(x, values)
    return copyreg.__newobj__, (type(x),), state  # type: ignore[attr-defined]  # undocumented


def _reduced_dok(x: Any) -> Any:
    keys = [key if type(key) is tuple else (key,) for key in x._dict]
    try:
        kinds = [[_INDEXES.index(type(part)) for part in key] for key in keys]
    except ValueError:
        raise _odd("its keys are not indexes") from None
    state = _state(x, "_dict")
    shape = (len(keys), len(x.shape))
    state["keys"] = np.array([[int(part) for part in key] for key in keys], np.int64).reshape(shape)
    state["kinds"] = np.array(kinds, np.uint8).reshape(shape)
    state["values"] = _values(x, list(x._dict.values()))
    # As SciPy's own way begins.
    return copyreg._reconstructor, (type(x), dict, {}), state  # type: ignore[attr-defined]


def reducers() -> Mapping[type, Callable[[Any], Any]]:
    """Return the functions that reduce SciPy's matrices, by class."""
    sparse: Any = importlib.import_module("scipy.sparse")
    return {
        getattr(sparse, f"{name}_{kind}"): _BY_FORMAT.get(name, _reduced)
        for name in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
        for kind in ("array", "matrix")
    }


_BY_FORMAT = {"lil": _reduced_lil, "dok": _reduced_dok}

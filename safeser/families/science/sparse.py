"""How SciPy's matrices of Python objects are taken apart: as a few arrays, not object by object.

The one rule: what is written is read by the constructors that were reviewed for pickles, which
check each index against the shape, in either form.
"""

from __future__ import annotations

import copyreg
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.types import scipy as bounds

__all__ = ["reducers"]

#: What an index in a dok's keys may be.
_INDEXES: tuple[type, ...] = (int, np.int32, np.int64)


def _odd(message: str) -> PayloadError:
    return PayloadError(message, rule="pickle.unwritable")


def _values(x: Any, values: list[Any]) -> Any:
    """Return *values* as an array if all are scalars of the matrix's own dtype, else themselves."""
    if all(type(value) is x.dtype.type for value in values):
        return np.array(values, x.dtype)
    return values


def _reduced_lil(x: Any) -> Any:
    bounds.check_numbers(x.dtype)
    columns = [column for row in x.rows for column in row]
    values = [value for row in x.data for value in row]
    lengths = [len(row) for row in x.rows]
    if any(type(column) is not int for column in columns) or lengths != [*map(len, x.data)]:
        raise _odd("its rows do not hold one integer for each value")
    state = {name: value for name, value in vars(x).items() if name not in ("rows", "data")}
    state["lengths"] = np.array(lengths, np.int64)
    state["columns"] = np.array(columns, np.int64)
    state["values"] = _values(x, values)
    return copyreg.__newobj__, (type(x),), state  # type: ignore[attr-defined]  # undocumented


def _reduced_dok(x: Any) -> Any:
    bounds.check_numbers(x.dtype)
    keys = [key if type(key) is tuple else (key,) for key in x._dict]
    try:
        kinds = [[_INDEXES.index(type(part)) for part in key] for key in keys]
    except ValueError:
        raise _odd("its keys are not indexes") from None
    state = {name: value for name, value in vars(x).items() if name != "_dict"}
    shape = (len(keys), len(x.shape))
    state["keys"] = np.array([[int(part) for part in key] for key in keys], np.int64).reshape(shape)
    state["kinds"] = np.array(kinds, np.uint8).reshape(shape)
    state["values"] = _values(x, list(x._dict.values()))
    # As SciPy's own way begins.
    return copyreg._reconstructor, (type(x), dict, {}), state  # type: ignore[attr-defined]


def reducers() -> Mapping[type, Callable[[Any], Any]]:
    """Return what takes SciPy's matrices of Python objects apart, by class."""
    sparse: Any = importlib.import_module("scipy.sparse")
    return {
        sparse.lil_array: _reduced_lil,
        sparse.lil_matrix: _reduced_lil,
        sparse.dok_array: _reduced_dok,
        sparse.dok_matrix: _reduced_dok,
    }

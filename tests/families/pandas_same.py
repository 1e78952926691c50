"""Whether two objects of pandas are the same in all that anybody can see of them."""

import numpy as np
import pandas as pd

_MADE_OF = ("_ndarray", "_data", "_mask", "_left", "_right", "sp_values")


def same(a, b):
    """Assert that two values are the same, their exact types and flags included."""
    assert type(a) is type(b)
    if isinstance(a, pd.DataFrame):
        same_frame(a, b)
    elif isinstance(a, pd.Series):
        same_series(a, b)
    elif isinstance(a, pd.Index):
        same_index(a, b)
    elif isinstance(a, pd.api.extensions.ExtensionArray):
        same_array(a, b)
    elif isinstance(a, np.ndarray):
        same_numbers(a, b)
    else:
        same_object(a, b)


def same_frame(a, b):
    assert type(a) is type(b)
    same_index(a.index, b.index)
    same_index(a.columns, b.columns)
    same_about(a, b)
    for position in range(len(a.columns)):
        same(a.iloc[:, position]._values, b.iloc[:, position]._values)
    kinds = [sorted(str(block.dtype) for block in x._mgr.blocks if block.shape[0]) for x in (a, b)]
    assert set(kinds[0]) == set(kinds[1])


def same_series(a, b):
    same_index(a.index, b.index)
    same_object(a.name, b.name)
    same_about(a, b)
    same(a._values, b._values)


def same_about(a, b):
    same_object(a.attrs, b.attrs)
    assert a.flags.allows_duplicate_labels == b.flags.allows_duplicate_labels


def same_index(a, b):
    assert type(a) is type(b)
    same_object(tuple(a.names), tuple(b.names))
    if isinstance(a, pd.RangeIndex):
        assert (a.start, a.stop, a.step) == (b.start, b.stop, b.step)
    elif isinstance(a, pd.MultiIndex):
        assert a.sortorder == b.sortorder
        assert len(a) == len(b)
        for one, other in zip(a.levels, b.levels, strict=True):
            same_index(one, other)
        for one, other in zip(a.codes, b.codes, strict=True):
            same_numbers(np.asarray(one), np.asarray(other), flags=False)
    else:
        freq, other = getattr(a, "freq", None), getattr(b, "freq", None)
        assert type(freq) is type(other)
        assert freq == other
        same(a._values, b._values)


def same_array(a, b):
    assert type(a) is type(b)
    same_dtype(a.dtype, b.dtype)
    assert len(a) == len(b)
    for part in _MADE_OF if not hasattr(a, "_pa_array") else ():
        if hasattr(a, part):
            same(getattr(a, part), getattr(b, part))
    if isinstance(a, pd.arrays.DatetimeArray | pd.arrays.TimedeltaArray):
        assert getattr(a, "_freq", None) == getattr(b, "_freq", None)
    if hasattr(a, "sp_index"):
        assert type(a.sp_index) is type(b.sp_index)
        assert a.sp_index.equals(b.sp_index)
    if hasattr(a, "_pa_array"):
        assert a._pa_array.type == b._pa_array.type
        lengths = [[len(chunk) for chunk in x._pa_array.chunks] for x in (a, b)]
        assert lengths[0] == lengths[1]
    # Arrow's equality takes a null and a value below it for different things.
    assert a.isna().tolist() == b.isna().tolist()
    for one, other in zip(a, b, strict=True):
        same_object(one, other)


def same_dtype(a, b):
    assert type(a) is type(b)
    assert a == b
    if isinstance(a, pd.CategoricalDtype):
        assert a.ordered == b.ordered
        same_index(a.categories, b.categories)
    elif isinstance(a, pd.SparseDtype):
        same_object(a.fill_value, b.fill_value)
    elif isinstance(a, pd.StringDtype):
        assert a.storage == b.storage
        same_object(a.na_value, b.na_value)
    elif isinstance(a, np.dtype):
        assert a.char == b.char


def same_numbers(a, b, *, flags=True):
    same_dtype(a.dtype, b.dtype)
    assert a.shape == b.shape
    if flags:
        assert a.flags.writeable == b.flags.writeable
    if a.dtype == object:
        for one, other in zip(a.flat, b.flat, strict=True):
            same_object(one, other)
    else:
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def same_object(a, b):
    """Assert equal values of the same type, down to each element and the scale of decimals."""
    assert type(a) is type(b)
    if isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            same_object(one, other)
    elif isinstance(a, dict):
        same_object(list(a), list(b))
        same_object(list(a.values()), list(b.values()))
    elif isinstance(a, np.ndarray | pd.Index | pd.Series | pd.DataFrame):
        same(a, b)
    else:
        assert repr(a) == repr(b)

"""Whether two values are the same in all that anybody can see of them, whatever their library."""

import collections
import random
import sys
import types

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse
import xarray as xr
from pydantic import BaseModel
from sklearn.base import BaseEstimator
from sklearn.neighbors import BallTree, KDTree

_MADE_OF = ("_ndarray", "_data", "_mask", "_left", "_right", "sp_values")


def same(a, b):
    """Assert that two values are the same, their exact types and flags included."""
    assert type(a) is type(b)
    if type(b).__module__.startswith("torch") and hasattr(b, "is_leaf"):
        same_tensor(a, b)
        return
    for kinds, compare in _KINDS:
        if isinstance(b, kinds):
            compare(a, b)
            return
    if type(b).__module__.startswith("sklearn."):
        same_fields(a, b)
    elif isinstance(b, list | tuple | collections.deque):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            same(one, other)
    elif isinstance(b, dict):
        same(list(a), list(b))
        same(list(a.values()), list(b.values()))
        same(getattr(a, "_metadata", None), getattr(b, "_metadata", None))
    elif isinstance(b, set | frozenset):
        assert sorted(map(repr, a)) == sorted(map(repr, b))
    elif type(b).__repr__ is object.__repr__:
        same(_attributes(a), _attributes(b))
    elif isinstance(b, type | np.ufunc | types.FunctionType | types.BuiltinFunctionType):
        assert a is b
    else:
        assert repr(a) == repr(b)


def _attributes(x):
    slots = [n for cls in type(x).__mro__ for n in getattr(cls, "__slots__", ()) if n != "__dict__"]
    names = [f"_Slotted{n}" if n.startswith("__") else n for n in slots]
    held = {name: getattr(x, name) for name in names if hasattr(x, name)}
    return held | {name: v for name, v in getattr(x, "__dict__", {}).items() if v is not None}


# -- NumPy -----------------------------------------------------------------------------------------


def same_numbers(a, b):
    same_dtype(a.dtype, b.dtype)
    assert a.shape == b.shape
    assert a.flags.writeable == b.flags.writeable
    if a.dtype.hasobject:
        same(a.ravel().tolist(), b.ravel().tolist())
    elif a.dtype.names is not None:  # what lies between fields means nothing
        for name in a.dtype.names:
            same_numbers(np.asarray(a[name]), np.asarray(b[name]))
    elif a.dtype.char in "gG":  # nor does what they don't use of their bytes
        assert repr(a.tolist()) == repr(b.tolist())
    else:
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def same_mask(a, b):
    same_numbers(a.data, b.data)
    assert (np.ma.getmask(a) is np.ma.nomask) == (np.ma.getmask(b) is np.ma.nomask)
    assert np.ma.getmaskarray(a).tobytes() == np.ma.getmaskarray(b).tobytes()
    assert (a.hardmask, a.sharedmask, a.baseclass) == (b.hardmask, b.sharedmask, b.baseclass)
    # scikit-learn's, which travel as pickles write them, have asked for their fill value.
    if a._fill_value is not None and b._fill_value is not None:
        same_numbers(np.asarray(a._fill_value), np.asarray(b._fill_value))


def same_dtype(a, b):
    assert type(a) is type(b)
    assert a == b
    assert repr(a) == repr(b) or isinstance(a, np.dtype)
    if isinstance(a, pd.CategoricalDtype) and a.categories is not None:
        assert a.ordered == b.ordered
        same_index(a.categories, b.categories)
    elif isinstance(a, pd.SparseDtype):
        same(a.fill_value, b.fill_value)
    elif isinstance(a, pd.StringDtype):
        assert a.storage == b.storage
        same(a.na_value, b.na_value)
    elif isinstance(a, np.dtype):
        assert (a.char, a.type, a.isalignedstruct) == (b.char, b.type, b.isalignedstruct)
        assert a.metadata == b.metadata


def same_scalar(a, b):
    same_dtype(a.dtype, b.dtype)
    assert repr(a) == repr(b)


def same_seeds(a, b):
    assert a.state == b.state
    assert type(a.entropy) is type(b.entropy)
    assert a.n_children_spawned == b.n_children_spawned
    assert (a.generate_state(8) == b.generate_state(8)).all()


def same_source(a, b):
    assert repr(a.state) == repr(b.state)
    same(a.seed_seq, b.seed_seq)


def same_generator(a, b):
    same(a.bit_generator, b.bit_generator)


def same_random_state(a, b):
    same(a._bit_generator, b._bit_generator)
    assert repr(a.get_state(legacy=False)) == repr(b.get_state(legacy=False))


def same_polynomial(a, b):
    assert a == b
    assert repr(a) == repr(b)
    assert str(a) == str(b)
    assert a.coef.dtype == b.coef.dtype


# -- pandas ----------------------------------------------------------------------------------------


def same_frame(a, b):
    same_index(a.index, b.index)
    same_index(a.columns, b.columns)
    same_about(a, b)
    for position in range(len(a.columns)):
        same(a.iloc[:, position]._values, b.iloc[:, position]._values)
    kinds = [sorted(str(block.dtype) for block in x._mgr.blocks if block.shape[0]) for x in (a, b)]
    assert set(kinds[0]) == set(kinds[1])
    repr(a)


def same_series(a, b):
    same_index(a.index, b.index)
    same(a.name, b.name)
    same_about(a, b)
    same(a._values, b._values)


def same_about(a, b):
    same(a.attrs, b.attrs)
    assert a.flags.allows_duplicate_labels == b.flags.allows_duplicate_labels


def same_index(a, b):
    assert type(a) is type(b)
    same(tuple(a.names), tuple(b.names))
    if isinstance(a, pd.RangeIndex):
        assert (a.start, a.stop, a.step) == (b.start, b.stop, b.step)
    elif isinstance(a, pd.MultiIndex):
        assert (len(a), a.sortorder) == (len(b), b.sortorder)
        for one, other in zip(a.levels, b.levels, strict=True):
            same_index(one, other)
        for one, other in zip(a.codes, b.codes, strict=True):
            assert one.dtype == other.dtype
            assert one.tolist() == other.tolist()
    else:
        same(getattr(a, "freq", None), getattr(b, "freq", None))
        same(a._values, b._values)


def same_array(a, b):
    same_dtype(a.dtype, b.dtype)
    assert len(a) == len(b)
    assert getattr(a, "_readonly", False) == getattr(b, "_readonly", False)
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
        same(one, other)


def same_moment(a, b):
    assert repr(a) == repr(b)
    assert (a.unit, a._value, getattr(a, "fold", 0)) == (b.unit, b._value, getattr(b, "fold", 0))


def same_offset(a, b):
    assert a == b
    assert a + pd.Timestamp("2020-01-01") == b + pd.Timestamp("2020-01-01")


# -- others ----------------------------------------------------------------------------------------


def same_arrow(a, b):
    if isinstance(b, pa.DataType | pa.Field | pa.Schema | pa.Table | pa.RecordBatch):
        assert a.equals(b, check_metadata=True)
    else:
        assert a.equals(b)
    if isinstance(b, pa.Array | pa.ChunkedArray):
        assert a.type.equals(b.type, check_metadata=True)
        assert a.null_count == b.null_count
    if isinstance(b, pa.ChunkedArray):
        assert [len(chunk) for chunk in a.chunks] == [len(chunk) for chunk in b.chunks]
    if hasattr(a, "validate"):
        a.validate(full=True)


def same_polars(a, b):
    assert a.n_chunks() == b.n_chunks()
    if isinstance(b, pl.Series):
        assert (a.name, a.dtype) == (b.name, b.dtype)
        assert a.equals(b, check_dtypes=True, null_equal=True)
    else:
        assert list(a.schema.items()) == list(b.schema.items())
        assert a.equals(b, null_equal=True)


def same_sparse(a, b):
    """Assert that two sparse objects are the same to the letter."""
    assert vars(a).keys() == vars(b).keys()
    for name, one in vars(a).items():
        same(one, vars(b)[name])


def same_labelled(a, b):
    """Assert what identical() leaves out as well: types, encoding, indexes, order."""
    xr.testing.assert_identical(a, b)
    assert a.encoding == b.encoding or repr(a.encoding) == repr(b.encoding)
    if isinstance(a, xr.Variable):
        assert type(a._data) is type(b._data)
        assert a.dtype == b.dtype
        assert a.values.flags.writeable == b.values.flags.writeable
        return
    assert list(a.coords) == list(b.coords)
    assert list(a.xindexes) == list(b.xindexes)
    for name, index in a.xindexes.items():
        same_labels(index, b.xindexes[name])
    if isinstance(a, xr.Dataset):
        assert list(a.data_vars) == list(b.data_vars)
    for name in a.coords if isinstance(a, xr.DataArray) else a.variables:
        same_labelled(a[name].variable, b[name].variable)


def same_labels(a, b):
    assert type(a) is type(b)
    assert type(a.index) is type(b.index)
    assert a.index.identical(b.index)


def same_tensor(a, b):
    assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
    assert a.is_leaf
    if a.numel():
        torch = sys.modules["torch"]
        one, two = (x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
        assert torch.equal(one, two)
    assert (a.grad is None) is (b.grad is None)
    if a.grad is not None:
        same_tensor(a.grad, b.grad)


def same_model(a, b):
    same(vars(a), {name: part for name, part in vars(b).items() if name in vars(a)})
    assert a.model_fields_set == b.model_fields_set
    assert a.__pydantic_extra__ == b.__pydantic_extra__
    assert a.__pydantic_private__ == b.__pydantic_private__


def same_fields(a, b):
    """Assert that two objects of scikit-learn's are the same, at any depth."""
    if hasattr(a, "node_count"):
        same(a.__reduce__()[1:], b.__reduce__()[1:])
    elif hasattr(a, "__dict__"):
        # SciPy's function inside it is made anew from the steps.
        one, other = ({n: v for n, v in vars(x).items() if n != "f_"} for x in (a, b))
        assert one.keys() == other.keys()
        for name, part in one.items():
            same(part, other[name])


def same_search_tree(a, b):
    same([np.asarray(part) for part in a.get_arrays()], [*map(np.asarray, b.get_arrays())])


def same_view(a, b):
    assert (a.format, a.shape, a.readonly) == (b.format, b.shape, b.readonly)
    assert a.tobytes() == b.tobytes()


_KINDS = [
    (pd.DataFrame, same_frame),
    (pd.Series, same_series),
    (pd.Index, same_index),
    (pd.api.extensions.ExtensionArray, same_array),
    (pd.api.extensions.ExtensionDtype, same_dtype),
    ((pd.Timestamp, pd.Timedelta), same_moment),
    (pd.offsets.BaseOffset, same_offset),
    (np.ma.MaskedArray, same_mask),
    (np.ndarray, same_numbers),
    (np.dtype, same_dtype),
    (np.generic, same_scalar),
    (np.random.SeedSequence, same_seeds),
    (np.random.BitGenerator, same_source),
    (np.random.Generator, same_generator),
    (np.random.RandomState, same_random_state),
    (np.polynomial._polybase.ABCPolyBase, same_polynomial),
    (np.poly1d, same_polynomial),
    (random.Random, lambda a, b: same(a.getstate(), b.getstate())),
    ((pl.DataFrame, pl.Series), same_polars),
    ((scipy.sparse.sparray, scipy.sparse.spmatrix), same_sparse),
    ((xr.Dataset, xr.DataArray, xr.Variable), same_labelled),
    (xr.core.indexes.PandasIndex, same_labels),
    (BaseModel, same_model),
    ((KDTree, BallTree), same_search_tree),
    (BaseEstimator, same_fields),
    (memoryview, same_view),
    ((pa.Array, pa.ChunkedArray, pa.Table, pa.RecordBatch, pa.Scalar), same_arrow),
    ((pa.DataType, pa.Field, pa.Schema, pa.Buffer), same_arrow),
]

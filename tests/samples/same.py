"""Whether two values are the same in all that anybody can see of them, whatever their library."""

import collections
import fractions
import functools
import io
import random
import sys
import types
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse
import scipy.spatial
import xarray as xr
from pydantic import BaseModel
from sklearn.base import BaseEstimator
from sklearn.neighbors import BallTree, KDTree

_GIVEN = (type, np.ufunc, types.FunctionType, types.BuiltinFunctionType)


def same(a, b):
    """Assert that two values are the same, their exact types and flags included."""
    assert type(a) is type(b)
    for kinds, look in _SEEN:
        if isinstance(b, kinds):
            if isinstance(look, str):
                same_attributes(a, b, look)
            else:
                look(a, b)
            return
    if type(b).__module__ == "torch" and hasattr(b, "is_leaf"):
        same_tensor(a, b)
    elif type(b).__module__.startswith("sklearn."):
        same_fields(a, b)
    elif isinstance(b, list | tuple | collections.deque):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            same(one, other)
        same_attributes(a, b, "__dict__")
    elif isinstance(b, dict):
        same(list(a), list(b))
        same(list(a.values()), list(b.values()))
        same_attributes(a, b, "_metadata default_factory")
    elif isinstance(b, set | frozenset):
        assert a == b or sorted(map(repr, a)) == sorted(map(repr, b))
    elif type(b).__repr__ is object.__repr__:
        same(_held(a), _held(b))
    elif isinstance(b, _GIVEN):
        assert a is b
    elif isinstance(b, int | fractions.Fraction):  # of which some are too long to write down
        assert a == b
    else:
        assert repr(a) == repr(b)


def same_attributes(a, b, names):
    """Assert that the attributes called *names* are the same, where *b* has them."""
    for name in names.split():
        if hasattr(b, name):
            same(getattr(a, name), getattr(b, name))


def _held(x):
    slots = [n for cls in type(x).__mro__ for n in getattr(cls, "__slots__", ()) if n != "__dict__"]
    names = [f"_Slotted{n}" if n.startswith("__") else n for n in slots]
    held = {name: getattr(x, name) for name in names if hasattr(x, name)}
    return held | {name: v for name, v in getattr(x, "__dict__", {}).items() if v is not None}


def same_numbers(a, b):
    same(a.dtype, b.dtype)
    assert a.shape == b.shape
    assert a.flags.writeable == b.flags.writeable
    if a.dtype.hasobject:
        same(a.ravel().tolist(), b.ravel().tolist())
    elif a.dtype.names is not None:  # what lies between fields means nothing
        for name in a.dtype.names:
            same_numbers(np.asarray(a[name]), np.asarray(b[name]))
    elif a.dtype.char in "gG?":  # nor does what they don't use of their bytes
        assert repr(a.tolist()) == repr(b.tolist())
    else:
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def same_number(a, b):
    assert a == b
    assert repr(a) == repr(b)


def same_mask(a, b):
    same_numbers(np.array(a.data), np.array(b.data))  # which may be written to, here
    assert (np.ma.getmask(a) is np.ma.nomask) == (np.ma.getmask(b) is np.ma.nomask)
    assert np.ma.getmaskarray(a).tobytes() == np.ma.getmaskarray(b).tobytes()
    same_attributes(a, b, "hardmask sharedmask baseclass")
    # scikit-learn's, which travel as pickles write them, have asked for their fill value.
    if a._fill_value is not None and b._fill_value is not None:
        same_numbers(np.asarray(a._fill_value), np.asarray(b._fill_value))


def same_dtype(a, b):
    assert a == b
    same_attributes(a, b, "categories ordered fill_value storage na_value")
    same_attributes(a, b, "char type isalignedstruct")
    if isinstance(b, np.dtype):
        same(dict(a.metadata or {}), dict(b.metadata or {}))


def same_scalar(a, b):
    same(a.dtype, b.dtype)
    assert repr(a) == repr(b)


def same_polynomial(a, b):
    same_numbers(np.array(a.coef), np.array(b.coef))  # which one may be written to is not compared
    assert (repr(a), str(a)) == (repr(b), str(b))


def same_frame(a, b):
    same_attributes(a, b, "index columns attrs")
    assert a.flags.allows_duplicate_labels == b.flags.allows_duplicate_labels
    for position in range(len(a.columns)):
        same(a.iloc[:, position]._values, b.iloc[:, position]._values)
    kinds = [{str(block.dtype) for block in x._mgr.blocks if block.shape[0]} for x in (a, b)]
    assert kinds[0] == kinds[1]
    repr(a)


def same_series(a, b):
    same_attributes(a, b, "index name attrs _values")
    assert a.flags.allows_duplicate_labels == b.flags.allows_duplicate_labels


def same_levels(a, b):
    same_attributes(a, b, "names sortorder levels")
    for one, other in zip(a.codes, b.codes, strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


def same_array(a, b):
    same(a.dtype, b.dtype)
    if hasattr(a, "_pa_array"):
        assert a._pa_array.type == b._pa_array.type
        lengths = [[len(chunk) for chunk in x._pa_array.chunks] for x in (a, b)]
        assert lengths[0] == lengths[1]
    else:
        same_attributes(a, b, "_readonly _ndarray _data _mask _left _right sp_values _freq")
    if hasattr(a, "sp_index"):
        assert type(a.sp_index) is type(b.sp_index)
        assert a.sp_index.equals(b.sp_index)
    # Arrow's equality takes a null and a value below it for different things.
    assert a.isna().tolist() == b.isna().tolist()
    same(list(a), list(b))


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


_EXTENSIONS = xr.core.extension_array.PandasExtensionArray, pd.api.extensions.ExtensionArray


def same_labelled(a, b):
    """Assert what identical() leaves out as well: types, encoding, indexes, order."""
    xr.testing.assert_identical(a, b)
    assert a.encoding == b.encoding or repr(a.encoding) == repr(b.encoding)
    if isinstance(a, xr.Variable):
        assert type(a._data) is type(b._data)
        assert a.dtype == b.dtype
        if isinstance(a._data, _EXTENSIONS):
            same(a._data, b._data)
        else:
            assert a.values.flags.writeable == b.values.flags.writeable
        return
    assert list(a.coords) == list(b.coords)
    same(dict(a.xindexes), dict(b.xindexes))
    if isinstance(a, xr.Dataset):
        assert list(a.data_vars) == list(b.data_vars)
    for name in a.coords if isinstance(a, xr.DataArray) else a.variables:
        same_labelled(a[name].variable, b[name].variable)


def same_labels(a, b):
    assert type(a.index) is type(b.index)
    assert a.index.identical(b.index)


def same_tensor(a, b):
    same_attributes(a, b, "dtype shape requires_grad is_leaf grad")
    if a.numel():
        torch = sys.modules["torch"]
        one, two = (x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
        assert torch.equal(one, two)


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


def same_model(a, b):
    same(vars(a), {name: part for name, part in vars(b).items() if name in vars(a)})
    same_attributes(a, b, "model_fields_set __pydantic_extra__ __pydantic_private__")


#: What is looked at in objects of which kinds: attributes by their names, or more than those.
_SEEN = [
    (pd.DataFrame, same_frame),
    (pd.Series, same_series),
    (pd.RangeIndex, "names start stop step"),
    (pd.MultiIndex, same_levels),
    (pd.Index, "names freq _values"),
    (pd.api.extensions.ExtensionArray, same_array),
    ((np.dtype, pd.api.extensions.ExtensionDtype), same_dtype),
    ((pd.Timestamp, pd.Timedelta), "unit _value fold tzinfo"),
    (pd.offsets.BaseOffset, same_number),
    (np.ma.MaskedArray, same_mask),
    (np.ndarray, same_numbers),
    (np.generic, same_scalar),
    (np.random.SeedSequence, "state n_children_spawned entropy"),
    (np.random.BitGenerator, "state seed_seq"),
    (np.random.Generator, "bit_generator"),
    (np.random.RandomState, "_bit_generator"),
    ((np.polynomial._polybase.ABCPolyBase, np.poly1d), same_polynomial),
    (collections.ChainMap, "maps"),
    ((collections.UserDict, collections.UserList), "data"),
    (types.SimpleNamespace, "__dict__"),
    (slice, "start stop step"),
    (functools.partial, "func args keywords"),
    ((io.BytesIO, io.StringIO), lambda a, b: same(a.__getstate__(), b.__getstate__())),
    (scipy.spatial.cKDTree, lambda a, b: same(a.__getstate__(), b.__getstate__())),
    (uuid.UUID, "int is_safe"),
    (random.Random, lambda a, b: same(a.getstate(), b.getstate())),
    ((pl.DataFrame, pl.Series), same_polars),
    ((scipy.sparse.sparray, scipy.sparse.spmatrix), lambda a, b: same(_vars(a), _vars(b))),
    ((xr.Dataset, xr.DataArray, xr.Variable), same_labelled),
    (xr.core.indexes.PandasIndex, same_labels),
    (_EXTENSIONS[0], "array"),
    (BaseModel, same_model),
    ((KDTree, BallTree), lambda a, b: same(_arrays(a), _arrays(b))),
    (BaseEstimator, same_fields),
    (memoryview, lambda a, b: same(_view(a), _view(b))),
    ((pa.Array, pa.ChunkedArray, pa.Table, pa.RecordBatch, pa.Scalar), same_arrow),
    ((pa.DataType, pa.Field, pa.Schema, pa.Buffer), same_arrow),
]


def _vars(matrix):
    return dict(sorted(vars(matrix).items()))


def _arrays(tree):
    return [np.asarray(part) for part in tree.get_arrays()]


def _view(view):
    return view.format, view.shape, view.readonly, view.tobytes()

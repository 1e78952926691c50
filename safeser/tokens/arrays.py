"""Canonical forms of NumPy's arrays, scalars, types and functions.

The one rule: values decide, in C order. Memory order, strides, padding and the order of bytes do
not: pickle protocols up to 4 turn an array's bytes to the machine's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeser.tokens.encoding import digest_buffer, pack
from safeser.tokens.graph import Form, Undetermined
from safeser.tokens.kinds import register
from safeser.tokens.reduction import describe_reduced
from safeser.tokens.references import reference

__all__: list[str] = []

#: NumPy's own types have numbers below this one; from it on they belong to other libraries.
_OWN_TYPES = 24
#: Bytes of an 80-bit float that count; the rest of its 12 or 16 bytes is whatever was there.
_EXTENDED = 10 if np.finfo(np.longdouble).nmant == 63 else 0
_LONG_DOUBLES = (np.dtype(np.longdouble).num, np.dtype(np.clongdouble).num)

_array_reduce: Any = np.ndarray.__reduce__
_array_reduce_ex: Any = np.ndarray.__reduce_ex__
_scalar_reduce: Any = np.generic.__reduce__


def _plain(dtype: np.dtype[Any]) -> bool:
    return dtype.num < _OWN_TYPES and dtype.names is None and dtype.subdtype is None


def _describe_dtype(dtype: np.dtype[Any]) -> Form:
    if _plain(dtype):
        return Form(b"dtype" + pack(dtype.str))
    if dtype.names is not None and dtype.fields is not None:
        fields = [(name, *dtype.fields[name]) for name in dtype.names]
        return Form(b"records", [fields, dtype.itemsize, dtype.type])
    if dtype.subdtype is not None:
        return Form(b"subarray", list(dtype.subdtype))
    return describe_reduced(dtype)


def _describe_array(array: np.ndarray[Any, Any]) -> Form:
    dtype = array.dtype
    if not dtype.isnative and _plain(dtype):
        dtype = dtype.newbyteorder("=")
        array = array.astype(dtype)
    if _plain(dtype) and not dtype.hasobject:
        return Form(b"ndarray" + pack((dtype.str, array.shape)) + _digest(array))
    return Form(b"ndarray" + pack(array.shape), [dtype, *_parts(array)], steps=("dtype", "items"))


def _digest(array: np.ndarray[Any, Any]) -> bytes:
    data = np.ascontiguousarray(array).reshape(-1).view(np.ndarray)
    if _EXTENDED and array.dtype.num in _LONG_DOUBLES:
        parts = data.view(np.uint8).reshape(-1, np.dtype(np.longdouble).itemsize)
        return digest_buffer(np.ascontiguousarray(parts[:, :_EXTENDED]))
    if not data.size or not data.itemsize:
        return digest_buffer(b"")
    return digest_buffer(data.view(np.uint8))


def _parts(array: np.ndarray[Any, Any]) -> list[Any]:
    """Return what holds the values of an array that is no plain memory."""
    array = array.view(np.ndarray)
    if array.dtype.names is not None:
        return [array[name] for name in array.dtype.names]  # padding lies between fields
    return [array.reshape(-1).tolist()]


def _describe_subclass(array: Any) -> Form:
    cls = type(array)
    if cls.__reduce__ is not _array_reduce or cls.__reduce_ex__ is not _array_reduce_ex:
        return describe_reduced(array)
    return Form(b"array", [cls, array.view(np.ndarray)], steps=("class", "values"))


def _describe_scalar(scalar: Any) -> Form:
    if type(scalar).__reduce__ is not _scalar_reduce:
        return describe_reduced(scalar)
    if scalar.dtype.type is not type(scalar):
        return Form(b"scalar", [type(scalar), np.asarray(scalar)])
    return Form(b"scalar", [np.asarray(scalar)])


def _describe_function(function: Any) -> Form:
    """A universal function, known by its name in the library that holds it."""
    for module in ("numpy", "scipy.special"):
        encoding = reference(function, module, function.__name__)
        if encoding is not None:
            return Form(b"ufunc" + encoding)
    raise Undetermined("is a function that neither NumPy nor SciPy holds under its name")


register(_describe_subclass, np.ndarray, subclasses=True)
register(_describe_array, np.ndarray)
register(_describe_scalar, np.generic, subclasses=True)
register(_describe_function, np.ufunc)
register(_describe_dtype, np.dtype, subclasses=True)

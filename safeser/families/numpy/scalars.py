"""Encode and decode NumPy scalars and dtypes in family ``dask``.

The one rule: a scalar is one element of an array that passed the checks of arrays, and a dtype is
built from its description alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeser.families.numpy import arrays, dtypes
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.types import numpy as bounds

__all__ = ["register"]


def _encode_scalar(x: Any, limits: Limits) -> Parts:
    if isinstance(x, (np.str_, np.bytes_)):
        raise Unencodable(x, "it is a subclass that safeser does not list")
    if type(x) is not x.dtype.type:
        raise Unencodable(x, "it is a subclass that safeser does not list")
    described = dtypes.describe(x.dtype)
    bounds.check_elements(x.dtype, ndim=1)
    if bounds.is_strict(x.dtype):
        bounds.sound(np.asarray(x))
    if dtypes.has_gaps(x.dtype):
        x = arrays.covered(np.asarray(x))
    return Parts({"dtype": described, "data": x.tobytes()})


def _check_scalar(node: Node, limits: Limits) -> None:
    description, data = node.expect("dtype", "data")
    dtype = dtypes.build(description)
    bounds.check_elements(dtype, ndim=1)
    if type(data) is not bytes or len(data) != dtype.itemsize:
        node.refuse("its data does not fit its dtype", "families.shape")
    node.value = bounds.sound(np.ndarray((1,), dtype, buffer=bytearray(data)))


def _encode_text(x: Any, limits: Limits) -> Parts:
    # NumPy's own conversions drop trailing NULs, which the scalar itself keeps.
    text = str.__str__(x) if type(x) is np.str_ else bytes.__getitem__(x, slice(None))
    return Parts({}, (), [("", text)])


def _check_text(node: Node, limits: Limits) -> None:
    node.expect(children=1)
    kind = "str" if node.type == "numpy:str_" else "bytes"
    if node.children[0].yields != f"builtins:{kind}":
        node.refuse(f"it does not hold {kind}", "families.child-type")


def _encode_dtype(x: np.dtype[Any], limits: Limits) -> Parts:
    bounds.check_itemsize(x, limits)
    return Parts({"dtype": dtypes.describe(x)})


def _check_dtype(node: Node, limits: Limits) -> None:
    (description,) = node.expect("dtype")
    node.value = dtypes.build(description)
    bounds.check_itemsize(node.value, limits)


def register() -> None:
    """List NumPy's scalars and dtypes; called once, when safeser.families is imported."""
    for name, cls, encode, check, decode, subclasses in (
        ("generic", np.generic, _encode_scalar, _check_scalar, lambda n, _: n.value[0], True),
        ("str_", np.str_, _encode_text, _check_text, lambda _, values: np.str_(values[0]), False),
        ("bytes_", np.bytes_, _encode_text, _check_text, lambda _, v: np.bytes_(v[0]), False),
        ("dtype", np.dtype, _encode_dtype, _check_dtype, lambda node, _: node.value, True),
    ):
        registry.register(Typed(f"numpy:{name}", (cls,), encode, check, decode, subclasses))

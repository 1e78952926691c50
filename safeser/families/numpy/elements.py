"""Arrays whose elements are no bytes: of objects, and of text of any length.

The one rule: elements travel one by one, as values of their own; what lies in such an array's
memory is pointers, which never leave the process and are never read from a buffer.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from safeser.families.numpy import dtypes
from safeser.families.registry import Parts
from safeser.families.tree import Node
from safeser.values import Limits

__all__ = ["LETTERS", "check", "check_size", "decode", "parts"]

Array = np.ndarray[Any, Any]

#: Letters of dtypes that are objects and texts of any length.
LETTERS = ("O", "T")

_KEYS = ("shape", "order", "writeable", "dtype")


def parts(x: Array, meta: dict[str, Any]) -> Parts:
    """Return *meta* with what *x* is, and its elements, in the order of its memory."""
    if x.flags.f_contiguous and not x.flags.c_contiguous:
        meta["order"] = "F"
    elements = x.ravel(order=meta["order"]).tolist()
    if x.dtype.char == "O":
        meta["dtype"] = "objects"
    else:
        meta["dtype"] = dtypes.describe(x.dtype)
        if hasattr(x.dtype, "na_object"):
            elements = [element if type(element) is str else None for element in elements]
    return Parts(meta, (), [(" (elements)", elements)])


def check(node: Node, limits: Limits) -> bool:
    """Refuse a node whose elements do not fit it; False if it has no elements of its own."""
    described = node.meta.get("dtype")
    if described != "objects" and not (isinstance(described, dict) and "missing" in described):
        return False
    shape, order, writeable, _ = node.expect(*_KEYS, children=1)
    if order not in ("C", "F") or type(writeable) is not bool:
        node.refuse("its order or flag is unknown", "families.header")
    (child,) = node.children
    if child.yields != "builtins:list":
        node.refuse("its elements are not a list", "families.child-type")
    held = child.children if child.serializer == "collection" else child.value
    count = len(held)
    if math.prod(dtypes.check_shape(shape)) != count:
        node.refuse("its shape does not fit its elements", "families.shape")
    check_size(node, tuple(shape), 16, limits)
    if described != "objects":
        _check_texts(node, child, dtypes.build(described))
    return True


def _check_texts(node: Node, child: Node, dtype: Any) -> None:
    kinds = {str, type(None)} if hasattr(dtype, "na_object") else {str}
    if child.serializer != "msgpack" or not set(map(type, child.value)) <= kinds:
        node.refuse("its elements are not text", "families.child-type")


def check_size(node: Node, shape: tuple[int, ...], itemsize: int, limits: Limits) -> None:
    """Refuse a shape over which its users would walk for longer than max_array allows.

    A length of zero hides the others, but NumPy multiplies them and tolist() walks over them.
    """
    if math.prod(max(length, 1) for length in shape) * max(itemsize, 1) > limits.max_array:
        node.refuse("it is larger than max_array", "families.too-large")


def decode(node: Node, elements: list[Any]) -> Array:
    """Return the array that a checked *node* describes, of *elements*."""
    meta = node.meta
    dtype: Any = np.dtype(object)
    if meta["dtype"] != "objects":
        dtype = dtypes.build(meta["dtype"])
        if hasattr(dtype, "na_object"):
            missing = dtype.na_object
            elements = [missing if element is None else element for element in elements]
        flat: Array = np.array(elements, dtype)
    else:
        flat = np.fromiter(elements, dtype=dtype, count=len(elements))
    array = flat.reshape(meta["shape"], order=meta["order"])
    array.flags.writeable = meta["writeable"]
    return array

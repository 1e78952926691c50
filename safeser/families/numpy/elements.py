"""Encode and decode arrays of Python objects element by element.

The one rule: each element is a typed value of its own. The memory of such an array holds pointers,
which are never sent and never read from a buffer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeser.families.numpy import dtypes
from safeser.families.registry import Parts
from safeser.families.tree import Node
from safeser.types import numpy as bounds
from safeser.values import Limits

__all__ = ["check", "decode", "parts"]

Array = np.ndarray[Any, Any]

_KEYS = ("shape", "order", "writeable", "dtype")


def parts(x: Array, meta: dict[str, Any], limits: Limits) -> Parts:
    """Return *meta* with what *x* is, and its elements, in the order of its memory."""
    bounds.check_extent(x.shape, x.itemsize, limits)
    if x.flags.f_contiguous and not x.flags.c_contiguous:
        meta["order"] = "F"
    meta["dtype"] = dtypes.describe(x.dtype)
    return Parts(meta, (), [(" (elements)", x.ravel(order=meta["order"]).tolist())])


def check(node: Node, limits: Limits) -> bool:
    """Refuse a node whose elements do not fit it; False if it has no elements of its own."""
    if not dtypes.holds_objects(node.meta.get("dtype")):
        return False
    shape, order, writeable, described = node.expect(*_KEYS, children=1)
    if order not in ("C", "F") or type(writeable) is not bool:
        node.refuse("its order or flag is unknown", "families.header")
    (child,) = node.children
    if child.yields != "builtins:list":
        node.refuse("its elements are not a list", "families.child-type")
    held = child.children if child.serializer == "collection" else child.value
    itemsize = dtypes.build(described).itemsize
    if bounds.check_extent(bounds.check_shape(shape), itemsize, limits) != len(held):
        node.refuse("its shape does not fit its elements", "families.shape")
    return True


def decode(node: Node, elements: list[Any]) -> Array:
    """Return the array that a checked *node* describes, of *elements*."""
    meta = node.meta
    flat = np.fromiter(elements, dtype=dtypes.build(meta["dtype"]), count=len(elements))
    array = flat.reshape(meta["shape"], order=meta["order"])
    array.flags.writeable = meta["writeable"]
    return array

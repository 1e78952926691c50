"""Encode NumPy arrays, and decode them over the received buffers, in family ``dask``.

The one rule: a decoded array is a contiguous view that fills its buffer exactly, of a dtype that
holds no pointers; strides are never sent, and Python objects are sent one by one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from safeser.families.numpy import dtypes
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.types import numpy as bounds

__all__ = ["align", "array_child", "covered", "register"]

Array = np.ndarray[Any, Any]

#: Keys of an array whose elements lie in a frame, all once or some of them repeated.
_KEYS = ("shape", "order", "writeable", "dtype")
_ORDERS = ("C", "F")
_REPEATED_KEYS = (*_KEYS, "base")

_OBJECT = np.dtype(object)


def _encode_array(x: Array, limits: Limits) -> Parts:
    dtype, writeable = x.dtype, x.flags.writeable
    meta: dict[str, Any] = {"shape": list(x.shape), "order": "C", "writeable": writeable}
    if dtype == _OBJECT:
        return _object_parts(x, meta, limits)
    meta["dtype"] = dtypes.describe(dtype)
    bounds.check_elements(dtype, ndim=x.ndim)
    bounds.check_extent(x.shape, x.itemsize, limits)
    if x.nbytes == 0:
        meta["order"] = "C" if x.flags.c_contiguous else "F"
        return Parts(meta, [b""])
    flags = x.flags
    if not flags.c_contiguous:
        x = _turned(x, writeable, meta)
    if bounds.is_strict(dtype) and dtype.char != "?":
        bounds.sound(x)
    if (dtype.names is not None or dtype.char in "gG") and dtypes.has_gaps(dtype):
        x = covered(x)
    return Parts(meta, [x.reshape(-1).view(np.uint8).data])


def covered(x: Array) -> Array:
    """Return *x* with zeros between its fields, where unselected fields may still be in memory."""
    made = np.zeros(x.shape, x.dtype)
    made[...] = x
    for part in bounds.strict_fields(made):
        if bounds.is_padded(part.dtype):
            _clear_padding(part)
    return made


def _clear_padding(numbers: Array) -> None:
    """Set the padding bytes of long doubles to zero: they hold leftover memory of the process."""
    size, first = numbers.dtype.itemsize, 0 if numbers.dtype.byteorder == ">" else 10
    places = range(first, size, 16)
    names = [str(at) for at in places]
    view = numbers.view(
        np.dtype(
            {"names": names, "formats": ["V6"] * len(names), "offsets": places, "itemsize": size}
        )
    )
    for name in names:
        view[name] = np.void(bytes(6))


def _turned(x: Array, writeable: bool, meta: dict[str, Any]) -> Array:
    """Return the elements of *x* to send, contiguous, and record their layout in *meta*."""
    if 0 in x.strides and not writeable:
        # Dask's blocks of ones and zeros are one number seen many times: send it once.
        x = x[tuple(slice(1) if step == 0 else slice(None) for step in x.strides)]
        meta["base"] = list(x.shape)
    if x.flags.c_contiguous:
        return x
    if x.flags.f_contiguous:
        meta["order"] = "F"
        return x.T
    # Axes in another order need no copy either: lay them out from the widest step to the narrowest.
    axes = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
    turned = x.transpose(axes)
    if turned.flags.c_contiguous:
        meta["order"] = axes
        return turned
    return np.ascontiguousarray(x)


def _check_array(node: Node, limits: Limits) -> None:
    meta, frames = node.meta, node.frames
    described = meta.get("dtype")
    dtype = dtypes.NUMBERS.get(described) if type(described) is str else None
    if dtype is None:
        if _check_objects(node, limits):
            return
        dtype = dtypes.build(described)
        bounds.check_elements(dtype, ndim=0)
    if len(frames) != 1 or node.children or len(meta) != len(_KEYS):
        node.expect(*(_REPEATED_KEYS if "base" in meta else _KEYS), frames=1)
    # Where as many keys are there, and each of those below has a value that means something, they
    # are the right ones.
    order = meta.get("order")
    base = shape = bounds.check_shape(meta.get("shape"))
    if "base" in meta:
        base = bounds.check_shape(meta["base"])
    if type(meta.get("writeable")) is not bool:
        node.refuse("its flag is unknown", "families.header")
    frame = frames[0]
    nbytes = len(frame)
    if math.prod(base) * dtype.itemsize != nbytes:
        node.refuse("its shape and dtype do not fit its frame", "families.shape")
    if base is not shape or not nbytes:
        _check_extent(node, shape, base, dtype.itemsize, limits)
    if dtype.names is not None:
        bounds.check_elements(dtype, ndim=len(shape))
    if order in _ORDERS:
        array: Array = np.ndarray(base, dtype, frame, 0, None, order)
    else:
        array = _laid_out(node, base, dtype, frame)
    if nbytes and bounds.is_strict(dtype):
        array = bounds.sound(array)
    node.value = array


def _laid_out(node: Node, shape: tuple[int, ...], dtype: np.dtype[Any], frame: memoryview) -> Array:
    """Return the array whose axes lie in memory in the order that *node* lists."""
    axes = node.meta.get("order")
    if not isinstance(axes, (list, tuple)) or not all(type(axis) is int for axis in axes):
        node.refuse("its order is neither C nor F nor its axes", "families.header")
    if sorted(axes) != [*range(len(shape))]:
        node.refuse("its order does not name each axis once", "families.header")
    laid: Array = np.ndarray([shape[axis] for axis in axes], dtype, frame)
    return laid.transpose(sorted(range(len(axes)), key=axes.__getitem__))


def _check_extent(
    node: Node, shape: tuple[int, ...], base: tuple[int, ...], itemsize: int, limits: Limits
) -> None:
    """Bound what users of the array will walk over, which a repeated or empty item hides."""
    if shape != base:
        if node.meta["writeable"] or len(shape) != len(base):
            node.refuse("it repeats data in a way that safeser does not send", "families.shape")
        if any(inner not in (1, outer) for inner, outer in zip(base, shape, strict=True)):
            node.refuse("it repeats data in a way that safeser does not send", "families.shape")
    bounds.check_extent(shape, itemsize, limits)


def _decode_array(node: Node, values: list[Any]) -> Array:
    meta = node.meta
    array: Array = node.value
    if array is None:
        return _decode_objects(node, values[0])
    if meta["writeable"]:
        return array if array.flags.writeable else array.copy(order="K")
    array.flags.writeable = False
    if "base" in meta:
        return np.broadcast_to(array, tuple(meta["shape"]))
    return array


def align(node: Node) -> None:
    """Let the checked array of *node* be built where compiled code expects it.

    A frame starts where the bytes before it ended. NumPy copes; pandas' and Arrow's loops need not.
    Decoding broadcasts later, so the copy is as large as the frame at most.
    """
    array = node.value
    if node.type == "numpy:ndarray" and array is not None and not array.flags.aligned:
        node.value = array.copy(order="K")  # decoding sets its flag


def array_child(
    node: Node, position: int, *, kinds: str = "", ndim: int | None = None, repeated: bool = False
) -> Array:
    """Return the checked array that child *position* will yield, or refuse *node*.

    :param kinds: letters of the kinds of dtype that are allowed; all of them if empty.
    :param repeated: let it be one that is seen many times; then its shape is in its header.
    """
    child = node.children[position]
    if child.serializer != "dask" or child.type != "numpy:ndarray" or child.value is None:
        node.refuse(f"its part {position} is not an array of numbers", "families.child-type")
    array: Array = child.value
    if kinds and array.dtype.kind not in kinds:
        node.refuse(f"its part {position} has a wrong dtype", "families.child-type")
    if ("base" in child.meta and not repeated) or (ndim is not None and array.ndim != ndim):
        node.refuse(f"its part {position} has a wrong shape", "families.child-type")
    return array


def register() -> None:
    """List NumPy's arrays; called once, when safeser.families is imported."""
    array = (np.ndarray,)
    registry.register(
        Typed("numpy:ndarray", array, _encode_array, _check_array, _decode_array, keeps=True)
    )


# --- encode and decode arrays of Python objects element by element --------------------------------
# The one rule: each element is a typed value of its own. The memory of such an array holds
# pointers, which are never sent and never read from a buffer.


def _object_parts(x: Array, meta: dict[str, Any], limits: Limits) -> Parts:
    """Return *meta* with what *x* is, and its elements, in the order of its memory."""
    bounds.check_extent(x.shape, x.itemsize, limits)
    if x.flags.f_contiguous and not x.flags.c_contiguous:
        meta["order"] = "F"
    meta["dtype"] = dtypes.describe(x.dtype)
    return Parts(meta, (), [(" (elements)", x.ravel(order=meta["order"]).tolist())])


def _check_objects(node: Node, limits: Limits) -> bool:
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


def _decode_objects(node: Node, elements: list[Any]) -> Array:
    """Return the array that a checked *node* describes, of *elements*."""
    meta = node.meta
    flat = np.fromiter(elements, dtype=dtypes.build(meta["dtype"]), count=len(elements))
    array = flat.reshape(meta["shape"], order=meta["order"])
    array.flags.writeable = meta["writeable"]
    return array

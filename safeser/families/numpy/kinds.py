"""Encode and decode NumPy's array subclasses: masked arrays, matrices and records.

The one rule: each is an array that passed the checks of arrays, viewed as the class that its type
names. Subclasses from other packages are refused, and so is ``memmap``, which maps a file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeser.families.numpy import dtypes
from safeser.families.numpy.arrays import array_child
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, never_sent, registry, singleton
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.types import numpy as bounds

__all__ = ["register"]

Array = np.ndarray[Any, Any]

_ARRAY = "numpy:ndarray"


def _encode_masked(x: np.ma.MaskedArray[Any, Any], limits: Limits) -> Parts:
    fields = vars(x)
    if x.baseclass is not np.ndarray:
        raise Unencodable(x, "it masks an array of a class of its own")
    if fields.get("_basedict") or fields.get("_optinfo"):
        raise Unencodable(x, "it has attributes of its own")
    mask = np.ma.getmask(x)
    # Asking for fill_value sets it, and then it no longer follows the dtype.
    fill = fields.get("_fill_value")
    children: list[tuple[str, object]] = [(".data", np.asarray(x.data))]
    if mask is not np.ma.nomask:
        children.append((".mask", np.asarray(mask)))
    if fill is not None:
        children.append((".fill_value", np.asarray(fill)))
    meta = {
        "hardmask": bool(x.hardmask),
        "sharedmask": bool(x.sharedmask),
        "mask": mask is not np.ma.nomask,
        "fill": fill is not None,
    }
    return Parts(meta, (), children)


def _check_masked(node: Node, limits: Limits) -> None:
    flags = node.expect("hardmask", "sharedmask", "mask", "fill", children=None)
    if any(type(flag) is not bool for flag in flags):
        node.refuse("its flags are wrong", "families.header")
    _, _, masked, filled = flags
    if len(node.children) != 1 + masked + filled:
        node.refuse("its flags do not fit its parts", "families.child-count")
    dtype = _dtype_of(node, 0)
    if masked:
        mask = array_child(node, 1, repeated=True)
        shapes = [child.meta["shape"] for child in node.children[:2]]
        if list(shapes[0]) != list(shapes[1]) or mask.dtype != np.ma.make_mask_descr(dtype):
            node.refuse("its mask does not fit its data", "families.child-type")
    if filled:
        fill = _dtype_of(node, 1 + masked)
        # A default text is longer than the elements may be, and stands for objects too.
        texts = dtype.hasobject or (fill.kind == dtype.kind and dtype.kind in "SU")
        if list(node.children[1 + masked].meta["shape"]) or (fill != dtype and not texts):
            node.refuse("its fill value has another dtype", "families.child-type")


def _dtype_of(node: Node, position: int) -> np.dtype[Any]:
    """Return the dtype of the array that child *position* will yield, of objects too."""
    child = node.children[position]
    if child.type == _ARRAY and dtypes.holds_objects(child.meta.get("dtype")):
        return dtypes.build(child.meta["dtype"])
    array = array_child(node, position, repeated=True)
    return array.dtype  # type: ignore[no-any-return]  # that of an array


def _decode_masked(node: Node, values: list[Any]) -> Any:
    data, *rest = map(bounds.writable, values)
    meta = node.meta
    mask = rest[0] if meta["mask"] else np.ma.nomask
    masked: Any = np.ma.MaskedArray(data, mask=mask, hard_mask=meta["hardmask"], copy=False)
    # Private, but copied by NumPy itself: the setter would truncate a text to the element size.
    masked._fill_value = rest[-1] if meta["fill"] else None
    masked._sharedmask = meta["sharedmask"]
    return masked


def _encode_seen(x: Array, limits: Limits) -> Parts:
    # A matrix notes there whether it is being indexed.
    if vars(x).keys() - {"_getitem"}:
        raise Unencodable(x, "it has attributes of its own")
    bounds.check_kind(type(x).__name__, ndim=x.ndim, dtype=x.dtype)
    return Parts({}, (), [("", x.view(np.ndarray))])


def _check_seen(node: Node, limits: Limits) -> None:
    node.expect(children=1)
    child = node.children[0]
    if child.serializer != "dask" or child.type != _ARRAY:
        node.refuse("it does not hold an array", "families.child-type")
    bounds.check_kind(
        node.type.partition(":")[2],
        ndim=len(bounds.check_shape(child.meta["shape"])),
        dtype=dtypes.build(child.meta["dtype"]),
    )


def _seen_as(cls: Any) -> Typed:
    return Typed(
        f"numpy:{cls.__name__}",
        (cls,),
        _encode_seen,
        _check_seen,
        lambda node, values: values[0].view(cls),
    )


def register() -> None:
    """List NumPy's subclasses; called once, when a value of one is first sent or loaded."""
    masked = np.ma.MaskedArray
    for typed in (
        Typed("numpy.ma:MaskedArray", (masked,), _encode_masked, _check_masked, _decode_masked),
        singleton("numpy.ma:masked", np.ma.masked),
        *map(_seen_as, (np.matrix, bounds.chararray(), np.recarray)),
        never_sent(
            "numpy:memmap",
            (np.memmap,),
            "it stands for a file; send np.asarray of it, or open the file where it is needed",
            "it would stand for a file",
        ),
    ):
        registry.register(typed)

"""NumPy arrays, scalars and dtypes of family ``dask``, over the buffers that arrived.

The one rule: an array is built only as a contiguous view of a buffer that it fills exactly, with a
dtype that holds no pointers; strides never travel, and objects travel one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from safeser.families import dtypes
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.values import Limits

__all__ = ["Owned", "aligned", "array_child", "register"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Owned:
    """An array that its receiver may write to, whatever view of it the sender happened to have."""

    array: Array


def _encode_array(x: Array | Owned, limits: Limits) -> Parts:
    if isinstance(x, Owned):
        return _array_parts(x.array, True)
    return _array_parts(x, x.flags.writeable)


def _array_parts(x: Array, writeable: bool) -> Parts:
    meta: dict[str, Any] = {"shape": list(x.shape), "order": "C", "writeable": writeable}
    if x.dtype.char == "O" and x.dtype.metadata is None:
        return _object_parts(x, meta)
    meta["dtype"] = dtypes.describe(x.dtype)
    if not writeable and 0 in x.strides and x.size > 1:
        # Dask's blocks of ones and zeros are one number seen many times: send it once.
        x = x[tuple(slice(1) if step == 0 else slice(None) for step in x.strides)]
        meta["base"] = list(x.shape)
    if x.flags.f_contiguous and not x.flags.c_contiguous:
        meta["order"] = "F"
        x = x.T
    x = np.ascontiguousarray(x)
    if x.nbytes == 0:
        return Parts(meta, [b""])
    if x.dtype.kind == "b" and x.view(np.uint8).max() > 1:
        # Flags that were never set may hold any byte; receivers take none but 0 and 1.
        x = x.view(np.uint8) != 0
    return Parts(meta, [x.reshape(-1).view(np.uint8).data])


def _object_parts(x: Array, meta: dict[str, Any]) -> Parts:
    if x.flags.f_contiguous and not x.flags.c_contiguous:
        meta["order"] = "F"
    meta["dtype"] = "objects"
    return Parts(meta, (), [(" (elements)", x.ravel(order=meta["order"]).tolist())])


def _check_array(node: Node, limits: Limits) -> None:
    if node.meta.get("dtype") == "objects":
        _check_objects(node, limits)
        return
    if "base" in node.meta:
        base = dtypes.check_shape(
            node.expect("shape", "order", "writeable", "dtype", "base", frames=1)[-1]
        )
    else:
        node.expect("shape", "order", "writeable", "dtype", frames=1)
        base = dtypes.check_shape(node.meta["shape"])
    _check_layout(node)
    shape = dtypes.check_shape(node.meta["shape"])
    dtype = dtypes.build(node.meta["dtype"])
    if dtype.subdtype is not None or dtype.hasobject:
        node.refuse("its dtype cannot be an array's", "families.dtype")
    if math.prod(base) * dtype.itemsize != node.frames[0].nbytes:
        node.refuse("its shape and dtype do not fit its frame", "families.shape")
    _check_extent(node, shape, base, dtype.itemsize, limits)
    array = np.ndarray(base, dtype, buffer=node.frames[0], order=node.meta["order"])
    for part in dtypes.strict_fields(array):
        _check_content(node, part)
    node.value = array


def _check_layout(node: Node) -> None:
    if node.meta["order"] not in ("C", "F") or type(node.meta["writeable"]) is not bool:
        node.refuse("its order or flag is unknown", "families.header")


def _check_extent(
    node: Node, shape: tuple[int, ...], base: tuple[int, ...], itemsize: int, limits: Limits
) -> None:
    """Bound what users of the array will walk over, which a repeated or empty item hides."""
    if shape != base:
        if node.meta["writeable"] or len(shape) != len(base):
            node.refuse("it repeats data in a way that safeser does not send", "families.shape")
        if any(inner not in (1, outer) for inner, outer in zip(base, shape, strict=True)):
            node.refuse("it repeats data in a way that safeser does not send", "families.shape")
    _check_size(node, shape, itemsize, limits)
    if itemsize == 0 and math.prod(shape) > limits.max_refs:
        node.refuse("it has more items of no bytes than max_refs", "families.too-large")


def _check_size(node: Node, shape: tuple[int, ...], itemsize: int, limits: Limits) -> None:
    # A length of zero hides the others, but NumPy multiplies them and tolist() walks over them.
    if math.prod(max(length, 1) for length in shape) * max(itemsize, 1) > limits.max_array:
        node.refuse("it is larger than max_array", "families.too-large")


def _check_content(node: Node, part: Array) -> None:
    """Refuse flags that are neither 0 nor 1, and text beyond Unicode.

    NumPy counts true flags by adding bytes and then writes that many results, so a flag of 2 makes
    it read or write past its buffers; a code point beyond Unicode stops the interpreter's own
    string constructors.
    """
    if part.size == 0 or part.dtype.itemsize == 0:
        return
    if part.dtype.kind == "b":
        wrong = part.view(np.uint8).max() > 1
    else:
        whole = part if part.flags.c_contiguous else np.ascontiguousarray(part)
        points = whole.reshape(-1).view(np.dtype(np.uint32).newbyteorder(part.dtype.byteorder))
        wrong = points.max() > 0x10FFFF
    if wrong:
        node.refuse("it holds bytes that its dtype does not allow", "families.content")


def _decode_array(node: Node, values: list[Any]) -> Array:
    meta = node.meta
    if meta["dtype"] == "objects":
        return _decode_objects(node, values[0])
    array: Array = node.value
    if meta["writeable"]:
        return array if array.flags.writeable else array.copy(order="K")
    array.flags.writeable = False
    shape = tuple(meta["shape"])
    return array if array.shape == shape else np.broadcast_to(array, shape)


def aligned(value: Any) -> Any:
    """Return *value*, copied if it is an array at an address that compiled code may not expect.

    A frame starts where the bytes before it ended. NumPy copes; pandas' and Arrow's loops need not.
    """
    if type(value) is np.ndarray and not value.flags.aligned:
        return value.copy(order="K")
    return value


def _check_objects(node: Node, limits: Limits) -> None:
    shape, *_ = node.expect("shape", "order", "writeable", "dtype", children=1)
    _check_layout(node)
    (child,) = node.children
    if child.yields != "builtins:list":
        node.refuse("its elements are not a list", "families.child-type")
    count = len(child.value) if child.serializer == "msgpack" else len(child.children)
    if math.prod(dtypes.check_shape(shape)) != count:
        node.refuse("its shape does not fit its elements", "families.shape")
    _check_size(node, tuple(shape), 8, limits)


def _decode_objects(node: Node, elements: list[Any]) -> Array:
    flat = np.fromiter(elements, dtype=object, count=len(elements))
    array = flat.reshape(node.meta["shape"], order=node.meta["order"])
    array.flags.writeable = node.meta["writeable"]
    return array


def array_child(node: Node, position: int, *, kinds: str = "", ndim: int | None = None) -> Array:
    """Return the checked array that child *position* will yield, or refuse *node*.

    :param kinds: letters of the kinds of dtype that are allowed; all of them if empty.
    """
    child = node.children[position]
    if child.serializer != "dask" or child.type != "numpy:ndarray" or child.value is None:
        node.refuse(f"its part {position} is not an array of numbers", "families.child-type")
    array: Array = child.value
    if kinds and array.dtype.kind not in kinds:
        node.refuse(f"its part {position} has a wrong dtype", "families.child-type")
    if "base" in child.meta or (ndim is not None and array.ndim != ndim):
        node.refuse(f"its part {position} has a wrong shape", "families.child-type")
    return array


def _encode_scalar(x: Any, limits: Limits) -> Parts:
    if isinstance(x, (np.str_, np.bytes_)):
        raise Unencodable(x, "it is a subclass that safeser does not list")
    if type(x) is not x.dtype.type:
        raise Unencodable(x, "it is a subclass that safeser does not list")
    return Parts({"dtype": dtypes.describe(x.dtype), "data": x.tobytes()})


def _check_scalar(node: Node, limits: Limits) -> None:
    description, data = node.expect("dtype", "data")
    dtype = dtypes.build(description)
    if type(data) is not bytes or len(data) != dtype.itemsize or dtype.subdtype is not None:
        node.refuse("its data does not fit its dtype", "families.shape")
    array = np.ndarray((1,), dtype, buffer=bytearray(data))
    for part in dtypes.strict_fields(array):
        _check_content(node, part)
    node.value = array


def _decode_scalar(node: Node, values: list[Any]) -> Any:
    return node.value[0]


def _encode_text(x: Any, limits: Limits) -> Parts:
    return Parts({}, (), [("", _exact_text(x))])


def _exact_text(x: Any) -> str | bytes:
    # NumPy's own conversions drop trailing NULs, which the scalar itself keeps.
    return str.__str__(x) if type(x) is np.str_ else bytes.__getitem__(x, slice(None))


def _check_text(node: Node, limits: Limits) -> None:
    node.expect(children=1)
    kind = "str" if node.type == "numpy:str_" else "bytes"
    if node.children[0].yields != f"builtins:{kind}":
        node.refuse(f"it does not hold {kind}", "families.child-type")


def _encode_dtype(x: np.dtype[Any], limits: Limits) -> Parts:
    return Parts({"dtype": "objects" if x == np.dtype("O") else dtypes.describe(x)})


def _check_dtype(node: Node, limits: Limits) -> None:
    (description,) = node.expect("dtype")
    # The dtype of objects is harmless as a value; it is buffers of that dtype that never pass.
    node.value = np.dtype("O") if description == "objects" else dtypes.build(description)


def _encode_masked(x: np.ma.MaskedArray[Any, Any], limits: Limits) -> Parts:
    if x.dtype.hasobject:
        raise Unencodable(x, "a masked array of objects is not kept exactly")
    if "_basedict" in vars(x) and (vars(x)["_basedict"] or vars(x)["_optinfo"]):
        raise Unencodable(x, "it has attributes of its own")
    mask = np.ma.getmask(x)
    children: list[tuple[str, object]] = [
        (".data", np.asarray(x.data)),
        (".fill_value", np.array(x.fill_value, dtype=x.dtype)),
    ]
    if mask is not np.ma.nomask:
        children.append((".mask", np.asarray(mask)))
    return Parts({"hardmask": bool(x.hardmask)}, (), children)


def _check_masked(node: Node, limits: Limits) -> None:
    (hardmask,) = node.expect("hardmask", children=None)
    if type(hardmask) is not bool or len(node.children) not in (2, 3):
        node.refuse("its flag or parts are wrong", "families.header")
    data, fill = array_child(node, 0), array_child(node, 1, ndim=0)
    if fill.dtype != data.dtype:
        node.refuse("its fill value has another dtype", "families.child-type")
    if len(node.children) == 3:
        mask = array_child(node, 2)
        if mask.shape != data.shape or mask.dtype != np.ma.make_mask_descr(data.dtype):
            node.refuse("its mask does not fit its data", "families.child-type")


def _decode_masked(node: Node, values: list[Any]) -> Any:
    data, fill, *mask = values
    masked = np.ma.MaskedArray(
        data, mask=mask[0] if mask else np.ma.nomask, hard_mask=node.meta["hardmask"], copy=False
    )
    masked.fill_value = fill[()]
    return masked


def _check_nothing(node: Node, limits: Limits) -> None:
    node.expect()


def register() -> None:
    """List NumPy's types; called once, when safeser.families is imported."""
    for typed in (
        Typed("numpy:ndarray", (np.ndarray, Owned), _encode_array, _check_array, _decode_array),
        Typed(
            "numpy:generic",
            (np.generic,),
            _encode_scalar,
            _check_scalar,
            _decode_scalar,
            subclasses=True,
        ),
        Typed(
            "numpy:str_",
            (np.str_,),
            _encode_text,
            _check_text,
            lambda _, values: np.str_(values[0]),
        ),
        Typed(
            "numpy:bytes_",
            (np.bytes_,),
            _encode_text,
            _check_text,
            lambda _, values: np.bytes_(values[0]),
        ),
        Typed(
            "numpy:dtype",
            (np.dtype,),
            _encode_dtype,
            _check_dtype,
            lambda node, _: node.value,
            subclasses=True,
        ),
        Typed(
            "numpy.ma:MaskedArray",
            (np.ma.MaskedArray,),
            _encode_masked,
            _check_masked,
            _decode_masked,
        ),
        Typed(
            "numpy.ma:masked",
            (type(np.ma.masked),),
            lambda x, limits: Parts({}),
            _check_nothing,
            lambda node, values: np.ma.masked,
        ),
    ):
        registry.register(typed)

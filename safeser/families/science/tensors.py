"""Encode PyTorch tensors and parameters, and decode them over the received buffers.

The one rule: a tensor is a view that fills one buffer exactly, of a listed dtype. Strides, graphs,
hooks, devices and code are never sent.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from safeser.families.framing import address
from safeser.families.plain import Unencodable, label
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.types import numpy as bounds

__all__ = ["register"]

#: Untyped on purpose: PyTorch is an extra.
torch: Any = importlib.import_module("torch")

#: Dtypes whose elements are whole bytes that may be any.
_NAMES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("bool", "float16", "float32", "float64", "bfloat16", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
_DTYPES = {name: getattr(torch, name) for name in _NAMES if hasattr(torch, name)}
_NAME_OF = {dtype: name for name, dtype in _DTYPES.items()}

_DEVICES = ("cpu", "cuda", "mps", "xpu", "meta")
_MAX_DIMENSIONS = 64
_INT63 = 1 << 63
#: Compiled loops read at most this many bytes at once where they expect them aligned.
_ALIGNMENT = 8


# -- tensors -------------------------------------------------------------------------------------


def _encode_tensor(x: Any, limits: Limits) -> Parts:
    _check_kept(x)
    held = x.detach()
    if any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True)):
        raise Unencodable(x, "it shows one number many times; call .contiguous() first")
    order = sorted(range(x.ndim), key=lambda n: (-x.stride(n), n))
    if not held.permute(order).is_contiguous():
        order, held = list(range(x.ndim)), held.contiguous()
    meta = {
        "dtype": _NAME_OF[x.dtype],
        "shape": list(x.shape),
        "order": order,
        "requires_grad": x.requires_grad,
        "parameter": type(x) is torch.nn.Parameter,
    }
    children = [] if x.grad is None else [(".grad", x.grad)]
    return Parts(meta, [_bytes(held.permute(order), x.dtype)], children)


def _check_kept(x: Any) -> None:
    """Raise for a tensor that cannot be sent, with the call that converts it."""
    for wrong, advice in (
        (x.is_quantized, "it is quantized; call .dequantize() first"),
        (x.is_nested, "it is nested; send the tensors of .unbind()"),
        (x.layout is not torch.strided, "it is not dense; call .to_dense() first"),
        (x.device.type != "cpu", "it is on another device; call .cpu() first"),
        (not x.is_leaf, "it is part of a graph of gradients; call .detach() first"),
        (x.is_conj(), "its conjugate is still to be computed; call .resolve_conj() first"),
        (x.is_neg(), "its negative is still to be computed; call .resolve_neg() first"),
        (x.dtype not in _NAME_OF, "its dtype is not one that safeser lists"),
        (bool(x._backward_hooks), "it has hooks, which are code; call .detach() first"),
    ):
        if wrong:
            raise Unencodable(x, advice)
    for name in vars(x):
        raise Unencodable(x, f"it has an attribute of its own, {label(name)}")


def _bytes(held: Any, dtype: Any) -> Any:
    """Return the bytes of contiguous *held*, uncopied."""
    if not held.numel():
        return b""
    view = held.reshape(-1).view(torch.uint8).numpy()
    if dtype is torch.bool and view.max() > 1:
        # Flags that were never set may hold any byte; receivers take none but 0 and 1.
        view = (view != 0).view(np.uint8)
    return view.data


def _check_tensor(node: Node, limits: Limits) -> None:
    name, shape, order, requires_grad, parameter = node.expect(
        "dtype", "shape", "order", "requires_grad", "parameter", frames=1, children=None
    )
    if type(name) is not str or name not in _DTYPES:
        node.refuse("its dtype is not listed", "families.dtype")
    dtype = _DTYPES[name]
    sizes = bounds.check_shape(shape)
    if len(sizes) > _MAX_DIMENSIONS:
        node.refuse("it has too many dimensions", "families.shape")
    numbers = isinstance(order, (list, tuple)) and all(type(n) is int for n in order)
    if not numbers or sorted(order) != list(range(len(sizes))):
        node.refuse("its order is not one of its dimensions", "families.header")
    if type(requires_grad) is not bool or type(parameter) is not bool:
        node.refuse("a flag is not a flag", "families.header")
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        node.refuse("only fractions have gradients", "families.header")
    # A length of zero hides the others, which PyTorch multiplies when it makes strides.
    if math.prod(max(size, 1) for size in sizes) * dtype.itemsize > limits.max_array:
        node.refuse("it is larger than max_array", "families.too-large")
    if math.prod(sizes) * dtype.itemsize != node.frames[0].nbytes:
        node.refuse("its shape and dtype do not fit its frame", "families.shape")
    # Compiled code counts flags by adding their bytes.
    if dtype is torch.bool and (np.frombuffer(node.frames[0], np.uint8) > 1).any():
        node.refuse("it holds bytes that its dtype does not allow", "families.content")
    _check_grad(node, name, shape)


def _check_grad(node: Node, name: str, shape: list[int]) -> None:
    if len(node.children) > 1:
        node.refuse("it has more than one gradient", "families.child-count")
    for grad in node.children:
        if grad.yields != "torch:Tensor" or not node.meta["requires_grad"]:
            node.refuse("its gradient is none", "families.child-type")
        if (grad.meta["dtype"], list(grad.meta["shape"])) != (name, list(shape)):
            node.refuse("its gradient is of another shape or dtype", "families.child-type")
        if grad.meta["parameter"]:
            node.refuse("its gradient is a parameter", "families.child-type")


def _decode_tensor(node: Node, values: list[Any]) -> Any:
    meta, frame = node.meta, node.frames[0]
    dtype, order = _DTYPES[meta["dtype"]], list(meta["order"])
    shape = [meta["shape"][n] for n in order]
    if frame.nbytes:
        made = torch.frombuffer(_writeable(frame), dtype=torch.uint8).view(dtype).reshape(shape)
    else:
        made = torch.empty(shape, dtype=dtype)
    if order != sorted(order):
        made = made.permute([order.index(n) for n in range(len(order))])
    if meta["parameter"]:
        made = torch.nn.Parameter(made, requires_grad=meta["requires_grad"])
    elif meta["requires_grad"]:
        made.requires_grad_(True)
    if values:
        made.grad = values[0]
    return made


def _writeable(frame: memoryview) -> Any:
    """Return *frame*, or a copy where PyTorch could not write to it or read it aligned."""
    if frame.readonly or address(frame) % _ALIGNMENT:
        return bytearray(frame)
    return frame


# -- small values --------------------------------------------------------------------------------


def _encode_size(x: Any, limits: Limits) -> Parts:
    return Parts({"sizes": [int(size) for size in x]})


def _check_size(node: Node, limits: Limits) -> None:
    (sizes,) = node.expect("sizes")
    if not isinstance(sizes, (list, tuple)) or len(sizes) > _MAX_DIMENSIONS:
        node.refuse("its sizes are not a short list", "families.header")
    if not all(type(size) is int and -_INT63 <= size < _INT63 for size in sizes):
        node.refuse("one of its sizes is not a number", "families.header")


def _encode_dtype(x: Any, limits: Limits) -> Parts:
    if x not in _NAME_OF:
        raise Unencodable(x, "it is not a dtype that safeser lists")
    return Parts({"name": _NAME_OF[x]})


def _check_dtype(node: Node, limits: Limits) -> None:
    (name,) = node.expect("name")
    if type(name) is not str or name not in _DTYPES:
        node.refuse("it is not listed", "families.dtype")


def _encode_device(x: Any, limits: Limits) -> Parts:
    if x.type not in _DEVICES:
        raise Unencodable(x, "it is not a kind of device that safeser lists")
    return Parts({"kind": x.type, "index": x.index})


def _check_device(node: Node, limits: Limits) -> None:
    kind, index = node.expect("kind", "index")
    if type(kind) is not str or kind not in _DEVICES:
        node.refuse("its kind is not listed", "families.header")
    if index is not None and (type(index) is not int or not 0 <= index < 128):
        node.refuse("its index is not a number of a device", "families.header")


def _decode_device(node: Node, values: list[Any]) -> Any:
    kind, index = node.meta["kind"], node.meta["index"]
    return torch.device(kind) if index is None else torch.device(kind, index)


def register() -> None:
    """List PyTorch's types; called once, when the first is needed."""
    tensors, sizes = (torch.Tensor, torch.nn.Parameter), (torch.Size,)
    for name, classes, encode, check, decode in (
        ("Tensor", tensors, _encode_tensor, _check_tensor, _decode_tensor),
        ("Size", sizes, _encode_size, _check_size, lambda node, _: torch.Size(node.meta["sizes"])),
        (
            "dtype",
            (torch.dtype,),
            _encode_dtype,
            _check_dtype,
            lambda n, _: _DTYPES[n.meta["name"]],
        ),
        ("device", (torch.device,), _encode_device, _check_device, _decode_device),
    ):
        registry.register(Typed(f"torch:{name}", classes, encode, check, decode))
    registry.advise(torch.Tensor, "it is a subclass that safeser does not list")
    registry.advise(
        torch.nn.Module,
        "a module is code",
        "Send its .state_dict(), and load that into a module made there.",
    )

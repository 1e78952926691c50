"""Encode and decode buffers of the standard library; their bytes are a frame of their own.

The one rule: a shape, type code or flag is accepted only if it fits the received bytes, and only
types whose bytes are numbers are supported.
"""

from __future__ import annotations

import array
import math
import struct
import sys
from typing import Any

from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.gate.values import Limits

__all__ = ["register"]


def _encode_buffer(x: bytes | bytearray, limits: Limits) -> Parts:
    return Parts({}, [x])


def _check_buffer(node: Node, limits: Limits) -> None:
    node.expect(frames=1)


def _decode_bytes(node: Node, values: list[Any]) -> bytes:
    view = node.frames[0]
    whole = view.obj
    if type(whole) is bytes and len(whole) == view.nbytes:
        return whole
    return view.tobytes()


_FORMATS = frozenset("?cbBhHiIlLqQnNfd")


def _encode_memoryview(x: memoryview, limits: Limits) -> Parts:
    if x.format not in _FORMATS:
        raise Unencodable(x, "its format is not that of one native number")
    if x.nbytes == 0 and x.ndim > 1:
        raise Unencodable(x, "it is empty in more than one dimension")
    flat = x.cast("B") if x.c_contiguous and x.ndim else memoryview(x.tobytes())
    meta = {"format": x.format, "shape": list(x.shape or ()), "writeable": not x.readonly}
    return Parts(meta, [flat])


def _check_memoryview(node: Node, limits: Limits) -> None:
    form, shape, writeable = node.expect("format", "shape", "writeable", frames=1)
    if type(form) is not str or form not in _FORMATS or type(writeable) is not bool:
        node.refuse("its format or flag is unknown", "families.header")
    if not isinstance(shape, (list, tuple)) or len(shape) > 32:
        node.refuse("its shape is not a list of at most 32 lengths", "families.shape")
    if not all(type(length) is int and length >= 0 for length in shape):
        node.refuse("its shape holds a value that is no length", "families.shape")
    if len(shape) != 1 and 0 in shape:
        node.refuse("it is empty in more than one dimension", "families.shape")
    itemsize = struct.calcsize(form)
    if math.prod(shape) * itemsize != node.frames[0].nbytes:
        node.refuse("its shape does not fit its frame", "families.shape")
    if form == "?" and node.frames[0].tobytes().translate(None, b"\0\1"):
        node.refuse("it holds flags that are neither 0 nor 1", "families.content")


def _decode_memoryview(node: Node, values: list[Any]) -> memoryview:
    view: memoryview[Any] = node.frames[0]
    if node.meta["writeable"] and view.readonly:
        view = memoryview(bytearray(view))
    shape = list(node.meta["shape"])
    form: Any = node.meta["format"]  # checked; typeshed wants the letter itself
    view = view.cast(form) if len(shape) == 1 else view.cast(form, shape)
    return view if node.meta["writeable"] else view.toreadonly()


#: Type codes of numbers. Those of characters are sent as text: not every number is a character.
_CODES = frozenset("bBhHiIlLqQfd")
_TEXT_CODES = frozenset("uw")


def _encode_array(x: array.array[Any], limits: Limits) -> Parts:
    meta = {"code": x.typecode, "itemsize": x.itemsize, "order": sys.byteorder}
    if x.typecode in _CODES:
        return Parts(meta, [memoryview(x)])
    try:
        return Parts(meta, [x.tounicode().encode("utf-8", "surrogatepass")])
    except ValueError:
        raise Unencodable(x, "it holds numbers that are no characters") from None


def _check_array(node: Node, limits: Limits) -> None:
    code, itemsize, order = node.expect("code", "itemsize", "order", frames=1)
    if type(code) is not str or code not in _CODES | _TEXT_CODES:
        node.refuse("its type code is unknown", "families.header")
    if order not in ("little", "big"):
        node.refuse("its byte order is neither little nor big", "families.header")
    try:
        native = array.array(code).itemsize
    except ValueError:  # newer Pythons have "w", which older ones do not
        node.refuse("this Python has no such type code", "families.platform")
    if type(itemsize) is not int or itemsize != native:
        node.refuse("its numbers are of another size on this machine", "families.platform")
    if code in _CODES and node.frames[0].nbytes % itemsize:
        node.refuse("its frame holds no whole number of elements", "families.shape")


def _decode_array(node: Node, values: list[Any]) -> array.array[Any]:
    code, frame = node.meta["code"], node.frames[0]
    if code in _TEXT_CODES:
        return array.array(code, frame.tobytes().decode("utf-8", "surrogatepass"))
    made: array.array[Any] = array.array(code)
    made.frombytes(frame)
    if node.meta["order"] != sys.byteorder:
        made.byteswap()
    return made


def register() -> None:
    """List the buffers; called once, when safeser.families is imported."""
    for cls, encode, check, decode in (
        (bytes, _encode_buffer, _check_buffer, _decode_bytes),
        (bytearray, _encode_buffer, _check_buffer, lambda node, _: bytearray(node.frames[0])),
        (memoryview, _encode_memoryview, _check_memoryview, _decode_memoryview),
        (array.array, _encode_array, _check_array, _decode_array),
    ):
        name = f"{cls.__module__}:{cls.__name__}"
        registry.register(Typed(name, (cls,), encode, check, decode))

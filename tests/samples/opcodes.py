"""Pickles by hand: what each function returns are the opcodes that leave one value on the stack.

The one rule: bytes are opcodes already, and every other value is written as pickle writes it; what
is to be bytes in the pickle is said with ``raw``.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

__all__ = ["build", "call", "frame", "line", "name", "new", "new_with", "pickled", "raw", "value"]
__all__ += ["pairs"]

_CONSTANTS = {None: b"N", True: b"\x88", False: b"\x89"}


def raw(content: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(content)) + content


def name(named: str) -> bytes:
    module, _, qualname = named.partition(":")
    return value(module) + value(qualname) + b"\x93"


def line(named: str, opcode: bytes = b"c") -> bytes:
    """Return *named* as protocol 0 spells it: GLOBAL, or INST."""
    return opcode + named.replace(":", "\n").encode() + b"\n"


def _called(callee: str | bytes) -> bytes:
    return name(callee) if isinstance(callee, str) else callee


def call(callee: str | bytes, *args: Any) -> bytes:
    return _called(callee) + value(args) + b"R"


def new(callee: str | bytes, *args: Any) -> bytes:
    return _called(callee) + value(args) + b"\x81"


def new_with(callee: str | bytes, args: Any, kwargs: Any) -> bytes:
    return _called(callee) + value(args) + value(kwargs) + b"\x92"


def build(target: bytes, state: Any) -> bytes:
    return target + value(state) + b"b"


def pairs(*items: Any) -> bytes:
    """Return a dict of keys and values in turn, of which some may not be hashed in Python."""
    return b"}(" + b"".join(map(value, items)) + b"u"


def _dtype(dtype: np.dtype[Any]) -> bytes:
    made = call("numpy:dtype", dtype.str[1:], False, True)
    return build(made, dtype.__reduce__()[2])


def value(thing: Any) -> bytes:
    """Return the opcodes of a plain value or an array; bytes are opcodes already."""
    if isinstance(thing, bytes):
        return thing
    if thing is None or isinstance(thing, bool):
        return _CONSTANTS[thing]
    if isinstance(thing, str):
        encoded = thing.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(encoded)) + encoded
    if isinstance(thing, float):
        return b"G" + struct.pack(">d", thing)
    if isinstance(thing, dict):
        return pairs(*(part for pair in thing.items() for part in pair)) if thing else b"}"
    if isinstance(thing, tuple):
        return b"(" + b"".join(map(value, thing)) + b"t" if thing else b")"
    if isinstance(thing, list):
        return b"](" + b"".join(map(value, thing)) + b"e" if thing else b"]"
    if isinstance(thing, set):
        return b"\x8f(" + b"".join(map(value, thing)) + b"\x90"
    if isinstance(thing, np.ndarray):
        parts = raw(thing.tobytes()), _dtype(thing.dtype), thing.shape, "C"
        return call("numpy._core.numeric:_frombuffer", *parts)
    if 0 <= thing < 256:
        return b"K" + bytes([thing])
    encoded = int(thing).to_bytes(int(thing).bit_length() // 8 + 1, "little", signed=True)
    return b"\x8b" + struct.pack("<I", len(encoded)) + encoded


def frame(body: bytes, size: int | None = None) -> bytes:
    return b"\x95" + struct.pack("<Q", len(body) if size is None else size) + body


def pickled(body: Any, protocol: int = 4) -> bytes:
    """Return the pickle that is *body*, which may say less than *protocol* has."""
    return (bytes([0x80, protocol]) if protocol >= 2 else b"") + value(body) + b"."

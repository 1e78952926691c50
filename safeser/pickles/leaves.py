"""Opcodes of protocol 5 that push a leaf, or something from the memo.

The one rule: sizes are written by us from the value itself, so no content can be read as opcodes.
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["push_leaf", "push_memo"]


def push_memo(number: int) -> bytes:
    """Return the opcode that pushes entry *number* of the memo."""
    return b"h%c" % number if number < 256 else b"j" + number.to_bytes(4, "little")


def push_leaf(leaf: Any) -> bytes:
    """Return the shortest opcode of protocol 5 that pushes *leaf*."""
    kind = type(leaf)
    if kind is str:
        return _sized(leaf.encode("utf-8", "surrogatepass"), b"\x8c", b"X", b"\x8d")
    if kind is bytes:
        return _sized(leaf, b"C", b"B", b"\x8e")
    if kind is int:
        return _integer(leaf)
    if kind is float:
        return b"G" + struct.pack(">d", leaf)
    if leaf is None or kind is bool:
        return {None: b"N", True: b"\x88", False: b"\x89"}[leaf]
    raise TypeError(kind)


def _sized(raw: bytes, one: bytes, four: bytes, eight: bytes) -> bytes:
    size = len(raw)
    if size < 1 << 8:
        return one + size.to_bytes(1, "little") + raw
    if size < 1 << 32:
        return four + size.to_bytes(4, "little") + raw
    return eight + size.to_bytes(8, "little") + raw


def _integer(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K%c" % value
    if 0 <= value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    size = len(raw)
    return b"\x8a%c" % size + raw if size < 256 else b"\x8b" + size.to_bytes(4, "little") + raw

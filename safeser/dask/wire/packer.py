"""Packing msgpack with packers that are used again.

The one rule: a packer serves one call at a time; one that failed is not used again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgpack

__all__ = ["packed", "packed_with"]

_Default: TypeAlias = Callable[[Any], Any]

#: Packers of plain values that no call uses now, in whichever thread: to make one takes longer than
#: to pack most messages.
_idle: list[msgpack.Packer] = []

#: Others, each with the place of the function that it asks about a leaf.
_asking: list[tuple[list[_Default], msgpack.Packer]] = []

#: A packer keeps the memory of the longest value that it packed; it is kept up to this one.
_KEPT = 1 << 16


def packed(value: Any) -> bytes:
    """Return the msgpack of *value*.

    :raises TypeError: for a leaf that msgpack does not know.
    """
    try:
        packer = _idle.pop()
    except IndexError:
        packer = msgpack.Packer(default=_unknown, use_bin_type=True)
    data: bytes = packer.pack(value)
    if len(data) <= _KEPT:
        _idle.append(packer)
    return data


def packed_with(value: Any, default: _Default) -> bytes:
    """Return the msgpack of *value*.

    :param default: returns what is packed in place of a leaf that msgpack does not know.
    """
    try:
        asked, packer = _asking.pop()
    except IndexError:
        asked, packer = _made()
    asked[0] = default
    data: bytes = packer.pack(value)
    asked[0] = _unknown
    if len(data) <= _KEPT:
        _asking.append((asked, packer))
    return data


def _made() -> tuple[list[_Default], msgpack.Packer]:
    asked: list[_Default] = [_unknown]

    def ask(leaf: Any) -> Any:
        return asked[0](leaf)

    return asked, msgpack.Packer(default=ask, use_bin_type=True)


def _unknown(leaf: Any) -> Any:
    raise TypeError(f"msgpack has no form for {type(leaf).__name__}")

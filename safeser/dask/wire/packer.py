"""Packing msgpack with packers that are used again.

The one rule: a packer serves one call at a time; one that failed is not used again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

__all__ = ["packed"]


class _Packer:
    """A msgpack packer that is used again: to make one takes longer than to pack most messages."""

    __slots__ = ("_default", "_packer")

    def __init__(self) -> None:
        self._packer = msgpack.Packer(default=self._replaced, use_bin_type=True)
        self._default: Callable[[Any], Any] | None = None

    def pack(self, value: Any, default: Callable[[Any], Any] | None) -> bytes:
        self._default = default
        try:
            data: bytes = self._packer.pack(value)
        finally:
            self._default = None
        return data

    def _replaced(self, leaf: Any) -> Any:
        if self._default is None:
            raise TypeError(f"msgpack has no form for {type(leaf).__name__}")
        return self._default(leaf)


#: Packers that no call uses now, in whichever thread.
_idle: list[_Packer] = []

#: A packer keeps the memory of the longest value that it packed; it is kept up to this one.
_KEPT = 1 << 16


def packed(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return the msgpack of *value*.

    :param default: returns what is packed in place of a leaf that msgpack does not know.
    """
    try:
        packer = _idle.pop()
    except IndexError:
        packer = _Packer()
    data = packer.pack(value, default)
    if len(data) <= _KEPT:
        _idle.append(packer)
    return data

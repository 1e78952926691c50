"""Packing msgpack with packers that are used again.

The one rule: a packer serves one call at a time; one that failed is not used again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgpack

__all__ = ["packed"]

_Default: TypeAlias = Callable[[Any], Any]

#: Packers that no call uses now, in whichever thread, each with the place of the function that it
#: asks about a leaf: to make one takes longer than to pack most messages.
_idle: list[tuple[list[_Default], msgpack.Packer]] = []

#: A packer keeps the memory of the longest value that it packed; it is kept up to this one.
_KEPT = 1 << 16


def _unknown(leaf: Any) -> Any:
    raise TypeError(f"msgpack has no form for {type(leaf).__name__}")


def packed(value: Any, default: _Default = _unknown) -> bytes:
    """Return the msgpack of *value*.

    :param default: returns what is packed in place of a leaf that msgpack does not know.
    :raises TypeError: for such a leaf, where there is none.
    """
    try:
        asked, packer = _idle.pop()
    except IndexError:
        asked, packer = _made()
    asked[0] = default
    data: bytes = packer.pack(value)
    asked[0] = _unknown
    if len(data) <= _KEPT:
        _idle.append((asked, packer))
    return data


def _made() -> tuple[list[_Default], msgpack.Packer]:
    asked: list[_Default] = [_unknown]

    def ask(leaf: Any) -> Any:
        return asked[0](leaf)

    return asked, msgpack.Packer(default=ask, use_bin_type=True)

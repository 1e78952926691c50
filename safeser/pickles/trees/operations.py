"""Define the operations of a reduced tree as numbers in msgpack.

The one rule: an operation does to nodes what one opcode of a pickle does. Opcodes that reduced
objects do not need have none: no old instances, no persistent ids, no extension codes, no calls of
anything but a name.
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["INT_MAX", "INT_MIN", "KEPT_ABOVE", "Operation"]

#: Integers that msgpack itself has; others are bytes behind :attr:`Operation.INTEGER`.
INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 64) - 1
#: Text and bytes that are longer than this and occur more than once are kept and referred to.
KEPT_ABOVE: Final = 3


class Operation(enum.IntEnum):
    """The first token of each step, and its operands: *n* counts the values that follow it."""

    NAME = 0  # text: module:qualname
    TUPLE = 1  # n, values
    LIST = 2
    DICT = 3
    SET = 4
    FROZENSET = 5  # n, values
    BYTEARRAY = 6  # bytes
    EXTEND = 7  # node, n, values
    UPDATE = 8  # node, n, keys and values in turn
    ADD = 9  # node, n, values
    CALL = 10  # name, tuple
    NEW = 11  # name, tuple
    NEW_WITH = 12  # name, tuple, dict
    BUILD = 13  # node, state
    BUFFER = 14  # number of the buffer
    READONLY = 15  # buffer
    KEEP = 16  # text or bytes
    INTEGER = 17  # bytes: big-endian, signed, beyond 64 bits
    TEXT = 18  # bytes: UTF-8 with lone surrogates
    APART = 19  # number of the value that travels beside the tree
    RETURN = 20  # value; the last

"""Typed, length-prefixed bytes of plain values, and the digests of everything else.

The one rule: two different encodings are never equal. Each begins with a byte that says how to read
it, and each text or sequence of bytes has its length in front. marshal's version 2 is the base:
written in C, exact about types, lengths in front, and (unlike versions 3 and later) blind to
interned text and shared references. It takes any object with the buffer interface for bytes, so
nothing gets there whose exact type was not looked at.

Types are compared by ``id``: a metaclass may define ``__eq__`` and ``__hash__`` and would otherwise
pass its classes off as ``int``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from marshal import dumps as _marshal
from typing import Any

#: Bytes that stand for one value.
Encoding = bytes

_VERSION = 2
#: From here on an encoding is replaced by its digest, so that what holds it stays small.
_LONG = 1 << 12
#: Text and bytes from here on are digested in place: marshal would copy them.
_LARGE = 1 << 16

# First bytes that marshal does not use.
_DIGEST = b"\x00"
_SHORTENED = b"\x01"
_DICT = b"\x02"
_SET = b"\x03"
_FROZENSET = b"\x04"
_LARGE_TEXT = b"\x05"
_LARGE_BYTES = b"\x06"
_ORDERED_DICT = b"\x0d"

#: Types whose values marshal writes exactly, whatever their size.
ATOMS = frozenset(map(id, (type(None), bool, int, float, complex, str, type(...))))
_TEXT = frozenset((id(str),))
_BYTES = id(bytes)
_PLAIN = ATOMS | {_BYTES}


def pack(value: Any) -> bytes:
    """Return marshal's bytes of *value*, whose types the caller has checked."""
    return _marshal(value, _VERSION)


def digest(value: Any) -> Encoding:
    """Return the encoding of what is too long to stand for itself; *value* is packed."""
    return _DIGEST + sha256(_marshal(value, _VERSION)).digest()


def digest_buffer(buffer: Any) -> bytes:
    """Return the digest of a contiguous buffer without copying it."""
    return sha256(buffer).digest()


def text(value: str) -> str:
    """Return *value* as an exact ``str``: names of functions may be of a subclass."""
    return str.__str__(value)


def _short(encoding: Encoding) -> Encoding:
    return encoding if len(encoding) < _LONG else _SHORTENED + sha256(encoding).digest()


def _text(value: str) -> Encoding:
    if len(value) < _LARGE:
        return _short(_marshal(value, _VERSION))
    return _LARGE_TEXT + sha256(value.encode("utf-8", "surrogatepass")).digest()


def _bytes(value: bytes) -> Encoding:
    if len(value) < _LARGE:
        return _short(_marshal(value, _VERSION))
    return _LARGE_BYTES + sha256(value).digest()


def _sequence(value: list[Any] | tuple[Any, ...]) -> Encoding | None:
    items = value[:]  # another thread may be changing the list
    types = set(map(id, map(type, items)))
    if not types <= _PLAIN:
        return None
    if _BYTES in types and any(type(each) is bytes and len(each) >= _LARGE for each in items):
        return None  # they would be copied
    return _short(_marshal(items, _VERSION))


def _dict(value: dict[Any, Any]) -> Encoding | None:
    """Encode a dictionary of text to plain values, whatever its order: ``==`` ignores it, too."""
    items = _plain_items(value)
    # Keys differ, so that sorting never compares values.
    return None if items is None else _short(_DICT + _marshal(sorted(items), _VERSION))


def _dict_in_order(value: dict[Any, Any]) -> Encoding | None:
    """Encode a dictionary of text to plain values in its own order."""
    items = _plain_items(value)
    return None if items is None else _short(_ORDERED_DICT + _marshal(items, _VERSION))


def _plain_items(value: dict[Any, Any]) -> list[tuple[Any, Any]] | None:
    if not value:
        return []
    items = value.copy()  # another thread may be changing it
    if not _TEXT.issuperset(map(id, map(type, items))):
        return None
    if not ATOMS.issuperset(map(id, map(type, items.values()))):
        return None
    return list(items.items())


def _members(first: Encoding, value: Iterable[Any]) -> Encoding | None:
    items = list(value)
    types = frozenset(map(id, map(type, items)))
    if types <= _TEXT:
        items.sort()
    elif types <= ATOMS:
        items = sorted(_marshal(each, _VERSION) for each in items)
        first += b"\x00"
    else:
        return None
    return _short(first + _marshal(items, _VERSION))


#: By the id of an exact type: how its plain values are written, or None for one that is not plain.
Leaves = dict[int, Callable[[Any], Encoding | None]]

LEAVES: Leaves = {
    **dict.fromkeys(ATOMS, pack),
    id(str): _text,
    id(bytes): _bytes,
    id(list): _sequence,
    id(tuple): _sequence,
    id(dict): _dict,
    id(set): partial(_members, _SET),
    id(frozenset): partial(_members, _FROZENSET),
}

#: The same where the order of dictionaries counts.
ORDERED_LEAVES: Leaves = {**LEAVES, id(dict): _dict_in_order}

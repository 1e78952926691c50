"""Wrong values for the parts of objects: other shapes, types, numbers, texts and classes.

The one rule: what a value becomes follows from the value and a seeded random state alone, so a case
can be made again from its number.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["mutated"]

_NUMBERS = (0, 1, -1, 2, 3, 7, -(1 << 31), 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -5)
_MORE = (
    8, 16, 64, 255, 256, 999, 65_536, (1 << 31) - 8, -(1 << 63), 1 << 63, (1 << 64) - 1, 1 << 70,
)  # fmt: skip
_FLOATS = (0.0, -1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"), 0.5)
_OTHERS = (None, True, False, "", "text", b"bytes", (), [], {}, 1 << 70, 1j, slice(None), range(3))
_TYPES = ("f4", "f8", "i1", "i4", "i8", "u8", "?", "c16", "U3", "S3", "O", ">f8", "M8[ns]")
_TEXTS = (
    *_TYPES, "g", "G", "T", "V8", "S0", "U0", "U1000", "m8[W]", "M8[25us]", ">U2", "|", "<", ">",
    "", "\0", "é\ud800", "C", "F", "x" * 300, "1e99999", "NaN", "UTC", "9" * 5000, "D", "ns",
)  # fmt: skip
_BYTES = (b"", b"\0", b"\xff" * 8, b"\x7f" * 16, b"\2" * 4, bytes(64), b"b", b"\0\0\0\x80")
_KEPT = ("<", ">", "|", "=")


def _dtypes() -> list[np.dtype[Any]]:
    """Return dtypes of every form, that ends beyond its record among them."""
    inner = np.dtype([("a", "i4"), ("b", "?", (2,))])
    spread = {"names": ["a"], "formats": ["c16"], "offsets": [(1 << 31) - 16], "itemsize": 8}
    forms: list[Any] = [*_TYPES, "g", "S0", "V0", "V8", "U1", "M8", "m8[25us]", ">U2", inner]
    forms += [[("a", inner, (2, 2))], ("i4", (3,)), [], spread, [("o", "O")]]
    noted = np.dtype("f8", metadata={"a": 1})
    return [*map(np.dtype, forms), noted, np.dtypes.StringDType(), np.dtype(inner, align=True)]


_DTYPES = _dtypes()


def mutated(value: Any, chance: random.Random, strangers: list[Any]) -> Any:
    """Return something else that could stand where *value* stands.

    :param strangers: parts of other objects, of which one may take its place.
    """
    if chance.random() < 0.1:
        return chance.choice(strangers) if chance.random() < 0.6 else chance.choice(_OTHERS)
    if isinstance(value, np.ndarray):
        return _array(value, chance)
    if isinstance(value, np.dtype):
        return chance.choice(_DTYPES)
    if isinstance(value, str):
        return _text(value, chance)
    if isinstance(value, pickle.PickleBuffer):
        return pickle.PickleBuffer(_bytes(value.raw().tobytes(), chance))
    if isinstance(value, bytes | bytearray):
        return _bytes(bytes(value), chance)
    if isinstance(value, bool):
        return chance.choice((not value, *_NUMBERS[:4], None))
    if isinstance(value, int | np.integer):
        near = int(value) + chance.choice((-2, -1, 1, 2, 100))
        return chance.choice((near, -int(value), *_NUMBERS, *_MORE, chance.choice(_FLOATS)))
    if isinstance(value, float | np.floating):
        return chance.choice((*_FLOATS, *_NUMBERS[:4]))
    if isinstance(value, list | tuple):
        return type(value)(_sequence(list(value), chance, strangers))
    if type(value) is dict and value:
        return _mapping(dict(value), chance, strangers)
    return chance.choice((*_OTHERS, *_NUMBERS, *_FLOATS, chance.choice(strangers)))


def _text(text: str, chance: random.Random) -> str:
    if text in _KEPT and chance.random() < 0.6:
        return chance.choice(_KEPT)
    near = (text * 2, text[1:], text[:-1], text.swapcase(), text[::-1], text + "1")
    return chance.choice((*near, *_TEXTS))


def _bytes(content: bytes, chance: random.Random) -> bytes:
    """Return *content* with other bytes, or with another length."""
    if not content or chance.random() < 0.3:
        at = chance.randint(0, len(content))
        return chance.choice((content[:at], content * 2, content + b"\0", *_BYTES))
    made = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(made))
        made[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, made[at] ^ 1 << chance.randrange(8)))
    return bytes(made)


def _sequence(items: list[Any], chance: random.Random, strangers: list[Any]) -> list[Any]:
    kind = chance.randrange(6)
    if not items or kind == 0:
        return items + items + [None] * (not items)
    if kind == 1:
        return []
    if kind == 2:
        return items[1:]
    if kind == 3:
        return items[::-1]
    at = chance.randrange(len(items))
    items[at] = mutated(items[at], chance, strangers)
    return items


def _mapping(pairs: dict[Any, Any], chance: random.Random, strangers: list[Any]) -> dict[Any, Any]:
    key = chance.choice(list(pairs))
    kind = chance.randrange(4)
    if kind == 0:
        del pairs[key]
    elif kind == 1:
        return {}
    elif kind == 2:
        pairs["more"] = pairs.pop(key)
    else:
        pairs[key] = mutated(pairs[key], chance, strangers)
    return pairs


def _array(array: Any, chance: random.Random) -> Any:
    """Return *array* with another shape, type or order, or with other numbers in it."""
    if chance.random() < 0.55 and array.size:
        return _numbers(array, chance)
    return chance.choice(_SHAPES if chance.random() < 0.7 else (_another_type,))(array, chance)


def _numbers(array: Any, chance: random.Random) -> Any:
    made = array.copy()
    target = made[chance.choice(made.dtype.names)] if made.dtype.names else made
    flat = target.reshape(-1)  # a view of a fresh, contiguous array; of a field, perhaps a copy
    if target.dtype.kind in "iu":
        info = np.iinfo(target.dtype)
        near = (len(array), len(array) - 1, -1, -2, int(flat[0]) + 1)
        value: Any = chance.choice((info.min, info.max, 0, 1, *_NUMBERS, *near))
        value = min(max(value, info.min), info.max)
    elif target.dtype.kind in "fc":
        value = chance.choice(_FLOATS)
    elif target.dtype.kind == "O":
        value = chance.choice((*_OTHERS[:8], *_NUMBERS))
    else:
        value = flat[chance.randrange(len(flat))]
    places = range(len(flat)) if chance.random() < 0.3 else [chance.randrange(len(flat))]
    for at in places:
        where = np.unravel_index(at, target.shape)
        if target.dtype.kind == "O":
            target[where] = None
        target[where] = value
    return made


def _another_type(array: Any, chance: random.Random) -> Any:
    if array.dtype.names or array.dtype.hasobject:
        return np.zeros(array.shape, chance.choice(_TYPES[:8]))
    with np.errstate(all="ignore"):
        try:
            return array.astype(chance.choice(_TYPES))
        except (TypeError, ValueError):
            return np.zeros(array.shape, "f8")


def _read_only(array: Any, _: random.Random) -> Any:
    made = array.copy()
    made.flags.writeable = False
    return made


_SHAPES: tuple[Callable[[Any, random.Random], Any], ...] = (
    lambda array, _: array[1:] if array.ndim else array,
    lambda array, _: array[:0] if array.ndim else array,
    lambda array, _: array[..., 1:] if array.ndim else array,
    lambda array, _: array[..., :0] if array.ndim else array,
    lambda array, _: array.ravel(),
    lambda array, _: array.reshape(-1, 1),
    lambda array, _: array[None],
    lambda array, _: array.T,
    lambda array, _: np.asfortranarray(array),
    lambda array, _: array[::2] if array.ndim else array,
    lambda array, _: array.reshape(-1)[0] if array.size else array,
    lambda array, _: np.array(array).reshape(-1)[:1].reshape(()) if array.size else array,
    lambda array, _: np.concatenate([array, array]) if array.ndim else array.reshape(1),
    lambda array, _: np.concatenate([array, array], axis=-1) if array.ndim else array.reshape(1, 1),
    _read_only,
)

"""Wrong values for the fields of fitted objects: other shapes, types, numbers and classes.

The one rule: what a value becomes follows from the value and a seeded random state alone, so a case
can be made again from its number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["mutated"]

_NUMBERS = (0, 1, -1, 2, 3, 7, -(1 << 31), 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -5)
_FLOATS = (0.0, -1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"), 0.5)
_OTHERS = (None, True, False, "", "text", b"bytes", (), [], {}, 1 << 70, 1j, slice(None), range(3))
_TYPES = ("f4", "f8", "i1", "i4", "i8", "u8", "?", "c16", "U3", "S3", "O", ">f8", "M8[ns]")


def mutated(value: Any, chance: random.Random, strangers: list[Any]) -> Any:
    """Return something else that could stand where *value* stands.

    :param strangers: parts of other objects, of which one may take its place.
    """
    if chance.random() < 0.1:
        return chance.choice(strangers) if chance.random() < 0.6 else chance.choice(_OTHERS)
    if isinstance(value, np.ndarray):
        return _array(value, chance)
    if isinstance(value, bool):
        return chance.choice((not value, *_NUMBERS[:4], None))
    if isinstance(value, int | np.integer):
        near = int(value) + chance.choice((-2, -1, 1, 2, 100))
        return chance.choice((near, -int(value), *_NUMBERS, chance.choice(_FLOATS)))
    if isinstance(value, float | np.floating):
        return chance.choice((*_FLOATS, *_NUMBERS[:4]))
    if isinstance(value, list | tuple):
        return type(value)(_sequence(list(value), chance, strangers))
    if type(value) is dict and value:
        return _mapping(dict(value), chance, strangers)
    return chance.choice((*_OTHERS, *_NUMBERS, *_FLOATS, chance.choice(strangers)))


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


def _grown(array: Any, _: random.Random) -> Any:
    return np.concatenate([array, array]) if array.ndim else array.reshape(1)


def _widened(array: Any, _: random.Random) -> Any:
    return np.concatenate([array, array], axis=-1) if array.ndim else array.reshape(1, 1)


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
    _grown,
    _widened,
    _read_only,
)

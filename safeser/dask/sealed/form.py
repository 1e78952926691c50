"""How tasks are spelled: the tags of a task's tree, and the keys of Dask in plain msgpack.

A value of :data:`SCALARS` stands for itself. Everything else is a list that begins with a tag::

    [DEPENDENCY, i]                          the result of the task's i-th dependency
    [DEFINITION, i]                          the object that the task's i-th definition pickles
    [TASK, key, producer, function, [argument, ...], [name, argument, ...]]
    [GATHERED, kind, item, ...]              Dask's List, Tuple, Set or Dict of other nodes
    [PLAIN, kind, item, ...]                 a list, tuple, set, frozenset or dict of Python's
    [ALIAS, key, target]
    [DATA, key, value]
    [SLICE, start, stop, step]
    [REFERENCE, key]                         another task inside of a fused one

The items of a dictionary are its keys and values in turn. In a key, a list is a tuple.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dask._task_spec import Dict, List, Set, Tuple

from safeser.dask.contents.opened_graph import is_sendable
from safeser.dask.wire.reader import packed
from safeser.errors import PayloadError

DEPENDENCY, DEFINITION, TASK, GATHERED, PLAIN, ALIAS, DATA, SLICE, REFERENCE = range(9)

SCALARS = frozenset({type(None), bool, int, float, str, bytes})

#: Kinds of PLAIN and of GATHERED, by their number.
CONTAINERS: tuple[type, ...] = (list, tuple, set, frozenset, dict)
GATHERERS: tuple[type, ...] = (List, Tuple, Set, Dict)


#: Integers that msgpack can say.
_INT64 = range(-(1 << 63), 1 << 64)

#: Levels of tuples in a key.
_DEEPEST_KEY = 16


def fits(obj: Any, kind: type) -> bool:
    """Tell whether msgpack can say *obj*, a scalar of type *kind*."""
    return obj in _INT64 if kind is int else is_sendable(obj)


def key_form(key: Any, depth: int = 0) -> Any:
    """Return *key* in exact types of Python's, equal to it.

    :raises PayloadError: for what Dask takes for a key and msgpack cannot say, and for NaN, which
        is not equal to itself.
    """
    kind = type(key)
    if kind in _KEYS:
        if not fits(key, kind) or (type(key) is float and math.isnan(key)):
            raise _unnameable("a number or text that no message can hold as a key")
        return key
    if isinstance(key, tuple):
        if depth == _DEEPEST_KEY:
            raise _unnameable(f"tuples nested more than {_DEEPEST_KEY} deep")
        return tuple(key_form(part, depth + 1) for part in key)
    for base in _KEYS:
        if isinstance(key, base):
            return key_form(base(key))
    if isinstance(key, np.generic):
        return key_form(key.item())
    raise _unnameable(f"a {kind.__qualname__}")


def _unnameable(what: str) -> PayloadError:
    return PayloadError(
        f"a key holds {what}",
        rule="payload.unsendable",
        fix="Name tasks by text, numbers of up to 64 bits and tuples of them.",
    )


def is_key(value: Any) -> bool:
    """Tell whether *value*, which was read from msgpack, is what :func:`key_form` makes."""
    kind = type(value)
    if kind is tuple:
        return all(map(is_key, value))
    return kind in _KEYS and not (type(value) is float and math.isnan(value))


def key_elements(key: Any) -> int:
    """Return how many elements *key* has in messages."""
    return 1 + sum(map(key_elements, key)) if type(key) is tuple else 1


def spelling(key: Any) -> str | bytes | None:
    """Return what equals only the spelling of the same key; None for what :func:`is_key` refuses.

    Python takes ``True``, ``1`` and ``1.0`` for equal, ``0.0`` and ``-0.0``, and tuples of them. A
    text is its own spelling, and everything else the bytes that msgpack has for it.
    """
    if type(key) is str:
        return key
    return packed(key) if is_key(key) else None


def same_key(key: Any, other: Any) -> bool:
    """Tell whether both are keys, of one spelling."""
    found = spelling(key)
    return found is not None and found == spelling(other)


_KEYS: tuple[type, ...] = (bool, int, float, str, bytes)

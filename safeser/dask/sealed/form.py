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

from typing import Any

import numpy as np
from dask._task_spec import Dict, List, Set, Tuple

from safeser.errors import PayloadError

__all__ = [
    "ALIAS",
    "CONTAINERS",
    "DATA",
    "DEFINITION",
    "DEPENDENCY",
    "GATHERED",
    "GATHERERS",
    "PLAIN",
    "REFERENCE",
    "SCALARS",
    "SLICE",
    "TASK",
    "is_key",
    "key_form",
]

DEPENDENCY, DEFINITION, TASK, GATHERED, PLAIN, ALIAS, DATA, SLICE, REFERENCE = range(9)

SCALARS = frozenset({type(None), bool, int, float, str, bytes})

#: Kinds of PLAIN and of GATHERED, by their number.
CONTAINERS: tuple[type, ...] = (list, tuple, set, frozenset, dict)
GATHERERS: tuple[type, ...] = (List, Tuple, Set, Dict)


def key_form(key: Any) -> Any:
    """Return *key* in exact types of Python's, equal to it.

    :raises PayloadError: for what Dask takes for a key and msgpack cannot say.
    """
    kind = type(key)
    if kind is str or kind is int or kind is float or kind is bytes:
        return key
    if isinstance(key, tuple):
        return tuple(map(key_form, key))
    for base in _KEYS:
        if isinstance(key, base):
            return base(key)
    if isinstance(key, np.generic):
        return key_form(key.item())
    raise PayloadError(
        f"a key holds a {kind.__qualname__}",
        rule="payload.unsendable",
        fix="Name tasks by text, numbers and tuples of them.",
    )


def is_key(value: Any) -> bool:
    """Tell whether *value*, which was read from msgpack, is what :func:`key_form` makes."""
    kind = type(value)
    if kind is tuple:
        return all(map(is_key, value))
    return kind in _KEYS


_KEYS: tuple[type, ...] = (bool, int, float, str, bytes)

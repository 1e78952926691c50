"""Check the keys of dicts and the members of sets before a hash table is built.

The one rule: insertion takes about the same time for each key. The sender of a message chooses the
hashes of all keys but text and bytes, so collisions are counted before insertion.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice, pairwise
from operator import eq
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.gate.values import Limits
from safeser.pickles.reading.slots import WALK_FREE, Slots, holds_large

__all__ = ["are_costly", "check_labels", "table_of"]

#: Keys that share one hash. Tuples and large integers hash without a secret, so a peer can make a
#: hundred thousand collide and a dict of them take hours; real data never has more than a few.
_MAX_SAME_HASH = 64

#: The same as in restricted pickle.
_MAX_WALK = Limits().max_walk

#: Keys that a table is given at once: no other thread runs meanwhile.
_PIECE = 1 << 16

#: Keys whose hash has a secret or too few colliding values to matter.
_QUICK: frozenset[type] = frozenset({str, bytes, bool, type(None)})


def table_of(
    keys: Sequence[Hashable], values: Sequence[Any] | None = None, *, where: str = ""
) -> Any:
    """Return the dict of *keys* and *values*, or the set of *keys*.

    Keys that are unhashable, equal to each other, or made to collide are refused.
    """
    made: Any = set() if values is None else {}
    try:
        if not set(map(type, keys)) <= _QUICK and are_costly(keys, members=values is None):
            raise PayloadError(
                "its keys are chosen to collide", rule="families.hash-flood", where=where
            )
        rest: Any = iter(keys) if values is None else zip(keys, values, strict=True)
        for _ in range(0, len(keys) + 1, _PIECE):
            made.update(islice(rest, _PIECE))
    except TypeError:
        raise PayloadError("a key cannot be hashed", rule="families.key", where=where) from None
    if len(made) != len(keys):
        raise PayloadError("a key occurs twice", rule="families.duplicate-key", where=where)
    return made


def check_labels(labels: Sequence[Hashable]) -> None:
    """Refuse *labels*, of which some may be there again, that make a slow table, or none."""
    if set(map(type, labels)) <= _QUICK:
        return
    try:
        costly = are_costly(_distinct(labels), members=True)
    except TypeError:
        raise PayloadError("a label cannot be hashed", rule="families.key") from None
    if costly:
        raise PayloadError("its labels are chosen to collide", rule="families.hash-flood")


def _distinct(labels: Sequence[Hashable]) -> list[Hashable]:
    """Return each of *labels* once, or more than share a hash by chance."""
    numbers = list(map(hash, labels))
    distinct: list[Hashable] = []
    met: list[Hashable] = []
    last = None
    # Sorted, since a table of the labels would be as slow as they are.
    for at in np.array(numbers, np.int64).argsort(kind="stable").tolist():
        if numbers[at] != last:
            met, last = [], numbers[at]
        label = labels[at]
        if len(met) <= _MAX_SAME_HASH and not any(label is one or label == one for one in met):
            met.append(label)
            distinct.append(label)
    return distinct


def are_costly(keys: Sequence[Hashable], *, members: bool = False) -> bool:
    """Tell whether a dict of *keys* takes longer for each the more there are.

    :param members: they are those of a set.
    :raises TypeError: if one of them cannot be hashed.
    """
    numbers = list(map(hash, keys))
    # Sorted, since a table of the hashes would be as slow as that of the keys.
    # By NumPy, during which other threads run.
    order = np.array(numbers, np.int64).argsort(kind="stable").tolist()
    shared = 1
    for place, other in pairwise(order):
        if numbers[place] != numbers[other]:
            shared = 1
            continue
        shared += 1
        if shared > _MAX_SAME_HASH or holds_large(keys[place]) or holds_large(keys[other]):
            return True
    if len(keys) <= WALK_FREE or _is_row(keys):
        return False
    return Slots((), members=members, walk=_MAX_WALK).extend(numbers)


def _is_row(keys: Sequence[Hashable]) -> bool:
    """Whether *keys* are integers that follow each other: those have a place each in any table."""
    if set(map(type, keys)) != {int}:
        return False
    first: Any = keys[0]
    return all(map(eq, keys, range(first, first + len(keys))))

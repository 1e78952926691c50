"""The order of an approved graph's tasks, where Dask's own way to it would take too much.

The one rule: what ordering takes is known before it is begun. Dask notes for each task which of the
graph's first tasks lead to it, and which of the last it leads to: where steps accumulate, as in
``a2 = add(a1, x2)``, that is the square of their number, and 880 kB took 1.4 GB of the scheduler.
Any order in which a task comes after what it needs will do; Dask's own one saves workers' memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["orderly"]

#: Graphs of fewer tasks are cheap to order, however they are made.
_FEW = 2000

#: Members of the sets that Dask may keep, beside so many for each task: some 100 bytes each.
_MEMBERS = 2_000_000
_FOR_EACH = 10

#: Bits that count as much. Dask counts the ways to each task: after as many levels of two tasks
#: that both need both of the level before, that is a number of as many bits.
_BITS = 1 << 10

Edges = Mapping[Any, Iterable[Any]]


def orderly(tasks: Mapping[Any, Any]) -> dict[Any, int] | None:
    """Return priorities of *tasks*, or None if Dask may work them out itself."""
    if len(tasks) < _FEW:
        return None
    needs: dict[Any, frozenset[Any]] = {key: node.dependencies for key, node in tasks.items()}
    serves: dict[Any, list[Any]] = {key: [] for key in tasks}
    for key, needed in needs.items():
        for each in needed:
            serves.setdefault(each, []).append(key)
    needs |= dict.fromkeys(serves.keys() - needs.keys(), frozenset())  # of other graphs
    left = _left(needs, serves, _MEMBERS + _FOR_EACH * len(tasks))
    if left >= 0 and _left(serves, needs, left) >= 0:
        return None
    return {key: at for at, key in enumerate(_first_things_first(tasks, needs))}


def _left(needs: Mapping[Any, Any], serves: Edges, most: int) -> int:
    """Return how many of *most* members are left, and less than none as soon as it is known.

    As Dask goes about it: tasks that the same ones lead to share one set.
    """
    missing = {key: len(needed) for key, needed in needs.items()}
    ready = [key for key, count in missing.items() if not count]
    ways = dict.fromkeys(ready, 1)
    origins = {key: frozenset((key,)) for key in ready}
    shared: dict[frozenset[Any], frozenset[Any]] = {}
    while ready and most >= 0:
        key = ready.pop()
        for each in serves[key]:
            missing[each] -= 1
            if not missing[each]:
                ready.append(each)
        if key in origins:
            continue
        ways[key] = 1 + sum(ways[each] for each in needs[key])
        parts = {id(origins[each]): origins[each] for each in needs[key]}
        first, *others = parts.values()
        if not all(other <= first for other in others):
            most -= sum(map(len, parts.values()))
            if most < 0:
                break
            whole = first.union(*others)
            first = shared.setdefault(whole, whole)
        most -= ways[key].bit_length() // _BITS
        origins[key] = first
    return most


def _first_things_first(tasks: Mapping[Any, Any], needs: Edges) -> list[Any]:
    """Return the keys of *tasks*, each after what it needs and right after the last of that."""
    made: dict[Any, None] = {}
    begun: set[Any] = set()
    for key in tasks:
        ahead = [key]
        while ahead:
            each = ahead[-1]
            if each in begun:
                made[ahead.pop()] = None
            else:
                begun.add(each)
                ahead += [one for one in needs[each] if one not in begun]
    return [key for key in made if key in tasks]

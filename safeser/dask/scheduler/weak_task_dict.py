"""A mapping by the identity of Dask's tasks, whose entries end with their task.

The one rule: an entry belongs to one task, and not to the next one that gets its key. To Dask any
two tasks of one key are equal (distributed 2026.8.0, ``TaskState.__eq__``): while the former task
still exists, a dictionary or set takes the next one for it, and drops both when the former ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar
from weakref import KeyedRef

__all__ = ["WeakTaskDict", "WeakTaskSet"]

V = TypeVar("V")


class WeakTaskDict(Generic[V]):
    """Values by the identity of tasks; an entry ends with its task."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, V]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __setitem__(self, task: Any, value: V) -> None:
        where = id(task)
        self._held[where] = KeyedRef(task, self._drop, where), value

    def _drop(self, ref: Any) -> None:
        # Before anything else can be at that address.
        held = self._held.get(ref.key)
        if held is not None and held[0] is ref:
            del self._held[ref.key]

    def get(self, task: Any, default: V) -> V:
        held = self._held.get(id(task))
        return default if held is None else held[1]


class WeakTaskSet(WeakTaskDict[bool]):
    """A set of tasks by identity; a member leaves it when the task ends."""

    def __contains__(self, task: Any) -> bool:
        return self.get(task, False)

    def add(self, task: Any) -> None:
        if task not in self:
            self[task] = True

    def update(self, tasks: Iterable[Any]) -> None:
        for task in tasks:
            self.add(task)

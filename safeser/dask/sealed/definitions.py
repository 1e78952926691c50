"""Definitions of a graph: functions and constants, pickled once each and shared by content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from dask._task_spec import Task

from safeser import pickles
from safeser.dask.sealed.canonical import NO_DIGEST, canonical_digest

__all__ = ["DIGEST_SIZE", "Definitions", "digest"]

DIGEST_SIZE = 32

#: Longer pickles have no canonical digest: describing many small objects takes ten times as long as
#: pickling them, and large arrays have equal pickles anyway.
_LONGEST_DESCRIBED = 1 << 18


def digest(definition: bytes) -> bytes:
    """Return the SHA-256 by which a leaf names a definition."""
    return hashlib.sha256(definition).digest()


def _pickled(obj: Any) -> bytes:
    return pickles.dumps(obj, code=True)


class Definitions:
    """The definitions of one graph while its author writes it out, each under its digest.

    An object that several tasks share is pickled once, and equal pickles are one definition.
    """

    def __init__(self) -> None:
        #: Those that leaves name.
        self.by_digest: dict[bytes, bytes] = {}
        self._pickled: dict[bytes, bytes] = {}
        self._objects: dict[bytes, Any] = {}
        # The objects are kept, so that no other one takes an id meanwhile.
        self._by_id: dict[int, tuple[Any, bytes]] = {}
        self._coroutines: dict[int, tuple[Any, bool]] = {}

    def is_coroutine(self, task: Task) -> bool:
        """Tell whether *task* calls a coroutine function.

        Each function is asked once: composed ones look through the signatures of their parts.
        """
        func = task.func
        known = self._coroutines.get(id(func))
        if known is None:
            known = self._coroutines[id(func)] = func, bool(task.is_coro)
        return known[1]

    def add(self, obj: Any) -> bytes:
        """Return the digest of *obj*'s pickle.

        :raises PayloadError: if it cannot be pickled.
        """
        return self._added(obj, _pickled)

    def add_function(self, function: Any) -> bytes:
        """Return the digest of a function that a task calls.

        :raises PayloadError: if it cannot be pickled.
        """
        return self.add(function)

    def _added(self, obj: Any, write: Callable[[Any], bytes]) -> bytes:
        known = self._by_id.get(id(obj))
        if known is not None:
            return known[1]
        found = self._kept(obj, write(obj))
        self._by_id[id(obj)] = obj, found
        return found

    def _kept(self, obj: Any, written: bytes) -> bytes:
        found = digest(written)
        self._pickled.setdefault(found, written)
        self._objects.setdefault(found, obj)
        return found

    def name(self, digests: Iterable[bytes]) -> None:
        """Note that a leaf names *digests*; a task that was begun anew leaves others behind."""
        for each in digests:
            self.by_digest[each] = self._pickled[each]

    def canonical(self) -> list[bytes]:
        """Return the canonical digest of each definition that leaves name, or nothing for it."""
        return [
            canonical_digest(self._objects[each])
            if len(pickled) <= _LONGEST_DESCRIBED
            else NO_DIGEST
            for each, pickled in self.by_digest.items()
        ]

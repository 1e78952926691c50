"""Definitions of a graph: functions and constants, pickled once each and shared by content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from safeser import pickles

__all__ = ["DIGEST_SIZE", "Definitions", "digest"]

DIGEST_SIZE = 32


def digest(definition: bytes) -> bytes:
    """Return the SHA-256 by which a leaf names a definition."""
    return hashlib.sha256(definition).digest()


class Definitions:
    """The definitions of one graph while its author writes it out, each under its digest.

    An object that several tasks share is pickled once, and equal pickles are one definition.
    """

    def __init__(self) -> None:
        #: Those that leaves name.
        self.by_digest: dict[bytes, bytes] = {}
        self._pickled: dict[bytes, bytes] = {}
        # The objects are kept, so that no other one takes an id meanwhile.
        self._by_id: dict[int, tuple[Any, bytes]] = {}

    def add(self, obj: Any) -> bytes:
        """Return the digest of *obj*'s pickle.

        :raises PayloadError: if it cannot be pickled.
        """
        known = self._by_id.get(id(obj))
        if known is not None:
            return known[1]
        pickled = pickles.dumps(obj, code=True)
        found = digest(pickled)
        self._pickled.setdefault(found, pickled)
        self._by_id[id(obj)] = obj, found
        return found

    def name(self, digests: Iterable[bytes]) -> None:
        """Note that a leaf names *digests*; a task that was begun anew leaves others behind."""
        for each in digests:
            self.by_digest[each] = self._pickled[each]

"""Record which key followed which: a process that renewed its session by another key is the same.

The one rule: a key follows another only where one peer proved both, the new one inside a session of
the old one.
"""

from __future__ import annotations

from safeser.identity import PublicKey

__all__ = ["successors"]


class Successors:
    """The first key of each key that took another's place; at most one for each listed key."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def note(self, before: PublicKey, after: PublicKey) -> None:
        """Record that the holder of *before* proved in that session that it holds *after*."""
        if before != after:
            self._first.setdefault(after.text, self.first(before))

    def first(self, key: PublicKey) -> str:
        """Return, as text, the key by which the holder of *key* was known first."""
        return self._first.get(key.text, key.text)


successors = Successors()

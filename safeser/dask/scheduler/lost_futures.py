"""Report the refusal of a graph to futures that depend on its keys.

The one rule: only the client whose graph was refused gets the refusal again, and only for keys that
do not exist. To Dask's scheduler such a dependency is lost, and what depends on it is cancelled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from safeser.errors import PolicyDenied

__all__ = ["LostFutures"]

#: Keys of one client whose refusals are remembered. Tasks that depend on older ones are cancelled.
MOST = 10_000


class LostFutures:
    """Keys that were refused, and why, by the client that submitted them."""

    def __init__(self) -> None:
        self._errors: dict[str, dict[Any, PolicyDenied]] = {}

    def note(
        self, client: str, keys: Iterable[Any], error: PolicyDenied, *, present: Collection[str]
    ) -> None:
        """Remember that *keys* of *client* were refused.

        :param present: all clients that there are; what others were told is forgotten.
        """
        for gone in self._errors.keys() - set(present):
            del self._errors[gone]
        errors = self._errors.setdefault(client, {})
        errors.update(dict.fromkeys(keys, error))
        while len(errors) > MOST:
            del errors[next(iter(errors))]

    def refusal_of(self, client: str, keys: Iterable[Any]) -> PolicyDenied | None:
        """Return why the first one of *keys* that was refused was."""
        errors = self._errors.get(client)
        return next((errors[key] for key in keys if key in errors), None) if errors else None

    def found(self, client: str, keys: Iterable[Any]) -> None:
        """Forget the refusals of *keys*, which exist by now."""
        if errors := self._errors.get(client):
            for key in keys:
                errors.pop(key, None)

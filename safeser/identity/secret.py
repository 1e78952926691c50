"""Shared secrets: 32 random bytes in a file, for teams too small for a roster.

The one rule: a secret is generated. Text that a person chose can be guessed offline by whoever has
one message.
"""

from __future__ import annotations

import os
from typing import Self

from safeser.gate.key_pairs import KeepsSecrets

__all__ = ["Secret"]


class Secret(KeepsSecrets):
    """One generated secret of 32 bytes; never printed, pickled or compared."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    @classmethod
    def generate(cls) -> Self:
        """Make a new secret; nothing is written until :meth:`save`."""
        return cls(os.urandom(32))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a new file at *path*, mode 0600; an existing file is never replaced.

        :raises ConfigError: if that cannot be done.
        """
        raise NotImplementedError

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that :meth:`save` or ``safeser keys secret`` wrote.

        :raises ConfigError: for any other content, or if other users can read it.
        """
        raise NotImplementedError

"""Seal what a cache of diskcache keeps, each value for its key.

The one rule: what a row says of itself is not believed. A row of diskcache says whether it is a
pickle, and which file has it: a writer to the folder can have ``Cache.get`` unpickle, read
or remove any file. So :class:`SealedDisk` keeps sealed bytes in the row itself, under text, and
refuses every other row. The folder keeps settings too, of which some are run as SQL: those of the
program alone are taken.

What stays with those who can write to the folder: to remove values, and to put an older value of
the same key back until it expires. SQLite reads their file.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any, NoReturn

import diskcache

from safeser.channel.box import Box
from safeser.errors import ConfigError, EnvelopeError

__all__ = ["SealedCache", "SealedDisk"]


class SealedDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache ships no types
    """Rows of sealed bytes under text, for ``diskcache.Cache(disk=SealedDisk)``."""

    def __init__(self, directory: str, **settings: Any) -> None:
        if settings.keys() - {"min_file_size", "pickle_protocol"}:
            _refuse_row()
        super().__init__(directory, **settings)

    def put(self, key: Any) -> tuple[str, bool]:
        if type(key) is not str:
            raise ConfigError("a key of a sealed cache is text", rule="box.cache")
        return key, True

    def get(self, key: Any, raw: bool) -> str:
        return key if raw and type(key) is str else _refuse_row()

    def store(self, value: Any, read: bool, key: Any = None) -> tuple[int, int, None, Any]:
        if type(value) is not bytes:
            raise ConfigError("a sealed cache keeps sealed bytes", rule="box.cache")
        return 0, diskcache.core.MODE_RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: int, filename: Any, value: Any, read: bool) -> bytes:
        if mode != diskcache.core.MODE_RAW or type(value) is not bytes:
            _refuse_row()
        return value

    def remove(self, file_path: str) -> None:
        """Remove nothing: no row of ours has a file."""


def _refuse_row() -> NoReturn:
    raise EnvelopeError(
        "a row of the cache is none of a sealed cache",
        rule="box.cache",
        fix="Remove the folder; a program without a box wrote to it, or an attacker.",
    )


class _Cache(diskcache.Cache):  # type: ignore[misc]  # diskcache ships no types
    """A cache whose settings are those of the program, whatever the folder has."""

    def __init__(self, directory: str, **settings: Any) -> None:
        self._own = {**diskcache.DEFAULT_SETTINGS, **settings}
        try:
            super().__init__(directory, disk=SealedDisk, **self._own)
        except (TypeError, ValueError, AttributeError, sqlite3.DatabaseError) as error:
            raise EnvelopeError(
                f"diskcache cannot open {directory} with these settings ({type(error).__name__})",
                rule="box.cache",
                fix="Remove the folder, unless another program has it locked or the disk is full.",
            ) from error

    @property
    def _con(self) -> Any:
        try:
            return super()._con
        except (TypeError, AttributeError):  # the name of a setting is no text
            _refuse_row()

    def reset(self, key: str, value: Any = diskcache.core.ENOVAL, update: bool = True) -> Any:
        """Take the setting *key*, or refuse it. Each connection does, with what its table says."""
        if key in diskcache.core.METADATA:
            number = super().reset(key, value, update)
            return number if type(number) is int else _refuse_row()
        if key not in self._own:
            _refuse_row()
        if update and value is not diskcache.core.ENOVAL:
            self._own[key] = value
        return super().reset(key, self._own[key], update)


class SealedCache:
    """A cache in *directory* whose values open under their own key alone.

    :param name: of the cache; a value of another one does not open.
    :param to: the principal that reads; None for a shared box, which refuses keys with ``->``.
    :param settings: of ``diskcache.Cache``, such as ``size_limit``; the folder keeps none.
    :raises EnvelopeError: the folder is none of a sealed cache.
    """

    def __init__(
        self,
        box: Box,
        directory: str | os.PathLike[str],
        *,
        name: str = "cache",
        to: str | None = None,
        **settings: Any,
    ) -> None:
        self._box, self._name, self._to = box, name, to
        self.cache = _Cache(os.fspath(directory), **settings)

    def set(self, key: str, value: object, *, expire: float | None) -> None:
        """Keep *value* for *expire* seconds, or without an end for None."""
        sealed = self._box.seal(value, to=self._to, about=self._about(key), ttl=expire)
        self.cache.set(key, sealed, expire=expire)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of *key*, or *default* where there is none.

        :raises SafeserError: what is there was not sealed for this key, or policy denies it.
        """
        sealed = self.cache.get(key)
        if sealed is None:
            return default
        return self._box.open(sealed, about=self._about(key)).value

    def _about(self, key: str) -> str:
        # With its length, or a name that holds ": " would share texts with a shorter one.
        return f"{len(self._name)} {self._name}: {key}"

    def delete(self, key: str) -> bool:
        """Forget *key*; tell whether there was a value."""
        return bool(self.cache.delete(key))

    def close(self) -> None:
        self.cache.close()

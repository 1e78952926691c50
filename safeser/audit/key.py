"""The key of an audit log: a holder of it can write a log that verifies.

The one rule: it is read from a private file and never appears in a repr, a pickle, an error or a
command line.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import NoReturn, TypeAlias

from safeser.errors import ConfigError
from safeser.identity.files import Unfit, load

__all__ = ["AuditKey", "KeySource"]

_LINE = re.compile(rb"safeser-audit-key-v1 ([0-9a-f]{64})\n\Z")
_FILE_SIZE = len("safeser-audit-key-v1 ") + 64 + 1


class AuditKey:
    """32 secret bytes from which the keys of every file of a log are derived."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != 32:
            raise ConfigError("an audit key has exactly 32 bytes", rule="config.audit-key")
        self._secret = secret

    @property
    def secret(self) -> bytes:
        """The bytes themselves, for derivation only."""
        return self._secret

    @classmethod
    def new(cls) -> AuditKey:
        """Return a fresh random key."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AuditKey:
        """Return the key in the file *path*.

        :raises ConfigError: unless it is a regular file of this user or root that no other user can
            read, holding exactly what :meth:`save` wrote.
        """
        try:
            data = load(path, "private", limit=_FILE_SIZE)
        except Unfit as error:
            raise _refused(path, error.what, fix=error.fix) from None
        line = _LINE.match(data)
        if line is None:
            raise _refused(path, "does not hold an audit key")
        return cls(bytes.fromhex(line[1].decode("ascii")))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key into the new file *path*, readable by its owner only.

        :raises ConfigError: if the file exists or cannot be written; a key is never overwritten,
            since the logs made with it could no longer be verified.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                try:
                    os.fchmod(file.fileno(), 0o600)
                    file.write(b"safeser-audit-key-v1 %b\n" % self._secret.hex().encode("ascii"))
                    file.flush()
                    os.fsync(file.fileno())
                except BaseException:
                    os.unlink(path)  # a part of a key is none, and would be in the way of the next
                    raise
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise _refused(path, f"cannot be written ({reason})") from None

    def __repr__(self) -> str:
        return "AuditKey(...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an audit key is not pickled; pass the path of its file")


#: What stands for a key in calls: the key, its 32 bytes, or the path of its file.
KeySource: TypeAlias = AuditKey | bytes | str | os.PathLike[str]


def resolve(source: KeySource) -> AuditKey:
    """Return the key that *source* is or names."""
    if isinstance(source, AuditKey):
        return source
    if isinstance(source, bytes):
        return AuditKey(source)
    return AuditKey.load(source)


def _refused(path: str | os.PathLike[str], why: str, *, fix: str = "") -> ConfigError:
    return ConfigError(
        f"the audit key file {why}", rule="config.audit-key", where=str(Path(path)), fix=fix
    )

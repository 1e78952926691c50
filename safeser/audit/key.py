"""The key of an audit log: a holder of it can write a log that verifies.

The one rule: it is read from a private file and never appears in a repr, a pickle, an error or a
command line.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import struct
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from safeser.errors import ConfigError
from safeser.gate.chain import Keys, mac_of, pae
from safeser.identity.files import load
from safeser.identity.paths import Unfit

_LINE = re.compile(rb"safeser-audit-key-v1 ([0-9a-f]{64})\n\Z")
_MOVING = re.compile(rb"safeser-audit-key-v2 ([0-9a-f]{32}) ([0-9]{16}) ([0-9a-f]{64})\n\Z")
_FILE_SIZE = len("safeser-audit-key-v2 ") + 32 + 1 + 16 + 1 + 64 + 1

#: What stands for the directory of a moving key before its log is begun.
UNBOUND: Final = "0" * 32


class AuditKey:
    """32 secret bytes from which the keys of every file of a log are derived.

    :param moves: how often a key that moves one way has moved; 0 for others, and for the initial
        key, which the auditor keeps.
    """

    __slots__ = ("_secret", "moves")

    def __init__(self, secret: bytes, moves: int = 0) -> None:
        if not isinstance(secret, bytes) or len(secret) != 32:
            raise ConfigError("an audit key has exactly 32 bytes", rule="config.audit-key")
        self._secret = secret
        self.moves = moves

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
        found = source(path)
        key = found.load()[1] if isinstance(found, KeyFile) else found
        if key.moves:
            raise _refused(
                path,
                f"has moved {key.moves} times, and its log was begun with the initial key",
                fix="Use the initial key, which 'safeser audit moving-key' wrote for the auditor.",
            )
        return key

    def save(self, path: str | os.PathLike[str], *, moving: bool = False) -> None:
        """Write the key into the new file *path*, readable by its owner only.

        :param moving: as a key that moves one way with each file that the log begins.
        :raises ConfigError: if the file exists or cannot be written; a key is never overwritten,
            since the logs made with it could no longer be verified.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        text = b"safeser-audit-key-v1 %b\n" % self._secret.hex().encode("ascii")
        if moving:
            text = _moving_line(UNBOUND, self)
        try:
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                try:
                    os.fchmod(file.fileno(), 0o600)
                    file.write(text)
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


class KeyFile:
    """The file of a key that moves one way; it belongs to one directory of logs.

    It is read and written while the lock of that directory's index is held, except when it is read
    for the first time.
    """

    __slots__ = ("path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)

    def load(self) -> tuple[str, AuditKey]:
        """Return the id of the directory that the key belongs to, and the key as it is now.

        :raises ConfigError: as :meth:`AuditKey.load` does.
        """
        found = _MOVING.match(_read(self.path))
        if found is None:
            raise _refused(self.path, "does not hold a moving audit key any more")
        key = AuditKey(bytes.fromhex(found[3].decode("ascii")), int(found[2]))
        return found[1].decode("ascii"), key

    def store(self, directory: str, key: AuditKey) -> None:
        """Write *key* over the one before, in one write of the same length, and sync it.

        In place, since the bytes of a file that another one replaces stay on the disk.
        """
        text = _moving_line(directory, key)
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                count = os.pwrite(handle, text, 0)
                os.fdatasync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise _refused(
                self.path,
                f"cannot be moved ({reason})",
                fix="A moving key must be in a file that the process may write.",
            ) from None
        if count != len(text):
            raise _refused(self.path, "was cut short: the disk is full")


def _moving_line(directory: str, key: AuditKey) -> bytes:
    text = f"safeser-audit-key-v2 {directory} {key.moves:016d} {key.secret.hex()}\n"
    return text.encode("ascii")


#: What stands for a key in calls: the key, its 32 bytes, or the path of its file.
KeySource: TypeAlias = AuditKey | bytes | str | os.PathLike[str]


def source(key: KeySource) -> AuditKey | KeyFile:
    """Return the key that *key* is or names; of one that moves, its file."""
    if isinstance(key, AuditKey):
        return key
    if isinstance(key, bytes):
        return AuditKey(key)
    data = _read(key)
    if _MOVING.match(data) is not None:
        return KeyFile(key)
    line = _LINE.match(data)
    if line is None:
        raise _refused(key, "does not hold an audit key")
    return AuditKey(bytes.fromhex(line[1].decode("ascii")))


def resolve(key: KeySource) -> AuditKey:
    """Return the key with which a whole log is verified, that *key* is or names."""
    if isinstance(key, bytes):
        return AuditKey(key)
    return key if isinstance(key, AuditKey) else AuditKey.load(key)


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return load(path, "private", limit=_FILE_SIZE)
    except Unfit as error:
        raise _refused(path, error.what, fix=error.fix) from None


def _refused(path: str | os.PathLike[str], why: str, *, fix: str = "") -> ConfigError:
    return ConfigError(
        f"the audit key file {why}", rule="config.audit-key", where=str(Path(path)), fix=fix
    )


# --- what is derived from it ----------------------------------------------------------------------

_MOVE = pae(b"safeser audit v1", b"move")


def file_keys(key: AuditKey, *, directory: str, file: str) -> Keys:
    """Return the keys of the log file *file* of the directory whose id is *directory*.

    Both ids are in the derivation, so a file that is copied into another directory of the same
    owner, or takes the place of another file, does not verify there.
    """
    return Keys(
        _derive(key, b"file chain", directory, file), _derive(key, b"file head", directory, file)
    )


def index_keys(key: AuditKey, *, directory: str) -> Keys:
    """Return the keys of a directory's index."""
    return Keys(_derive(key, b"index chain", directory), _derive(key, b"index head", directory))


def registry_tag(
    key: AuditKey, *, directory: str, first: int, count: int, digest: bytes, time: int
) -> bytes:
    """Return what vouches for entries of an index under *key*, which made none of them.

    :param first: number of the first entry, and *count* that of the one after the last.
    :param digest: of these entries.
    :param time: of the record that states all this.
    """
    numbers = struct.pack("<QQQ", first, count, time)
    return mac_of(_derive(key, b"index registry", directory), pae(numbers, digest))


def key_after(key: AuditKey, moves: int = 1) -> AuditKey:
    """Return what *key* is after so many moves. From there no key before can be computed.

    The forward security of Bellare and Yee (2003) and Schneier and Kelsey (1999), with a key for
    each file and not for each record: ``k_(i+1) = HMAC-SHA256(k_i, PAE(version, "move"))``.
    """
    secret = key.secret
    for _ in range(moves):
        secret = hmac.digest(secret, _MOVE, "sha256")
    return AuditKey(secret, key.moves + moves)


def _derive(key: AuditKey, purpose: bytes, *ids: str) -> bytes:
    info = pae(b"safeser audit v1", purpose, *(each.encode("ascii") for each in ids))
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key.secret)

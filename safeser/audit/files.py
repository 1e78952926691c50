"""Chained files and their heads on disk, inside one directory that only its owner can change.

The one rule: a record is whole in the file, chained and covered by the head before the caller goes
on; whatever goes wrong leaves the file as it was, or closes it for good.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from typing import NoReturn

from safeser.audit.chain import HEAD_SIZE, ZERO, Head, Keys, encode_head, step
from safeser.audit.record import encode, line
from safeser.errors import AuditError

__all__ = ["ChainFile", "Directory", "head_name"]

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# How many records may pass before the file's place is looked at again; the look costs 4 us.
_LOOK_EVERY = 64


def head_name(name: str) -> str:
    """Return the name of the head that stands beside the chained file *name*."""
    return f"{name.removesuffix('.log')}.head"


class Directory:
    """An open directory of logs. Every file is reached through it, never through a path again."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        self.path = os.fspath(path)
        if create:
            try:
                os.makedirs(self.path, mode=0o700, exist_ok=True)
            except OSError as error:
                raise failed("the directory cannot be made", error, where=self.path) from None
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            self.handle = os.open(self.path, flags)
        except OSError as error:
            raise failed(
                "the directory of the log cannot be opened; a symbolic link is not followed",
                error,
                where=self.path,
            ) from None

    def check_private(self) -> None:
        """Raise :class:`AuditError` if somebody else could replace files in here."""
        found = os.fstat(self.handle)
        if found.st_uid != os.geteuid():
            raise AuditError(
                "the directory of the log belongs to another user",
                rule="audit.directory",
                where=self.path,
            )
        if found.st_mode & 0o022:
            raise AuditError(
                "the directory of the log can be written by others",
                rule="audit.directory",
                where=self.path,
                fix="Run chmod 700 on it.",
            )

    def create(self, name: str, *, append: bool) -> int:
        """Return a descriptor of the new, empty file *name*.

        :param append: write at the end only, so that the file also works with ``chattr +a``.
        """
        flags = _NEW | os.O_RDWR | (os.O_APPEND if append else 0)
        try:
            return os.open(name, flags, 0o600, dir_fd=self.handle)
        except OSError as error:
            raise failed("a new file cannot be made", error, where=self.place(name)) from None

    def open(self, name: str, *, mode: int = os.O_RDONLY) -> int | None:
        """Return a descriptor of the regular file *name*, or None if there is none of that name.

        :param mode: flags of :func:`os.open` beside those that refuse links and waiting.
        :raises AuditError: if it is anything but a regular file; a FIFO is not waited for.
        """
        flags = mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(name, flags, 0o600, dir_fd=self.handle)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failed("a file cannot be opened", error, where=self.place(name)) from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise AuditError(
                "this is not a regular file", rule="audit.file", where=self.place(name)
            )
        return handle

    def read_head(self, name: str) -> bytes | None:
        """Return the bytes of the head of *name*, at most one more than a head has, or None."""
        handle = self.open(head_name(name))
        if handle is None:
            return None
        try:
            return os.pread(handle, HEAD_SIZE + 1, 0)
        except OSError as error:
            raise failed("a head cannot be read", error, where=self.place(name)) from None
        finally:
            os.close(handle)

    def sync(self) -> None:
        """Make the names of new files survive a loss of power."""
        try:
            os.fsync(self.handle)
        except OSError as error:
            raise failed("the directory cannot be synced", error, where=self.path) from None

    def place(self, name: str) -> str:
        return os.path.join(self.path, name)

    def close(self) -> None:
        os.close(self.handle)


class ChainFile:
    """One chained file and its head, open for appending; the caller makes sure it is the only one.

    :param head: what stands in the file already.
    """

    def __init__(
        self,
        directory: Directory,
        name: str,
        *,
        handle: int,
        head_handle: int,
        keys: Keys,
        head: Head,
        fsync: bool,
    ) -> None:
        self.directory = directory
        self.name = name
        self.file = head.file
        self.count = head.count
        self.mac = head.mac
        self.size = head.size
        self._handle = handle
        self._head_handle = head_handle
        self._keys = keys
        self._fsync = fsync
        self._looked = head.count
        self._broken = ""
        self._identity = [_identity(handle), _identity(head_handle)]

    @classmethod
    def create(
        cls, directory: Directory, name: str, *, file: str, keys: Keys, fsync: bool
    ) -> ChainFile:
        """Return a new, empty chained file."""
        handle = directory.create(name, append=True)
        try:
            head_handle = directory.create(head_name(name), append=False)
        except AuditError:
            os.close(handle)
            raise
        head = Head(file, 0, ZERO, 0)
        return cls(
            directory,
            name,
            handle=handle,
            head_handle=head_handle,
            keys=keys,
            head=head,
            fsync=fsync,
        )

    def append(self, fields: dict[str, object]) -> None:
        """Write one record and the head that covers it; see :meth:`append_all`."""
        self.append_all((fields,))

    def append_all(self, records: Sequence[dict[str, object]]) -> None:
        """Write *records* at once, and the head that covers them.

        :raises AuditError: if they are not in the file, none of them, or the head does not cover
            them. Then the file holds whole records only and the next call may succeed, or every
            later call fails too.
        """
        if self._broken:
            raise AuditError(self._broken, rule="audit.closed", where=self.place)
        count, mac = self.count, self.mac
        lines = []
        for fields in records:
            fields["seq"] = count
            body = encode(fields)
            mac = step(self._keys.chain, mac, count, body)
            lines.append(line(mac, body))
            count += 1
        data = b"".join(lines)
        if self.count - self._looked >= _LOOK_EVERY:
            self.look()
        self._write(data)
        # From here on the records are part of the file, whatever becomes of their head.
        self.count, self.mac, self.size = count, mac, self.size + len(data)
        if self._fsync:
            self._sync(self._handle)
        self._write_head()

    def _write(self, data: bytes) -> None:
        done = 0
        try:
            while done < len(data):
                count = os.write(self._handle, data[done:] if done else data)
                done += count or _nothing_written()
        except OSError as error:
            self._undo(done)
            raise failed("a record cannot be written", error, where=self.place) from None

    def _undo(self, done: int) -> None:
        # A torn record in the middle would break the chain of everything after it.
        if done:
            try:
                os.ftruncate(self._handle, self.size)
            except OSError:
                self._broken = "a record was cut short and could not be taken back; nothing more"

    def _write_head(self) -> None:
        data = encode_head(self._keys.head, self.file, self.count, self.mac, self.size)
        try:
            count = os.pwrite(self._head_handle, data, 0)
        except OSError as error:
            raise failed("a head cannot be written", error, where=self.place) from None
        if count != len(data):
            raise AuditError("a head was cut short", rule="audit.write", where=self.place)

    def _sync(self, handle: int) -> None:
        try:
            os.fdatasync(handle)
        except OSError as error:
            # After a failed fdatasync the kernel may have dropped the pages: a later success would
            # say nothing about this record.
            self._broken = "the disk did not take a record; nothing more is written"
            raise failed("a record cannot be synced", error, where=self.place) from None

    def sync(self) -> None:
        """Make everything so far survive a loss of power: the file first, then its head."""
        self._sync(self._handle)
        self._sync(self._head_handle)

    def look(self) -> None:
        """Raise :class:`AuditError` if this is no longer the file of that name, as we left it.

        Somebody who removes, replaces or cuts the file of a running process stops that process
        from going on as if nothing had happened.
        """
        self._looked = self.count
        names = (self.name, head_name(self.name))
        for name, identity in zip(names, self._identity, strict=True):
            try:
                found = os.stat(name, dir_fd=self.directory.handle, follow_symlinks=False)
            except OSError:
                self._fail("was removed")
            if (found.st_dev, found.st_ino) != identity:
                self._fail("was replaced")
            if name == self.name and found.st_size != self.size:
                self._fail("has another size than this process left it with")

    def _fail(self, what: str) -> NoReturn:
        self._broken = f"the log file {what} while it was in use; nothing more is written"
        raise AuditError(
            self._broken,
            rule="audit.replaced",
            where=self.place,
            fix="Verify the log, then start the process again.",
        )

    @property
    def place(self) -> str:
        return self.directory.place(self.name)

    def close(self) -> None:
        """Close both descriptors; nothing is written."""
        if self._handle >= 0:
            os.close(self._handle)
            os.close(self._head_handle)
            self._handle = self._head_handle = -1
            self._broken = self._broken or "the log is closed"


def _nothing_written() -> NoReturn:
    raise OSError(errno.ENOSPC, "nothing was written")


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino


def failed(what: str, error: OSError, *, where: str) -> AuditError:
    """Return the AuditError for a failed system call."""
    reason = os.strerror(error.errno) if error.errno else "unknown error"
    return AuditError(f"{what} ({reason})", rule="audit.write", where=where)

"""The files of a log, inside one directory that only its owner can change.

The one rule: a file is reached through its open directory, never through a path again; a link is
not followed, a FIFO is not waited for, and nothing is written to a file of another user.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Collection
from contextlib import closing
from typing import NoReturn

from safeser.errors import AuditError
from safeser.gate.chain import HEAD_SIZE

#: What stands behind the name of a log file that is compressed.
COMPRESSED = ".gz"

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def head_name(name: str) -> str:
    """Return the name of the head that stands beside the chained file *name*."""
    return f"{log_name(name).removesuffix('.log')}.head"


def log_name(name: str) -> str:
    """Return the name that a log file had before it was compressed; any other name as it is."""
    found = name.removesuffix(COMPRESSED)
    return found if found.endswith(".log") else name


def is_log(name: str) -> bool:
    """Tell whether *name* is that of a log file, plain or compressed."""
    return log_name(name).endswith(".log")


def stored(name: str, names: Collection[str]) -> str | None:
    """Return under which of *names* the log file *name* is there; the plain one where both are.

    Both are there while a process that compresses it has not removed the plain file yet, or was
    killed before it did.
    """
    for each in (name, name + COMPRESSED):
        if each in names:
            return each
    return None


class Handle:
    """One open file.

    :param fd: its descriptor; -1 once it is closed.
    :param place: path of the file, for errors.
    """

    __slots__ = ("fd", "place")

    def __init__(self, fd: int, place: str) -> None:
        self.fd = fd
        self.place = place

    def stat(self) -> os.stat_result:
        """Return what the system says about the file."""
        try:
            return os.fstat(self.fd)
        except OSError as error:
            raise failed("a file cannot be examined", error, where=self.place) from None

    def read(self, size: int, offset: int) -> bytes:
        """Return *size* bytes from *offset* on, or what there is up to the end of the file."""
        data = b""
        try:
            while len(data) < size:
                part = os.pread(self.fd, size - len(data), offset + len(data))
                if not part:
                    break
                data += part
        except OSError as error:
            raise failed("a file cannot be read", error, where=self.place) from None
        return data

    def append(self, data: bytes) -> None:
        """Write *data* at the end. After any exception the file may hold a part of it, or all."""
        done = 0
        try:
            while done < len(data):
                count = os.write(self.fd, data[done:] if done else data)
                done += count or _raise_unwritten()
        except OSError as error:
            raise failed("a record cannot be written", error, where=self.place) from None

    def replace(self, data: bytes) -> None:
        """Write *data* over the start of the file, in one write."""
        try:
            count = os.pwrite(self.fd, data, 0)
        except OSError as error:
            raise failed("a head cannot be written", error, where=self.place) from None
        if count != len(data):
            raise AuditError("a head was cut short", rule="audit.write", where=self.place)

    def truncate(self, size: int) -> None:
        """Cut the file to its first *size* bytes."""
        try:
            os.ftruncate(self.fd, size)
        except OSError as error:
            what = "a record was cut short and cannot be taken back"
            raise failed(what, error, where=self.place) from None

    def lock_alone(self) -> bool:
        """Lock the file unless another open file holds its lock; closing it lets go of the lock.

        The system lets go of it, too, when the process that holds it dies.
        """
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise failed("a file cannot be locked", error, where=self.place) from None
        return True

    def sync(self) -> None:
        """Make what the file holds survive a loss of power."""
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise failed("a file cannot be synced", error, where=self.place) from None

    def unlock(self) -> None:
        """Let go of the lock on the file, which a forked child would hold on to otherwise."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        except OSError:
            return  # closing the file does it

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        # Given up before it is closed: a number that was closed twice could be another's file.
        fd, self.fd = self.fd, -1
        _WRITTEN.discard(self)
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                return  # what had to be on the disk was synced before


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
            self._handle = Handle(os.open(self.path, flags), self.path)
        except OSError as error:
            raise failed(
                "the directory of the log cannot be opened; a symbolic link is not followed",
                error,
                where=self.path,
            ) from None

    def check_private(self) -> None:
        """Raise :class:`AuditError` if another user could replace files in here."""
        _check_own(self._handle, "the directory of the log", "audit.directory", "chmod 700")

    def names(self) -> set[str]:
        """Return the names of what is in the directory."""
        try:
            return set(os.listdir(self._handle.fd))
        except OSError as error:
            raise failed("the directory cannot be read", error, where=self.path) from None

    def stat(self, name: str) -> os.stat_result | None:
        """Return what the system says about *name*, a link not followed; None without one."""
        try:
            return os.stat(name, dir_fd=self._handle.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failed("a file cannot be examined", error, where=self.place(name)) from None

    def create(self, name: str, *, append: bool) -> Handle:
        """Return the new, empty file *name*.

        :param append: write at the end only, so that the file also works with ``chattr +a``.
        :raises AuditError: if something has that name; it is left as it is.
        """
        handle = self.create_if_absent(name, append=append)
        if handle is None:
            raise AuditError(
                "the log begins a new file, and there is one of that name",
                rule="audit.file",
                where=self.place(name),
                fix=_NOT_OURS,
            )
        return handle

    def create_if_absent(self, name: str, *, append: bool) -> Handle | None:
        """Return the new, empty file *name*, or None if something of that name is there."""
        flags = _NEW | os.O_RDWR | (os.O_APPEND if append else 0)
        place = self.place(name)
        try:
            return _written(Handle(os.open(name, flags, 0o600, dir_fd=self._handle.fd), place))
        except FileExistsError:
            return None
        except OSError as error:
            raise failed("a new file cannot be made", error, where=place) from None

    def open(self, name: str) -> Handle | None:
        """Return the regular file *name*, open for reading, or None if nothing has that name.

        :raises AuditError: if it is anything but a regular file; a FIFO is not waited for.
        """
        return self._open(name, os.O_RDONLY, _check_regular)

    def open_own(self, name: str, *, append: bool) -> Handle | None:
        """Return the regular file *name* of this user, open for writing too; None without one.

        What it holds is the caller's to check, before a byte is written.
        """
        handle = self._open(name, os.O_RDWR | (os.O_APPEND if append else 0), _check_own_file)
        return None if handle is None else _written(handle)

    def _open(self, name: str, mode: int, check: Callable[[Handle], None]) -> Handle | None:
        flags = mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        place = self.place(name)
        try:
            handle = Handle(os.open(name, flags, dir_fd=self._handle.fd), place)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NOT_REGULAR:
                raise _not_regular(place) from None
            raise failed("a file cannot be opened", error, where=place) from None
        try:
            check(handle)
        except BaseException:
            handle.close()
            raise
        return handle

    def read_head(self, name: str) -> bytes | None:
        """Return the bytes of the head of *name*, at most one more than a head has, or None."""
        handle = self.open(head_name(name))
        if handle is None:
            return None
        with closing(handle):
            return handle.read(HEAD_SIZE + 1, 0)

    def rename(self, old: str, new: str) -> None:
        """Give the file *old* the name *new*, in place of a file that has it."""
        try:
            os.rename(old, new, src_dir_fd=self._handle.fd, dst_dir_fd=self._handle.fd)
        except OSError as error:
            raise failed("a file cannot be renamed", error, where=self.place(old)) from None

    def remove(self, name: str) -> None:
        """Remove the file *name*, if there is one."""
        try:
            os.unlink(name, dir_fd=self._handle.fd)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed("a file cannot be removed", error, where=self.place(name)) from None

    def sync(self) -> None:
        """Make the names of new files survive a loss of power."""
        try:
            os.fsync(self._handle.fd)
        except OSError as error:
            raise failed("the directory cannot be synced", error, where=self.path) from None

    def place(self, name: str) -> str:
        return os.path.join(self.path, name)

    def close(self) -> None:
        self._handle.close()


#: What is open for writing. A forked child closes it: it would hold on to the locks of its parent,
#: which a thread of the parent may have taken just then.
_WRITTEN: set[Handle] = set()


def _written(handle: Handle) -> Handle:
    _WRITTEN.add(handle)
    return handle


def _close_written() -> None:
    for handle in list(_WRITTEN):
        handle.close()


os.register_at_fork(after_in_child=_close_written)

_NOT_OURS = "The log did not make it: move it away, or use a directory for audit logs alone."

# What opening a link, a folder and a socket for writing gives.
_NOT_REGULAR = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO})


def _check_regular(handle: Handle) -> None:
    if not stat.S_ISREG(handle.stat().st_mode):
        raise _not_regular(handle.place)


def _not_regular(place: str) -> AuditError:
    return AuditError("this is not a regular file", rule="audit.file", where=place, fix=_NOT_OURS)


def _check_own_file(handle: Handle) -> None:
    _check_regular(handle)
    _check_own(handle, "a file of the log", "audit.file", "chmod 600")


def _check_own(handle: Handle, what: str, rule: str, command: str) -> None:
    found = handle.stat()
    if found.st_uid != os.geteuid():
        raise AuditError(
            f"{what} belongs to another user",
            rule=rule,
            where=handle.place,
            fix="Give each user a directory for logs of its own.",
        )
    if found.st_mode & 0o022:
        raise AuditError(
            f"{what} can be written by others",
            rule=rule,
            where=handle.place,
            fix=f"Run {command} on it.",
        )


def _raise_unwritten() -> NoReturn:
    raise OSError(errno.ENOSPC, "nothing was written")


def failed(what: str, error: OSError, *, where: str) -> AuditError:
    """Return the AuditError for a failed system call."""
    reason = os.strerror(error.errno) if error.errno else "unknown error"
    return AuditError(f"{what} ({reason})", rule="audit.write", where=where)

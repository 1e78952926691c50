"""Opening a file by a path that no other user can lead elsewhere.

The one rule: every folder on the path, and every folder that a symbolic link on it leads through,
belongs to root or to this process's user, and no other user can replace an entry of it; every link
belongs to one of these two users. Otherwise another user could choose which of this user's keys,
rosters or policies is read, for example one that was replaced. OpenSSH's ``StrictModes`` demands
the same of folders.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Literal

from safeser.identity.acl import has_acl
from safeser.identity.groups import is_private_group

__all__ = ["Cause", "Unfit", "open_file", "open_shipped", "require_regular", "shown"]

Cause = Literal["missing", "unreadable", "shape", "owner", "mode", "link", "folder"]

#: Where there is no O_PATH, a folder that may be searched and not listed cannot be passed.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Opening a FIFO would otherwise wait for its writer.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC

_MOST_LINKS = 40  # Linux follows as many

#: Kubernetes replaces a mounted secret by another folder and removes the old one, which may happen
#: between two steps of a walk. It does so once a minute at most.
_WALKS = 3


class Unfit(Exception):
    """A file that must not be used.

    :param cause: which check it failed.
    :param what: predicate of a sentence whose subject is the file.
    :param fix: what the operator can change.
    """

    def __init__(self, cause: Cause, what: str, fix: str = "") -> None:
        # All of it: a worker's error crosses to its nanny as a pickle, with what led to it.
        super().__init__(cause, what, fix)
        self.cause = cause
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return self.what


def shown(path: str | os.PathLike[str]) -> str:
    """Return *path* on one line, for an error."""
    text = os.fspath(path)
    return "".join(char if char.isprintable() else "?" for char in text[:300])


def open_file(path: str) -> int:
    """Return a descriptor of what *path* names, open for reading.

    :raises OSError: as ``os.open`` does; ValueError for a path that the system cannot take.
    :raises Unfit: if another user could have led the path there, or it names no regular file.
    """
    for _ in range(_WALKS - 1):
        with suppress(FileNotFoundError):
            return _walk(path)
    return _walk(path)


def open_shipped(path: str) -> int:
    """Return a descriptor of a file that this package installed; its path is not judged.

    A user who could change a link or folder on it could change the code that would refuse it.
    """
    return os.open(path, _FILE & ~os.O_NOFOLLOW)


def _walk(path: str) -> int:
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    place = os.sep if os.path.isabs(path) else os.curdir
    names, links = _names(path), 0
    folder = os.open(place, _FOLDER)
    try:
        while True:
            name = names.pop()
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            _require_own_folder(folder, place, name)
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                # Once this holds, what is read next is the link that was checked.
                _require_own_link(os.path.join(place, name), found)
                target = os.readlink(name, dir_fd=folder)
                names += _names(target)
                if not os.path.isabs(target):
                    continue
                name = place = os.sep
            elif not names:
                require_regular(found)  # opening a device can do something to it
                return os.open(name, _FILE, dir_fd=folder)
            else:
                place = os.path.normpath(os.path.join(place, name))
            before, folder = folder, os.open(name, _FOLDER, dir_fd=folder)
            os.close(before)
    finally:
        os.close(folder)


def require_regular(status: os.stat_result) -> None:
    """Raise :class:`Unfit` unless *status* is that of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        shape = _SHAPES.get(stat.S_IFMT(status.st_mode), "not a regular file")
        raise Unfit("shape", f"is {shape}", "Name a regular file.")


_SHAPES = {
    stat.S_IFDIR: "a folder, not a regular file",
    stat.S_IFIFO: "a pipe, not a regular file",
    stat.S_IFSOCK: "a socket, not a regular file",
    stat.S_IFCHR: "a device, not a regular file",
    stat.S_IFBLK: "a device, not a regular file",
}


def _names(path: str) -> list[str]:
    """Return the names in *path*, the last one first; never none."""
    return [name for name in reversed(path.split(os.sep)) if name] or [os.curdir]


def _require_own_link(place: str, link: os.stat_result) -> None:
    if link.st_uid not in (0, os.geteuid()):
        raise Unfit(
            "link",
            f"is reached through the symbolic link {shown(place)}, which belongs to another user"
            f" ({link.st_uid})",
            "Name the file that the link leads to.",
        )


def _require_own_folder(folder: int, place: str, name: str) -> None:
    """Raise :class:`Unfit` if another user could replace the entry *name* of an open folder."""
    # '.' and '..' cannot be replaced, and the user who owns '/' can replace the interpreter too.
    if place == os.sep or name in (os.curdir, os.pardir):
        return
    status = os.fstat(folder)
    what = f"lies below the folder {shown(os.path.abspath(place))}, which"
    if status.st_uid not in (0, os.geteuid()):
        raise Unfit(
            "folder",
            f"{what} belongs to another user ({status.st_uid}; this process is {os.geteuid()})",
            "Keep the file where all folders of its path belong to root or this user.",
        )
    if not _others_replace(folder, status):
        return
    raise Unfit(
        "folder",
        f"{what} others can write to (mode {stat.S_IMODE(status.st_mode):04o})",
        f"Run: chmod go-w {shown(os.path.abspath(place))}",
    )


def _others_replace(folder: int, status: os.stat_result) -> bool:
    """Tell whether users other than root and this one can replace entries of a folder of theirs."""
    mode = status.st_mode
    # The sticky bit keeps entries to their owners. A read-only mount keeps them as they are:
    # Kubernetes mounts config maps so, with mode 0777.
    if not mode & 0o022 or mode & stat.S_ISVTX or os.fstatvfs(folder).f_flag & os.ST_RDONLY:
        return False
    return bool(mode & stat.S_IWOTH) or not _is_own_alone(folder, status)


def _is_own_alone(folder: int, status: os.stat_result) -> bool:
    if not is_private_group(status.st_gid):
        return False
    # With an access control list the group's bits may be those of other users; the list is read
    # from a descriptor that O_PATH does not give.
    try:
        listing = os.open(os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        return not has_acl(listing)
    finally:
        os.close(listing)

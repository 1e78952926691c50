"""Opening a file by a path that no other user can lead elsewhere.

The one rule: a symbolic link counts like the file. It belongs to root or to this process's user,
and stands in a folder where nobody else can replace it; otherwise somebody else would choose which
of this user's keys, rosters or policies is read. This is stricter than the kernel's
``protected_symlinks``, which looks at folders such as ``/tmp`` alone.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Literal

__all__ = ["Cause", "Unfit", "open_file", "open_shipped", "shown"]

Cause = Literal["missing", "unreadable", "shape", "owner", "mode", "link"]

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
        super().__init__(what)
        self.cause = cause
        self.what = what
        self.fix = fix


def shown(path: str | os.PathLike[str]) -> str:
    """Return *path* on one line, for an error."""
    text = os.fspath(path)
    return "".join(char if char.isprintable() else "?" for char in text[:300])


def open_file(path: str) -> int:
    """Return a descriptor of what *path* names, open for reading.

    :raises OSError: as ``os.open`` does; ValueError for a path that the system cannot take.
    :raises Unfit: if another user could have set a symbolic link on the way.
    """
    for _ in range(_WALKS - 1):
        with suppress(FileNotFoundError):
            return _walk(path)
    return _walk(path)


def open_shipped(path: str) -> int:
    """Return a descriptor of a file that this package installed, by whatever links lead there.

    Who could change those could change the code that would refuse them.
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
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                # Once this holds, what is read next is the link that was looked at.
                _require_own_link(os.path.join(place, name), found, folder)
                target = os.readlink(name, dir_fd=folder)
                names += _names(target)
                if not os.path.isabs(target):
                    continue
                name = place = os.sep
            elif not names:
                return os.open(name, _FILE, dir_fd=folder)
            else:
                place = os.path.normpath(os.path.join(place, name))
            before, folder = folder, os.open(name, _FOLDER, dir_fd=folder)
            os.close(before)
    finally:
        os.close(folder)


def _names(path: str) -> list[str]:
    """Return the names in *path*, the last one first; never none."""
    return [name for name in reversed(path.split(os.sep)) if name] or [os.curdir]


def _require_own_link(place: str, link: os.stat_result, folder: int) -> None:
    trusted = (0, os.geteuid())
    what = f"is reached through the symbolic link {shown(place)}, "
    fix = "Name the file that the link leads to."
    if link.st_uid not in trusted:
        raise Unfit("link", f"{what}which belongs to another user ({link.st_uid})", fix)
    found = os.fstat(folder)
    where = shown(os.path.dirname(place))
    if found.st_uid not in trusted:
        raise Unfit("link", f"{what}in a folder of another user ({found.st_uid})", fix)
    # Who may write to a folder replaces its links, except where the sticky bit keeps them to their
    # owners. Nobody writes to a read-only mount: Kubernetes gives config maps mode 0777 there.
    replaceable = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    if replaceable and not os.fstatvfs(folder).f_flag & os.ST_RDONLY:
        raise Unfit(
            "link",
            f"{what}which others can replace (mode {stat.S_IMODE(found.st_mode):04o} of its folder)",
            f"{fix} Or run: chmod go-w {where}",
        )

"""Who else can read or write an open file of keys, a roster or a policy.

The one rule: what is judged is the file that was opened, not what its path may name by then. A file
that decides who is who belongs to root or to this process's user, and nobody else writes to it. A
secret is readable by them alone, or by a group that this process is in: so are secrets mounted for
a process that is not root.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator

from safeser.keys.paths import Unfit, shown

__all__ = ["check_private", "check_public", "check_shipped"]

_ACL = "system.posix_acl_access"
# linux/posix_acl_xattr.h: version 2, then entries of tag, permissions and id, little-endian.
_ACL_VERSION = struct.pack("<I", 2)
_ACL_ENTRY = struct.Struct("<HHI")
_USER, _GROUP_OF_FILE, _GROUP = 0x02, 0x04, 0x08
_READ = 4

_MOUNT = (
    "If it is a mounted secret, mount it with mode 0440 and a group of this process: in Kubernetes"
    " 'defaultMode: 0440' and 'fsGroup'."
)


def check_public(handle: int, path: str) -> None:
    """Raise :class:`Unfit` if a user other than root and this one could have written the file."""
    status = _regular(handle)
    _require_owner(status)
    if status.st_mode & 0o022:
        raise Unfit(
            "mode", f"can be written by others ({_mode(status)})", f"Run: chmod go-w {shown(path)}"
        )


def check_private(handle: int, path: str) -> None:
    """Raise :class:`Unfit` if others than root, this user and groups of this process read it."""
    status = _regular(handle)
    _require_owner(status)
    if status.st_mode & 0o037:
        # Whoever is in the group may use a key; nobody may change it.
        word = "used" if status.st_mode & 0o007 else "changed"
        raise Unfit("mode", f"can be {word} by others ({_mode(status)})", _fix(handle, path))
    if not status.st_mode & 0o040:
        return
    own = {os.getegid(), *os.getgroups()}
    for kind, number in _readers(status, _acl(handle)):
        if number in (own if kind == "group" else (0, os.geteuid())):
            continue
        whose = f" ({_listed(own)})" if kind == "group" else ""
        raise Unfit(
            "mode",
            f"can be read by {kind} {number}, which is none of this process's{whose}",
            _fix(handle, path),
        )


def check_shipped(handle: int, path: str) -> None:
    """Raise :class:`Unfit` if everybody could have written a file that this package installed.

    A checkout under umask 002 is its group's to write, and so is the code that would refuse it.
    """
    status = _regular(handle)
    if status.st_mode & stat.S_IWOTH:
        raise Unfit(
            "mode", f"can be written by others ({_mode(status)})", f"Run: chmod go-w {shown(path)}"
        )


def _regular(handle: int) -> os.stat_result:
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        raise Unfit("shape", "is not a regular file", "Name the file itself.")
    return status


def _require_owner(status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise Unfit(
            "owner",
            f"belongs to another user ({status.st_uid}; this process is {os.geteuid()})",
            "Give each user files of their own, or change the owner to root or this user.",
        )


def _fix(handle: int, path: str) -> str:
    read_only = os.fstatvfs(handle).f_flag & os.ST_RDONLY
    if os.fstat(handle).st_uid != os.geteuid() or read_only:
        return _MOUNT
    return f"If this is the key that you mean, run: chmod 600 {shown(path)}"


def _mode(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):04o}"


def _listed(groups: set[int]) -> str:
    return ", ".join(map(str, sorted(groups)[:16]))


def _acl(handle: int) -> bytes | None:
    """Return the access control list of an open file, None without one."""
    try:
        return os.getxattr(handle, _ACL)
    except (OSError, AttributeError):
        return None  # none, or a system or file system that has none of these


def _readers(status: os.stat_result, acl: bytes | None) -> Iterator[tuple[str, int]]:
    """Yield the users and groups beside owner and others that may read a file.

    With a list, the group's bits of the mode are the most that any entry gives, and the group
    itself may have less: systemd hands out credentials as ``u:USER:r``, which reads as 0440.
    """
    if acl is None:
        yield "group", status.st_gid
        return
    if not acl.startswith(_ACL_VERSION) or (len(acl) - len(_ACL_VERSION)) % _ACL_ENTRY.size:
        raise Unfit("mode", "has an access control list of an unknown form", _MOUNT)
    for tag, granted, number in _ACL_ENTRY.iter_unpack(acl[len(_ACL_VERSION) :]):
        if not granted & _READ:
            continue
        if tag == _USER:
            yield "user", number
        elif tag == _GROUP_OF_FILE:
            yield "group", status.st_gid
        elif tag == _GROUP:
            yield "group", number

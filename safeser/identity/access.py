"""Who else can read or write an open file of keys, a roster or a policy.

The one rule: the checks read the status of the open file, never of its path, which may name another
file by then. A file that decides who is who belongs to root or to this process's user, and no other
user can write to it. A secret is readable by these two users and by groups of this process only, as
secrets are that a container runtime mounts for a process that is not root.
"""

from __future__ import annotations

import os
import stat

from safeser.identity.acl import UnknownForm, readers
from safeser.identity.groups import listed, own_groups
from safeser.identity.paths import Unfit, require_regular, shown

__all__ = ["check_private", "check_public", "check_shipped"]

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
        # A group of this process may use the key; no group may change it.
        word = "used" if status.st_mode & 0o007 else "changed"
        raise Unfit("mode", f"can be {word} by others ({_mode(status)})", _fix(handle, path))
    if not status.st_mode & 0o040:
        return
    try:
        own = own_groups()
        for kind, number in readers(handle, status):
            if number in (own if kind == "group" else (0, os.geteuid())):
                continue
            whose = f" ({listed(own)})" if kind == "group" else ""
            raise Unfit(
                "mode",
                f"can be read by {kind} {number}, which is none of this process's{whose}",
                _fix(handle, path),
            )
    except UnknownForm as error:
        raise Unfit("mode", f"has {error}", _MOUNT) from None


def check_shipped(handle: int, path: str) -> None:
    """Raise :class:`Unfit` if all users could have written a file that this package installed.

    A checkout under umask 002 is its group's to write, and so is the code that would refuse it.
    """
    status = _regular(handle)
    if status.st_mode & stat.S_IWOTH:
        raise Unfit(
            "mode", f"can be written by others ({_mode(status)})", f"Run: chmod go-w {shown(path)}"
        )


def _regular(handle: int) -> os.stat_result:
    status = os.fstat(handle)
    require_regular(status)
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

"""The groups of this process, and the group that belongs to its user alone."""

from __future__ import annotations

import grp
import os
import pwd

__all__ = ["is_private_group", "listed", "own_groups"]


def own_groups() -> frozenset[int]:
    """Return the effective and the supplementary groups of this process.

    The kernel lets a process read a group-readable file by either of them, and Kubernetes puts
    ``fsGroup`` among the supplementary ones.
    """
    return frozenset({os.getegid(), *os.getgroups()})


def is_private_group(number: int) -> bool:
    """Tell whether a group has this process's user as its only member.

    Many systems give each user such a group, of the same name, and let that group write to what
    the user makes (``umask 002``). Members are counted as ``pam_umask`` does: by the group's entry.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return (
        user.pw_gid == number
        and group.gr_name == user.pw_name
        and set(group.gr_mem) <= {user.pw_name}
    )


def listed(groups: frozenset[int]) -> str:
    """Return the numbers of *groups*, at most 16, for an error."""
    return ", ".join(map(str, sorted(groups)[:16]))

"""POSIX access control lists of open files: which users and groups they let read.

The one rule: a list of unknown form is an error, never an empty list.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Literal

__all__ = ["UnknownForm", "has_acl", "readers"]

_NAME = "system.posix_acl_access"
# linux/posix_acl_xattr.h: version 2, then entries of tag, permissions and id, little-endian.
_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")
_USER, _GROUP_OF_FILE, _GROUP = 0x02, 0x04, 0x08
_READ = 4


class UnknownForm(ValueError):
    """An access control list that this module cannot read."""


def has_acl(handle: int) -> bool:
    """Tell whether the open file or folder *handle* has an access control list."""
    return _read(handle) is not None


def readers(handle: int, status: os.stat_result) -> Iterator[tuple[Literal["user", "group"], int]]:
    """Yield the users and groups beside owner and others that may read a group-readable file.

    With a list, the group's bits of the mode are the most that any entry gives, and the group
    itself may have less: systemd hands out credentials as ``u:USER:r``, which reads as 0440.

    :raises UnknownForm: if the list cannot be read.
    """
    acl = _read(handle)
    if acl is None:
        yield "group", status.st_gid
        return
    if not acl.startswith(_VERSION) or (len(acl) - len(_VERSION)) % _ENTRY.size:
        raise UnknownForm("an access control list of an unknown form")
    for tag, granted, number in _ENTRY.iter_unpack(acl[len(_VERSION) :]):
        if not granted & _READ:
            continue
        if tag == _USER:
            yield "user", number
        elif tag == _GROUP_OF_FILE:
            yield "group", status.st_gid
        elif tag == _GROUP:
            yield "group", number


def _read(handle: int) -> bytes | None:
    try:
        return os.getxattr(handle, _NAME)
    except (OSError, AttributeError):
        return None  # no list, or a system or file system without lists

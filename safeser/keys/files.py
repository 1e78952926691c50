"""Files of keys: read only if nobody else could have made or read them, and never written over.

The one rule: what is judged is the file that was opened, not what its path may name by then.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from safeser.errors import ConfigError

__all__ = ["read_file", "reason", "refused", "shown", "sync_directory", "write_new"]


def shown(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    return "".join(char if char.isprintable() else "?" for char in text[:300])


def reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "not a usable path"


def refused(
    path: str | os.PathLike[str], what: str, *, rule: str = "config.identity", fix: str = ""
) -> ConfigError:
    return ConfigError(f"{shown(path)} {what}", rule=rule, fix=fix)


def read_file(
    path: str | os.PathLike[str], *, private: bool, limit: int, rule: str, make: str
) -> bytes:
    """Return at most *limit* bytes of a regular file that only its rightful owner could have made.

    A private file must be ours and nobody else's to read, and is not reached through a link. A
    public one may be root's; whoever could write it could make himself anybody.
    """
    # 1. open without waiting for the writer of a FIFO; 2. judge what was opened, not what the path
    # may name by now; 3. read one byte more than is allowed, whatever the size claims to be.
    no_link = os.O_NOFOLLOW if private else 0
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | no_link)
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        what, fix = {
            errno.ENOENT: ("does not exist", f"{_correct(path)}make one with '{make}'."),
            errno.ELOOP: ("is a symbolic link", "Name the file itself."),
        }.get(number or 0, (f"cannot be opened: {reason(error)}", ""))
        raise refused(path, what, rule=rule, fix=fix) from None
    try:
        _check_status(path, os.fstat(handle), private=private, rule=rule)
        data = b""
        while len(data) <= limit and (more := os.read(handle, limit + 1 - len(data))):
            data += more
    except OSError as error:
        raise refused(path, f"cannot be read: {reason(error)}", rule=rule) from None
    finally:
        os.close(handle)
    if len(data) > limit:
        raise refused(path, "is too large to be what it should be", rule=rule)
    return data


def _correct(path: str | os.PathLike[str]) -> str:
    """Return the beginning of what to do about a file that is not there."""
    if os.path.isabs(path):
        return "Correct the path, or "
    return f"Correct the path, which is looked for in {shown(os.getcwd())}, or "


def _check_status(
    path: str | os.PathLike[str], status: os.stat_result, *, private: bool, rule: str
) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise refused(path, "is not a regular file", rule=rule, fix="Name the file itself.")
    if status.st_uid != os.geteuid() and (private or status.st_uid != 0):
        raise refused(
            path,
            "belongs to another user",
            rule=rule,
            fix="Give each user files of their own, or change the owner.",
        )
    if mode & (0o077 if private else 0o022):
        change = "600" if private else "go-w"
        if_meant = "If this is the identity that you mean, run" if private else "Run"
        what = f"can be {'used' if private else 'written'} by others (mode {mode:04o})"
        raise refused(path, what, rule=rule, fix=f"{if_meant}: chmod {change} {shown(path)}")


def write_new(path: Path, data: bytes, *, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)  # whatever the umask is
            file.write(data)
            file.flush()
            os.fsync(handle)
    except OSError:
        path.unlink(missing_ok=True)  # half a key is worse than none
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

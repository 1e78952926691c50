"""Files of keys, rosters and policies: read only if no other user made or chose them.

The one rule: every such file is read through :func:`load`, which judges the folders and symbolic
links of its path and then the open file. Reading writes nothing, so a read-only mount will do.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from safeser.errors import ConfigError
from safeser.identity.access import check_private, check_public, check_shipped
from safeser.identity.groups import listed, own_groups
from safeser.identity.paths import Unfit, open_file, open_shipped, shown

Kept = Literal["private", "public", "shipped"]

#: How often, and how many seconds apart, a command asks whether another one is done.
_TRIES, _PAUSE = 100, 0.1

_WAYS: dict[Kept, tuple[Callable[[str], int], Callable[[int, str], None]]] = {
    "private": (open_file, check_private),
    "public": (open_file, check_public),
    "shipped": (open_shipped, check_shipped),
}


def reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "not a usable path"


def refused(
    path: str | os.PathLike[str], what: str, *, rule: str = "config.identity", fix: str = ""
) -> ConfigError:
    return ConfigError(f"{shown(path)} {what}", rule=rule, fix=fix)


def load(path: str | os.PathLike[str], kept: Kept, *, limit: int) -> bytes:
    """Return the bytes of the file at *path*, at most one more than *limit*.

    :param kept: ``private`` holds a secret, which others must not be able to read; ``public`` says
        who is who; ``shipped`` lies beside the code of this package, whose owner it shares.
    :raises Unfit: if it cannot be read, or another user could have made, chosen or, of a private
        one, read it.
    """
    name = os.fspath(path)
    opened, check = _WAYS[kept]
    # 1. open; 2. judge what was opened, not what the path may name by now; 3. read one byte more
    # than is allowed, whatever the size claims to be.
    try:
        handle = opened(name)
    except (OSError, ValueError) as error:
        raise _not_opened(name, error) from None
    try:
        check(handle, name)
        before = os.fstat(handle)
        data = b""
        while len(data) <= limit and (more := os.read(handle, limit + 1 - len(data))):
            data += more
        after = os.fstat(handle)
    except OSError as error:
        raise Unfit("unreadable", f"cannot be read: {reason(error)}") from None
    finally:
        os.close(handle)
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        # Its beginning may be of one content, and its last line of another.
        raise Unfit("unreadable", "was written to while it was read", "Try again.")
    return data


def _not_opened(path: str, error: OSError | ValueError) -> Unfit:
    if isinstance(error, FileNotFoundError):
        where = "" if os.path.isabs(path) else f", which is looked for in {shown(os.getcwd())}"
        return Unfit("missing", "does not exist", f"Correct the path{where}")
    fix = ""
    if isinstance(error, PermissionError):
        fix = (
            f"This process is user {os.geteuid()} with groups {listed(own_groups())}: let it read"
            " the file and search its folders. For a Kubernetes secret, set 'defaultMode: 0440' and"
            " 'fsGroup'."
        )
    return Unfit("unreadable", f"cannot be read: {reason(error)}", fix)


def read_file(
    path: str | os.PathLike[str], kept: Kept, *, limit: int, rule: str, make: str
) -> bytes:
    """Return at most *limit* bytes of the file at *path*, as :func:`load` reads it.

    :param rule: of the errors.
    :param make: the command that makes such a file.
    :raises ConfigError: that names the path and the fix.
    """
    try:
        data = load(path, kept, limit=limit)
    except Unfit as error:
        or_make = f", or make one with '{make}'." if error.cause == "missing" else ""
        raise refused(path, error.what, rule=rule, fix=error.fix + or_make) from None
    if len(data) > limit:
        raise refused(path, "is too large to be what it should be", rule=rule)
    return data


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


def replace_file(
    path: Path,
    data: bytes,
    *,
    like: os.stat_result | None = None,
    before: bytes | None = None,
    rule: str,
) -> None:
    """Put *data* in place of the file at *path* whole, by a rename, or leave it as it was.

    :param like: the status of a file whose mode and owner the new one gets.
    :param before: the content of which *data* was made; a file that was edited since then stays.
    :param rule: of the error.
    """
    try:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        write_new(temporary, data, mode=0o644 if like is None else stat.S_IMODE(like.st_mode))
        try:
            if like and (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(temporary, like.st_uid, like.st_gid)
            if before is not None and path.read_bytes() != before:
                raise refused(path, "was changed meanwhile: look at it, try again", rule=rule)
            temporary.replace(path)
        except (OSError, ConfigError):
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    except (OSError, ValueError) as error:
        raise refused(path, f"cannot be written: {reason(error)}", rule=rule) from None


def require_ended(data: bytes, path: Path, *, rule: str) -> None:
    """Refuse *data* without a final line break, which no command may complete.

    Cut off in its last line, it may still have a meaning: a number or a name that is shorter.
    """
    if not data.endswith(b"\n"):
        raise refused(
            path,
            "does not end with a line break: its last line may be cut off",
            rule=rule,
            fix="Complete that line and end it; then try again.",
        )


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(directory: Path, path: Path, *, rule: str) -> Iterator[None]:
    """Keep other commands from changing files of *directory* meanwhile.

    :param path: the file that is to be changed, as its user names it.
    :param rule: of the error.
    :raises ConfigError: if another process keeps it locked: every user that may read it can, and
        retiring a stolen key must not wait for them without an error.
    """
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise refused(path, f"cannot be opened: {reason(error)}", rule="config.roster") from None
    try:
        _lock(handle, path, rule)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, path: Path, rule: str) -> None:
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_PAUSE)
    raise ConfigError(
        f"another process keeps the folder of {shown(path)} locked",
        rule=rule,
        fix="Wait for the other command, or end that process: 'lslocks' and 'fuser' name it.",
    )

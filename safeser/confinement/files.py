"""Probes of files: what may not be read, and where nothing may be written.

The one rule: a refusal counts as proof only where the file's owner and mode permit what was tried;
what they refuse, they would refuse without a sandbox, too.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from safeser.confinement.outcome import REFUSED, Outcome, Tries
from safeser.confinement.own import Own, is_within, listed, modules, readable, writable
from safeser.policy.confined import Confined

__all__ = ["homes", "keys", "reading", "writing"]

#: Files and folders that every account of usual systems may read.
_USUAL = ("/etc/passwd", "/etc/group", "/etc/os-release", "/etc", "/var", "/run", "/home")

#: Folders in which every account of usual systems may write.
_SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")  # noqa: S108 - they must be refused

#: Entries of one folder that are tried.
_TRIED = 500

_READ_FIX = (
    "Start it with 'safeser confined'; with bubblewrap, bind no more than the policy's folders"
    " (--ro-bind FOLDER FOLDER); with systemd, TemporaryFileSystem=/:ro and BindReadOnlyPaths=."
)
_HOME_FIX = (
    "Start it with 'safeser confined'; with bubblewrap, --tmpfs /home --tmpfs /root; with systemd,"
    " ProtectHome=yes."
)
_KEY_FIX = (
    "Keep each process's key in a folder of its own, and list none of them under 'read'; with"
    " bubblewrap, --ro-bind its key alone; with systemd, LoadCredential= of its key alone."
)
_WRITE_FIX = (
    "Start it with 'safeser confined'; with bubblewrap, --remount-ro / and --bind the folders of"
    " 'write' alone; with systemd, ProtectSystem=strict, PrivateTmp=no, ReadWritePaths= and"
    " InaccessiblePaths=/tmp /var/tmp /dev/shm."
)


def keys(confined: Confined, own: Own) -> Outcome:
    """Try to read the keys of other principals, wherever the policy lets the process read."""
    tries = Tries("keys", "read", _KEY_FIX)
    listed_too = {
        Path(folder, f"{name}.key")
        for folder in (*confined.read, *confined.write)
        for name in own.principals
    }
    for path in sorted({*own.other_keys, *listed_too} - {own.identity, own.audit_key}):
        _try_to_read(str(path), tries)
    return _or_absent(tries, f"no other key lies in {own.identity.parent}")


def homes(confined: Confined, own: Own) -> Outcome:
    """Try to read home directories, even where files of the process lie in one."""
    del own
    tries = Tries("homes", "read", _HOME_FIX)
    _read_outside(_homes(), listed(confined), tries)
    return _or_absent(tries, "no home directory is there")


def _or_absent(tries: Tries, absent: str) -> Outcome:
    """Return the outcome; nothing to try is no gap: ``read`` shows that others are refused."""
    outcome = tries.outcome()
    return Outcome(outcome.probe, "refused", absent) if outcome.state == "unproven" else outcome


def reading(confined: Confined, own: Own) -> Outcome:
    """Try to read whatever is nearest to ``/`` and not allowed, and what is on any system."""
    tries = Tries("read", "read", _READ_FIX)
    _read_outside(("/", *_USUAL, *_SHARED), readable(confined, own), tries)
    if not _is_refused("/") and tries.outcome().state == "unproven":
        tries.refused("anything outside: what is not allowed is not there")
    return tries.outcome()


def _read_outside(paths: Iterable[str], allowed: tuple[str, ...], tries: Tries) -> None:
    """Try *paths*; of one that is above an allowed one, whatever else is in it."""
    waiting, seen = list(paths), set[str]()
    while waiting:
        path = os.path.realpath(waiting.pop())
        if path in seen or is_within(path, allowed):
            continue
        seen.add(path)
        inside = _listed(path) if any(is_within(each, (path,)) for each in allowed) else []
        if inside:
            waiting.extend(inside)
        else:
            _try_to_read(path, tries)


def _try_to_read(path: str, tries: Tries) -> None:
    try:
        mode = os.stat(path).st_mode
        # To open a device or a pipe can do something.
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        if error.errno in REFUSED and os.access(path, os.R_OK):
            tries.refused(path)
    else:
        tries.succeeded(path)


def _is_refused(folder: str) -> bool:
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError:
        return True
    return False


def _listed(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))[:_TRIED]]
    return []


def _homes() -> Iterator[str]:
    yield "/root"
    yield from _listed("/home")
    if "HOME" in os.environ:
        yield os.environ["HOME"]
    with contextlib.suppress(KeyError):  # no /etc/passwd, as it should be
        yield pwd.getpwuid(os.getuid()).pw_dir


def writing(confined: Confined, own: Own) -> Outcome:
    """Try to make a file in folders that are not listed, and to open own files for writing."""
    tries = Tries("write", "write to", _WRITE_FIX)
    allowed = writable(confined, own)
    folders = [*_SHARED, "/", f"/run/user/{os.getuid()}", *_homes(), *confined.read, os.getcwd()]
    folders += [*map(str, own.folders), sys.prefix] + [os.path.dirname(each) for each in allowed]
    with contextlib.suppress(FileNotFoundError):  # no folder for temporary files is left
        folders.append(tempfile.gettempdir())
    for folder in dict.fromkeys(os.path.realpath(each) for each in folders):
        if os.path.isdir(folder) and not is_within(folder, allowed):
            _try_to_make(folder, tries)
    for folder in modules():
        if is_within(folder, allowed):
            tries.succeeded(f"{folder}, from which modules are imported before it is confined")
    for path in own.files:
        if path.is_file():  # what it runs by is not for itself to change
            _try_to_open_for_writing(str(path), tries)
    return tries.outcome()


def _try_to_make(folder: str, tries: Tries) -> None:
    """Make a new file under a random name, and remove it."""
    path = os.path.join(folder, f".safeser-probe-{secrets.token_hex(8)}")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno in REFUSED and _modes_permit(folder):
            tries.refused(folder)
        return
    tries.succeeded(folder)
    os.unlink(path)


def _try_to_open_for_writing(path: str, tries: Tries) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))  # nothing is written
    except OSError as error:
        if error.errno in REFUSED and _modes_permit(path):
            tries.refused(path)
    else:
        tries.succeeded(path)


def _modes_permit(path: str) -> bool:
    """Tell whether owner and mode permit writing: what refuses it then is a sandbox."""
    if os.access(path, os.W_OK):
        return True
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)

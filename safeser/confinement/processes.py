"""Probes of other processes: tracing and signalling them, and memory that is shared with them.

The one rule: only a process of the same account shows anything, since the kernel guards those of
others by itself. ``safeser confined`` leaves one outside of the sandbox for that purpose.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

from safeser.confinement.kernel import LIBC
from safeser.confinement.outcome import REFUSED, Outcome, Tries
from safeser.confinement.own import Own
from safeser.policy.confined import Confined

__all__ = ["sharing", "signalling", "tracing"]

_TRACE_FIX = (
    "Start it with 'safeser confined', which leaves a process to try it on; with systemd also"
    " ProtectProc=invisible and SystemCallFilter=~@debug; with bubblewrap also --unshare-pid."
)
_SIGNAL_FIX = (
    "Start it with 'safeser confined' on Linux 6.12 or newer, which leaves a process to try it on;"
    " with bubblewrap also --unshare-pid."
)
_SHARE_FIX = (
    "Start it with 'safeser confined'; with systemd, SystemCallFilter=~@ipc; with bubblewrap,"
    " --seccomp FD."
)

_IPC_PRIVATE, _IPC_CREAT, _IPC_RMID = 0, 0o1000, 0
_PAGE = 4096
_NO_NUMBER = -1
_LONG = ctypes.byref(ctypes.c_long(1))


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def tracing(confined: Confined, own: Own) -> Outcome:
    """Try to read memory and environment of other processes of this account."""
    del confined, own
    tries = Tries("trace", "read the memory of", _TRACE_FIX)
    children = _children()
    for pid in _others():
        if pid not in children and _capabilities(pid) & ~_capabilities(os.getpid()):
            continue  # the kernel guards what can do more than this process
        for name in ("mem", "environ"):
            _try_to_open(pid, name, tries)
        _try_to_copy(pid, tries)
    return tries.outcome()


def signalling(confined: Confined, own: Own) -> Outcome:
    """Ask whether other processes of this account could be sent a signal, and their limits set."""
    del confined, own
    tries = Tries("signal", "signal or limit", _SIGNAL_FIX)
    for pid in _others():
        try:
            os.kill(pid, 0)  # sends none
        except ProcessLookupError:
            continue
        except PermissionError:
            tries.refused(f"process {pid}")
        else:
            tries.succeeded(f"process {pid}")
        try:
            resource.prlimit(pid, resource.RLIMIT_NOFILE)  # sets none
        except OSError:
            continue
        tries.succeeded(f"process {pid}")
    return tries.outcome()


def sharing(confined: Confined, own: Own) -> Outcome:
    """Try to make a segment of System V shared memory, and to use one, a queue or a semaphore."""
    del confined, own
    tries = Tries("share", "make or use", _SHARE_FIX)
    segment = LIBC.shmget(_IPC_PRIVATE, ctypes.c_size_t(_PAGE), _IPC_CREAT | 0o600)
    if segment >= 0:
        LIBC.shmctl(segment, _IPC_RMID, None)
        tries.succeeded("System V shared memory")
    elif ctypes.get_errno() in REFUSED:
        tries.refused("System V shared memory")
    # Those of other processes are used by their numbers; the kernel knows none of this one.
    _try_to_use("System V shared memory", LIBC.shmctl, _NO_NUMBER, _IPC_RMID, None, tries=tries)
    _try_to_use("System V messages", LIBC.msgctl, _NO_NUMBER, _IPC_RMID, None, tries=tries)
    _try_to_use("System V messages", LIBC.msgrcv, _NO_NUMBER, None, 0, 0, 0, tries=tries)
    _try_to_use("System V messages", LIBC.msgsnd, _NO_NUMBER, _LONG, 0, 0, tries=tries)
    _try_to_use("System V semaphores", LIBC.semctl, _NO_NUMBER, 0, _IPC_RMID, tries=tries)
    _try_to_use("System V semaphores", LIBC.semop, _NO_NUMBER, _LONG, 1, tries=tries)
    return tries.outcome()


def _try_to_use(what: str, call: Callable[..., int], *arguments: object, tries: Tries) -> None:
    if call(*arguments) >= 0 or ctypes.get_errno() in (errno.EINVAL, errno.EIDRM):
        tries.succeeded(what)
    elif ctypes.get_errno() in REFUSED:
        tries.refused(what)


def _others() -> Iterator[int]:
    """Yield this process's children, and others of its account that can be seen."""
    me, account = os.getpid(), os.geteuid()
    children = _children()
    yield from sorted(children)
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit() and int(name) not in {me, *children}:
            try:
                owner = os.stat(f"/proc/{name}").st_uid
            except OSError:
                continue  # it has ended
            if owner == account:
                yield int(name)


def _children() -> set[int]:
    """Return this process's children; a /proc that hides what cannot be traced lists them here."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        found.update(map(int, path.read_text("ascii").split()))
    return found


def _capabilities(pid: int) -> int:
    """Return the permitted capabilities of a process; all of them, if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return -1
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapPrm:"))


def _try_to_open(pid: int, name: str, tries: Tries) -> None:
    try:
        os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        tries.refused(f"process {pid}")
    except OSError:
        return  # it has ended
    else:
        tries.succeeded(f"process {pid}")


def _try_to_copy(pid: int, tries: Tries) -> None:
    """Ask for a byte at an address that no process has: permission is checked first."""
    buffer = ctypes.create_string_buffer(1)
    here = _Piece(ctypes.cast(buffer, ctypes.c_void_p), 1)
    there = _Piece(1, 1)
    copied = LIBC.process_vm_readv(
        pid, ctypes.byref(here), 1, ctypes.byref(there), 1, ctypes.c_ulong(0)
    )
    code = ctypes.get_errno()
    if copied >= 0 or code == errno.EFAULT:
        tries.succeeded(f"process {pid}")
    elif code in REFUSED:
        tries.refused(f"process {pid}")

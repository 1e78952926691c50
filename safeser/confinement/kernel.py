"""Probes of the process itself: privileges, capabilities, system calls and programs.

The one rule: each thread is checked. A sandbox that a thread applies to itself binds that thread
and those that it starts; one that was there before stays free.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from safeser.confinement.outcome import REFUSED, Outcome, Tries
from safeser.confinement.own import Own, writable
from safeser.policy.confined import Confined

__all__ = ["LIBC", "capabilities", "executing", "filtered", "privileges"]

LIBC = ctypes.CDLL(None, use_errno=True)

#: The same number on every architecture. What goes through its rings is seen by no filter.
_IO_URING_SETUP = 425

_CAPABILITIES = ("CapPrm", "CapEff", "CapAmb", "CapInh")

_PRIVILEGES_FIX = (
    "Start it with 'safeser confined' or bubblewrap, which set it, or systemd's"
    " NoNewPrivileges=yes; in Kubernetes, allowPrivilegeEscalation: false."
)
_CAPABILITIES_FIX = (
    "Start it as an account other than root; with bubblewrap, --cap-drop ALL; with systemd, User="
    " and CapabilityBoundingSet=; in Kubernetes, capabilities: {drop: [ALL]}."
)
_FILTERED_FIX = (
    "Start it with 'safeser confined'; with bubblewrap, --seccomp FD; with systemd,"
    " SystemCallFilter=@system-service and ~io_uring_setup; in Kubernetes, seccompProfile: {type:"
    " RuntimeDefault}."
)
_EXECUTE_FIX = (
    "Start it with 'safeser confined' and '--no-nanny'. Bubblewrap, systemd and containers start"
    " a program themselves and cannot refuse the next one; or write 'execute: true'."
)


def privileges(confined: Confined, own: Own) -> Outcome:
    """Look whether NoNewPrivs is set, so that no program gives the process more than it has."""
    del confined, own
    tries = Tries("privileges", "gain privileges by a program in", _PRIVILEGES_FIX)
    for name, status in _threads():
        (tries.refused if status.get("NoNewPrivs") == "1" else tries.succeeded)(name)
    return tries.outcome()


def capabilities(confined: Confined, own: Own) -> Outcome:
    """Look whether the process has no capability of root's."""
    del confined, own
    tries = Tries("capabilities", "use capabilities in", _CAPABILITIES_FIX)
    for name, status in _threads():
        held = [each for each in _CAPABILITIES if int(status.get(each, "1"), 16)]
        (tries.succeeded if held else tries.refused)(name)
    return tries.outcome()


def filtered(confined: Confined, own: Own) -> Outcome:
    """Look whether seccomp filters system calls, and io_uring, which passes by it, is off."""
    del confined, own
    tries = Tries("seccomp", "make system calls without a filter in", _FILTERED_FIX)
    for name, status in _threads():
        (tries.refused if status.get("Seccomp") == "2" else tries.succeeded)(name)
    # Neither argument is one that it could take.
    if LIBC.syscall(_IO_URING_SETUP, 0, None) >= 0 or ctypes.get_errno() not in REFUSED:
        tries.succeeded("io_uring")
    return tries.outcome()


def _threads() -> Iterator[tuple[str, Mapping[str, str]]]:
    for path in sorted(Path("/proc/self/task").iterdir()):
        lines = (path / "status").read_text("ascii", errors="replace").splitlines()
        found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        yield f"thread {path.name} ({found.get('Name', '?')})", found


def executing(confined: Confined, own: Own) -> Outcome:
    """Try to start programs, and empty files: one in memory, one in each folder to write in."""
    if confined.execute:
        return Outcome("execute", "allowed", "the policy lets it start programs")
    tries = Tries("execute", "start", _EXECUTE_FIX)
    _try_to_start(sys.executable, sys.executable, tries, "-I", "-S", "-c", "")
    _try_to_start("/bin/sh", "/bin/sh", tries, "-c", "")
    _try_in_memory(tries)
    for folder in writable(confined, own):
        _try_in(folder, tries)
    return tries.outcome()


def _try_in_memory(tries: Tries) -> None:
    try:
        memory = os.memfd_create("safeser-probe")
    except OSError as error:
        if error.errno in REFUSED:
            tries.refused("a file in memory")
        return
    try:
        _try_to_start(f"/proc/self/fd/{memory}", "a file in memory", tries)
    finally:
        os.close(memory)


def _try_in(folder: str, tries: Tries) -> None:
    path = os.path.join(folder, f".safeser-probe-{os.getpid()}")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700))
    except OSError:
        return  # it cannot be written: then no program comes into it
    try:
        _try_to_start(path, f"a file in {folder}", tries)
    finally:
        os.unlink(path)


def _try_to_start(path: str, what: str, tries: Tries, *arguments: str) -> None:
    # The kernel opens the file for execution before it sees that an empty one is no program.
    try:
        pid = os.posix_spawn(path, [path, *arguments], {})
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            tries.succeeded(what)
        elif error.errno in REFUSED:  # not: no such program, or too many processes now
            tries.refused(what)
    else:
        os.waitpid(pid, 0)
        tries.succeeded(what)

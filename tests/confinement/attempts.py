"""What code inside a worker attempts to get out of its sandbox; each returns, or is refused.

This module travels by value: nothing but the standard library is used, and all targets are named.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

_PTRACE_SEIZE = 0x4206
_FASTOPEN = 0x20000000
_CLONE_NEWUSER = 0x10000000
_TIOCSTI = 0x5412


def _called(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def attempt(told: Mapping[str, Any]) -> dict[str, str]:
    """Attempt everything; return what refused each, or nothing where it succeeded.

    :param told: ``outside`` and ``scratch``, folders; ``key``; ``pid`` of another process of this
        account; ``port`` of a listener that is none of the cluster's; ``messages``, ``semaphores``
        and ``segment``, numbers of what another process of this account made.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    outside, scratch = Path(told["outside"]), Path(told["scratch"])
    mine, theirs, pid = scratch / "mine", outside / "theirs", told["pid"]
    address = ("127.0.0.1", told["port"])

    def in_a_child(function: Callable[[], Any]) -> None:
        child = os.fork()
        if not child:
            code = 1
            try:
                function()
                code = 0
            finally:
                os._exit(code)
        if os.waitpid(child, 0)[1]:
            raise PermissionError("the child was refused")

    def in_a_thread(function: Callable[[], Any]) -> None:
        failures: list[BaseException] = []

        def run() -> None:
            try:
                function()
            except OSError as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]

    def an_older_thread() -> None:
        """Look for a thread that was there before the sandbox, which would be free."""
        for path in Path("/proc/self/task").iterdir():
            lines = (path / "status").read_text().splitlines()
            if "NoNewPrivs:\t0" in lines or "Seccomp:\t0" in lines:
                return
        raise PermissionError("every thread is confined")

    def connect(kind: int, protocol: int = 0) -> None:
        with socket.socket(socket.AF_INET, kind, protocol) as made:
            made.settimeout(5)
            made.connect(address)

    def fast_open() -> None:
        with socket.socket() as made:
            made.sendto(b"x", _FASTOPEN, address)

    def listen() -> None:
        with socket.create_server(("127.0.0.1", 0)):
            pass

    def a_program_in_memory() -> None:
        memory = os.memfd_create("program")
        try:
            os.write(memory, Path(os.path.realpath("/bin/true")).read_bytes())
            subprocess.run([f"/proc/self/fd/{memory}"], pass_fds=[memory], check=True)
        finally:
            os.close(memory)

    def a_program_in_scratch() -> None:
        mine.write_bytes(Path(os.path.realpath("/bin/true")).read_bytes())
        opened = os.open(mine, os.O_RDONLY)
        os.fchmod(opened, 0o700)
        os.close(opened)
        subprocess.run([str(mine)], check=True)

    def through_a_link() -> None:
        link = scratch / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(theirs)
        link.read_text()

    def a_hard_link_in() -> None:
        os.link(theirs, scratch / "hard")
        (scratch / "hard").unlink()

    def a_hard_link_out() -> None:
        mine.write_text("mine")
        os.link(mine, outside / "hard")
        (outside / "hard").unlink()

    def rename_out() -> None:
        mine.write_text("mine")
        os.rename(mine, outside / "renamed")
        (outside / "renamed").unlink()

    def rename_in() -> None:
        os.rename(theirs, scratch / "renamed")
        os.rename(scratch / "renamed", theirs)

    def a_symbolic_link_out() -> None:
        (outside / "s").symlink_to("x")
        (outside / "s").unlink()

    def memory() -> None:
        with open(f"/proc/{pid}/mem", "rb"):
            pass

    def trace() -> None:
        # The tracer's end detaches it.
        in_a_child(lambda: _called(libc.ptrace(_PTRACE_SEIZE, pid, None, None)))

    def shared_memory() -> None:
        made = SharedMemory(create=True, size=16)
        made.close()
        made.unlink()

    def system_v(name: str, *arguments: int) -> None:
        made = _called(getattr(libc, f"{name}get")(0, *arguments))
        control = {"shm": (made, 0, None), "sem": (made, 0, 0), "msg": (made, 0, None)}[name]
        getattr(libc, f"{name}ctl")(*control)

    def anothers(name: str) -> None:
        """Use what another process made, by its number alone, as /proc/sysvipc lists it."""
        number = told[name]
        message = (ctypes.c_long * 3)(1)
        actions = {
            "messages": lambda: libc.msgrcv(number, message, 16, 0, 0o4000),
            "semaphores": lambda: libc.semctl(number, 0, 12),  # GETVAL
            "segment": lambda: libc.shmctl(number, 2, ctypes.create_string_buffer(512)),  # IPC_STAT
        }
        _called(actions[name]())

    def terminal() -> None:
        """Type into the terminal that the worker was started from; here it has none."""
        if libc.ioctl(0, _TIOCSTI, ctypes.byref(ctypes.c_char(b"x"))) < 0:
            code = ctypes.get_errno()
            if code == errno.EPERM:
                raise PermissionError(code, "refused before the terminal is asked")

    def datagrams_by_a_pair() -> None:
        # Each end sends to any name of the file system, although no socket was made by itself.
        for made in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM):
            made.close()

    def rights_of_this_account() -> None:
        opened = os.open(scratch / "set-user-id", os.O_CREAT | os.O_RDWR, 0o4700)
        try:
            if not os.fstat(opened).st_mode & 0o4000:
                raise PermissionError("the bit was taken away")
        finally:
            os.close(opened)
            os.unlink(scratch / "set-user-id")

    def rights_given_later() -> None:
        mine.write_text("mine")
        opened = os.open(mine, os.O_RDONLY)
        try:
            os.fchmod(opened, 0o4700)
        finally:
            os.close(opened)
            os.unlink(mine)

    def watching_names() -> None:
        watch = _called(libc.inotify_init1(os.O_CLOEXEC))
        try:
            _called(libc.inotify_add_watch(watch, bytes(outside), 0x100))
        finally:
            os.close(watch)

    def disk_priority() -> None:
        number = 251 if os.uname().machine == "x86_64" else 30
        _called(libc.syscall(number, 1, pid, 2 << 13 | 4))

    def io_uring() -> None:
        if libc.syscall(425, 0, None) < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            raise PermissionError("refused")

    found = {
        # files
        "another's key": lambda: Path(told["key"]).read_bytes(),
        "the home directory": lambda: os.listdir(os.path.expanduser("~")),
        "/etc/passwd": lambda: Path("/etc/passwd").read_text(),
        "a file elsewhere": lambda: theirs.read_text(),
        "a folder elsewhere": lambda: os.listdir(outside),
        "through a link": through_a_link,
        "writing elsewhere": lambda: (outside / "new").write_text("new"),
        "changing elsewhere": lambda: open(theirs, "r+").close(),
        "truncating elsewhere": lambda: os.truncate(theirs, 4),
        "a folder made elsewhere": lambda: ((outside / "d").mkdir(), (outside / "d").rmdir()),
        "removing elsewhere": lambda: (outside / "removed").unlink(),
        "a mode elsewhere": lambda: os.chmod(theirs, 0o600),
        "an attribute elsewhere": lambda: os.setxattr(theirs, "user.safeser", b"x"),
        "a hard link in": a_hard_link_in,
        "a hard link out": a_hard_link_out,
        "rename out": rename_out,
        "rename in": rename_in,
        "a symbolic link elsewhere": a_symbolic_link_out,
        "names elsewhere": watching_names,
        "a set-user-ID file": rights_of_this_account,
        "a file made set-user-ID": rights_given_later,
        # programs
        "a program": lambda: subprocess.run(["/bin/true"], check=True),
        "python": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        "the linker": lambda: subprocess.run(
            [os.path.realpath("/lib64/ld-linux-x86-64.so.2"), "/bin/true"], check=True),
        "a program in memory": a_program_in_memory,
        "a program in scratch": a_program_in_scratch,
        # sockets
        "TCP to another port": lambda: connect(socket.SOCK_STREAM),
        "TCP Fast Open": fast_open,
        "Multipath TCP": lambda: connect(socket.SOCK_STREAM, 262),
        "UDP": lambda: connect(socket.SOCK_DGRAM),
        "listening": listen,
        "a UNIX socket": lambda: socket.socket(socket.AF_UNIX).close(),
        "datagrams by a pair": datagrams_by_a_pair,
        "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
        # other processes
        "memory": memory,
        "environment": lambda: Path(f"/proc/{pid}/environ").read_bytes(),
        "its files": lambda: os.listdir(Path("/proc", str(pid), "root")),
        "ptrace": trace,
        "signal 0": lambda: os.kill(pid, 0),
        "SIGCONT": lambda: os.kill(pid, signal.SIGCONT),
        "limits": lambda: __import__("resource").prlimit(pid, 7),
        "priority": lambda: os.setpriority(0, pid, os.getpriority(0, pid)),
        "disk priority": disk_priority,
        "processors": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
        "shared memory": shared_memory,
        "System V shared memory": lambda: system_v("shm", 4096, 0o1600),
        "System V semaphores": lambda: system_v("sem", 1, 0o1600),
        "System V messages": lambda: system_v("msg", 0o1600),
        "another's messages": lambda: anothers("messages"),
        "another's semaphores": lambda: anothers("semaphores"),
        "another's segment": lambda: anothers("segment"),
        # the kernel
        "namespaces": lambda: in_a_child(lambda: _called(libc.unshare(_CLONE_NEWUSER))),
        "io_uring": io_uring,
        "keyrings": lambda: _called(libc.syscall(250, 0, -3, 0)) if os.uname().machine == "x86_64"
        else _called(libc.syscall(219, 0, -3, 0)),
        "the terminal": terminal,
        # threads and children
        "an older thread": an_older_thread,
        "a new thread": lambda: in_a_thread(lambda: Path("/etc/passwd").read_text()),
        "a child": lambda: in_a_child(lambda: Path("/etc/passwd").read_text()),
    }  # fmt: skip
    refused = {}
    for name, function in found.items():
        try:
            function()
        except OSError as error:
            refused[name] = f"{type(error).__name__}: {error}"
        else:
            refused[name] = ""
    return refused


def works(told: Mapping[str, Any]) -> dict[str, Any]:
    """Do what an analyst does in the listed folders."""
    import pandas as pd

    data, scratch = Path(told["data"]), Path(told["scratch"])
    frame = pd.read_csv(data / "sales.csv")
    frame.to_parquet(scratch / "sales.parquet")
    (scratch / "a").mkdir()
    (scratch / "a" / "b").write_text("b")
    (scratch / "a" / "b").rename(scratch / "c")
    (scratch / "a").rmdir()
    again = pd.read_parquet(scratch / "sales.parquet")
    return {"total": int(again["amount"].sum()), "names": sorted(again["name"])}

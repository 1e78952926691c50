"""What each probe makes of an answer of the kernel's, without a kernel that gives it."""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from safeser.confinement import files, kernel, processes, sockets


def fails(code: int):
    """Return what stands for a call that the kernel refuses with *code*."""

    def call(*_args, **_named):
        raise OSError(code, os.strerror(code))

    return call


def answering(**codes: int):
    """Return a kind of socket of which the kernel refuses everything, or says what it is told."""
    told = dict.fromkeys(("connect", "send", "bind"), errno.EACCES) | codes

    class Socket:
        def __init__(self, *_) -> None:
            self.setblocking = lambda _: None
            self.connect_ex = lambda _: told["connect"]
            self.sendto = fails(told["send"])
            self.bind = fails(told["bind"])

        def __enter__(self):
            return self

        def __exit__(self, *_) -> None:
            pass

    return Socket


class Library:
    """A C library whose calls fail with *code*, those that make something with *making*."""

    def __init__(self, code: int, *, making: int | None = None) -> None:
        self.code = code
        self.making = code if making is None else making

    def __getattr__(self, name: str):
        def call(*_) -> int:
            ctypes.set_errno(self.making if name.endswith("get") else self.code)
            return -1

        return call


PROCESSES = "safeser.confinement.processes"
LIBC = f"{PROCESSES}.LIBC"
NONE = {"socket.socket": fails(errno.EAFNOSUPPORT), "socket.socketpair": fails(errno.EAFNOSUPPORT)}
FULL = {"socket.socket": fails(errno.ENOBUFS), "socket.socketpair": fails(errno.ENOBUFS)}
PAIR = [SimpleNamespace(close=lambda: None)] * 2

#: One other process of this account, of no more capabilities.
OTHER = {
    f"{PROCESSES}._others": lambda: iter([os.getppid()]),
    f"{PROCESSES}._capabilities": lambda _: 0,
}
MORE = {
    **OTHER,
    f"{PROCESSES}._children": set,
    f"{PROCESSES}._capabilities": lambda pid: int(pid != os.getpid()),
}
#: ProtectProc= hides what may not be traced: the witness, when it is well guarded.
HIDDEN = {
    "os.listdir": lambda _: [],
    f"{PROCESSES}._children": lambda: {os.getppid()},
    f"{PROCESSES}._capabilities": lambda pid: -1 if pid != os.getpid() else 0,
    "os.open": fails(errno.ENOENT),
    "os.kill": fails(errno.EPERM),
    "resource.prlimit": fails(errno.EPERM),
    LIBC: Library(errno.EPERM),
}


def modes(code: int, permit: bool, flags: int = 0) -> dict[str, object]:
    """Return the answers for files that their modes permit to open or not."""
    return {
        "os.open": fails(code),
        "os.access": lambda *_: permit,
        "os.statvfs": lambda _: SimpleNamespace(f_flag=flags),
    }


#: A probe, what is answered in place of the kernel, and what it makes of that: what it names.
ANSWERS = [
    *(
        (each, modes(code, True), "refused")
        for each in (files.reading, files.writing, files.homes)
        for code in (errno.EACCES, errno.EPERM, errno.EROFS)
    ),
    *((each, modes(errno.EACCES, False), "unproven") for each in (files.reading, files.writing)),
    (files.writing, modes(errno.EROFS, False, os.ST_RDONLY), "refused"),
    (
        files.reading,
        {"safeser.confinement.files._try_to_read": lambda *_: None},
        "refused: is not there",
    ),
    # Without a folder for temporary files others are tried.
    (files.writing, {"tempfile.gettempdir": fails(errno.ENOENT)}, "succeeded"),
    # EAGAIN: the account has as many processes as it may, now.
    *(
        (kernel.executing, {"os.posix_spawn": fails(code)}, state)
        for code, state in (
            (errno.EPERM, "refused"),
            *((code, "unproven") for code in (errno.EAGAIN, errno.ENOENT, errno.EMFILE)),
        )
    ),
    (
        kernel.executing,
        {"os.memfd_create": fails(errno.EPERM), "os.posix_spawn": fails(errno.EPERM)},
        "refused",
    ),
    *(
        (sockets.connecting, {"socket.socket": answering(**codes)}, state)
        for codes, state in (
            ({}, "refused"),
            ({"send": errno.EOPNOTSUPP}, "refused"),
            ({"connect": errno.EADDRNOTAVAIL}, "refused"),
            ({"connect": 0}, "succeeded"),
            ({"connect": errno.ECONNREFUSED}, "succeeded"),
            ({"connect": errno.EINPROGRESS}, "succeeded"),
            ({"send": errno.ECONNREFUSED}, "succeeded"),
            ({"bind": errno.EADDRINUSE}, "succeeded"),
        )
    ),
    *(
        (each, answers, state)
        for each in (sockets.connecting, sockets.kinds)
        for answers, state in ((NONE, "refused"), (FULL, "unproven"))
    ),
    # Each of a pair of datagram sockets reaches any name outside.
    (sockets.kinds, {**NONE, "socket.socketpair": lambda *_: PAIR}, "succeeded: datagrams"),
    *(
        (processes.tracing, {**OTHER, "os.open": fails(code), LIBC: Library(copied)}, state)
        for code, copied, state in (
            (errno.EACCES, errno.EPERM, "refused"),
            (errno.EACCES, errno.EFAULT, "succeeded"),  # permission is asked before the address
            (errno.ESRCH, errno.ESRCH, "unproven"),  # it has ended
        )
    ),
    *(
        (
            processes.signalling,
            {**OTHER, "os.kill": fails(code), "resource.prlimit": asked},
            state,
        )
        for code, asked, state in (
            (errno.EPERM, fails(errno.EPERM), "refused"),
            (errno.EPERM, lambda *_: (1, 1), "succeeded"),
            (errno.ESRCH, lambda *_: (1, 1), "unproven"),
        )
    ),
    (processes.tracing, MORE, "unproven"),  # what may do more shows nothing
    *(
        (each, answers, state)
        for each in (processes.tracing, processes.signalling)
        for answers, state in (
            ({f"{PROCESSES}._others": lambda: iter(())}, "unproven"),
            (HIDDEN, "refused"),
        )
    ),
    (processes.sharing, {LIBC: Library(errno.EPERM)}, "refused"),
    (processes.sharing, {LIBC: Library(errno.ENOSPC)}, "unproven"),
    # A filter that refuses to make them alone: those of others are found by their numbers.
    (processes.sharing, {LIBC: Library(errno.EINVAL, making=errno.EPERM)}, "succeeded: messages"),
]


@pytest.mark.parametrize(("probe", "answers", "found"), ANSWERS)
def test_what_an_answer_proves(bench, monkeypatch, probe, answers, found) -> None:
    with monkeypatch.context() as patch:
        for name, answer in answers.items():
            patch.setattr(name, answer)
        outcome = probe(bench.demand, bench.own)
    state, _, named = found.partition(": ")
    assert (outcome.state, named in outcome.found) == (state, True)


def test_devices_and_what_is_not_there_are_not_opened(tmp_path, monkeypatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(files.os, "open", lambda *_: pytest.fail("opened"))
    tries = files.Tries("read", "read", "")
    for path in ("/dev/null", str(tmp_path / "pipe"), str(tmp_path / "none")):
        files._try_to_read(path, tries)
    assert tries.outcome().state == "unproven"


def test_an_account_without_a_name_or_a_home_is_no_reason_to_fail(monkeypatch) -> None:
    def nobody(_):
        raise KeyError("no such account")

    monkeypatch.setattr(files.pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(files.os, "listdir", fails(errno.EACCES))
    assert list(files._homes()) == ["/root"]


def test_processes_that_cannot_be_listed_or_have_ended_are_none(monkeypatch) -> None:
    monkeypatch.setattr(processes, "_children", set)
    monkeypatch.setattr(processes.os, "stat", fails(errno.ENOENT))
    assert list(processes._others()) == []
    monkeypatch.setattr(processes.os, "listdir", fails(errno.EACCES))
    assert list(processes._others()) == []
    assert processes._capabilities(2**22 + 1) == -1


def test_every_folder_that_is_written_is_tried_for_programs_and_a_shell_is(
    bench, monkeypatch
) -> None:
    tried: list[str] = []

    def start(path, *_):
        tried.append(path)
        raise PermissionError(errno.EACCES, "")

    monkeypatch.setattr(kernel.os, "posix_spawn", start)
    gone = str(bench.path / "gone")
    kernel.executing(replace(bench.demand, write=(*bench.demand.write, gone)), bench.own)
    assert "/bin/sh" in tried
    folders = {os.path.dirname(each) for each in tried}
    assert folders >= {*bench.demand.write, str(bench.own.audit)}
    assert gone not in folders


def test_a_key_under_a_listed_folder_is_found(bench) -> None:
    demand = replace(bench.demand, read=(str(bench.path / "data"),))
    (bench.path / "data" / "alice.key").write_text("key")
    assert "alice.key" in files.keys(demand, bench.own).found
    (bench.path / "data" / "alice.key").unlink()
    (bench.path / "own" / "others").mkdir()
    (bench.path / "own" / "others" / "bob.key").write_text("key")
    assert "bob.key" in files.keys(demand, bench.own).found


def test_code_that_starts_the_process_is_not_for_itself_to_change(bench, monkeypatch) -> None:
    for name, answer in modes(errno.EACCES, True).items():
        monkeypatch.setattr(name, answer)
    monkeypatch.setenv("PYTHONPATH", str(bench.path / "scratch" / "lib"))
    outcome = files.writing(bench.demand, bench.own)
    assert (outcome.state, "modules" in outcome.found) == ("succeeded", True)

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


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_files_that_modes_permit_and_the_kernel_refuses_are_proof(bench, monkeypatch, code) -> None:
    monkeypatch.setattr(files.os, "open", fails(code))
    monkeypatch.setattr(files.os, "access", lambda *_: True)
    for each in (files.reading, files.writing, files.homes):
        assert each(bench.demand, bench.own).state == "refused"


def test_files_that_modes_refuse_prove_nothing(bench, monkeypatch) -> None:
    monkeypatch.setattr(files.os, "open", fails(errno.EACCES))
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    monkeypatch.setattr(files.os, "statvfs", lambda _: SimpleNamespace(f_flag=0))
    assert files.reading(bench.demand, bench.own).state == "unproven"
    assert files.writing(bench.demand, bench.own).state == "unproven"


def test_a_read_only_file_system_is_proof(bench, monkeypatch) -> None:
    monkeypatch.setattr(files.os, "open", fails(errno.EROFS))
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    monkeypatch.setattr(files.os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert files.writing(bench.demand, bench.own).state == "refused"


def test_where_nothing_but_what_is_allowed_exists_that_is_proof(bench, monkeypatch) -> None:
    monkeypatch.setattr(files, "_try_to_read", lambda *_: None)
    outcome = files.reading(bench.demand, bench.own)
    assert (outcome.state, "is not there" in outcome.found) == ("refused", True)


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


def test_without_a_folder_for_temporary_files_others_are_tried(bench, monkeypatch) -> None:
    monkeypatch.setattr(files.tempfile, "gettempdir", fails(errno.ENOENT))
    assert files.writing(bench.demand, bench.own).state == "succeeded"


# --- programs -------------------------------------------------------------------------------------


def test_programs_that_the_kernel_refuses_are_proof(bench, monkeypatch) -> None:
    monkeypatch.setattr(kernel.os, "posix_spawn", fails(errno.EPERM))
    assert kernel.executing(bench.demand, bench.own).state == "refused"
    allowed = kernel.executing(replace(bench.demand, execute=True), bench.own)
    assert (allowed.state, allowed.is_met) == ("allowed", True)


def test_a_folder_that_cannot_be_written_has_no_program(bench, monkeypatch) -> None:
    monkeypatch.setattr(kernel.os, "posix_spawn", fails(errno.EPERM))
    gone = replace(bench.demand, write=(str(bench.path / "gone"),))
    outcome = kernel.executing(gone, bench.own)
    assert "gone" not in outcome.found


# --- sockets --------------------------------------------------------------------------------------


class Socket:
    """A socket of which the kernel refuses everything, or says what it is told to say."""

    codes = dict.fromkeys(("connect", "send", "bind"), errno.EACCES)

    def __init__(self, *_) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def setblocking(self, _) -> None:
        pass

    def connect_ex(self, _) -> int:
        return self.codes["connect"]

    def sendto(self, *_) -> None:
        fails(self.codes["send"])()

    def bind(self, _) -> None:
        fails(self.codes["bind"])()


@pytest.mark.parametrize(
    ("codes", "state"),
    [
        ({}, "refused"),
        ({"send": errno.EOPNOTSUPP}, "refused"),
        ({"connect": errno.EADDRNOTAVAIL}, "refused"),
        ({"connect": 0}, "succeeded"),
        ({"connect": errno.ECONNREFUSED}, "succeeded"),
        ({"connect": errno.EINPROGRESS}, "succeeded"),
        ({"send": errno.ECONNREFUSED}, "succeeded"),
        ({"bind": errno.EADDRINUSE}, "succeeded"),
    ],
)
def test_only_a_refusal_of_the_kernels_own_is_one(bench, monkeypatch, codes, state) -> None:
    monkeypatch.setattr(
        sockets.socket, "socket", type("S", (Socket,), {"codes": Socket.codes | codes})
    )
    assert sockets.connecting(bench.demand, bench.own).state == state


def test_sockets_that_cannot_be_made_are_proof(bench, monkeypatch) -> None:
    for name in ("socket", "socketpair"):
        monkeypatch.setattr(sockets.socket, name, fails(errno.EAFNOSUPPORT))
    assert sockets.connecting(bench.demand, bench.own).state == "refused"
    assert sockets.kinds(bench.demand, bench.own).state == "refused"
    anywhere = replace(bench.demand, connect="any", ports=())
    assert sockets.connecting(anywhere, bench.own).state == "allowed"


def test_a_kernel_out_of_memory_refuses_nothing(bench, monkeypatch) -> None:
    for name in ("socket", "socketpair"):
        monkeypatch.setattr(sockets.socket, name, fails(errno.ENOBUFS))
    assert sockets.connecting(bench.demand, bench.own).state == "unproven"
    assert sockets.kinds(bench.demand, bench.own).state == "unproven"


# --- other processes ------------------------------------------------------------------------------


class Library:
    """A C library whose calls fail with *code*."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __getattr__(self, name: str):
        def call(*_) -> int:
            ctypes.set_errno(self.code)
            return -1

        return call


@pytest.fixture
def other(monkeypatch) -> None:
    """One other process of this account, of no more capabilities."""
    monkeypatch.setattr(processes, "_others", lambda: iter([os.getppid()]))
    monkeypatch.setattr(processes, "_capabilities", lambda _: 0)


@pytest.mark.parametrize(
    ("opened", "copied", "state"),
    [
        (errno.EACCES, errno.EPERM, "refused"),
        (errno.EACCES, errno.EFAULT, "succeeded"),  # permission is asked before the address
        (errno.ESRCH, errno.ESRCH, "unproven"),  # it has ended
    ],
)
def test_memory_of_another_is_refused_or_not(
    bench, monkeypatch, other, opened, copied, state
) -> None:
    monkeypatch.setattr(processes.os, "open", fails(opened))
    monkeypatch.setattr(processes, "LIBC", Library(copied))
    assert processes.tracing(bench.demand, bench.own).state == state


@pytest.mark.parametrize(
    ("killed", "limited", "state"),
    [
        (errno.EPERM, errno.EPERM, "refused"),
        (errno.EPERM, 0, "succeeded"),
        (errno.ESRCH, 0, "unproven"),
    ],
)
def test_signals_and_limits_of_another_are_refused_or_not(
    bench, monkeypatch, other, killed, limited, state
) -> None:
    monkeypatch.setattr(processes.os, "kill", fails(killed))
    answer = fails(limited) if limited else lambda *_: (1, 1)
    monkeypatch.setattr(processes.resource, "prlimit", answer)
    assert processes.signalling(bench.demand, bench.own).state == state


@pytest.mark.parametrize(("code", "state"), [(errno.EPERM, "refused"), (errno.ENOSPC, "unproven")])
def test_shared_memory_is_refused_or_not_there(bench, monkeypatch, code, state) -> None:
    monkeypatch.setattr(processes, "LIBC", Library(code))
    assert processes.sharing(bench.demand, bench.own).state == state


def test_shared_memory_that_is_refused_and_messages_that_are_not(bench, monkeypatch) -> None:
    """A filter that refuses to make them alone: those of others are found by their numbers."""

    class Some(Library):
        def __getattr__(self, name: str):
            self.code = errno.EPERM if name.endswith("get") else errno.EINVAL
            return super().__getattr__(name)

    monkeypatch.setattr(processes, "LIBC", Some(0))
    outcome = processes.sharing(bench.demand, bench.own)
    assert (outcome.state, "messages" in outcome.found) == ("succeeded", True)


def test_processes_that_cannot_be_listed_or_have_ended_are_none(monkeypatch) -> None:
    monkeypatch.setattr(processes, "_children", set)
    monkeypatch.setattr(processes.os, "stat", fails(errno.ENOENT))
    assert list(processes._others()) == []
    monkeypatch.setattr(processes.os, "listdir", fails(errno.EACCES))
    assert list(processes._others()) == []


# --- answers that are no refusals -----------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOENT, errno.ENOMEM, errno.EMFILE])
def test_a_program_that_fails_for_another_reason_is_no_proof(bench, monkeypatch, code) -> None:
    """EAGAIN: the account has as many processes as it may, now."""
    monkeypatch.setattr(kernel.os, "posix_spawn", fails(code))
    assert kernel.executing(bench.demand, bench.own).state == "unproven"


def test_every_folder_that_is_written_is_tried_for_programs_and_a_shell_is(
    bench, monkeypatch
) -> None:
    tried: list[str] = []

    def start(path, *_):
        tried.append(path)
        raise PermissionError(errno.EACCES, "")

    monkeypatch.setattr(kernel.os, "posix_spawn", start)
    kernel.executing(bench.demand, bench.own)
    assert "/bin/sh" in tried
    assert {os.path.dirname(each) for each in tried} >= {*bench.demand.write, str(bench.own.audit)}


def test_a_file_in_memory_that_cannot_be_made_is_refused(bench, monkeypatch) -> None:
    monkeypatch.setattr(kernel.os, "memfd_create", fails(errno.EPERM))
    monkeypatch.setattr(kernel.os, "posix_spawn", fails(errno.EPERM))
    assert kernel.executing(bench.demand, bench.own).state == "refused"


def test_a_pair_of_datagram_sockets_reaches_names_outside(bench, monkeypatch) -> None:
    monkeypatch.setattr(sockets.socket, "socket", fails(errno.EAFNOSUPPORT))
    made = [SimpleNamespace(close=lambda: None)] * 2
    monkeypatch.setattr(sockets.socket, "socketpair", lambda *_: made)
    outcome = sockets.kinds(bench.demand, bench.own)
    assert (outcome.state, "datagrams" in outcome.found) == ("succeeded", True)


def test_a_process_that_is_hidden_is_tried_all_the_same(bench, monkeypatch) -> None:
    """ProtectProc= hides what may not be traced: the witness, when it is well guarded."""
    monkeypatch.setattr(processes.os, "listdir", lambda _: [])
    monkeypatch.setattr(processes, "_children", lambda: {os.getppid()})
    monkeypatch.setattr(processes, "_capabilities", lambda pid: -1 if pid != os.getpid() else 0)
    monkeypatch.setattr(processes.os, "open", fails(errno.ENOENT))
    monkeypatch.setattr(processes.os, "kill", fails(errno.EPERM))
    monkeypatch.setattr(processes.resource, "prlimit", fails(errno.EPERM))
    monkeypatch.setattr(processes, "LIBC", Library(errno.EPERM))
    for each in (processes.tracing, processes.signalling):
        assert each(bench.demand, bench.own).state == "refused"


def test_a_key_under_a_listed_folder_is_found(bench) -> None:
    demand = replace(bench.demand, read=(str(bench.path / "data"),))
    (bench.path / "data" / "alice.key").write_text("key")
    assert "alice.key" in files.keys(demand, bench.own).found
    (bench.path / "data" / "alice.key").unlink()
    (bench.path / "own" / "others").mkdir()
    (bench.path / "own" / "others" / "bob.key").write_text("key")
    assert "bob.key" in files.keys(demand, bench.own).found


def test_code_that_starts_the_process_is_not_for_itself_to_change(bench, monkeypatch) -> None:
    monkeypatch.setattr(files.os, "open", fails(errno.EACCES))
    monkeypatch.setattr(files.os, "access", lambda *_: True)
    assert files.writing(bench.demand, bench.own).state == "refused"
    monkeypatch.setenv("PYTHONPATH", str(bench.path / "scratch" / "lib"))
    outcome = files.writing(bench.demand, bench.own)
    assert (outcome.state, "modules" in outcome.found) == ("succeeded", True)

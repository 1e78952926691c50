"""The launcher: what it refuses to start, and what is in force before anything is imported."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from safeser.confinement import launch
from safeser.errors import ConfigError, MissingExtraError
from tests.confinement.conftest import without_capabilities
from tests.conftest import base_environment, measured
from tests.refusal import refusal


def run(rules: launch.Rules, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*without_capabilities(), *launch.command_line(rules, command)],
        capture_output=True, text=True, timeout=60, check=False, env=base_environment(),
        cwd=rules.write[-1],
    )  # fmt: skip


def test_a_command_line_names_no_folder_of_modules_and_says_all_rules(bench) -> None:
    line = launch.command_line(bench.rules, ["dask", "worker"])
    assert line[:4] == [sys.executable, "-P", "-m", "safeser.confinement.launch"]
    assert json.loads(line[4]) == json.loads(json.dumps(asdict(bench.rules)))
    assert line[5:] == ["dask", "worker"]


def test_a_command_runs_confined(landlock, bench) -> None:
    gone = str(bench.path / "gone")  # meanwhile
    ended = run(replace(bench.rules, read=(*bench.rules.read, gone)), "safeser", "--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("safeser ")
    refused = run(bench.rules, "safeser", "policy", "check", "/etc/passwd")
    assert refused.returncode == 2
    assert "Permission denied" in refused.stderr


def test_files_that_were_open_before_are_closed(tmp_path) -> None:
    program = (
        "import os, sys; from safeser.confinement import launch; launch._close_inherited();"
        "print(os.path.exists(f'/proc/self/fd/{sys.argv[1]}'), os.readlink('/proc/self/fd/0'))"
    )
    with (tmp_path / "secret").open("w") as secret, (tmp_path / "secret").open() as typed:
        ended = subprocess.run(
            [sys.executable, "-c", program, str(secret.fileno())],
            pass_fds=[secret.fileno()], stdin=typed, capture_output=True, text=True, timeout=60,
            check=False, env=measured(base_environment()),
        )  # fmt: skip
    assert ended.stdout == "False /dev/null\n", ended.stderr


def test_another_program_than_pythons_is_not_started(landlock, bench) -> None:
    ended = run(bench.rules, "sh", "-c", "id")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "[confined.command]" in ended.stderr


def test_threads_that_run_already_are_refused(landlock, bench) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with refusal(ConfigError, "confined.threads"):
            launch.restrict(bench.rules)
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("version", "said"), [(0, "no Landlock"), (5, "has version 5"), (launch.LEAST_ABI, "")]
)
def test_a_kernel_that_confines_too_little_is_refused(monkeypatch, version, said) -> None:
    found = SimpleNamespace(abi_version=lambda: version)
    monkeypatch.setattr(launch, "_libraries", lambda: (found, None))
    if not said:
        launch.require_kernel()
        return
    with refusal(ConfigError, "confined.landlock", said):
        launch.require_kernel()


def test_what_is_not_installed_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "landlockpy", None)
    with pytest.raises(MissingExtraError) as caught:
        launch.require_kernel()
    assert "extra landlock" in caught.value.fix


# --- what is asked of the kernel, without doing it to the process of the tests -------------------


class Granted:
    """Stands for a ruleset of Landlock; notes what it is asked for."""

    def __init__(self, **handled) -> None:
        self.handled = handled
        self.paths: dict = {}
        self.ports: dict = {}
        self.restricted = False
        self.allow_path = self.paths.__setitem__
        self.allow_port = self.ports.__setitem__

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        pass

    def restrict(self) -> None:
        self.restricted = True


@pytest.mark.parametrize("free", [False, True])
def test_few_rights_are_granted_and_programs_and_ports_where_the_policy_says_so(
    landlock, monkeypatch, bench, free
) -> None:
    import landlockpy as known

    made: list[Granted] = []
    monkeypatch.setattr(
        known, "Ruleset", lambda **handled: made.append(Granted(**handled)) or made[-1]
    )
    rules = replace(bench.rules, execute=True, ports=None) if free else bench.rules
    launch._restrict_files(known, rules)
    (asked,) = made
    abi = known.abi_version()
    assert asked.restricted
    assert asked.handled == {
        "handled_fs": known.fs_for_abi(abi),
        "handled_net": known.AccessNet.NONE if free else known.net_for_abi(abi),
        "scoped": known.Scope.SIGNAL | known.Scope.ABSTRACT_UNIX_SOCKET,
        "best_effort": False,
    }
    read = asked.paths[str(bench.path / "data")]
    assert read & ~known.AccessFS.EXECUTE == known.AccessFS.READ_FILE | known.AccessFS.READ_DIR
    assert bool(read & known.AccessFS.EXECUTE) is free
    written = asked.paths[str(bench.path / "scratch")]
    assert written & known.AccessFS.WRITE_FILE
    assert not written & (known.AccessFS.MAKE_SOCK | known.AccessFS.MAKE_CHAR)
    assert free or not any(access & known.AccessFS.EXECUTE for access in asked.paths.values())
    assert set(asked.ports) == (set() if free else {8786})


def refused_calls(rules: launch.Rules, path) -> str:
    """Return libseccomp's own account of the filter, which is not loaded."""
    import pyseccomp

    with path.open("wb") as out:
        launch._filter(pyseccomp, rules).export_pfc(out)
    return path.read_text()


#: What Landlock does not see, and what reaches outside by a detour.
CALLS = (
    *("execve", "execveat", "socket", "sendto", "io_uring_setup", "chmod", "shmget"),
    *("socketpair", "setsockopt", "fchmod", "openat", "mknodat", "openat2"),
    *("inotify_add_watch", "ioprio_set"),
)


def test_the_filter_names_what_landlock_does_not_see(landlock, bench, tmp_path) -> None:
    text = refused_calls(bench.rules, tmp_path / "pfc")
    assert [name for name in CALLS if f'"{name}"' not in text] == []
    free = refused_calls(replace(bench.rules, execute=True, ports=None), tmp_path / "pfc")
    for name in ("execve", "execveat", "sendto"):
        assert f'"{name}"' not in free
    assert '"socket"' in free  # of other kinds than IP


def test_the_filter_is_loaded_after_the_rules_of_landlock(landlock, bench, monkeypatch) -> None:
    order: list[str] = []

    class Calls:
        def load(self) -> None:
            order.append("seccomp")

    monkeypatch.setattr(launch, "_filter", lambda *_: Calls())
    monkeypatch.setattr(launch, "_restrict_files", lambda *_: order.append("landlock"))
    monkeypatch.setattr(launch.os, "listdir", lambda _: ["1"])
    launch.restrict(bench.rules)
    assert order == ["landlock", "seccomp"]


def test_a_process_becomes_its_command_in_its_folder(bench, monkeypatch, capsys) -> None:
    scratch, done = bench.demand.write[0], []
    monkeypatch.chdir(bench.path)
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    monkeypatch.delenv("DASK_TEMPORARY_DIRECTORY", raising=False)
    line = launch.command_line(replace(bench.rules, work=scratch), ["safeser", "--version"])
    monkeypatch.setattr(sys, "argv", line[3:])
    for name in ("_close_inherited", "_start_witness"):
        monkeypatch.setattr(launch, name, lambda name=name: done.append(name))
    monkeypatch.setattr(launch, "restrict", lambda rules: done.extend([rules, os.getcwd()]))
    with pytest.raises(SystemExit) as ended:
        launch._main()
    assert not ended.value.code
    assert done[:2] == ["_close_inherited", "_start_witness"]
    assert (done[2].execute, done[3]) == (False, str(bench.path))
    assert os.getcwd() == os.environ["TMPDIR"] == os.environ["DASK_TEMPORARY_DIRECTORY"] == scratch
    assert sys.argv == ["safeser", "--version"]
    assert capsys.readouterr().out.startswith("safeser ")
    monkeypatch.setattr(sys, "argv", [*line[3:5], "no-such-command"])
    with pytest.raises(SystemExit) as ended:
        launch._main()
    assert ended.value.code == 2
    assert "[confined.command]" in capsys.readouterr().err


def test_a_witness_ends_with_the_process_that_it_is_for() -> None:
    program = (
        "import os; from safeser.confinement import launch; launch._start_witness();"
        "print(open(f'/proc/self/task/{os.getpid()}/children').read(), flush=True); input()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=measured(base_environment()),
    )  # fmt: skip
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    watched = os.pidfd_open(child)
    parent.kill()
    parent.communicate()
    with selectors.DefaultSelector() as selector:
        selector.register(watched, selectors.EVENT_READ)
        assert selector.select(30)  # it has ended
    os.close(watched)


def test_the_terminal_of_its_output_is_not_read(tmp_path) -> None:
    program = (
        "import fcntl, os; from safeser.confinement import launch; launch._close_inherited();"
        "print([fcntl.fcntl(each, fcntl.F_GETFL) & os.O_ACCMODE for each in (1, 2)])"
    )
    outer, inner = os.openpty()
    ended = subprocess.run(
        [sys.executable, "-c", program], stdin=inner, stdout=inner, stderr=inner, timeout=60,
        check=False, env=measured(base_environment()),
    )  # fmt: skip
    os.close(inner)
    said = os.read(outer, 1000).decode()
    os.close(outer)
    assert (ended.returncode, said) == (0, f"{[os.O_WRONLY] * 2}\r\n")


def test_a_terminal_that_cannot_be_given_up_is_refused(monkeypatch) -> None:
    outer, inner = os.openpty()

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    try:
        with monkeypatch.context() as patch, refusal(ConfigError, "confined.terminal"):
            patch.setattr(launch.os, "open", refuse)
            launch._reopen_for_writing(inner)
    finally:
        os.close(inner)
        os.close(outer)

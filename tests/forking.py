"""Processes that begin with Dask and safeser imported: forked from one that has done no more.

Nearly all that a scheduler, a nanny or a client of a test costs is what its interpreter imports
before it does anything. Here one process imports it for all of them. What is left to each is what
it does by its command line, its environment and its settings, which are its own: nothing of
safeser's is installed before, and Dask reads its configuration again.

What such a process is started by is tested where it is not forked: see :attr:`Folder.fresh`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

#: The command that installs beside this Python, as users run it.
DASK = str(Path(sys.executable).parent / "dask")

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_PARENT_DEATH = 1  # PR_SET_PDEATHSIG
_MOST = 1 << 18

#: What the processes of a cluster import, and what is imported with safeser's backend.
_IMPORTED = (
    "distributed.cli.dask_scheduler",
    "distributed.cli.dask_worker",
    "safeser.dask.patches",
    "safeser.dask.clients.dask_collections",
    "safeser.dask.clients.references",
    "safeser.dask.clients.decorated",
    "safeser.dask.comm_backend",
    "safeser.dask.client",
    "safeser.dask.log_text",
    "safeser.audit",
)


#: How variables begin that a process reads when it needs them, or never. What ``PYTHONPATH`` names,
#: a forked process looks at as well.
_READ_LATER = (
    "DASK_SAFESER__",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT",
    "DASK_DISTRIBUTED__NANNY__PRELOAD",
    "DASK_DISTRIBUTED__SCHEDULER__PRELOAD",
    "DASK_DISTRIBUTED__WORKER__PRELOAD",
    *("KEY_PREFIX", "LIVE_SECRET", "PYTEST_CURRENT_TEST", "PYTHONPATH", "SHIFTED", "WATCHED"),
)


def _others(environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* without what is read later."""
    return {name: it for name, it in environment.items() if not name.startswith(_READ_LATER)}


def _added_path(environment: Mapping[str, str]) -> list[str]:
    return [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]


class _Origin:
    """The process that the others are forked from, and this end of the socket that it serves."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = _others(environment)
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MOST)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=self.environment,
                cwd=Path(__file__).parents[1],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._libc = ctypes.CDLL(None, use_errno=True)
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def fork(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """Return the number of a new process, which is a child of this one."""
        with self._lock:
            # What becomes an orphan meanwhile is adopted: the new process, whose parent has ended.
            self._libc.prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], files)
                return int(self._socket.recv(64))
            finally:
                self._libc.prctl(_SUBREAPER, 0, 0, 0, 0)


_origins: list[_Origin] = []


class Forked(subprocess.Popen[Any]):
    """A Python program or a console script, as :class:`subprocess.Popen` starts it."""

    def _execute_child(self, *given: Any) -> None:
        args, cwd, environment = given[0], given[5], given[6]
        into, _, _, out, _, err = pipes = given[10:16]
        told = {"command": list(map(str, args)), "cwd": str(cwd), "environment": environment}
        try:
            self.pid = _origins[0].fork(told, [into, out, err])
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)


def can_fork(
    command: Sequence[str], environment: Mapping[str, str], shared: Mapping[str, str]
) -> bool:
    """Tell whether a forked process is what *command* is with *environment*, but for imports.

    :param shared: what most processes of tests have in their environments.
    """
    if "DASK_SAFESER__IDENTITY" not in environment or len(command) < 2:
        return False
    script = command[0] == sys.executable and (command[1] == "-c" or command[1][0] != "-")
    if not script and command[0] != DASK:
        return False
    if any(Path(each, "sitecustomize.py").exists() for each in _added_path(environment)):
        return False  # which an interpreter reads before it imports anything else
    return _origin(shared).environment == _others(environment)


def _origin(shared: Mapping[str, str]) -> _Origin:
    if not _origins:
        _origins.append(_Origin(shared))
    return _origins[0]


#: What a shell finds in the place of a command: it is that command's process as far as the shell
#: knows, and passes signals on and the exit code back.
_STAND_IN = """#!{python} -SE
import json, os, signal, socket, sys
umask = os.umask(0)
told = {{"command": [{command!r}, *sys.argv[1:]], "cwd": os.getcwd(), "umask": umask}}
told["environment"] = dict(os.environ)
asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asked.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {most})
asked.connect({where!r})
socket.send_fds(asked, [json.dumps(told).encode()], [0, 1, 2])
number = int(asked.recv(64))
for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(each, lambda given, _: os.kill(number, given))
code = int(asked.recv(64))
sys.exit(code if code >= 0 else 128 - code)
"""


class Commands:
    """``python``, ``dask`` and ``safeser`` for a shell, as files of a new folder.

    :param shared: what most processes of tests have in their environments.
    """

    def __init__(self, folder: Path, shared: Mapping[str, str]) -> None:
        folder.mkdir()
        self._origin = _origin(shared)
        self._running: set[int] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        where = folder / "asked"
        self._listener.bind(str(where))
        self._listener.listen()
        for name in ("python", "dask", "safeser"):
            path = folder / name
            command = sys.executable if name == "python" else str(Path(DASK).with_name(name))
            path.write_text(
                _STAND_IN.format(
                    python=sys.executable, command=command, where=str(where), most=2 * _MOST
                )
            )
            path.chmod(0o700)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                asked, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(asked,), daemon=True).start()

    def _serve(self, asked: socket.socket) -> None:
        with asked, contextlib.suppress(ConnectionError):
            said, files, _, _ = socket.recv_fds(asked, _MOST, 3)
            number = self._origin.fork(json.loads(said), files)
            self._running.add(number)
            for each in files:
                os.close(each)
            asked.send(str(number).encode())
            _, status = os.waitpid(number, 0)
            self._running.discard(number)
            asked.send(str(os.waitstatus_to_exitcode(status)).encode())

    def close(self) -> None:
        """End what still runs."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each, signal.SIGKILL)


# --- in the process that the others are forked from -----------------------------------------------


def _serve(served: socket.socket) -> dict[str, Any]:
    """Fork for each request; return one in the process that was forked for it."""
    while True:
        said, files, _, _ = socket.recv_fds(served, _MOST, 3)
        if not said:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if between:
            os.close(writing)
            for each in files:
                os.close(each)
            with open(reading, "rb") as pipe:
                number = pipe.read()
            os.waitpid(between, 0)  # the new process has no parent from here on
            served.send(number)
            continue
        middle = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == middle:
            time.sleep(0.001)
        # Whoever kills the tests leaves none of their processes behind.
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        for number, each in enumerate(files):
            os.dup2(each, number)
            os.close(each)
        served.close()
        os.close(reading)
        os.write(writing, str(os.getpid()).encode())
        os.close(writing)
        told: dict[str, Any] = json.loads(said)
        return told


def _become(told: dict[str, Any]) -> None:
    """Run what a new interpreter would run."""
    import dask

    program, *arguments = told["command"]
    if program == sys.executable:
        program, *arguments = arguments
    os.chdir(told["cwd"])
    if "umask" in told:
        os.umask(told["umask"])
    os.environ.clear()
    os.environ.update(told["environment"])
    dask.config.refresh()
    sys.path[1:1] = _added_path(os.environ)
    main = ModuleType("__main__")
    if program == "-c":
        code, *arguments = arguments
        sys.path[0] = ""
        made = compile(code, "<string>", "exec")
    else:
        sys.path[0] = str(Path(program).parent)
        main.__file__ = program
        made = compile(Path(program).read_bytes(), program, "exec")
    sys.argv = [program, *arguments]
    sys.modules["__main__"] = main
    exec(made, main.__dict__)


if __name__ == "__main__":
    _served = socket.socket(fileno=int(sys.argv[1]))
    for _name in _IMPORTED:
        import_module(_name)
    gc.collect()
    gc.freeze()
    _told = _serve(_served)
    try:
        _become(_told)
    except Exception as _error:  # as an interpreter shows it, without the frames of this module
        _trace = _error.__traceback__
        while _trace is not None and _trace.tb_frame.f_code.co_filename == __file__:
            _trace = _trace.tb_next
        sys.excepthook(type(_error), _error.with_traceback(_trace), _trace)
        sys.exit(1)

"""Processes that tests start: programs of principals, and schedulers with their workers.

The one rule: whoever starts a process ends it, with all that it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.forking import DASK, Forked, can_fork

__all__ = [
    "DASK",
    "MEASURED",
    "PATIENCE",
    "PRINCIPALS",
    "Cluster",
    "Ended",
    "Folder",
    "address_in",
    "base_environment",
    "free_ports",
    "in_session",
    "measured",
    "until",
]

#: What has a Python process measure its coverage; kept out of the environment that tests pass on.
MEASURED: dict[str, str] = {}


def measured(environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* for a process whose coverage is measured, if the tests' own is."""
    return {**environment, **MEASURED}


#: Two cores that others share, and processes that import pandas: minutes are bugs, seconds are not.
PATIENCE = 60.0


def until(
    what: str, probe: Callable[[], Any], patience: float = PATIENCE, *, every: float = 0.02
) -> Any:
    """Return what *probe* gives once it is true, or fail; a costly one is asked less often."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = probe()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"{what} did not happen within {patience:.0f} s")


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens, and which no connection gets for its own end."""
    found: list[int] = []
    while len(found) < count:
        port = 15_000 + secrets.randbelow(15_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in found:
                found.append(port)
    return found


def in_session(leader: int) -> list[int]:
    """Return the processes of the session that *leader* began, whether or not it has ended."""
    found = []
    for each in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(each) == leader:
                found.append(each)
    return found


def address_in(where: Path) -> str:
    """Return what a scheduler wrote into its file, once it is whole."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return str(json.loads(where.read_text())["address"])
    return ""


#: Settings of Dask for the processes that tests start. By its defaults, a cluster that has nothing
#: to do takes a tenth of a processor, by loops that run up to a hundred times a second.
SETTINGS = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "30s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "200ms",
    "DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL": "100ms",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "1s",
}


def base_environment() -> dict[str, str]:
    """Return the environment without settings of Dask but those that tests share."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("DASK_")}
    return own | SETTINGS


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """What the program printed as its last line, as JSON."""
        assert self.code == 0, f"{self.out}\n{self.err}"
        return json.loads(self.out.splitlines()[-1])


#: The demo's principals.
PRINCIPALS = ("scheduler", "worker", "nanny", "alice", "bob")


class Folder:
    """Keys of the demo's principals, or others, logs, and processes that use them.

    :ivar measured: whether coverage is measured in the processes that are started from now on.
    :ivar fresh: whether each of them has an interpreter of its own, and imports by itself; those of
        a :class:`Cluster` need not.
    """

    def __init__(
        self, path: Path, policy: str = "demo", principals: tuple[str, ...] = PRINCIPALS
    ) -> None:
        from safeser.identities import make_identities

        self.path = path
        self.policy = policy
        self.measured = False
        self.fresh = True
        self.audit = path / "audit"
        self.keys = path / "keys"
        make_identities(self.keys, principals)
        self._running: list[subprocess.Popen[bytes]] = []
        self._begun: dict[str, subprocess.Popen[bytes]] = {}
        self._gently: set[int] = set()  # processes whose coverage is measured, by their numbers

    def environment(self, principal: str, **more: str) -> dict[str, str]:
        environment = base_environment() | {
            "DASK_SAFESER__POLICY": self.policy,
            "DASK_SAFESER__AUDIT": str(self.audit),
            "DASK_SAFESER__IDENTITY": str(self.keys / f"{principal}.key"),
        }
        if principal == "worker":
            environment["DASK_SAFESER__NANNY__IDENTITY"] = str(self.keys / "nanny.key")
        return {**(measured(environment) if self.measured else environment), **more}

    def start(self, name: str, *command: str, environment: Mapping[str, str]) -> Any:
        """Start a process group whose output goes to the log called *name*."""
        with (self.path / f"{name}.log").open("ab") as log:
            process = self._popen(command, environment)(
                command,
                env=dict(environment),
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(process)
        if MEASURED and MEASURED.keys() <= environment.keys():
            self._gently.add(process.pid)
        return process

    def _popen(self, command: Sequence[str], environment: Mapping[str, str]) -> Any:
        forked = not self.fresh and can_fork(command, environment, base_environment())
        return Forked if forked else subprocess.Popen

    def log(self, name: str) -> str:
        return (self.path / f"{name}.log").read_text(errors="replace")

    def printed(self, name: str) -> Any:
        """Return the last JSON object in the log *name*, which has a program's errors as well."""
        lines = [line for line in self.log(name).splitlines() if line.startswith("{")]
        return json.loads(lines[-1])

    def logs(self) -> str:
        """Return the end of every log, for messages of failures."""
        texts = ((path, path.read_text(errors="replace")) for path in self.path.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{text[-3000:]}" for path, text in texts)

    def run(
        self,
        principal: str,
        program: str | Path,
        *arguments: str,
        timeout: float = 100,
        **more: str,
    ) -> Ended:
        """Run a Python program as *principal* and wait for its end."""
        code = [str(program)] if isinstance(program, Path) else ["-c", program]
        return self.call(
            sys.executable,
            *code,
            *arguments,
            timeout=timeout,
            environment=self.environment(principal, **more),
        )

    def call(self, *command: str, environment: Mapping[str, str], timeout: float = 60) -> Ended:
        process = self._popen(command, environment)(
            command,
            env=dict(environment),
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"not ended in time:\n{out}\n{err}\n{self.logs()}") from None
        finally:
            _signal(process, signal.SIGKILL)
        return Ended(process.returncode, out, err)

    def ended(self) -> list[str]:
        """Return which of the processes that it began with have ended."""
        return [name for name, each in self._begun.items() if each.poll() is not None]

    def stop(self, *, gently: bool = False) -> None:
        """End every group that was started: at once, unless its coverage is yet to be written.

        :param gently: have them all end as commands do that are told to.
        """
        waited = [each for each in self._running if gently or each.pid in self._gently]
        for process in self._running:
            if process not in waited:
                _signal(process, signal.SIGKILL)
        # A worker that its scheduler closes while it is told to end waits for itself, in stock Dask
        # as well: the scheduler, which was started first, is told when the others have ended.
        for together in (waited[1:], waited[:1]):
            for process in together:
                _signal(process, signal.SIGTERM)
            for process in together:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=15)
        for process in self._running:
            _signal(process, signal.SIGKILL)
            process.wait(timeout=15)
        self._running.clear()


def _signal(process: subprocess.Popen[Any], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class Cluster(Folder):
    """A scheduler and two workers with nannies, by the commands that users type."""

    def __init__(
        self,
        path: Path,
        policy: str = "demo",
        principals: tuple[str, ...] = PRINCIPALS,
        **environment: str,
    ) -> None:
        super().__init__(path, policy, principals)
        self.fresh = False
        self.address = ""
        self.scheduler = 0  # its process
        self._own = environment

    def environment(self, principal: str, **more: str) -> dict[str, str]:
        return super().environment(principal, **{**self._own, **more})

    def begin(self, workers: int = 2, *, nannies: int = 1) -> None:
        """Start a scheduler and *workers* commands, each of so many *nannies* or a worker alone."""
        where = self.path / "scheduler.json"
        options = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard"]
        scheduler = [DASK, "scheduler", "--protocol", "safeser", "--port", "0", *options]
        scheduler += ["--scheduler-file", str(where)]
        started = self.start("scheduler", *scheduler, environment=self.environment("scheduler"))
        self.scheduler = started.pid
        self._begun["scheduler"] = started

        def written() -> str:
            assert started.poll() is None, self.logs()
            return address_in(where)

        self.address = until("the scheduler's file", written)
        assert self.address.startswith("safeser://127.0.0.1:")
        for number in range(workers):
            scratch = ["--local-directory", str(self.path / f"scratch-{number}")]
            self._begun[f"worker-{number}"] = self.start(
                f"worker-{number}",
                *(DASK, "worker", self.address, "--nthreads", "1"),
                *(("--nworkers", str(nannies)) if nannies else ("--no-nanny",)),
                *(*options, *scratch),
                environment=self.environment("worker"),
            )

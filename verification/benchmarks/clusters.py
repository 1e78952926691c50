"""Clusters of real processes on loopback, one for each transport, and their clients.

The one rule: whatever is started here is in a process group of its own, and is gone when the block
that started it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from safeser.identities import make_identities
from safeser.policy import Policy
from safeser.policy.ready import locate
from safeser.values import Suite
from verification.benchmarks.serialization.counted import FOLDER

PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Transport:
    """What a cluster speaks.

    :param policy: the ready policy that decides, where the scheme is ``safeser``.
    :param suite: of the envelope.
    :param user: principal of the client.
    """

    scheme: str
    policy: str = "default"
    suite: Suite = Suite.AUTHENTICATE
    user: str = "client"


#: What is compared.
TRANSPORTS = {
    "safeser": Transport("safeser"),
    "safeser encrypt": Transport("safeser", suite=Suite.ENCRYPT),
    "safeser sealed": Transport("safeser", policy="dask-cluster", user="carol"),
    "tcp": Transport("tcp"),
    "tls": Transport("tls"),
}

_PATIENCE = 120.0  # seconds for a loaded machine to start a process
_GRACE = 10.0  # seconds between asking a process to end and killing it


class StartError(Exception):
    """A process of a cluster ended, or did not become ready; the message holds its last words."""


@dataclass
class Cluster:
    """A scheduler, workers and a client on one transport.

    :param nannies: one command starts all workers, each with a nanny, rather than one for each.
    :param driver: module of the client.
    :param preload: module that the scheduler imports and runs, if any.
    """

    transport: Transport
    folder: Path
    workers: int = 2
    nannies: bool = False
    driver: str = "verification.benchmarks.client"
    preload: str = ""
    _processes: list[subprocess.Popen[str]] = field(default_factory=list)
    _client: subprocess.Popen[str] | None = None

    @property
    def scheme(self) -> str:
        return self.transport.scheme

    @property
    def audit(self) -> Path:
        return self.folder / "audit"

    @property
    def audit_key(self) -> Path:
        return self.folder / "keys" / "audit.key"

    @property
    def policy(self) -> Path:
        return self.folder / "policy.yaml"

    def prepare(self) -> None:
        self.folder.mkdir(mode=0o700)
        if self.scheme == "safeser":
            text = _policy(self.transport)
            make_identities(self.folder / "keys", Policy.parse(text).principals)
            self.policy.write_text(text, encoding="utf-8")
        elif self.scheme == "tls":
            _make_certificate(self.folder)

    def start_scheduler(self) -> None:
        self._start(
            "scheduler",
            f"-m dask scheduler --protocol {self.scheme} --host 127.0.0.1 --port 0"
            f" --no-dashboard --scheduler-file scheduler.json{self._tls_options()}"
            f"{f' --preload {self.preload}' if self.preload else ''}",
        )

    def start_workers(self) -> None:
        address = self._address()
        commands = 1 if self.nannies else self.workers
        kind = f"--nworkers {self.workers}" if self.nannies else "--no-nanny"
        for number in range(commands):
            self._start(
                "worker",
                f"-m dask worker {address} --host 127.0.0.1 {kind} --nthreads 1"
                " --no-dashboard --death-timeout 300 --memory-limit 0"
                f" --local-directory spill-{number}{self._tls_options()}",
            )

    def start_client(self) -> None:
        self._client = self._start("client", f"-m {self.driver}", piped=True)
        names = {"ca_file": "cert.pem", "client_cert": "cert.pem", "client_key": "key.pem"}
        tls = {f"tls_{option}": str(self.folder / name) for option, name in names.items()}
        order = {"scheme": self.scheme, "address": self._address(), "workers": self.workers}
        self._ask({**order, "tls": tls if self.scheme == "tls" else None})

    def measure(self, measure: str, amount: int) -> list[float]:
        """Have the client measure; return the seconds that it took for each part."""
        return self._ask({"measure": measure, "amount": amount})

    def cpu_seconds(self) -> float:
        """Return the processor time that all processes of this cluster have used so far."""
        return sum(map(_seconds, self._processes))

    def scheduler_seconds(self) -> float:
        """Return the processor time that the scheduler has used so far; it is the bottleneck."""
        return _seconds(self._processes[0])

    def worker_processes(self) -> list[psutil.Process]:
        """Return the processes of workers that nannies started."""
        (command,) = self._processes[1:2]
        return [
            child
            for child in psutil.Process(command.pid).children()
            if "multiprocessing.spawn" in " ".join(child.cmdline())
        ]

    def client_seconds(self) -> float:
        """Return the processor time that the client has used so far."""
        assert self._client is not None
        return _seconds(self._client)

    def roles(self) -> dict[int, str]:
        """Return the role of each process that was started here, by its id."""
        scheduler, *workers, client = (process.pid for process in self._processes)
        return {scheduler: "scheduler", **dict.fromkeys(workers, "worker"), client: "client"}

    def stop(self) -> None:
        processes, self._processes = self._processes, []
        # Clients and workers first: a worker that its scheduler closes while it is told to end
        # waits for itself, in stock Dask as well.
        for together in (processes[1:], processes[:1]):
            for process in together:
                _signal(process, signal.SIGTERM)
            _wait(together)

    def _ask(self, order: Mapping[str, Any]) -> list[float]:
        assert self._client is not None
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        try:
            self._client.stdin.write(json.dumps(order) + "\n")
            self._client.stdin.flush()
            answer = self._client.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise StartError(f"the client on {self.scheme}:// ended: {self._last_words('client')}")
        seconds: list[float] = json.loads(answer)
        return seconds

    def _address(self) -> str:
        """Wait until the scheduler has said where it listens."""
        path = self.folder / "scheduler.json"
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and self._processes[0].poll() is None:
            # The file is there before all of its text is.
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                address: str = json.loads(path.read_text())["address"]
                return address
            time.sleep(0.1)
        last = self._last_words("scheduler")
        raise StartError(f"the scheduler on {self.scheme}:// did not start: {last}")

    def _last_words(self, role: str) -> str:
        lines = (self.folder / f"{role}.log").read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "it said nothing"

    def _tls_options(self) -> str:
        if self.scheme != "tls":
            return ""
        return " --tls-ca-file cert.pem --tls-cert cert.pem --tls-key key.pem"

    def _start(self, role: str, arguments: str, *, piped: bool = False) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE if piped else subprocess.DEVNULL
        with (self.folder / f"{role}.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments.split()],
                cwd=self.folder,
                env=self._environment(role),
                stdin=pipe,
                stdout=pipe,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _environment(self, role: str) -> dict[str, str]:
        # Dask's settings of whoever runs this would make the clusters differ from the defaults.
        env = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
        env["DASK_CONFIG"] = str(self.folder / "no-configuration")
        env["DASK_TEMPORARY_DIRECTORY"] = str(self.folder)
        env["PYTHONPATH"] = str(PROJECT)
        env[FOLDER] = str(self.folder / "counted")
        # Where a checkout has no bytecode, each process on safeser:// would compile all of it anew.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        if self.scheme == "safeser":
            name = self.transport.user if role == "client" else role
            env["DASK_SAFESER__IDENTITY"] = str(self.folder / "keys" / f"{name}.key")
            if role == "worker" and self.nannies:
                env["DASK_SAFESER__NANNY__IDENTITY"] = str(self.folder / "keys" / "nanny.key")
            env["DASK_SAFESER__POLICY"] = str(self.policy)
            env["DASK_SAFESER__AUDIT"] = str(self.audit)
        return env


@contextlib.contextmanager
def running(
    folder: Path, *, workers: int = 2, only: Collection[str] = tuple(TRANSPORTS), **more: Any
) -> Iterator[dict[str, Cluster]]:
    """Start one cluster for each of :data:`TRANSPORTS`, all alike, and stop them at the end.

    Schedulers come first. *more* are fields of each cluster.

    :raises StartError: if one of them does not come up.
    """
    clusters = {
        name: Cluster(TRANSPORTS[name], folder / name.replace(" ", "-"), workers, **more)
        for name in only
    }
    try:
        for cluster in clusters.values():
            cluster.prepare()
            cluster.start_scheduler()
        for cluster in clusters.values():
            cluster.start_workers()
        for cluster in clusters.values():
            cluster.start_client()
        yield clusters
    finally:
        for cluster in clusters.values():
            cluster.stop()


def _seconds(process: subprocess.Popen[str]) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def _policy(transport: Transport) -> str:
    """Return the ready policy of *transport* with its suite."""
    text = locate(transport.policy).read_text(encoding="utf-8")
    changed = text.replace("revision: 1\n", f"revision: 1\nsuite: {transport.suite.word}\n", 1)
    assert changed != text
    return changed


def _make_certificate(folder: Path) -> None:
    """Write the key and the self-signed certificate that Dask makes for temporary clusters."""
    from distributed import Security

    made = Security.temporary()
    for name, text in (("key.pem", made.tls_client_key), ("cert.pem", made.tls_client_cert)):
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text)


def _wait(processes: list[subprocess.Popen[str]]) -> None:
    """Wait until *processes* have ended, and kill those that take too long."""
    deadline = time.monotonic() + _GRACE
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
        _signal(process, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # What the driver had left to say may be in the buffer of a broken pipe.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)

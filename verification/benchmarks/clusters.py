"""Clusters of real processes on loopback, one for each transport, and their clients.

The one rule: whatever is started here is in a process group of its own, and is gone when the block
that started it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from examples.demo.processes import Child, Processes
from safeser.identities import make_identities
from safeser.policy import Policy
from safeser.policy.ready import locate
from verification.benchmarks.serialization.counted import FOLDER

PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Transport:
    """What a cluster speaks.

    :param policy: the ready policy that decides, where the scheme is ``safeser``.
    :param user: principal of the client.
    """

    scheme: str
    policy: str = "default"
    user: str = "client"


#: What is compared.
TRANSPORTS = {
    "safeser": Transport("safeser"),
    "safeser sealed": Transport("safeser", policy="dask-cluster", user="carol"),
    "tcp": Transport("tcp"),
    "tls": Transport("tls"),
}

_PATIENCE = 120.0  # seconds for a loaded machine to start a process
_MEASURED = 3600.0  # seconds that one measure may take


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
    _children: dict[str, Child] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._processes = Processes(self.folder, {})

    @property
    def scheme(self) -> str:
        return self.transport.scheme

    @property
    def audit(self) -> Path:
        return self.folder / "audit"

    def prepare(self) -> None:
        self.folder.mkdir(mode=0o700)
        if self.scheme == "safeser":
            text = locate(self.transport.policy).read_text(encoding="utf-8")
            make_identities(self.folder / "keys", Policy.parse(text).principals)
            (self.folder / "policy.yaml").write_text(text, encoding="utf-8")
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
                f"worker-{number}",
                f"-m dask worker {address} --host 127.0.0.1 {kind} --nthreads 1"
                " --no-dashboard --death-timeout 300 --memory-limit 0"
                f" --local-directory spill-{number}{self._tls_options()}",
            )

    def start_client(self) -> None:
        self._start("client", f"-m {self.driver}", talks=True)
        names = {"ca_file": "cert.pem", "client_cert": "cert.pem", "client_key": "key.pem"}
        tls = {f"tls_{option}": str(self.folder / name) for option, name in names.items()}
        order = {"scheme": self.scheme, "address": self._address(), "workers": self.workers}
        self._ask("connect", **order, tls=tls if self.scheme == "tls" else None)

    def measure(self, measure: str, amount: int) -> list[float]:
        """Have the client measure; return the seconds that it took for each part."""
        return self._ask(measure, amount=amount)

    def cpu_seconds(self, *roles: str) -> float:
        """Return the processor time that all processes of this cluster have used so far.

        :param roles: only these: ``scheduler`` is the bottleneck, and there is one ``client``.
        """
        return sum(map(_seconds, (self._children[role] for role in roles or self._children)))

    def worker_processes(self) -> list[psutil.Process]:
        """Return the processes of workers that nannies started."""
        return [
            child
            for child in psutil.Process(self._children["worker-0"].pid).children()
            if "multiprocessing.spawn" in " ".join(child.cmdline())
        ]

    def roles(self) -> dict[int, str]:
        """Return the role of each process that was started here, by its id."""
        return {child.pid: name.partition("-")[0] for name, child in self._children.items()}

    def stop(self) -> None:
        # The scheduler last: a worker that its scheduler closes while it is told to end waits for
        # itself, in stock Dask as well.
        self._processes.end([each for name, each in self._children.items() if name != "scheduler"])
        self._processes.end_all()

    def _ask(self, what: str, **details: Any) -> list[float]:
        answer = self._children["client"].ask({"do": what, **details}, timeout=_MEASURED)
        return list(answer["seconds"])

    def _address(self) -> str:
        """Wait until the scheduler has said where it listens."""

        def announced() -> str | None:
            # The file is there before all of its text is.
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                return str(json.loads((self.folder / "scheduler.json").read_text())["address"])
            return None

        return self._processes.wait_for("the scheduler's start", announced, timeout=_PATIENCE)

    def _tls_options(self) -> str:
        if self.scheme != "tls":
            return ""
        return " --tls-ca-file cert.pem --tls-cert cert.pem --tls-key key.pem"

    def _start(self, name: str, arguments: str, *, talks: bool = False) -> None:
        command = [sys.executable, *arguments.split()]
        environment = self._environment(name.partition("-")[0])
        child = self._processes.start(name, command, environment=environment, talks=talks)
        self._children[name] = child

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
            env["DASK_SAFESER__POLICY"] = str(self.folder / "policy.yaml")
            env["DASK_SAFESER__AUDIT"] = str(self.audit)
        return env


@contextlib.contextmanager
def running(
    folder: Path, *, workers: int = 2, only: Collection[str] = tuple(TRANSPORTS), **more: Any
) -> Iterator[dict[str, Cluster]]:
    """Start one cluster for each of :data:`TRANSPORTS`, all alike, and stop them at the end.

    Schedulers come first. *more* are fields of each cluster.

    :raises StepFailed: if one of them does not come up.
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


def _seconds(child: Child) -> float:
    times = psutil.Process(child.pid).cpu_times()
    return float(times.user + times.system)


def _make_certificate(folder: Path) -> None:
    """Write the key and the self-signed certificate that Dask makes for temporary clusters."""
    from distributed import Security

    made = Security.temporary()
    for name, text in (("key.pem", made.tls_client_key), ("cert.pem", made.tls_client_cert)):
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text)

"""The two clusters, started with Dask's own command lines: ``safeser://`` and stock ``tcp://``.

Every process is a child with its own environment; the stock cluster's has no setting of safeser.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from examples.demo.folder import Folder
from examples.demo.processes import Child, Processes
from safeser.errors import ConfigError

__all__ = [
    "SECRET",
    "Cluster",
    "dask_command",
    "dask_environment",
    "identity",
    "start_program",
    "start_safeser",
    "start_scheduler",
    "start_stock",
    "start_worker",
]

#: An environment variable of both schedulers that an attacker tries to read.
SECRET = "DEMO_SECRET"  # noqa: S105 - a name; the value is made anew each time

_CHECKOUT = Path(__file__).parents[2]

_START = 120.0  # seconds, for a busy machine; an idle one takes three


@dataclass(slots=True)
class Cluster:
    """A running cluster.

    :param side: ``safeser`` or ``stock``.
    :param address: the scheduler's address.
    :param secret: the value of :data:`SECRET` in the scheduler's environment.
    :param commands: the command lines, to print.
    """

    side: str
    address: str
    secret: str
    commands: tuple[str, ...]
    children: list[Child] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)

    @property
    def plain_address(self) -> str:
        """The scheduler's address for a client without a key."""
        return _plain(self.address)

    @property
    def plain_worker(self) -> str:
        """The first worker's address for a client without a key."""
        return _plain(self.workers[0])


def _plain(address: str) -> str:
    return f"tcp://{address.partition('://')[2]}"


def dask_command() -> str:
    """Return the path of the command ``dask`` of this Python.

    :raises ConfigError: if it is not installed.
    """
    command = Path(sys.executable).with_name("dask")
    if not command.exists():
        raise ConfigError(
            "the demo needs Dask and scikit-learn, and there is no command 'dask' here",
            rule="config.extra",
            fix="Run 'make demo', or: pip install --editable '.[demo]'.",
        )
    return str(command)


def dask_environment(folder: Folder, environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* without the user's own Dask settings."""
    kept = {key: value for key, value in environment.items() if not key.startswith("DASK")}
    # One thread each: the demo starts many processes, also on small machines.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**kept, **threads, "DASK_CONFIG": str(folder.configuration)}


def start_safeser(processes: Processes, folder: Folder, *, policy: str) -> Cluster:
    """Start a scheduler and two workers with nannies on ``safeser://``."""
    shared = {"DASK_SAFESER__POLICY": policy, "DASK_SAFESER__AUDIT": str(folder.audit)}
    cluster = start_scheduler(
        processes,
        folder,
        "safeser",
        ["--protocol", "safeser"],
        {**shared, "DASK_SAFESER__IDENTITY": str(folder.key("scheduler"))},
    )
    own = {
        **shared,
        "DASK_SAFESER__IDENTITY": str(folder.key("worker")),
        "DASK_SAFESER__NANNY__IDENTITY": str(folder.key("nanny")),
    }
    for number in (1, 2):
        start_worker(processes, folder, cluster, f"worker {number}", options=[], environment=own)
    return cluster


def start_stock(processes: Processes, folder: Folder) -> Cluster:
    """Start a stock scheduler and worker on ``tcp://``."""
    cluster = start_scheduler(processes, folder, "stock", [], {})
    start_worker(processes, folder, cluster, "stock worker", options=["--no-nanny"], environment={})
    return cluster


def _http(port: int = 0) -> tuple[str, ...]:
    """Return options that bind Dask's HTTP server to loopback, without pages.

    By default it listens on every address, also with --no-dashboard.
    """
    return "--dashboard-address", f"127.0.0.1:{port}", "--no-dashboard"


def start_scheduler(
    processes: Processes,
    folder: Folder,
    side: str,
    options: list[str],
    environment: Mapping[str, str],
    *,
    port: int = 0,
) -> Cluster:
    """Start a scheduler and wait until it listens."""
    announced = folder.scratch / f"{side}-scheduler.json"
    folder.scratch.mkdir(exist_ok=True)
    secret = secrets.token_hex(16)
    command = ["scheduler", *options, "--host", "127.0.0.1", "--port", str(port)]
    child = processes.start(
        "scheduler" if side == "safeser" else f"{side} scheduler",
        [dask_command(), *command, *_http(), "--scheduler-file", str(announced)],
        environment={**environment, SECRET: secret},
    )
    address = processes.wait_for(
        f"the start of the {side} scheduler", lambda: _announced(announced), timeout=_START
    )
    return Cluster(side, address, secret, (" ".join(["dask", *command]),), [child])


def _announced(path: Path) -> str | None:
    """Return the address in a scheduler file, or None before it is complete."""
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["address"])
    except (FileNotFoundError, ValueError):
        return None


def start_worker(
    processes: Processes,
    folder: Folder,
    cluster: Cluster,
    name: str,
    *,
    options: list[str],
    environment: Mapping[str, str],
    dashboard: int = 0,
    confined: Sequence[str] = (),
) -> None:
    """Start a worker.

    :param confined: a command that confines the worker, put before ``dask``.
    """
    command = ["worker", cluster.address, "--nthreads", "1", "--host", "127.0.0.1", *options]
    child = processes.start(
        name,
        [
            *([*confined, "dask"] if confined else [dask_command()]),
            *command,
            *_http(dashboard),
            "--death-timeout",
            str(_START),
            "--local-directory",
            str(folder.scratch / name.replace(" ", "-")),
        ],
        environment=environment,
    )
    shown = [*(Path(word).name for word in confined), "dask", *command]
    cluster.commands += (" ".join(shown),)
    cluster.children.append(child)


def start_program(
    processes: Processes,
    name: str,
    module: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> Child:
    """Start *module* of this package as a program that talks by :mod:`examples.demo.pipe`."""
    # It starts in another folder, so the checkout has to be on its path.
    path = os.pathsep.join(filter(None, [str(_CHECKOUT), os.environ.get("PYTHONPATH")]))
    return processes.start(
        name,
        [sys.executable, "-m", f"{__package__}.{module}", *arguments],
        environment={"PYTHONPATH": path, **(environment or {})},
        talks=True,
    )


def identity(folder: Folder, principal: str, *, policy: str) -> dict[str, str]:
    """Return the environment of a process that holds *principal*'s key."""
    return {
        "DASK_SAFESER__POLICY": policy,
        "DASK_SAFESER__AUDIT": str(folder.audit),
        "DASK_SAFESER__IDENTITY": str(folder.key(principal)),
    }

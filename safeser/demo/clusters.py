"""The two clusters: one on ``safeser://``, one stock on ``tcp://``, by Dask's own command lines.

The one rule: every process is a child with its own environment. The stock cluster's has nothing of
safeser's in it.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from safeser.demo.folder import Folder
from safeser.demo.processes import Child, Processes
from safeser.errors import ConfigError

__all__ = [
    "SECRET",
    "Cluster",
    "dask_command",
    "identity",
    "python",
    "quiet_environment",
    "start_safeser",
    "start_scheduler",
    "start_stock",
    "start_worker",
]

#: An environment variable of both schedulers that an attacker tries to read.
SECRET = "DEMO_SECRET"  # noqa: S105 - a name; the value is made anew each time

_START = 40.0  # seconds; three on an idle machine


@dataclass(slots=True)
class Cluster:
    """A cluster that runs.

    :param side: ``safeser`` or ``stock``.
    :param address: the scheduler's.
    :param secret: what the scheduler's environment holds under :data:`SECRET`.
    :param commands: the command lines, for the reader.
    """

    side: str
    address: str
    secret: str
    commands: tuple[str, ...]
    children: list[Child] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)

    @property
    def plain_address(self) -> str:
        """The scheduler's port as somebody without a key sees it."""
        return _plain(self.address)

    @property
    def plain_worker(self) -> str:
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
            fix="In a clone of safeser, run: pip install '.[demo]'.",
        )
    return str(command)


def quiet_environment(folder: Folder, environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* without the user's own settings of Dask, which are not the demo's."""
    kept = {key: value for key, value in environment.items() if not key.startswith("DASK")}
    # One thread each: the demo's many processes share a machine that may be small.
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
    """Start a scheduler and a worker on ``tcp://``, as Dask comes."""
    cluster = start_scheduler(processes, folder, "stock", [], {})
    start_worker(processes, folder, cluster, "stock worker", options=["--no-nanny"], environment={})
    return cluster


def _http(port: int = 0) -> tuple[str, str]:
    """Return options for Dask's HTTP server, which listens on every address otherwise, with
    --no-dashboard too.
    """
    return "--dashboard-address", f"127.0.0.1:{port}"


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
    """Return the address in a scheduler file that is written whole."""
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
    """Start a worker; *confined* is what its command line begins with before ``dask``."""
    command = ["worker", cluster.address, "--nthreads", "1", "--host", "127.0.0.1", *options]
    child = processes.start(
        name,
        [
            *([*confined, "dask"] if confined else [dask_command()]),
            *command,
            *_http(dashboard),
            "--death-timeout",
            "30",
            "--local-directory",
            str(folder.scratch / name.replace(" ", "-")),
        ],
        environment=environment,
    )
    shown = [*(Path(word).name for word in confined), "dask", *command]
    cluster.commands += (" ".join(shown),)
    cluster.children.append(child)


def python(module: str, *arguments: str) -> list[str]:
    """Return the command line of one of this package's own programs."""
    return [sys.executable, "-m", f"safeser.demo.{module}", *arguments]


def identity(folder: Folder, principal: str, *, policy: str) -> dict[str, str]:
    """Return the environment that makes a process *principal*."""
    return {
        "DASK_SAFESER__POLICY": policy,
        "DASK_SAFESER__AUDIT": str(folder.audit),
        "DASK_SAFESER__IDENTITY": str(folder.key(principal)),
    }

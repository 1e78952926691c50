"""The cluster of the soak, by Dask's own commands, and whoever talks to it.

The one rule: each process is a child with a group and a log of its own, and none outlives the soak.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from examples.demo.processes import Child
from safeser.identities import make_identities
from safeser.policy import Policy
from verification.soak.proxy import Road

POLICY = Path(__file__).with_name("policy.yaml")

_ROOT = Path(__file__).parents[2]
_DASK = str(Path(sys.executable).parent / "dask")
_LOCAL = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")
_START = 120.0


class Talking(Child):
    """A child whose events are taken as they come."""

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what it said since, without waiting."""
        while True:
            try:
                said = self._events.get_nowait()
            except queue.Empty:
                return
            if said is not None:
                yield said

    def end(self) -> None:
        self.tell({"do": "end"})


class Cluster:
    """A scheduler, a worker that nobody disturbs, two that are disturbed, and a road to them.

    :param stock: without safeser, on ``tcp://``: for what Dask keeps by itself.
    """

    def __init__(self, state: Path, *, stock: bool = False) -> None:
        self.state = state
        self.scheme = "tcp" if stock else "safeser"
        self.audit = state / "audit"
        self.keys = state / "keys"
        self.markers = state / "markers"
        for folder in (state / "logs", state / "scratch", self.markers):
            folder.mkdir(parents=True, exist_ok=True)
        # A copy of one's own: in a checkout the file may be writable for a group.
        self.policy = state / "policy.yaml"
        self.policy.touch(0o600)
        self.policy.write_bytes(POLICY.read_bytes())
        if not self.keys.exists():
            make_identities(self.keys, tuple(Policy.load(str(self.policy)).principals))
        self.children: dict[str, Child] = {}
        self.address = ""
        #: In the scheduler's environment, for an attacker to read.
        self.secret = secrets.token_hex(16)
        self.road: Road | None = None

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def by_road(self) -> str:
        """The scheduler's address for those whose connections are cut."""
        assert self.road is not None
        return f"{self.scheme}://127.0.0.1:{self.road.port}"

    def begin(self) -> None:
        announced = self.state / "scheduler.json"
        announced.unlink(missing_ok=True)
        command = [_DASK, "scheduler", "--protocol", self.scheme, "--port", "0", *_LOCAL]
        command += ["--scheduler-file", str(announced)]
        self._start("scheduler", command, "scheduler", SOAK_SECRET=self.secret)
        deadline = time.monotonic() + _START
        while not self.address:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the scheduler did not start within {_START:.0f} s")
            with contextlib.suppress(OSError, ValueError):  # there, before all of its text is
                self.address = json.loads(announced.read_text())["address"]
            time.sleep(0.05)
        self.road = Road(("127.0.0.1", self.port))
        self.worker("steady")
        self.worker("shaken")
        self.worker("bare")
        if self.scheme == "safeser":
            self.rogue()
            self.attacker("mallory", "mallory")

    def worker(self, name: str) -> None:
        """Start the worker called *name*; a second time, in place of the one that ended."""
        address = self.address if name == "steady" else self.by_road
        options = ["--nthreads", "1", "--memory-limit", "2GiB", "--name", name]
        options += ["--local-directory", str(self.state / "scratch" / name)]
        options += ["--no-nanny"] if name == "bare" else []
        self._start(name, [_DASK, "worker", address, *options, *_LOCAL], "worker")

    def client(self, name: str, kind: str, principal: str, seed: str) -> Talking:
        command = [sys.executable, "-m", "verification.soak.client", kind, self.by_road, seed]
        return self._start(name, command, principal, talks=True)

    def attacker(self, name: str, principal: str) -> Talking:
        """Start the demo's attacker under the key of *principal*; its records are its own."""
        command = [sys.executable, "-m", "examples.demo.attacker", "bob"]
        audit = str(self.state / "attackers")
        return self._start(name, command, principal, talks=True, DASK_SAFESER__AUDIT=audit)

    def rogue(self) -> None:
        """Start a worker that holds an honest one's key and attacks whoever asks it by name."""
        scratch = self.state / "scratch" / "rogue"
        command = [sys.executable, "-m", "examples.demo.rogue"]
        command += [self.address, str(self.markers), str(scratch)]
        audit = str(self.state / "attackers")
        self._start("rogue", command, "worker", talks=True, DASK_SAFESER__AUDIT=audit)

    def worker_process(self, name: str) -> int | None:
        """Return the id of the worker itself, which a nanny started; of the command without one."""
        child = self.children[name]
        return child.pid if name == "bare" else _spawned(child.pid)

    def end(self) -> None:
        """End everything, workers before their scheduler."""
        # Not a fifth of what is recorded is written when everybody is told at the same time.
        for name in sorted(self.children, key="scheduler".__eq__):
            child = self.children[name]
            child.hang_up()
            child.signal_group(signal.SIGTERM)
            _gone(child, 15.0)
            child.signal_group(signal.SIGKILL)
            _gone(child, 5.0)
        if self.road is not None:
            self.road.close()

    def _start(
        self, name: str, command: list[str], principal: str, *, talks: bool = False, **more: str
    ) -> Talking:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DASK_")}
        environment |= {
            "DASK_SAFESER__POLICY": str(self.policy),
            "DASK_SAFESER__AUDIT": str(self.audit),
            "DASK_SAFESER__IDENTITY": str(self.keys / f"{principal}.key"),
            "DASK_SAFESER__NANNY__IDENTITY": str(self.keys / "nanny.key"),
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "30s",
            # Each blow is dealt on purpose; stock Dask gives a task up after the third.
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "50",
            "DASK_DISTRIBUTED__WORKER__PRELOAD": '["verification.soak.preload"]',
            # Functions of the jobs travel by name; wherever the soak was started, this is where.
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **more,
        }
        log = self.state / "logs" / f"{name}.log"
        child = Talking(name, command, environment=environment, log=log, talks=talks)
        self.children[name] = child
        return child


def _gone(child: Child, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not child.group_is_gone and time.monotonic() < deadline:
        time.sleep(0.05)


def _spawned(parent: int) -> int | None:
    """Return the worker among the children of a nanny: its other child watches over resources."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(parent).children():
            if "spawn_main" in " ".join(child.cmdline()):
                return child.pid
    return None

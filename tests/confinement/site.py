"""A cluster whose workers can be confined: keys and policy lie in folders of their own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from safeser.policy.ready import locate
from tests.confinement.conftest import without_capabilities
from tests.processes import DASK, Folder, free_ports, until

SAFESER = str(Path(DASK).with_name("safeser"))

#: Workers of the shared cluster.
WORKERS = 2


class Site(Folder):
    """A scheduler, and the folders of a policy: ``data`` to read and ``scratch`` to write.

    :ivar ports: what the policy lists; the scheduler listens on the first.
    """

    def __init__(self, path: Path, principals: tuple[str, ...], *, ports: int) -> None:
        super().__init__(path, "", principals)
        self.fresh = False
        self.ports = free_ports(ports)
        self.address = f"safeser://127.0.0.1:{self.ports[0]}"
        self.data, self.scratch, self.public = (path / n for n in ("data", "scratch", "etc"))
        for folder in (self.data, self.scratch, self.public):
            folder.mkdir()
        shutil.copy(self.keys / "roster", self.public)

    def write_policy(self, text: str) -> None:
        (self.public / "policy.yaml").write_text(text)

    def environment(self, principal: str, **more: str) -> dict[str, str]:
        own = self.path / f"own-{principal}"
        if not own.exists():
            own.mkdir(mode=0o700)
            for name in (principal, "audit"):
                shutil.copy2(self.keys / f"{name}.key", own)
        return super().environment(
            principal,
            DASK_SAFESER__IDENTITY=str(own / f"{principal}.key"),
            DASK_SAFESER__POLICY=str(self.public / "policy.yaml"),
            DASK_SAFESER__ROSTER=str(self.public / "roster"),
            DASK_SAFESER__AUDIT=str(self.path / f"log-{principal}"),
            **more,
        )

    def start_scheduler(self) -> None:
        command = [DASK, "scheduler", "--protocol", "safeser", "--host", "127.0.0.1"]
        command += ["--port", str(self.ports[0]), "--dashboard-address", "127.0.0.1:0"]
        command += ["--no-dashboard"]
        process = self.start("scheduler", *command, environment=self.environment("scheduler"))
        self._begun["scheduler"] = process

        def listens() -> bool:
            assert process.poll() is None, self.logs()
            return "Scheduler at" in self.log("scheduler")

        until("the scheduler", listens)

    def worker_command(self, name: str) -> list[str]:
        """Return what becomes a worker called *name*, without its ports and folder."""
        command = ["dask", "worker", self.address, "--host", "127.0.0.1", "--no-nanny"]
        command += ["--no-dashboard", "--nthreads", "1", "--name", name, "--memory-limit", "0"]
        return command


class Analysts(Site):
    """The shared cluster ``confined``: the ready policy ``analysts``, and alice, who is one."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ("scheduler", "worker", "nanny", "alice"), ports=3 + 2 * WORKERS)
        told = f"read: [{self.data}], write: [{self.scratch}], ports: {self.ports}, execute: false"
        stated = "read: [/data], write: [/scratch], execute: false"
        policy = locate("analysts").read_text("utf-8")
        assert stated in policy
        self.write_policy(policy.replace(stated, told))

    def begin(self) -> None:
        self.start_scheduler()
        for number in range(WORKERS):
            self._begun[f"worker-{number}"] = self.start_worker(f"worker-{number}", 1 + 2 * number)

    def start_worker(self, name: str, first: int = -2) -> Any:
        """Start a confined worker on two of the :attr:`ports`: nobody is at the last two."""
        ports = self.ports[first], self.ports[first + 1]
        command = [*without_capabilities(), SAFESER, "confined", "--", *self.worker_command(name)]
        command += ["--worker-port", str(ports[0]), "--dashboard-address", f"127.0.0.1:{ports[1]}"]
        return self.start(name, *command, environment=self.environment("worker"))

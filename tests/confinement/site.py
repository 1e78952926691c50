"""A cluster whose workers can be confined: keys and policy lie in folders of their own."""

from __future__ import annotations

import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import DASK, Folder, until

SAFESER = str(Path(DASK).with_name("safeser"))


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in made]


class Site(Folder):
    """A scheduler, and the folders of a policy: ``data`` to read and ``scratch`` to write.

    :ivar ports: what the policy lists; the scheduler listens on the first.
    """

    def __init__(self, path: Path, principals: tuple[str, ...], *, ports: int) -> None:
        super().__init__(path, "", principals)
        self.ports = _free_ports(ports)
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

        def listens() -> bool:
            assert process.poll() is None, self.logs()
            return "Scheduler at" in self.log("scheduler")

        until("the scheduler", listens)

    def worker_command(self, name: str) -> list[str]:
        """Return what becomes a worker called *name*, without its ports and folder."""
        command = ["dask", "worker", self.address, "--host", "127.0.0.1", "--no-nanny"]
        command += ["--no-dashboard", "--nthreads", "1", "--name", name, "--memory-limit", "0"]
        return command

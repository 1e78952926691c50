"""Hostile schedulers towards workers and nannies, which take code from the scheduler they mean.

The one rule: on stock Dask whoever listens at the address is the scheduler. Here it has to hold the
scheduler's key: what a worker would run arrives from nobody else.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.dask.live.payloads import evil
from tests.dask.live.rig import DASK, Rig
from tests.dask.live.wires import Host, Wire

pytestmark = pytest.mark.cluster


class Impostor:
    """Answers registrations with plugins that are code."""

    def __init__(self, rig: Rig, role: str | None) -> None:
        self.nanny = rig.marker(f"nanny-plugin-{role}")
        self.worker = rig.marker(f"worker-plugin-{role}")
        self.host = Host(self._answer, channel=None if role is None else rig.channel(role))

    def _answer(self, wire: Wire) -> None:
        while True:
            message = wire.read()
            if isinstance(message, dict):
                wire.send(self._reply(message))

    def _reply(self, message: dict[str, Any]) -> Any:
        fine = {"status": "OK", "time": time.time(), "heartbeat-interval": 1}
        if message["op"] == "register_nanny":
            return {**fine, "nanny-plugins": {"x": evil(self.nanny, _plugin("Nanny"))}}
        return {**fine, "worker-plugins": {"x": evil(self.worker, _plugin("Worker"))}}


#: What the command line says before it ends.
_WORDS = "did not accept each other"


def _plugin(kind: str) -> str:
    return f"__import__('distributed.diagnostics.plugin', fromlist=['x']).{kind}Plugin()"


def _start(rig: Rig, name: str, address: str, environment: dict[str, str]) -> Any:
    scratch = str(rig.path / f"scratch-{name}")
    options = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--nthreads", "1"]
    command = [DASK, "worker", address, *options, "--local-directory", scratch]
    return rig.cluster.start(name, *command, environment=environment)


def _wait(what: Any, patience: float = 90.0) -> bool:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.05)
    return False


def test_whoever_listens_is_not_the_scheduler(rig: Rig) -> None:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("DASK_")}
    stock = Impostor(rig, None)
    impostors = {role: Impostor(rig, role) for role in ("worker", "unlisted")}
    started = [_start(rig, "deceived", stock.host.address, plain)]
    for role, impostor in impostors.items():
        name = f"warned-by-{role}"
        environment = rig.cluster.environment("worker")
        started.append(_start(rig, name, impostor.host.address, environment))
    try:
        for sink in (stock.nanny, stock.worker):
            assert _wait(sink.exists), f"the control did not run: {sink}"
        for role, impostor in impostors.items():
            assert _wait(lambda impostor=impostor: impostor.host.refused), role
            said = f"warned-by-{role}"
            assert _wait(lambda said=said: _WORDS in rig.cluster.log(said)), rig.cluster.log(said)
            assert not _made(impostor.nanny, impostor.worker)
    finally:
        for process in started:
            process.terminate()
        for impostor in (stock, *impostors.values()):
            impostor.host.close()


def _made(*markers: Path) -> list[Path]:
    return [each for each in markers if each.exists()]

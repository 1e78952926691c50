"""A nanny believes its own worker alone, and nobody waits for one that never starts."""

from __future__ import annotations

import asyncio
import os
import socket
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed.nanny import Nanny

from safeser.dask.roles import Roles
from safeser.operations import Server
from safeser.policy import locate
from tests.dask.patched import Peer, asked, serve, with_rows

# --- whose word ----------------------------------------------------------------------------------


class Watching(Nanny):
    """A nanny that watches the process *pid*."""

    pid = None

    def __init__(self) -> None:
        self.said: list[str] = []
        self.handlers = {"close_gracefully": self.said_to}

    def __del__(self) -> None: ...

    def said_to(self, reason: str = "") -> None:
        self.said.append(reason)


def comm(doors: Any, peer: str, key: str, address: str = "safeser://127.0.0.1:1") -> Any:
    _, link = doors.links(peer, "nanny", "dask-cluster")
    link.session = SimpleNamespace(peer_key=SimpleNamespace(text=key))
    return Peer(link, address)


def watching(worker_key: str | None) -> Watching:
    made = Watching()
    serve(made, Server.NANNY, SimpleNamespace(), worker_key=worker_key)
    return made


@pytest.fixture
def nanny():
    return watching("its worker's")


def ask(nanny: Any, by: Any) -> Any:
    return asked(nanny, nanny.handlers, by, "close_gracefully", reason="r")


def test_a_nanny_hears_of_its_own_worker_that_it_retires(nanny, doors):
    assert ask(nanny, comm(doors, "worker", "its worker's")) is None
    assert ask(nanny, comm(doors, "scheduler", "the scheduler's")) is None
    assert ask(nanny, Peer()) is None
    assert nanny.said == ["r"] * 3


@pytest.mark.parametrize(
    ("pid", "listens"),
    [(None, True), (1 << 30, True), (os.getpid(), False), (os.getpid(), True)],
    ids=("no process", "none of here", "this one", "this one, listening"),
)
@pytest.mark.parametrize("worker_key", ["its worker's", None])
def test_a_nanny_hears_it_of_no_other_worker(doors, worker_key, pid, listens):
    nanny = watching(worker_key)
    nanny.pid = pid
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1] if listens else 1
        by = comm(doors, "worker", "another's", f"safeser://127.0.0.1:{port}")
        said = ask(nanny, by)
    # A worker with a key that only it knows is known by its process.
    known = pid == os.getpid() and listens
    assert nanny.said == ["r"] * known
    assert by.link.audit.rules == ["nanny.another"] * (not known)
    assert known or said["exception"].rule == "nanny.another"


CONFINED = (
    locate("dask-cluster")
    .read_text()
    .replace("  worker: {}\n", "  worker: {confined: {read: [/data], write: [/scratch]}}\n")
)


@pytest.mark.parametrize("operation", ["run", "plugin_add"])
@pytest.mark.parametrize("confined", [True, False])
@pytest.mark.parametrize("worker", ["worker", ""], ids=["known", "unknown"])
def test_the_nanny_of_a_confined_worker_takes_no_code(doors, operation, confined, worker):
    _, link = doors.links("scheduler", "nanny", CONFINED if confined else "dask-cluster")
    nanny = Watching()
    nanny.handlers = {operation: lambda **said: nanny.said_to("taken")}
    serve(nanny, Server.NANNY, SimpleNamespace(policy=link.policy), worker=worker)
    said = asked(nanny, nanny.handlers, Peer(link), operation)
    assert nanny.said == ([] if confined else ["taken"])
    assert link.audit.rules == (["nanny.confined"] if confined else [])
    if confined:
        assert said["exception"].rule == "nanny.confined"


@pytest.mark.parametrize("confined", [True, False])
def test_a_plugin_that_the_scheduler_has_for_nannies_is_left_out(doors, confined):
    """It comes when the nanny registers; nothing of it is opened, and the worker starts."""

    class Taking(Watching):
        async def plugin_add(self, plugin: Any, name: Any = None) -> Any:
            self.said.append(name)
            return {"status": "OK"}

    nanny = with_rows(Taking, "distributed.nanny:Nanny.plugin_add")()
    channel = doors.channel("nanny", CONFINED if confined else "dask-cluster")
    serve(nanny, Server.NANNY, channel, worker="worker")
    answer = asyncio.run(nanny.plugin_add(plugin=b"p", name="environ"))
    assert answer["status"] == ("error" if confined else "OK")
    assert nanny.said == ([] if confined else ["environ"])
    assert channel.audit.rules == (["nanny.confined"] if confined else [])


def test_which_key_the_worker_of_a_nanny_has(net):
    key = Roles.worker({}).public.text
    lines = (net.keys / "roster").read_text().splitlines()
    assert [line.split()[2] for line in lines if line.startswith(f"{key} ")] == ["worker"]
    with dask.config.set({"safeser.worker": {}, "safeser.identity": None}):
        assert Roles.worker({}) is None

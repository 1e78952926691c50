"""A nanny believes its own worker alone, and nobody waits for one that never starts."""

from __future__ import annotations

import asyncio
import os
import socket
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Scheduler
from distributed.comm.core import CommClosedError
from distributed.core import Status
from distributed.nanny import Nanny

from safeser.dask.roles import Roles
from safeser.dask.worker import nannies
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


@pytest.mark.parametrize("pid", [None, os.getpid(), 1 << 30], ids=["none", "own", "nobody"])
def test_a_nanny_hears_it_of_no_other_worker(nanny, doors, pid):
    nanny.pid = pid
    other = comm(doors, "worker", "another's")
    said = ask(nanny, other)
    assert said["exception"].rule == "nanny.another"
    assert other.link.audit.rules == ["nanny.another"]
    assert nanny.said == []


def test_a_worker_with_another_key_is_known_by_its_process(doors):
    nanny = watching(None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"safeser://127.0.0.1:{server.getsockname()[1]}"
        by = comm(doors, "worker", "one that only it knows", address)
        assert ask(nanny, by)["exception"].rule == "nanny.another"
        nanny.pid = os.getpid()
        assert ask(nanny, by) is None
    assert nanny.said == ["r"]


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


# --- who starts ----------------------------------------------------------------------------------


class Comm:
    """A nanny that says that it started when it is told to."""

    def __init__(self) -> None:
        self.told: Any = None
        self.started = asyncio.Event()
        self.cut = False

    async def write(self, message: Any) -> None:
        self.told = message

    async def read(self) -> Any:
        await self.started.wait()
        if self.cut:
            raise CommClosedError("cut")
        return {"status": "ok"}


class Cluster:
    def __init__(self, doors: Any, *, guarded: bool) -> None:
        self.scheduler = Scheduler(dashboard_address="127.0.0.1:0", dashboard=False)
        self.scheduler.http_server.stop()
        Scheduler._instances.discard(self.scheduler)
        self.scheduler.status = Status.running
        self.added: list[Any] = []
        self.rpc_fails = False
        if guarded:
            serve(self.scheduler, Server.SCHEDULER, doors.channel("scheduler", "dask-cluster"))
        self.scheduler.broadcast = self.broadcast
        self.scheduler.rpc = self.rpc

    async def broadcast(self, msg: Any, nanny: bool) -> Any:
        assert nanny
        self.added.append(("all", msg["name"]))
        return {}

    def rpc(self, address: str) -> Any:
        async def plugin_add(plugin: bytes, name: str) -> None:
            if self.rpc_fails:
                raise OSError("gone")
            self.added.append((address, name))

        return SimpleNamespace(plugin_add=plugin_add)

    def starts(self, address: str) -> tuple[Comm, Any]:
        comm = Comm()
        handler = self.scheduler.handlers["register_nanny"]
        return comm, asyncio.ensure_future(handler(comm, address=address))

    async def plugin(self, name: str, idempotent: bool = False) -> Any:
        handler = self.scheduler.handlers["register_nanny_plugin"]
        return await handler(None, plugin=b"p", name=name, idempotent=idempotent)

    async def end(self) -> None:
        self.scheduler.status = Status.closed


def on(doors: Any, what: Any, *, guarded: bool = True) -> None:
    async def made() -> None:
        cluster = Cluster(doors, guarded=guarded)
        try:
            await what(cluster)
        finally:
            await cluster.end()

    asyncio.run(asyncio.wait_for(made(), 30))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(nannies, "PATIENCE", 0.05)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_nanny_that_never_starts_keeps_nobody(doors, impatient, guarded):
    async def main(c: Cluster) -> None:
        _, never = c.starts("safeser://127.0.0.1:1")
        await asyncio.sleep(0)
        asked = asyncio.ensure_future(c.plugin("p"))
        await asyncio.wait([asked], timeout=1 if guarded else 0.2)
        assert asked.done() is guarded
        assert c.added == ([("all", "p")] if guarded else [])
        for task in (asked, never):
            task.cancel()
        await asyncio.gather(asked, never, return_exceptions=True)

    on(doors, main, guarded=guarded)


def test_a_plugin_waits_for_those_that_start_and_for_no_others(doors):
    async def main(c: Cluster) -> None:
        first, one = c.starts("safeser://127.0.0.1:1")
        await asyncio.sleep(0)
        asked = asyncio.ensure_future(c.plugin("p"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        # Of the same address: who comes later was told of it, and takes nobody's place.
        second, two = c.starts("safeser://127.0.0.1:1")
        await asyncio.sleep(0)
        assert second.told["nanny-plugins"] == {"p": b"p"}
        second.cut = True
        second.started.set()
        with pytest.raises(CommClosedError):
            await two
        assert not asked.done()
        first.started.set()
        await one
        await asked
        assert c.added == [("all", "p")]
        third, three = c.starts("safeser://127.0.0.1:3")
        await asyncio.sleep(0)
        assert await c.plugin("p", idempotent=True) == {}
        third.started.set()
        await three

    on(doors, main)


def test_who_took_longer_is_told_afterwards(doors, impatient):
    async def main(c: Cluster) -> None:
        known = SimpleNamespace(nanny="safeser://127.0.0.1:2")
        c.scheduler.workers["safeser://127.0.0.1:9"] = known
        late = [c.starts(f"safeser://127.0.0.1:{n}") for n in (1, 2, 3)]
        await asyncio.sleep(0)
        await c.plugin("p")
        await c.plugin("q")
        del c.scheduler.nanny_plugins["q"]
        for comm, _ in late[:2]:
            comm.started.set()
        await asyncio.gather(*(task for _, task in late[:2]))
        # The one whose worker is there was told with all others.
        assert c.added == [("all", "p"), ("all", "q"), ("safeser://127.0.0.1:1", "p")]
        c.rpc_fails = True
        late[2][0].started.set()
        await late[2][1]
        del c.scheduler.workers["safeser://127.0.0.1:9"]

    on(doors, main)

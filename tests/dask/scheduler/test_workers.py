"""Which workers a scheduler of Dask's own registers, and what it looks up and refuses for them."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.comm import tcp
from distributed.comm.core import CommClosedError
from distributed.scheduler import Scheduler

from safeser.dask.scheduler.workers import Workers
from safeser.dask.servers import served
from safeser.operations import Server
from tests.dask.patched import serve
from tests.dask.registered import Cluster, Comm, address, on


@pytest.fixture(params=["stock", "guarded"])
def guarded(request) -> bool:
    return bool(request.param == "guarded")


def test_nothing_is_left_of_a_registration_that_ends_half_way(doors, guarded):
    async def main(c: Cluster) -> None:
        # Shapes refuse such a report before it comes here; so may anything else end it there.
        half = await c.register(1, metrics={})
        with pytest.raises(KeyError):
            await half.task
        cut = await c.register(2, comm=Comm(c.link("one"), breaks=True))
        with pytest.raises(CommClosedError):
            await cut.task
        left = set(c.scheduler.workers)
        assert left == (set() if guarded else {address(1), address(2)})
        if guarded:
            assert not c.scheduler.running
            assert not c.scheduler.aliases
            assert not c.scheduler.stream_comms
            await c.register(1)
            assert address(1) in c.scheduler.workers
        else:
            # What moves values, and has workers retire, looks at all workers, and stops for good.
            for error in (KeyError, AssertionError):
                with pytest.raises(error):
                    c.scheduler.extensions["amm"].run_once()

    on(doors, guarded, main)


def test_who_is_there_stays_when_the_same_address_comes_again(doors, guarded):
    async def main(c: Cluster) -> None:
        await c.register(1)
        again = await c.register(1, "other", server_id="Worker-else", name="else")
        with pytest.raises(ValueError, match="already exists"):
            await again.task
        assert c.scheduler.workers[address(1)].server_id == "Worker-1"
        taken = await c.register(2, "other", name="w1")
        await taken.task
        assert taken.said[0]["message"] == "name taken, w1"
        assert address(2) not in c.scheduler.workers

    on(doors, guarded, main)


@pytest.mark.parametrize("name", ["replicate", "rebalance"])
def test_a_worker_asks_for_no_copies(doors, guarded, name):
    async def main(c: Cluster) -> None:
        worker = await c.register(1)
        asked: list[Any] = []
        c.scheduler.handlers[name] = lambda **request: asked.append(request)
        request = {"keys": ["k"], "workers": [address(1)]}
        await c.ask(name, worker.link, **request)
        assert bool(asked) is not guarded
        await c.ask(name, c.link("another's key"), **request)
        await c.ask(name, c.link("carol's", "carol"), **request)
        await c.ask(name, c.link("a viewer's", "dashboard"), **request)
        await c.ask(name, None, **request)
        if guarded:
            assert worker.link.audit.rules == ["worker.copies"]
            assert len(asked) == 2  # of one who submits, and of this process itself

    on(doors, guarded, main)


# --- names of hosts ------------------------------------------------------------------------------


class Held(Scheduler):
    def __init__(self) -> None:
        self.aliases = {"first": "safeser://127.0.0.1:1", 7: "safeser://127.0.0.1:7"}

    def __del__(self) -> None: ...


@pytest.fixture
def asked(monkeypatch):
    names: list[Any] = []
    stock = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(host)
        if host != "localhost":
            raise OSError("no such host")
        return stock("127.0.0.1", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    # Without what Dask remembers of earlier answers.
    monkeypatch.setattr(tcp, "ensure_ip", vars(tcp.ensure_ip).get("__wrapped__", tcp.ensure_ip))
    return names


@pytest.fixture
def scheduler():
    made = Held()
    serve(made, Server.SCHEDULER, SimpleNamespace())
    return made


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("safeser://127.0.0.1:5", "safeser://127.0.0.1:5"),
        ("safeser://[::1]:5", "safeser://[::1]:5"),
        ("127.0.0.1:5", "safeser://127.0.0.1:5"),
        ("first", "safeser://127.0.0.1:1"),
        (7, "safeser://127.0.0.1:7"),
        ("safeser://node.invalid:1", "safeser://node.invalid:1"),
        ("node.invalid:1", "safeser://node.invalid:1"),
        ("tcp://node.invalid:1", "tcp://node.invalid:1"),
        ("safeser://\ud800:1", "safeser://\ud800:1"),
    ],
)
def test_what_names_a_worker_is_looked_up_nowhere(scheduler, asked, address, found):
    assert scheduler.coerce_address(address) == found
    assert asked == []


@pytest.mark.parametrize("address", ["node.invalid", "safeser://", "safeser://node.invalid", ""])
def test_what_names_no_port_is_taken_for_a_host(scheduler, asked, address):
    with pytest.raises(ValueError):
        scheduler.coerce_address(address)
    assert asked == []


def test_the_host_of_a_worker_that_registers_is_looked_up(scheduler, asked):
    with pytest.raises(OSError, match="no such host"):
        scheduler.coerce_address("safeser://node.invalid:1", True)
    assert asked == ["node.invalid"]


def test_a_worker_that_registered_by_the_name_of_a_host_is_known_by_it(scheduler, asked):
    name, found = "safeser://localhost:1", "safeser://127.0.0.1:1"
    scheduler.workers = {}

    async def register(comm: Any, *, address: str) -> None:
        assert scheduler.coerce_address(address, True) == found
        asked.clear()
        assert scheduler.coerce_address(address) == found

    assert scheduler.coerce_address(name) == name
    workers = served(scheduler).part(scheduler, Workers)
    asyncio.run(workers.register(register, None, address=name))
    assert asked == []


def test_the_name_in_a_heartbeat_of_no_registered_worker_is_not_kept(scheduler, asked):
    assert scheduler.coerce_address("safeser://localhost:1", True) == "safeser://127.0.0.1:1"
    asked.clear()
    assert scheduler.coerce_address("safeser://localhost:1") == "safeser://localhost:1"
    assert asked == []

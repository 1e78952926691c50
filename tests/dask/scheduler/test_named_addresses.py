"""The scheduler asks no name server for what a client names."""

from __future__ import annotations

import asyncio
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.comm import tcp
from distributed.scheduler import Scheduler

from safeser.dask.scheduler.named_addresses import Names
from safeser.dask.servers import part_of
from safeser.errors import ConfigError, PayloadError
from safeser.operations import Server
from tests.dask.patched import serve
from tests.refusal import refusal


class Held(Scheduler):
    def __init__(self) -> None:
        self.workers: dict[str, Any] = {}
        self.aliases = {"first": "safeser://127.0.0.1:1", 7: "safeser://127.0.0.1:7"}

    def __del__(self) -> None: ...


@pytest.fixture
def asked(monkeypatch):
    names: list[Any] = []
    stock = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(host)
        return stock("127.0.0.9" if host == "node.invalid" else host, *args, **kwargs)

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
    "address",
    [
        "safeser://node.invalid:1",
        "node.invalid",
        "tcp://node.invalid:1",
        "safeser://127.0.0.1.node.invalid:1",
        "safeser://\ud800:1",
        ("node.invalid", 1),
        "safeser://",
    ],
)
def test_no_name_is_looked_up(scheduler, asked, address):
    with pytest.raises(ValueError):
        scheduler.coerce_address(address)
    assert asked == []


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("safeser://127.0.0.1:5", "safeser://127.0.0.1:5"),
        ("safeser://[::1]:5", "safeser://[::1]:5"),
        ("safeser://localhost:5", "safeser://127.0.0.1:5"),
        ("127.0.0.1:5", "safeser://127.0.0.1:5"),
        (("127.0.0.1", 5), "safeser://127.0.0.1:5"),
        ("first", "safeser://127.0.0.1:1"),
        (7, "safeser://127.0.0.1:7"),
    ],
)
def test_addresses_and_names_of_workers_are(scheduler, address, found):
    assert scheduler.coerce_address(address) == found


@pytest.mark.parametrize("name", [3, 2**62, 1.5, True])
def test_a_number_by_which_no_worker_registered_is_refused_with_a_rule(scheduler, name):
    with refusal(PayloadError, "worker.unknown", match=rf"no worker of the name {name!r}"[:40]):
        scheduler.coerce_address(name)


def looked_up(scheduler, address):
    asyncio.run(part_of(scheduler, Names).look_up(address))


def test_a_worker_that_registers_by_a_name_is_known_by_it(scheduler, asked):
    name, found = "safeser://node.invalid:1", "safeser://127.0.0.9:1"
    assert scheduler.coerce_address(name, True) == name  # whose heartbeat is of no worker
    assert asked == []
    looked_up(scheduler, name)
    assert asked == ["node.invalid"]
    assert scheduler.coerce_address(name, True) == found
    assert scheduler.coerce_address(name) == found
    scheduler.workers = {found: None}
    part_of(scheduler, Names).forget(name)  # as who registers it again, and is refused
    assert scheduler.coerce_address(name) == found
    scheduler.workers = {}
    part_of(scheduler, Names).forget(name)
    with pytest.raises(ValueError):
        scheduler.coerce_address(name)
    for address in ("safeser://127.0.0.1:5", "first", "safeser://localhost:1"):
        looked_up(scheduler, address)
    assert asked == ["node.invalid"]


def test_nobody_waits_for_names_that_somebody_else_registers_by(scheduler, monkeypatch):
    threads = []

    def resolve_address(address: str) -> str:
        threads.append(threading.current_thread())
        return "safeser://127.0.0.9:1"

    monkeypatch.setattr("safeser.dask.scheduler.named_addresses.resolve_address", resolve_address)
    looked_up(scheduler, "safeser://slow.invalid:1")
    assert threads[0] is not threading.current_thread()


def test_a_scheme_that_is_closed_is_none_of_an_address(scheduler, monkeypatch):
    def resolve_address(address: str) -> str:
        raise ConfigError("closed", rule="scheme.sealed")

    monkeypatch.setattr("distributed.scheduler.resolve_address", resolve_address)
    with pytest.raises(ValueError, match="closed"):
        scheduler.coerce_address("tcp://127.0.0.1:1")

"""A client whose scheduler does not answer as one, when it connects and when it connects again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import distributed
import msgpack
import pytest
from distributed.protocol.serialize import Serialized

from safeser.channel import Channel
from safeser.dask.client import Client
from safeser.errors import AuthenticationError, PayloadError, PolicyDenied
from safeser.policy import Policy
from tests.dask.live.rig import Silent
from tests.dask.live.wires import Host, PayloadRow, Sealing, Stock, Wire, channel_of

START = [{"op": "stream-start"}]

#: What a scheduler may say in place of START, and the rule by which it is refused.
OPENINGS: list[tuple[Any, str]] = [
    ([{"op": "nonsense"}], "operation.unknown"),
    ([{"op": "stream-start", "warning": {"x": 1}}], "operation.field-shape"),
    ([{"op": "key-in-memory", "key": "k", "type": None}], "reply.opening"),
    ([*START, *START], "reply.opening"),
    ([], "reply.opening"),
    ("x", "operation.missing"),
    ({"status": "OK"}, "reply.opening"),
]


# -- on a connection -------------------------------------------------------------------------------


def asked(talk: Any) -> Any:
    made = talk("alice")
    made.request({"op": "register-client", "client": "Client-1", "reply": False, "versions": {}})
    return made


@pytest.mark.parametrize(("opening", "rule"), OPENINGS)
def test_what_does_not_open_a_stream_is_refused_at_once(talk, opening, rule):
    made = asked(talk)
    with pytest.raises((PayloadError, PolicyDenied)) as refused:
        made.attack_back(opening)
    assert refused.value.rule == rule
    assert made.asker.forgotten


def test_so_is_a_first_message_that_cannot_be_read(talk):
    made = asked(talk)
    with pytest.raises(PayloadError):
        made.raw_back(b"\xc1")
    assert made.asker.forgotten


def test_what_is_refused_later_is_left_out(talk):
    made = talk("alice").client_stream()
    assert not made.asker.forgotten
    assert made.attack_back([{"op": "nonsense"}]) is made.SKIP
    assert made.attack_back(START) == ({"op": "stream-start"},)
    assert not made.asker.forgotten


@pytest.mark.parametrize("said", [{}, {"exception": None, "traceback": None}])
def test_a_failure_that_does_not_say_what_failed_is_refused(talk, said):
    """Dask raises what arrived, and None cannot be raised."""
    made = talk("alice").client_stream()
    (element,) = made.attack_back([{"op": "task-erred", "key": "x", **said}])
    assert isinstance(element["exception"], PayloadError)
    assert (element["op"], element["key"]) == ("task-erred", "x")


def test_so_is_a_reply_that_does_not_say_what_failed(talk):
    made = talk("alice")
    made.request({"op": "get_metadata", "keys": ["x"]})
    reply = made.attack_back({"status": "uncaught-error", "exception": None})
    assert isinstance(reply["exception"], PayloadError)


# -- Dask's own client -----------------------------------------------------------------------------


def connecting(monkeypatch, error: Exception, *, before: bool) -> Any:
    """Return what a client that was connected *before* raises where connecting raises *error*."""

    async def fails(self: Any, timeout: Any = None) -> None:
        raise error

    monkeypatch.setattr(distributed.Client, "_ensure_connected", fails)
    client = Client.__new__(Client)
    client._was_connected = before
    with pytest.raises(Exception) as raised:
        asyncio.run(client._ensure_connected(timeout=1))
    return raised.value


def test_dask_tries_again_after_what_it_knows(monkeypatch):
    refused = AuthenticationError("not accepted")
    assert connecting(monkeypatch, refused, before=False) is refused
    again = connecting(monkeypatch, refused, before=True)
    assert isinstance(again, OSError)
    assert "not accepted" in str(again)
    other = ValueError()
    assert connecting(monkeypatch, other, before=True) is other


# -- processes -------------------------------------------------------------------------------------


class Scheduler(Host):
    """Answers a client as it needs; between two honest connections it lets *impostors* answer."""

    def __init__(self, channel: Channel | None, *, opening: Any = START) -> None:
        self.opening = opening
        self.impostors: list[Any] = []
        self.waiting: list[Any] = []
        self.open: list[Wire] = []
        self.lock = threading.Lock()
        super().__init__(self._answers, channel=channel)

    def _serve(self, connection: socket.socket) -> None:
        with self.lock:
            impostor = self.impostors.pop(0) if self.impostors else None
        if impostor is None:
            super()._serve(connection)
            return
        with contextlib.suppress(Exception):
            impostor(connection)
        connection.close()

    def _answers(self, wire: Wire) -> None:
        self.open.append(wire)
        while True:
            message = wire.read()
            if isinstance(message, list | tuple):
                keys = [key for each in message for key in each.get("keys") or ()]
                if message[0]["op"] == "update-graph":
                    wire.send([{"op": "key-in-memory", "key": k, "type": None} for k in keys])
            elif message["op"] == "register-client":
                wire.send(self.opening)
            elif message["op"] == "set_metadata":
                # All connections end, and who connects meets the others first.
                self.impostors = list(self.waiting)
                for each in self.open:
                    with contextlib.suppress(OSError):
                        each.socket.shutdown(socket.SHUT_RDWR)
            elif message["op"] == "gather":
                wire.send({"status": "OK", "data": {k: self.value() for k in message["keys"]}})
            elif message["op"] == "identity":
                none = {"started": 0.0, "n_workers": 0, "total_threads": 0, "total_memory": 0}
                who = {"type": "Scheduler", "id": "s", "address": self.address, "services": {}}
                wire.send({**who, **none, "workers": {}})
            elif message.get("reply", True) is not False:
                wire.send("OK")

    def value(self) -> Any:
        header, frame = {"serializer": "msgpack"}, msgpack.packb(5)
        if self.channel is not None:
            return PayloadRow(header, (frame,))
        return Serialized(header, [frame])


PROGRAM = """
import contextlib, sys, time
import safeser

def connected():
    deadline = time.monotonic() + 60
    while client.status != "running" and time.monotonic() < deadline:
        time.sleep(0.02)
    return client.status

try:
    client = safeser.Client(sys.argv[1], timeout=30, name="c", deserializers=["dask", "msgpack"])
except safeser.SafeserError as error:
    print(type(error).__name__, error.rule)
    sys.exit()
print(client.submit(abs, -5).result(timeout=30))
with contextlib.suppress(OSError):
    client.set_metadata("cut", True)
while client.status == "running":
    time.sleep(0.02)
print(connected())
print(client.submit(abs, -6, pure=False).result(timeout=30))
client.close()
print(client.status)
"""


def garbage(connection: socket.socket) -> None:
    connection.recv(10)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20)


@pytest.fixture
def channels(folder) -> Any:
    policy = Policy.load("demo")
    return lambda who: channel_of(folder.keys, who, policy, Silent())


@pytest.fixture(params=["safeser", "tcp"])
def server(request, channels) -> Iterator[Scheduler]:
    with Scheduler(channels("scheduler") if request.param == "safeser" else None) as made:
        yield made


@pytest.fixture
def ended(server, folder) -> Any:
    """Return the end of the program; a guarded client has no key of its own."""
    environment = folder.environment("alice")
    if server.channel is None:
        environment = {k: v for k, v in environment.items() if not k.startswith("DASK_SAFESER")}
    command = (sys.executable, "-c", PROGRAM, server.address)
    return lambda: folder.call(*command, environment=environment, timeout=100)


@pytest.mark.cluster
def test_who_answers_once_in_the_schedulers_place_does_not_end_a_client(server, ended):
    def opens_nothing(connection: socket.socket) -> None:
        wire = (
            Stock(connection)
            if server.channel is None
            else Sealing(connection, server.channel, asks=False)
        )
        wire.greet({})
        while True:
            message = wire.read()
            if message["op"] == "register-client":
                wire.send([{"op": "key-in-memory", "key": "k", "type": None}])
            else:
                wire.send("x")

    server.waiting = [garbage, opens_nothing]
    end = ended()
    assert end.out.split() == ["5", "running", "5", "closed"], end.err
    assert not server.impostors


@pytest.mark.cluster
def test_a_client_whose_stream_never_opens_says_why_at_once(server, ended):
    server.opening = [{"op": "nonsense"}]
    end = ended()
    assert end.out == "PolicyDenied operation.unknown\n", end.err


# -- a session that was ended for a reason ---------------------------------------------------------

WHY = "scheduler ended the session with alice: the key of alice is retired in the roster"


class Cancelled:
    """Stands for the state of a future."""

    def cancel(self, *, reason, msg):
        self.said = (reason, msg)


def ended_client(monkeypatch, why):
    client = Client.__new__(Client)
    client.scheduler_comm = SimpleNamespace(comm=SimpleNamespace(ended_because=why))
    client.futures = {"a": Cancelled(), "b": Cancelled()}
    again = []

    async def reconnect(self):
        again.append(dict(self.futures))

    monkeypatch.setattr(distributed.Client, "_reconnect", reconnect)
    return client, again


def test_futures_say_why_the_session_ended_and_nothing_new_is_taken(monkeypatch):
    client, again = ended_client(monkeypatch, WHY)
    states = list(client.futures.values())
    asyncio.run(client._reconnect())
    assert again == [{}]
    for each in states:
        reason, said = each.said
        assert reason == "session-ended"
        assert said.startswith(WHY)
    with pytest.raises(AuthenticationError, match="the key of alice is retired") as refused:
        client._graph_to_futures({}, [])
    assert refused.value.rule == "session.ended"


def test_a_connection_that_was_lost_is_dasks_to_name(monkeypatch):
    client, again = ended_client(monkeypatch, "")
    asyncio.run(client._reconnect())
    [futures] = again
    assert set(futures) == {"a", "b"}
    client._require_session()

"""The work of which ``make trust`` measures what it enters: on real sockets, with logs in files.

The one rule: nothing of the other side is measured. It runs in another thread, or before.
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import pickle
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Scheduler
from distributed.protocol import to_serialize
from distributed.utils import offload
from tornado.iostream import IOStream

from safeser import AuditLog, Channel, Identity, Security, pickles
from safeser.audit import AuditKey
from safeser.dask.transport.comm import REFUSED, SafeserComm
from safeser.gate import Handshake
from safeser.identities import make_identities
from tests.conftest import Doors
from tests.dask.conftest import Talk
from verification.trust.measuring import Entered, Recorder

__all__ = ["CASES", "measured"]

#: Each work is done so often. After the first one, what can be remembered is remembered.
ROUNDS = 5
POLICY = "default"

STRANGER = "a stranger, refused by a listener"
READ, WRITTEN = "an array: scheduler reads it", "an array: scheduler passes it on"
ARRAY, PICKLE = "an array arrives at a client", "a pickle is loaded"
CASES = (STRANGER, ARRAY, PICKLE, READ, WRITTEN)


async def measured(folder: Path) -> dict[str, list[Entered]]:
    """Return what each round of each case entered; *folder* is for keys and logs."""
    recorder = Recorder()
    recorder.watch()
    await offload(recorder.watch)  # the thread in which large messages are understood
    return {
        **await _arrays(recorder, folder),
        PICKLE: _pickles(recorder),
        STRANGER: await _strangers(recorder, folder / "cluster"),
    }


async def _strangers(recorder: Recorder, folder: Path) -> list[Entered]:
    """Let processes whose keys nobody lists connect to a scheduler."""
    make_identities(folder, ("scheduler", "client", "worker", "nanny"))
    security = Security(
        identity=str(folder / "scheduler.key"), policy=POLICY, audit=str(folder / "audit")
    )
    options = {"protocol": "safeser://", "host": "127.0.0.1", "dashboard": False}
    rounds: list[Entered] = []
    async with Scheduler(**options, security=security) as scheduler:
        for _ in range(ROUNDS):
            with recorder.during() as found:
                await asyncio.to_thread(_knock, scheduler.port)
            rounds += found
    return rounds


def _knock(port: int) -> None:
    stranger = Identity.generate("stranger")
    policy = (POLICY, 1, "ab" * 32)
    handshake = Handshake(
        initiator=True, identity=stranger, principal_of=lambda key: "scheduler", policy=policy
    )
    with socket.create_connection(("127.0.0.1", port)) as peer, peer.makefile("rb") as heard:
        peer.sendall(handshake.outgoing)
        while not handshake.complete:
            peer.sendall(handshake.feed(heard.read(handshake.wanted)))
        assert heard.read() == REFUSED


class _Doors(Doors):
    """Channels that write their logs to files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def channel(self, principal: str, policy: Any, **options: Any) -> Channel:
        log = AuditLog.open(self._folder, key=AuditKey(bytes(32)), principal=principal)
        return super().channel(principal, policy, audit=log)


class _Connection:
    """A conversation whose asker reads on a real connection what its server sealed."""

    def __init__(self, recorder: Recorder, talk: Talk) -> None:
        self._recorder, self._talk = recorder, talk
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._far = socket.create_connection(server.getsockname())
            near, _ = server.accept()
        near.setblocking(False)
        names = ("safeser://127.0.0.1:1", "safeser://127.0.0.1:2")
        opens = talk.asker._opens
        self._comm = SafeserComm(IOStream(near), *names, opens, link=talk.near, server=None)
        self._comm.conversation = talk.asker

    async def read(self, frames: list[Any]) -> tuple[Any, Entered]:
        wire = b"".join(self._talk.far.session.seal(b"", frames))
        sending = threading.Thread(target=self._far.sendall, args=(wire,))
        with self._recorder.during() as found:
            sending.start()
            message = await self._comm.read()
        sending.join()
        return message, found[0]


async def _arrays(recorder: Recorder, folder: Path) -> dict[str, list[Entered]]:
    """Send an array of 800 kB from a worker by its scheduler to a client."""
    array = np.arange(100_000.0)
    doors = _Doors(folder / "logs")
    worker = Talk(doors, "scheduler", "worker", POLICY).greet()
    client = Talk(doors, "client", "scheduler", POLICY).greet()
    to_scheduler, to_client = _Connection(recorder, worker), _Connection(recorder, client)
    rounds: dict[str, list[Entered]] = {READ: [], WRITTEN: [], ARRAY: []}
    for _ in range(ROUNDS):
        worker.request({"op": "get_data", "keys": ["x"], "who": "safeser://1:1", "reply": True})
        frames = worker.server.send({"status": "OK", "data": {"x": to_serialize(array)}})
        relayed, read = await to_scheduler.read(frames)
        worker.request("OK")
        client.request({"op": "gather", "keys": ["x"], "reply": True})
        with recorder.during() as written:
            frames = client.server.send({"status": "OK", "data": relayed["data"]})
        got, opened = await to_client.read(frames)
        np.testing.assert_array_equal(got["data"]["x"], array)
        for case, entered in ((READ, read), (WRITTEN, written[0]), (ARRAY, opened)):
            rounds[case].append(entered)
    return rounds


def _pickles(recorder: Recorder) -> list[Entered]:
    """Load a pickle of what profile ``data`` allows."""
    day = datetime.date(2026, 1, 1)
    value = {"day": day, "price": decimal.Decimal("9.90"), "tags": ["x", "y"], "at": (1, 2.5)}
    data = pickle.dumps(value, protocol=5)
    rounds: list[Entered] = []
    for _ in range(ROUNDS):
        with recorder.during() as found:
            assert pickles.loads(data, profile="data") == value
        rounds += found
    return rounds

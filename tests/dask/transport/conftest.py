"""Tests that are coroutines, connections to servers on loopback, and hostile ones in memory."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket

import pytest
from distributed.comm.core import connect
from tornado.iostream import IOStream

from safeser.dask.transport.comm import SafeserComm
from safeser.operations import Server
from tests.dask.conftest import GREETING
from tests.dask.forged import forged


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own, for at most half a minute."""
    function = pyfuncitem.function
    if not inspect.iscoroutinefunction(function):
        return None
    names = inspect.signature(function).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def bounded() -> None:
        await asyncio.wait_for(function(**arguments), 30)

    asyncio.run(bounded())
    return True


@pytest.fixture
def connected(net):
    """Return what opens a connection to a server of a kind, and yields its listener and its end."""

    @contextlib.asynccontextmanager
    async def opened(server="Scheduler"):
        async with net.serving(server) as listener:
            comm = await connect(listener.contact_address, timeout=10, **net.arguments())
            try:
                yield listener, comm
            finally:
                comm.abort()

    return opened


class Wire:
    """One side of a connection, and the socket of a peer that says what it likes.

    :param asks: the side is the client's, and its peer the scheduler; else it is the scheduler's.
    """

    def __init__(self, doors, sender, *, asks=False):
        links = doors.links(sender, "scheduler")
        self.near, far = links[::-1] if asks else links
        server = None if asks else Server.SCHEDULER
        self.mine, theirs = socket.socketpair()
        self.mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        self.comm = SafeserComm(
            IOStream(theirs), "safeser://a", "safeser://b", False, link=far, server=server
        )

    def sealed(self, *frames):
        return b"".join(map(bytes, self.near.session.seal(b"", list(frames))))

    def near_reads(self):
        """Read one message of the comm's."""
        session = self.near.session
        prelude = session.prelude(self.mine.recv(64))
        arrival = session.arrival(prelude, self.mine.recv(prelude.block))
        return arrival.whole(memoryview(self.mine.recv(prelude.rest) if prelude.rest else b""))

    def say(self, message):
        self.mine.sendall(self.sealed(*forged(message)))

    async def greet(self, *, stream=False):
        self.say(GREETING)
        if self.comm.conversation.server is None:
            await self.comm.write(GREETING)
        await self.comm.read()
        if self.comm.conversation.server is not None:
            await self.comm.write(GREETING)
        if stream:
            self.say({"op": "register-client", "client": "Client-1", "reply": False})
            await self.comm.read()
        return self.comm


@pytest.fixture
def wire(doors):
    made = []

    def open_wire(sender="alice", **options):
        made.append(Wire(doors, sender, **options))
        return made[-1]

    yield open_wire
    for each in made:
        each.comm.abort()
        each.mine.close()

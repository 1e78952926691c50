"""Renewals of a session that a peer begins again and again, or does not finish."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from distributed.comm.core import connect, listen

from safeser.channel.records import Recording
from safeser.dask.messages.conversation import SKIP
from safeser.dask.settings import channel_for
from safeser.dask.transport.unfinished import Arriving, unfinished
from tests.dask.transport.test_session_control import eventually, renewed_by

# --- renewals that a peer begins again and again --------------------------------------------------


@contextlib.asynccontextmanager
async def both_ends(net):
    """Yield the two ends of one connection that lasts, which nothing reads by itself."""
    ends = []

    async def handle(self, comm):
        ends.append(comm)
        await asyncio.Event().wait()

    server = type("Scheduler", (), {"__module__": "distributed.x", "handle": handle})()
    listener = await listen("safeser://127.0.0.1:0", server.handle)
    near = await connect(listener.contact_address, timeout=10, **net.arguments())
    await eventually(lambda: ends, "the connection")
    near.link.lasts = ends[0].link.lasts = True
    try:
        yield near, ends[0], listener._channel
    finally:
        near.abort()
        ends[0].abort()
        listener.stop()


async def hears(comm):
    """Return the next message as it is."""
    with Arriving(unfinished, comm.link.peer, comm.abort) as arriving:
        verified = await comm._receive(arriving)
    return [verified.header, *map(bytes, verified.frames)]


async def takes(comm, count=1):
    """Take that many messages about the session."""
    for _ in range(count):
        assert await comm._next(None) is SKIP


@pytest.fixture
def begun(monkeypatch):
    """Return who began a handshake inside a session; a second one comes too soon."""
    begun = []
    monkeypatch.setattr("safeser.dask.transport.session_control._AGAIN", 1e9)
    handshake = Recording.handshake

    def counted(link, *, initiator):
        begun.append(link.local)
        return handshake(link, initiator=initiator)

    monkeypatch.setattr(Recording, "handshake", counted)
    return begun


async def test_a_peer_that_says_hello_again_is_refused_at_no_cost(net, begun, caplog):
    async with both_ends(net) as (near, far, _):
        hello = channel_for("client").renewing(near.link, initiator=True).outgoing
        for _ in range(4):
            await near._send_sealed(b"renew", [b"hello", hello])
            await takes(far)
        said = [await hears(near) for _ in range(4)]
        assert [name for _, name, _ in said] == [b"answer", b"refuse", b"refuse", b"refuse"]
        assert begun == ["scheduler"]
        for _ in range(4):
            await near._send_sealed(b"renew", [b"refuse", b""])
            await takes(far)
        assert "does not accept" not in caplog.text  # nothing is under way
        await near._send([b"on"])
        assert await hears(far) == [b"", b"on"]


async def test_a_peer_that_asks_again_and_again_gets_one_handshake(net, begun):
    async with both_ends(net) as (near, far, _):
        for _ in range(4):
            for name in (b"ask", b"refuse"):
                await far._send_sealed(b"renew", [name, b""])
            await takes(near, 2)
        assert begun == ["client"]


async def test_a_step_that_is_interrupted_closes_the_connection(net):
    """Its answer is never sent, and the other side would wait for it as long as it lives."""
    async with both_ends(net) as (near, far, _):
        hello = channel_for("client").renewing(near.link, initiator=True).outgoing
        await near._send_sealed(b"renew", [b"hello", hello])
        await far._sealing.acquire()
        reading = asyncio.ensure_future(far.read())
        await eventually(lambda: far.control._renewal.under_way, "the hello")
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        assert far.closed()


async def test_a_step_waits_for_a_peer_that_reads_nothing(net):
    """Who asks and never reads would have the answers pile up here."""
    async with both_ends(net) as (near, far, _):
        far.stream.write(bytes(64 << 20))
        sending = asyncio.ensure_future(far.send_control(b"renew", [b"ask", b""], then=list))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not sending.done()
        await near.stream.read_into(bytearray(64 << 20))
        await sending


async def test_who_was_asked_before_a_connection_lasted_is_renewed_once_then(net, monkeypatch):
    monkeypatch.setattr("safeser.dask.transport.session_control._AGAIN", 0.0)

    async with both_ends(net) as (near, far, _):
        near.link.lasts = False
        await far._send_sealed(b"renew", [b"ask", b""])
        await takes(near)
        assert near.link.stale
        near.link.lasts = True  # it registered
        readers = [asyncio.ensure_future(comm.read()) for comm in (near, far)]
        before = near.link.session.id
        channel_for("client").tend()
        await eventually(lambda: far.link.session.id != before, "the renewal")
        assert not near.link.stale
        for reader in readers:
            reader.cancel()


async def test_who_asked_before_a_connection_lasted_asks_again_for_the_next_key(net, monkeypatch):
    monkeypatch.setattr("safeser.dask.transport.session_control._AGAIN", 0.0)

    async with both_ends(net) as (near, far, server):
        far.link.lasts, far.link.stale = False, True
        server.tend()
        assert (await hears(near))[:2] == [b"renew", b"ask"]
        far.link.lasts, far.link.stale = True, False
        readers = [asyncio.ensure_future(comm.read()) for comm in (near, far)]
        new = renewed_by(server, channel_for("client"), name="scheduler")
        await eventually(lambda: near.link.session.peer_key == new.public, "the renewal")
        for reader in readers:
            reader.cancel()

"""The guarded comm over real sockets, against peers that are slow, rude or somewhere else."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import replace

import pytest
from distributed.comm import registry
from distributed.comm.core import CommClosedError, connect, listen
from distributed.comm.tcp import _add_frames_header
from distributed.protocol import dumps
from distributed.protocol.serialize import ToPickle

from safeser.dask.stock import comm as comm_module
from safeser.dask.stock.comm import Guard, GuardedBackend
from safeser.errors import ConfigError, PolicyDenied
from safeser.policy import Policy

GREETING = {"compression": None, "python": (3, 11, 7), "pickle-protocol": 5}


@pytest.fixture
def guard(make_peer, monkeypatch):
    # Another test of this process may have closed the registry itself.
    guarded = {scheme: GuardedBackend(scheme) for scheme in ("tcp", "tls")}
    monkeypatch.setattr(registry, "backends", {**registry.backends, **guarded})
    audit = make_peer().audit
    policy = Policy.load("stock-cluster")
    return Guard("tcp", "client", policy, audit, ("dask", "msgpack"))


def written(message):
    parts, _, _ = _add_frames_header(dumps(message))
    return b"".join(bytes(part) for part in parts)


@contextlib.asynccontextmanager
async def peer(*says, listens=True):
    """Serve one address at which a peer writes *says*, one after the other, and reads meanwhile."""

    async def talk(reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            for each in says:
                writer.write(each)
                await writer.drain()
                if listens:
                    await reader.read(1 << 16)
            while listens and await reader.read(1 << 16):
                pass
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"tcp://{host}:{port}"
    finally:
        server.close()
        await asyncio.sleep(0)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


async def asked(guard, *says, op="identity", **options):
    async with peer(written(GREETING), *says, **options) as address:
        comm = await connect(address, timeout=5, guarded=guard)
        try:
            await comm.write({"op": op, "reply": True})
            return await comm.read()
        finally:
            comm.abort()


def test_a_refused_answer_leaves_the_connection(guard):
    async def twice():
        says = [written(GREETING), written({"a": ToPickle(print)}), written({"a": 1})]
        async with peer(*says) as address:
            comm = await connect(address, timeout=5, guarded=guard)
            assert comm.handshake_options == {"pickle-protocol": 5, "compression": None}
            await comm.write({"op": "identity"})
            with pytest.raises(PolicyDenied):
                await comm.read()
            await comm.write({"op": "identity"})
            got = await comm.read()
            await comm.close()
            with pytest.raises(CommClosedError):
                await comm.read()
            return got

    assert run(twice()) == {"a": 1}


def test_what_a_worker_waits_for_is_said_after_a_refusal(guard):
    async def main():
        heard, over = [], asyncio.Event()

        async def talk(reader, writer):
            for each in (GREETING, {"status": "OK", "data": {"k": ToPickle(print)}}):
                writer.write(written(each))
                heard.append(await reader.read(1 << 16))
            heard.append(await reader.read(1 << 16))
            writer.close()
            over.set()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        comm = await connect(f"tcp://{host}:{port}", timeout=5, guarded=guard)
        await comm.write({"op": "get_data", "keys": ["k"], "reply": True})
        with pytest.raises(PolicyDenied):
            await comm.read()
        comm.abort()
        server.close()
        await over.wait()
        return heard

    assert any(b"OK" in each for each in run(main()))


@pytest.mark.parametrize(
    "says",
    [
        struct.pack("<QQ", 1 << 60, 1),
        struct.pack("<QQ", 16, 1 << 40),
        struct.pack("<QQQ", 24, 1, 1 << 60),
        b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(16),
    ],
    ids=range(4),
)
def test_lengths_end_the_connection(guard, says):
    with pytest.raises(CommClosedError, match="does not speak Dask"):
        run(asked(guard, says))
    assert guard.audit.rules == ["stock.frames"]


def test_a_peer_who_leaves(guard):
    with pytest.raises(CommClosedError):
        run(asked(guard, written({"a": 1})[:20], listens=False))


def test_a_peer_who_leaves_at_once_may_run_safeser(guard):
    async def main():
        async with peer(listens=False) as address:
            await connect(address, timeout=5, guarded=guard)

    with pytest.raises(CommClosedError, match="connect to safeser://"):
        run(main())


def test_a_peer_who_says_nothing(guard, monkeypatch):
    monkeypatch.setattr(comm_module, "HANDSHAKE_SECONDS", 0.05)

    async def main():
        async with peer() as address:
            await connect(address, timeout=5, guarded=guard)

    with pytest.raises(CommClosedError, match="says nothing"):
        run(main())


def test_a_greeting_is_small(guard):
    async def main():
        async with peer(written({**GREETING, "more": "x" * 100_000})) as address:
            await connect(address, timeout=5, guarded=guard)

    with pytest.raises(CommClosedError):
        run(main())
    assert guard.audit.rules == ["stock.frames"]


def test_reading_that_is_cut_short_ends_the_connection(guard):
    async def main():
        async with peer(written(GREETING), written({"a": 1})[:20]) as address:
            comm = await connect(address, timeout=5, guarded=guard)
            await comm.write({"op": "identity"})
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(comm.read(), 0.2)
            return comm.closed()

    assert run(main())


def test_only_a_guarded_client_connects_and_only_to_its_scheme(guard):
    async def handle(comm):
        raise AssertionError

    def refused(make):
        with pytest.raises(ConfigError) as caught:
            run(make())
        return caught.value.rule

    tls = replace(guard, scheme="tls")
    for make in (
        lambda: connect("tcp://127.0.0.1:1", timeout=5),
        lambda: connect("tcp://127.0.0.1:1", timeout=5, guarded="yes"),
        lambda: connect("tcp://127.0.0.1:1", timeout=5, guarded=tls),
        lambda: connect("tls://127.0.0.1:1", timeout=5, guarded=guard),
        lambda: _listening("tcp://127.0.0.1:0", handle),
        lambda: _listening("tls://127.0.0.1:0", handle),
    ):
        assert refused(make) == "scheme.guarded"


async def _listening(address, handle):
    return await listen(address, handle)

"""Real sockets on loopback in one event loop: who gets through, who is closed, what survives."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections import Counter
from pathlib import Path

import pytest
from distributed.comm import registry
from distributed.comm.core import CommClosedError, connect

from safeser.dask import comm_backend as module
from safeser.dask.transport import comm as comm_module
from safeser.dask.transport import connection_limits as counted
from safeser.dask.transport.connection_limits import connections
from safeser.errors import AuditError, AuthenticationError, ConfigError
from safeser.gate.handshake import PREAMBLE
from safeser.gate.values import Kind


def port_of(listener):
    return int(listener.contact_address.rsplit(":", 1)[1])


async def closed_by_peer(reader):
    """Wait until the other side closes; return what it said until then."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(-1), 10)
    return b""


# --- what should work -------------------------------------------------------------------------


async def test_a_request_and_its_reply(net, connected):
    async with connected() as (listener, comm):
        assert comm.extra_info["safeser"]["principal"] == "scheduler"
        assert comm.peer_address == listener.contact_address
        assert listener.contact_address.startswith("safeser://127.0.0.1:")
        ends = comm.local_address, comm.peer_address
        assert comm.link.outbound(Kind.DATA).addresses == ends
        assert comm.link.inbound(Kind.DATA).addresses == ends[::-1]
        await comm.write({"op": "nbytes", "keys": ["x"], "reply": True})
        assert (await comm.read())["status"] == "OK"
    assert net.seen == [{"op": "nbytes", "keys": ("x",), "reply": True}]


async def test_without_a_host_only_loopback_is_bound(net):
    async with net.serving(address="safeser://:0") as listener:
        assert listener.listen_address.startswith("safeser://127.0.0.1:")


# --- who does not get through -----------------------------------------------------------------


async def test_a_stock_peer_gets_nowhere(net):
    async with net.serving() as listener:
        # Whatever stock Dask makes of the answer, which is no message of its own.
        with pytest.raises(Exception, match=r".*"):
            await connect(f"tcp://127.0.0.1:{port_of(listener)}", timeout=3)
    assert net.seen == []


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 10,
        b"\x93SAFESER\x02\x00\x00\x00" + bytes(32),
        b"\x93SAFESER\x02\x00\x00\x00" + b"\x42" * 32,
    ],
)
def test_garbage_and_silence_end_by_the_deadline(net, run, monkeypatch, said, caplog):
    monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 0.3)

    async def main():
        async with net.serving() as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
            writer.write(said)
            answer = await closed_by_peer(reader)
            assert len(answer) <= 600
            writer.close()
            assert (await net.asks(listener.contact_address))["status"] == "OK"

    with caplog.at_level(logging.WARNING, logger="safeser.dask"):
        run(main())
    assert "did not authenticate" in caplog.text


async def test_a_stranger_is_closed_also_when_the_log_is_broken(net, monkeypatch):
    def broken(**_):
        raise AuditError("the disk is full")

    async with net.serving() as listener:
        monkeypatch.setattr(listener._channel.audit, "count", broken)
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(b"x" * 100)
        await closed_by_peer(reader)
        writer.close()


async def test_pending_connections_are_bounded_and_the_oldest_goes(net, monkeypatch):
    monkeypatch.setattr(module, "MAX_UNAUTHENTICATED", 4)

    async with net.serving() as listener:
        opened = [await asyncio.open_connection("127.0.0.1", port_of(listener)) for _ in range(10)]
        for reader, _ in opened[:6]:
            await closed_by_peer(reader)
        assert (await net.asks(listener.contact_address))["status"] == "OK"
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize(("open_files", "by_policy", "most"), [(8, 4_000, 6), (1024, 3, 3)])
async def test_one_principal_leaves_connections_to_others(
    net, monkeypatch, open_files, by_policy, most
):
    connector = registry.get_backend("safeser").get_connector()
    monkeypatch.setattr(counted, "descriptors", lambda: open_files)
    # Loops of other tests ended before their connections were noted as closed.
    monkeypatch.setattr(connections, "_held", Counter())

    async with net.serving() as listener:
        policy = listener._channel.policy
        limits = dataclasses.replace(policy.limits, max_connections=by_policy)
        channel = listener._channel
        changed = dataclasses.replace(
            channel.standing, policy=dataclasses.replace(policy, limits=limits)
        )
        channel._stand(changed)
        counts = []
        monkeypatch.setattr(listener._channel.audit, "count", lambda **said: counts.append(said))
        where = listener.contact_address.removeprefix("safeser://")
        opened = [await connector.connect(where, **net.arguments()) for _ in range(most)]
        for _ in range(2):
            with pytest.raises(CommClosedError, match="no more connections of client"):
                await connector.connect(where, **net.arguments())
        other = await connector.connect(where, **net.arguments("worker"))
        refused = [each for each in counts if not each["permitted"]]
        assert [(each["sender"], each["rule"]) for each in refused] == [
            ("client", "limits.max_connections")
        ] * 2
        for comm in (other, opened.pop()):
            comm.abort()
        while connections._held["worker"] or connections._held["client"] == most:
            await asyncio.sleep(0.01)
        opened.append(await connector.connect(where, **net.arguments()))
        for comm in opened:
            comm.abort()
        while connections._held:
            await asyncio.sleep(0.01)


async def test_a_client_that_left_decides_by_no_policy(net):
    """``policy drift`` counts clients; a closed connection's link lives until it is collected."""
    connector = registry.get_backend("safeser").get_connector()

    async with net.serving() as listener:
        before = set(listener._channel.live_links())
        where = listener.contact_address.removeprefix("safeser://")
        comm = await connector.connect(where, **net.arguments())
        kept = [link for link in listener._channel.live_links() if link not in before]
        for link in kept:
            link.is_client = True
        comm.abort()
        while any(link.is_client for link in kept):
            await asyncio.sleep(0.01)
        assert kept


async def test_a_key_that_nobody_lists_is_refused_and_recorded_with_its_address(net, monkeypatch):
    events = []
    async with net.serving() as listener:
        monkeypatch.setattr(listener._channel.audit, "record", events.append)
        monkeypatch.setattr(listener._channel, "_principal_of", lambda key, **_: None)
        with pytest.raises(AuthenticationError) as caught:
            await net.asks(listener.contact_address)
    # One error and its one line: what led to it would only be a longer traceback.
    assert caught.value.__suppress_context__
    [refused] = events  # the client does not come again
    assert (refused["sender"], refused["rule"]) == ("unknown", "authentication.key")
    assert refused["address"].startswith("127.0.0.1:")
    assert len(refused["key"]) == 19
    assert net.seen == []


def test_the_first_words_of_a_responder_are_those_of_the_document():
    document = (Path(__file__).parents[3] / "docs/reference/envelope.md").read_text("utf-8")
    assert comm_module.REFUSED[16:] == bytes(48)
    for said in (comm_module.REFUSED[:16], comm_module.ACCEPTED, comm_module._FULL):
        assert said.hex() in document


async def test_a_stopping_listener_closes_whoever_is_pending(net):
    async with net.serving() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        await asyncio.sleep(0)
        while not listener._pending:
            await asyncio.sleep(0.01)
        listener.abort_handshaking_comms()
        await closed_by_peer(reader)
        writer.close()


@pytest.mark.parametrize("suite", [1, 2])
async def test_a_peer_of_version_1_is_told_and_logged(net, caplog, suite):
    async with net.serving() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(PREAMBLE[:8] + bytes((1, suite, 0, 0)) + bytes(32))
        assert await reader.read() == PREAMBLE
        writer.close()
    assert "speaks version 1 of safeser's envelope" in caplog.text
    assert "upgrade safeser at that end" in caplog.text


async def test_a_responder_of_another_version_is_named(net):
    async def answer(reader, writer):
        writer.write(PREAMBLE[:8] + bytes((3, 0, 0, 0)) + bytes(416))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"safeser://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(AuthenticationError, match=r"version 3 .* upgrade safeser at this process"):
        await connect(address, timeout=5, **net.arguments())
    server.close()
    await server.wait_closed()


async def test_a_peer_that_closes_in_the_handshake_is_a_network_fault(net):
    async def close(reader, writer):
        await reader.readexactly(10)
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    address = f"safeser://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(OSError, match=r"Timed out|in:"):
        await connect(address, timeout=0.5, **net.arguments())
    server.close()
    await server.wait_closed()


async def test_a_responder_that_never_says_whether_it_accepted_is_not_waited_for(net, monkeypatch):
    def silent(self, header, frames, then):
        return 0

    monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 0.2)

    async with net.serving() as listener:
        connector = registry.get_backend("safeser").get_connector()
        arguments = net.arguments()
        monkeypatch.setattr(module.SafeserComm, "_send_whole", silent)
        with pytest.raises(TimeoutError):
            await connector.connect(f"127.0.0.1:{port_of(listener)}", **arguments)


@pytest.mark.parametrize("said", [b"other", b"", b"accepted?"])
async def test_a_responder_that_says_anything_else_is_not_talked_to(net, monkeypatch, said):
    real = module.SafeserComm._send

    async def odd(self, frames):
        return await real(self, [said])

    async with net.serving() as listener:
        connector = registry.get_backend("safeser").get_connector()
        monkeypatch.setattr(module.SafeserComm, "_send", odd)
        with pytest.raises(AuthenticationError):
            await connector.connect(f"127.0.0.1:{port_of(listener)}", **net.arguments())


async def test_another_peer_than_the_expected_one_ends_all_retries(net):
    async with net.serving() as listener:
        address = listener.contact_address
        here = address.removeprefix("safeser://")
        with pytest.raises(AuthenticationError):
            await net.asks(address, expected_scheduler="worker", scheduler_at=here)
        for expected, at in (("scheduler", here), ("worker", "127.0.0.1:1"), ("worker", None)):
            reply = await net.asks(address, expected_scheduler=expected, scheduler_at=at)
            assert reply["status"] == "OK"


@pytest.mark.parametrize("name", ["Server", "Client"])
async def test_only_dasks_servers_listen(net, name):
    with pytest.raises(ConfigError):
        async with net.serving(name):
            pass


@pytest.mark.parametrize("tells", [False, True])
async def test_what_is_not_sent_has_told_nothing(wire, monkeypatch, tells):
    """What follows would refer to definitions that the peer never got."""
    comm = await wire("alice").greet(stream=True)
    sent = comm.conversation.sent

    def encoded(message, serializers):
        sent.undo += [({}, 0, 0, (b"", b""))] * tells
        return [b"\x90"]

    monkeypatch.setattr(comm.conversation, "send", encoded)
    async with comm._sealing:  # a large message is on its way
        waiting = asyncio.create_task(comm.write([{"op": "stream-start"}]))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert comm.closed() is tells

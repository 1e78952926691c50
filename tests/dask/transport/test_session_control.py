"""What the two ends of a connection tell each other about its session, honest and hostile."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import dask
import pytest
from distributed.comm.core import CommClosedError, connect
from distributed.core import ConnectionPool

from safeser.channel import Ending
from safeser.dask import comm_backend
from safeser.dask.settings import channel_for
from safeser.dask.transport.session_control import SessionControl
from safeser.errors import SafeserError
from safeser.identity import Identity, KeyState, Roster, RosterEntry, today
from tests.refusal import refusal

RETIRED = Ending("key.retired", "client")


async def eventually(probe, what="it"):
    for _ in range(400):
        if probe():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{what} did not happen")


def opened(net, listener, role="client"):
    return connect(listener.contact_address, timeout=10, **net.arguments(role))


def at_server(listener):
    """Return the server's side of its only connection."""
    [link] = listener._channel.live_links()
    return link


def retire(roster, identity):
    entry = roster.entry_of(identity.public)
    return roster.with_entry(replace(entry, state=KeyState.RETIRED))


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_peer_hears_why_and_can_say_so(net, connected, caplog):
    async with connected() as (listener, comm):
        link = at_server(listener)
        channel = listener._channel
        channel.adopt(roster=retire(channel.standing.listed, channel_for("client").identity))
        assert link.over == RETIRED
        with pytest.raises(CommClosedError, match="the key of client is retired"):
            await comm.read()
        assert comm.closed()
        for again in (comm.read, partial(comm.write, {"op": "nbytes", "keys": []})):
            with pytest.raises(CommClosedError, match="the key of client is retired"):
                await again()
        rules = caplog.text
        assert "scheduler ended the session with client" in rules
        with pytest.raises(SafeserError, match="did not accept"):
            await opened(net, listener)


async def test_a_peer_that_reads_nothing_is_cut_off_all_the_same(connected):
    async with connected() as (listener, comm):
        at_server(listener).finish(RETIRED)
        await comm.stream.read_until_close()


async def test_what_it_sends_meanwhile_is_neither_read_nor_answered(net, connected):
    """A peer that ignores the notice and whose bytes are on their way already."""
    async with connected() as (listener, comm):
        link = at_server(listener)
        await net_asks(comm)
        link.finish(RETIRED)
        for _ in range(20):
            comm.stream.write(b"".join(map(bytes, comm.link.session.seal(b"", net_frames(comm)))))
        await comm.stream.read_until_close()
    assert len(net.seen) == 1


async def net_asks(comm):
    await comm.write({"op": "nbytes", "keys": [], "reply": True})
    assert (await comm.read())["status"] == "OK"


def net_frames(comm):
    return comm.conversation.send({"op": "nbytes", "keys": [], "reply": True})


async def test_elements_of_a_batch_that_wait_are_dropped(connected):
    async with connected() as (_, comm):
        comm._unread.extend([{"op": "x"}] * 3)
        comm.link.finish(Ending("key.retired", "scheduler"))
        with pytest.raises(CommClosedError, match="retired"):
            await comm.read()


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"key.stolen", b"client"],
        [b"key.retired", b"cl\x1b[2Jient"],
        [b"\xff" * 3000, b"\xff" * 3000],
    ],
)
async def test_a_notice_of_anything_else_ends_the_session_and_says_nothing_of_the_peers(
    net, connected, caplog, frames
):
    async with connected() as (listener, comm):
        comm.stream.write(b"".join(map(bytes, comm.link.session.seal(b"notice", frames))))
        await eventually(lambda: not listener._channel.live_links(), "the end")
        await eventually(lambda: "it gives no reason" in caplog.text, "the log")
        assert "\x1b" not in caplog.text
    assert net.seen == []


@pytest.mark.parametrize(
    ("header", "frames"),
    [
        (b"x", []),
        (b"renew", []),
        (b"renew", [b"hello"]),
        (b"renew", [b"proof", b"x" * 384]),
        (b"renew", [b"\xff" * 100, b""]),
        (b"renew" * 1000, [b"hello", b"x"]),
    ],
)
async def test_other_messages_about_the_session_end_it(net, connected, header, frames):
    async with connected() as (listener, comm):
        comm.stream.write(b"".join(map(bytes, comm.link.session.seal(header, frames))))
        await eventually(lambda: not listener._channel.live_links(), "the end")
    assert net.seen == []


async def test_before_this_side_is_accepted_there_is_nothing_to_renew(net):
    """A hello in place of the word that accepts; what follows is Dask's to refuse."""
    async with net.serving() as listener:
        for _ in range(3):
            comm = await opened(net, listener)
            await comm._send_sealed(b"renew", [b"hello", b"x" * 44])
            await net_asks(comm)  # the refusal is skipped, and the session goes on
            comm.abort()


def test_a_loop_that_is_closed_keeps_nobody_connected():
    """Whoever retires a key tells all connections, one after the other."""
    over = []
    link = SimpleNamespace(when_over=over.append, when_stale=lambda _: None, handshake=dict)

    class Closed:
        def add_callback(self, _):
            raise RuntimeError("the loop is closed")

    class Connection:
        stream = SimpleNamespace(io_loop=Closed())

    connection = Connection()
    control = SessionControl(connection, link, initiator=True)
    over[0](RETIRED)
    del control
    over[0](RETIRED)


async def test_a_connection_that_is_dropped_is_collected_at_once(net):
    """Nothing of its control keeps it until the garbage collector comes."""
    async with net.serving() as listener:
        comm = await opened(net, listener)
        comm.abort()
        await asyncio.sleep(0)
        gone = weakref.ref(comm)
        gc.disable()
        try:
            del comm
            await asyncio.sleep(0.1)
            assert gone() is None
        finally:
            gc.enable()


async def test_a_process_whose_own_key_is_retired_says_so_and_leaves_no_socket(net):
    async with net.serving() as listener:
        client = channel_for("client")
        client.adopt(roster=retire(client.standing.listed, client.identity))
        with refusal(SafeserError, "key.retired", match="the key of client is retired"):
            await opened(net, listener)
        await eventually(lambda: not listener._pending, "the end of the connection")


# --- another handshake ---------------------------------------------------------------------------


def renewed_by(channel, *others, name="client"):
    """Give *channel* a new key, which it and *others* list."""
    identity = Identity.generate(name)
    entry = RosterEntry(identity.public, name, KeyState.ACTIVE, today())
    for each in (channel, *others):
        each.adopt(roster=Roster([*each.standing.listed.entries, entry]))
    channel.adopt(identity=identity)
    return identity


async def test_a_stream_goes_over_to_a_new_key_and_an_idle_connection_is_closed(connected):
    async with connected() as (listener, comm):
        comm.link.lasts = True
        far = at_server(listener)
        reading = asyncio.ensure_future(comm.read())
        new = renewed_by(channel_for("client"), listener._channel)
        channel_for("client").tend()
        await eventually(lambda: far.session.peer_key == new.public, "the renewal")
        channel_for("client").tend()
        assert channel_for("client").identity is new
        far.lasts = True
        await comm.write({"op": "nbytes", "keys": [], "reply": True})
        assert (await reading)["status"] == "OK"


@pytest.mark.parametrize("why", ["a new key", "the end of the session"])
async def test_dasks_pool_opens_another_connection(net, why):
    async with net.serving() as listener:
        pool = await ConnectionPool(connection_args=net.arguments())
        proxy = pool(listener.contact_address)
        await proxy.nbytes(keys=[])
        [comm] = pool.available[listener.contact_address]
        assert comm.is_idle()
        own = comm.link.own_key
        if why == "a new key":
            own = renewed_by(channel_for("client"), listener._channel).public
            await eventually(comm.closed, "the closing")
        else:
            comm.link.finish(Ending("key.retired", "scheduler"))
            while not comm.ended_because:
                await asyncio.sleep(0)
        await proxy.nbytes(keys=[])  # by another
        assert comm.closed()
        [other] = pool.available[listener.contact_address]
        assert other.link.own_key == own
        await pool.close()


async def test_who_is_not_listed_yet_goes_on_by_the_old_key_and_tries_again(
    connected, monkeypatch, caplog
):
    monkeypatch.setattr("safeser.dask.transport.session_control._AGAIN", 0.0)
    async with connected() as (listener, comm):
        comm.link.lasts = True
        before = comm.link.session.id
        reading = asyncio.ensure_future(comm.read())
        client, server = channel_for("client"), listener._channel
        new = renewed_by(client)
        await eventually(lambda: "does not accept a new key yet" in caplog.text, "the refusal")
        assert comm.link.session.id == before
        entry = RosterEntry(new.public, "client", KeyState.ACTIVE, today())
        server.adopt(roster=Roster([*server.standing.listed.entries, entry]))
        client.tend()
        await eventually(lambda: comm.link.session.id != before, "the renewal")
        reading.cancel()


async def test_a_key_that_was_listed_a_moment_ago_is_let_in(net):
    """As ``dask worker`` is started behind ``safeser keys add``."""
    async with net.serving() as listener:
        new = Identity.generate("client")
        entry = RosterEntry(new.public, "client", KeyState.ACTIVE, today())
        path = net.keys / "roster"
        Roster.load(path).with_entry(entry).save(path)
        new.save(net.keys / "new.key")
        assert listener._channel.roster.entry_of(new.public) is None
        own = {"client": {"identity": str(net.keys / "new.key")}}
        with dask.config.set({"safeser": {**dask.config.get("safeser"), **own}}):
            comm = await connect(listener.contact_address, timeout=60, **net.arguments())
        await net_asks(comm)
        comm.abort()
        assert listener._channel.roster.entry_of(new.public) == entry


async def test_strangers_wait_for_changed_files_in_no_greater_number_than_for_a_handshake(
    net, monkeypatch
):
    waiting = []

    async def counted(*of, settled=comm_backend._settled):
        waiting.append(of)
        try:
            await settled(*of)
        finally:
            waiting.remove(of)

    monkeypatch.setattr(comm_backend, "_settled", counted)
    monkeypatch.setattr(comm_backend, "_LOOKS", 10**9)
    monkeypatch.setattr(comm_backend, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(comm_backend, "MAX_UNAUTHENTICATED", 3)

    async with net.serving() as listener:
        listener._channel.settled_by(lambda: False)
        host, port = listener.contact_address.partition("://")[2].split(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(12)]
        await eventually(lambda: len(waiting) == 3, "the end of those that were closed")
        listener._channel.settled_by(lambda: True)
        await eventually(lambda: not waiting, "the change")
        for _, writer in opened:
            writer.close()

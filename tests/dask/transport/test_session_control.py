"""What the two ends of a connection tell each other about its session, honest and hostile."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import dask
import pytest
from distributed.comm.core import CommClosedError, connect, listen
from distributed.core import rpc

from safeser.channel import Ending
from safeser.channel.records import Recording
from safeser.dask import comm_backend, drift
from safeser.dask.messages.conversation import SKIP
from safeser.dask.settings import channel_for
from safeser.dask.transport.key_succession import Successors
from safeser.dask.transport.session_control import SessionControl
from safeser.dask.transport.unfinished import unfinished
from safeser.envelope import MAX_SECONDS
from safeser.errors import SafeserError
from safeser.identity import Identity, KeyState, Roster, RosterEntry, today

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


def test_the_peer_hears_why_and_can_say_so(net, run, caplog):
    async def main():
        async with net.serving() as listener:
            comm = await opened(net, listener)
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

    run(main())


def test_a_peer_that_reads_nothing_is_cut_off_all_the_same(net, run):
    async def main():
        async with net.serving() as listener:
            comm = await opened(net, listener)
            at_server(listener).finish(RETIRED)
            await comm.stream.read_until_close()

    run(main())


def test_what_it_sends_meanwhile_is_neither_read_nor_answered(net, run):
    """A peer that ignores the notice and whose bytes are on their way already."""

    async def main():
        async with net.serving() as listener:
            comm = await opened(net, listener)
            link = at_server(listener)
            await net_asks(comm)
            link.finish(RETIRED)
            for _ in range(20):
                comm.stream.write(
                    b"".join(map(bytes, comm.link.session.seal(b"", net_frames(comm))))
                )
            await comm.stream.read_until_close()
        assert len(net.seen) == 1

    run(main())


async def net_asks(comm):
    await comm.write({"op": "nbytes", "keys": [], "reply": True})
    assert (await comm.read())["status"] == "OK"


def net_frames(comm):
    return comm.conversation.send({"op": "nbytes", "keys": [], "reply": True})


def test_elements_of_a_batch_that_wait_are_dropped(net, run):
    async def main():
        async with net.serving() as listener:
            comm = await opened(net, listener)
            comm._unread.extend([{"op": "x"}] * 3)
            comm.link.finish(Ending("key.retired", "scheduler"))
            with pytest.raises(CommClosedError, match="retired"):
                await comm.read()

    run(main())


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"key.retired"],
        [b"key.stolen", b"client"],
        [b"key.retired", b"cl\x1b[2Jient"],
        [b"\xff" * 3000, b"\xff" * 3000],
    ],
)
def test_a_notice_of_anything_else_ends_the_session_and_says_nothing_of_the_peers(
    net, run, caplog, frames
):
    async def main():
        async with net.serving() as listener:
            comm = await opened(net, listener)
            comm.stream.write(b"".join(map(bytes, comm.link.session.seal(b"notice", frames))))
            await eventually(lambda: not listener._channel.live_links(), "the end")
            await eventually(lambda: "it gives no reason" in caplog.text, "the log")
            assert "\x1b" not in caplog.text
            comm.abort()

    run(main())
    assert net.seen == []


@pytest.mark.parametrize(
    ("header", "frames"),
    [
        (b"x", []),
        (b"renew", []),
        (b"renew", [b"hello"]),
        (b"renew", [b"accept", b""]),
        (b"renew", [b"proof", b"x" * 384]),
        (b"renew", [b"\xff" * 100, b""]),
        (b"renew", [b"hello", b"x", b"y"]),
        (b"renew" * 1000, [b"hello", b"x"]),
    ],
)
def test_other_messages_about_the_session_end_it(net, run, header, frames):
    async def main():
        async with net.serving() as listener:
            comm = await opened(net, listener)
            comm.stream.write(b"".join(map(bytes, comm.link.session.seal(header, frames))))
            await eventually(lambda: not listener._channel.live_links(), "the end")
            comm.abort()

    run(main())
    assert net.seen == []


def test_before_this_side_is_accepted_there_is_nothing_to_renew(net, run):
    """A hello in place of the word that accepts; what follows is Dask's to refuse."""

    async def main():
        async with net.serving() as listener:
            for _ in range(3):
                comm = await opened(net, listener)
                await comm._send_sealed(b"renew", [b"hello", b"x" * 44])
                await net_asks(comm)  # the refusal is skipped, and the session goes on
                comm.abort()

    run(main())


def test_a_loop_that_is_gone_keeps_nobody_connected():
    link = SimpleNamespace(when_over=lambda f: over.append(f), when_stale=lambda f: None)
    link.handshake = lambda **_: None
    over = []

    class Loop:
        def add_callback(self, _):
            raise RuntimeError("the loop is closed")

    class Connection:
        stream = SimpleNamespace(io_loop=Loop())

    connection = Connection()
    control = SessionControl(connection, link, initiator=True)
    over[0](RETIRED)
    del control
    over[0](RETIRED)


def test_a_connection_that_is_dropped_is_collected_at_once(net, run):
    """Nothing of its control keeps it until the garbage collector comes."""

    async def main():
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

    run(main())


def test_a_process_whose_own_key_is_retired_says_so_and_leaves_no_socket(net, run):
    async def main():
        async with net.serving() as listener:
            client = channel_for("client")
            client.adopt(roster=retire(client.standing.listed, client.identity))
            with pytest.raises(SafeserError, match="the key of client is retired") as refused:
                await opened(net, listener)
            assert refused.value.rule == "key.retired"
            await eventually(lambda: not listener._pending, "the end of the connection")

    run(main())


# --- another handshake ---------------------------------------------------------------------------


def renewed_by(net, channel, *others, name="client"):
    """Give *channel* a new key, which it and *others* list."""
    identity = Identity.generate(name)
    entry = RosterEntry(identity.public, name, KeyState.ACTIVE, today())
    for each in (channel, *others):
        each.adopt(roster=Roster([*each.standing.listed.entries, entry]))
    channel.adopt(identity=identity)
    return identity


def test_a_stream_goes_over_to_a_new_key_and_an_idle_connection_is_closed(net, run):
    async def main():
        async with net.serving() as listener:
            comm = await opened(net, listener)
            comm.link.lasts = True
            far = at_server(listener)
            reading = asyncio.ensure_future(comm.read())
            new = renewed_by(net, channel_for("client"), listener._channel)
            channel_for("client").tend()
            await eventually(lambda: far.session.peer_key == new.public, "the renewal")
            channel_for("client").tend()
            assert channel_for("client").identity is new
            far.lasts = True
            await comm.write({"op": "nbytes", "keys": [], "reply": True})
            assert (await reading)["status"] == "OK"
            comm.abort()

    run(main())


def test_dasks_pool_opens_another_connection_by_the_new_key(net, run):
    async def main():
        async with net.serving() as listener:
            pool = rpc(listener.contact_address, connection_args=net.arguments())
            await pool.nbytes(keys=[])
            from distributed.core import ConnectionPool

            real = await ConnectionPool(connection_args=net.arguments())
            proxy = real(listener.contact_address)
            await proxy.nbytes(keys=[])
            [comm] = real.available[listener.contact_address]
            assert comm.is_idle()
            new = renewed_by(net, channel_for("client"), listener._channel)
            await eventually(comm.closed, "the closing")
            await proxy.nbytes(keys=[])
            [other] = real.available[listener.contact_address]
            assert other.link.own_key == new.public
            await real.close()
            await pool.close_rpc()

    run(main())


def test_dasks_pool_asks_nothing_through_a_connection_whose_session_ended(net, run):
    async def main():
        async with net.serving() as listener:
            from distributed.core import ConnectionPool

            pool = await ConnectionPool(connection_args=net.arguments())
            proxy = pool(listener.contact_address)
            await proxy.nbytes(keys=[])
            [comm] = pool.available[listener.contact_address]
            comm.link.finish(Ending("key.retired", "scheduler"))
            while not comm.ended_because:
                await asyncio.sleep(0)
            await proxy.nbytes(keys=[])  # by another
            assert comm.closed()
            await pool.close()

    run(main())


def test_a_server_with_a_new_key_has_its_peers_come_again(net, run):
    async def main():
        async with net.serving() as listener:
            from distributed.core import ConnectionPool

            pool = await ConnectionPool(connection_args=net.arguments())
            proxy = pool(listener.contact_address)
            await proxy.nbytes(keys=[])
            [comm] = pool.available[listener.contact_address]
            server = listener._channel
            new = renewed_by(net, server, channel_for("client"), name="scheduler")
            await asyncio.sleep(0.05)
            await proxy.nbytes(keys=[])  # hears what it is asked, and its answer
            await eventually(comm.closed, "the closing")  # no look finds it idle if it is busy
            server.tend()
            await proxy.nbytes(keys=[])
            [other] = pool.available[listener.contact_address]
            assert other.link.session.peer_key == new.public
            await pool.close()

    run(main())


def test_a_session_of_half_its_time_is_renewed(net, run):
    async def main():
        async with net.serving() as listener:
            comm = await opened(net, listener)
            comm.link.lasts = True
            session, before = comm.link.session, comm.link.session.id
            session._clock = lambda: session.ends_at - MAX_SECONDS / 2
            reading = asyncio.ensure_future(comm.read())
            channel_for("client").tend()
            await eventually(lambda: session.id != before, "the renewal")
            assert at_server(listener).session.id == session.id
            reading.cancel()
            comm.abort()

    run(main())


def test_who_is_not_listed_yet_goes_on_by_the_old_key_and_tries_again(
    net, run, monkeypatch, caplog
):
    monkeypatch.setattr("safeser.dask.transport.session_control._AGAIN", 0.0)

    async def main():
        async with net.serving() as listener:
            comm = await opened(net, listener)
            comm.link.lasts = True
            before = comm.link.session.id
            reading = asyncio.ensure_future(comm.read())
            client = channel_for("client")
            new = renewed_by(net, client)
            await eventually(lambda: "does not accept a new key yet" in caplog.text, "the refusal")
            assert comm.link.session.id == before
            entry = RosterEntry(new.public, "client", KeyState.ACTIVE, today())
            server = listener._channel
            server.adopt(roster=Roster([*server.standing.listed.entries, entry]))
            client.tend()
            await eventually(lambda: comm.link.session.id != before, "the renewal")
            reading.cancel()
            comm.abort()

    run(main())


def test_a_key_that_was_listed_a_moment_ago_is_let_in(net, run):
    """As ``dask worker`` is started behind ``safeser keys add``."""

    async def main():
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

    run(main())


def test_strangers_wait_for_changed_files_in_no_greater_number_than_for_a_handshake(
    net, run, monkeypatch
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

    async def main():
        async with net.serving() as listener:
            listener._channel.settled_by(lambda: False)
            host, port = listener.contact_address.partition("://")[2].split(":")
            opened = [await asyncio.open_connection(host, int(port)) for _ in range(12)]
            await eventually(lambda: len(waiting) == 3, "the end of those that were closed")
            listener._channel.settled_by(lambda: True)
            await eventually(lambda: not waiting, "the change")
            for _, writer in opened:
                writer.close()

    run(main())


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
    with unfinished.arriving(comm.link.peer, comm.abort) as arriving:
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


def test_a_peer_that_says_hello_again_is_refused_at_no_cost(net, run, begun, caplog):
    async def main():
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

    run(main())


def test_a_peer_that_asks_again_and_again_gets_one_handshake(net, run, begun):
    async def main():
        async with both_ends(net) as (near, far, _):
            for _ in range(4):
                for name in (b"ask", b"refuse"):
                    await far._send_sealed(b"renew", [name, b""])
                await takes(near, 2)
            assert begun == ["client"]

    run(main())


def test_a_hello_that_comes_too_soon_does_not_undo_a_renewal_that_is_half_over(net, run, begun):
    async def main():
        async with both_ends(net) as (near, far, _):
            handshake = channel_for("client").renewing(near.link, initiator=True)
            await near._send_sealed(b"renew", [b"hello", handshake.outgoing])
            await takes(far)
            _, _, answer = await hears(near)
            handshake.feed(answer[:12])
            await near._send_sealed(b"renew", [b"proof", handshake.feed(answer[12:])])
            await takes(far)
            await near._send_sealed(b"renew", [b"hello", handshake.outgoing])
            assert isinstance(await far._next(None), CommClosedError) or far.closed()

    with pytest.raises(CommClosedError, match="begins inside another"):
        run(main())


def test_a_step_that_is_interrupted_closes_the_connection(net, run):
    """Its answer is never sent, and the other side would wait for it as long as it lives."""

    async def main():
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

    run(main())


def test_a_step_waits_for_a_peer_that_reads_nothing(net, run):
    """Who asks and never reads would have the answers pile up here."""

    async def main():
        async with both_ends(net) as (near, far, _):
            far.stream.write(bytes(64 << 20))
            sending = asyncio.ensure_future(far.send_control(b"renew", [b"ask", b""], then=list))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not sending.done()
            await near.stream.read_into(bytearray(64 << 20))
            await sending

    run(main())


def test_who_was_asked_before_a_connection_lasted_is_renewed_once_then(net, run, monkeypatch):
    monkeypatch.setattr("safeser.dask.transport.session_control._AGAIN", 0.0)

    async def main():
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

    run(main())


def test_who_asked_before_a_connection_lasted_asks_again_for_the_next_key(net, run, monkeypatch):
    monkeypatch.setattr("safeser.dask.transport.session_control._AGAIN", 0.0)

    async def main():
        async with both_ends(net) as (near, far, server):
            far.link.lasts, far.link.stale = False, True
            server.tend()
            assert (await hears(near))[:2] == [b"renew", b"ask"]
            far.link.lasts, far.link.stale = True, False
            readers = [asyncio.ensure_future(comm.read()) for comm in (near, far)]
            new = renewed_by(net, server, channel_for("client"), name="scheduler")
            await eventually(lambda: near.link.session.peer_key == new.public, "the renewal")
            for reader in readers:
                reader.cancel()

    run(main())


def test_which_key_followed_which():
    keys = [Identity.generate("a").public for _ in range(4)]
    followed = Successors()
    assert followed.first(keys[0]) == keys[0].text
    followed.note(keys[0], keys[1])
    followed.note(keys[1], keys[2])
    followed.note(keys[2], keys[2])
    assert followed.first(keys[2]) == keys[0].text
    followed.note(keys[3], keys[2])  # whose it was first, it stays
    assert followed.first(keys[2]) == keys[0].text


# --- drift ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        {"safeser": None},
        {"safeser": {"policy": 1, "revision": 1, "sha256": "x", "roster": "y"}},
        {"safeser": {"policy": "p", "revision": "1", "sha256": "x", "roster": "y"}},
        {"safeser": {"clients": [[1, 2, 3, 4], [], "abcd"]}},
        OSError("timed out"),
    ],
)
def test_who_says_nothing_and_a_peers_inventions_are_rows_that_agree_with_none(said):
    [row] = drift._read("worker", said)
    assert row == drift.Statement("worker", "", 0, "", "")
    assert not row.agrees(row)


@pytest.mark.parametrize("clients", [5, True, "abcd", {"a": 1}, [5], [[1, 2, 3, 4], [], "abcd"]])
def test_inventions_about_clients_are_no_rows(clients):
    own = {"policy": "p", "revision": 1, "sha256": "x", "roster": "y"}
    [row] = drift._read("worker", {"safeser": {**own, "clients": clients}})
    assert row.process == "worker"


def test_processes_that_say_the_same_agree():
    one = drift.Statement("scheduler", "p", 1, "a", "r")
    assert one.agrees(one._replace(process="2 clients", roster=""))
    assert not one.agrees(one._replace(sha256="b"))
    assert not one.agrees(one._replace(roster="s"))


def test_the_answer_to_identity_says_it_and_a_refusal_does_not(doors):
    _, far = doors.links("alice", "scheduler")
    far.is_client = True
    said = drift.stated({"type": "Scheduler", "id": "s"}, far)
    policy = far.policy
    assert said["safeser"]["sha256"] == policy.sha256
    assert said["safeser"]["clients"] == [[policy.name, policy.revision, policy.sha256, 1]]
    assert "clients" not in drift.stated({"type": "Worker"}, far)["safeser"]
    refusal = {"status": "uncaught-error"}
    assert drift.stated(refusal, far) is refusal
    rows = list(drift._read("scheduler", said))
    assert [row.process for row in rows] == ["scheduler", "1 client"]
    assert rows[0].roster == far.voices.standing.listed.sha256


class Asked:
    """A scheduler of one worker, whose nanny does not answer."""

    def __init__(self, address, **arguments):
        assert (address, arguments["timeout"]) == ("safeser://127.0.0.1:1", 10)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def identity(self, n_workers):
        assert n_workers == -1
        return {"safeser": {**_said("a"), "clients": [["p", 1, "a", 2]]}}

    async def broadcast(self, msg, *, nanny, on_error):
        assert (msg, on_error) == ({"op": "identity"}, "return")
        answer = OSError("gone") if nanny else {"safeser": _said("b")}
        return {"safeser://127.0.0.1:2": answer}


def _said(sha256):
    return {"policy": "p", "revision": 1, "sha256": sha256, "roster": "r"}


def test_the_scheduler_is_asked_and_by_it_workers_and_nannies(net, monkeypatch):
    from safeser.dask.drift_question import question

    monkeypatch.setattr("safeser.dask.drift_question.rpc", Asked)
    rows = [(row.process, row.sha256) for row in question("safeser://127.0.0.1:1")]
    assert rows == [
        ("scheduler", "a"),
        ("2 clients", "a"),
        ("worker safeser://127.0.0.1:2", "b"),
        ("nanny safeser://127.0.0.1:2", ""),
    ]


def test_nothing_answers_is_one_line(monkeypatch, tmp_path):
    from safeser.dask.drift_question import question
    from safeser.errors import ConfigError

    monkeypatch.setattr("safeser.dask.drift_question.channel_for", lambda role: None)

    async def nobody(address):
        raise OSError("refused")

    monkeypatch.setattr("safeser.dask.drift_question._asked", nobody)
    with pytest.raises(ConfigError, match="does not answer"):
        question("safeser://127.0.0.1:9")

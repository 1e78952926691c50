"""How a comm reads: within what the sender may say, in pieces, and keeping nothing it refused."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import tracemalloc
import weakref
from types import SimpleNamespace

import pytest
from distributed.comm.core import CommClosedError

from safeser.dask.transport import comm as module
from safeser.dask.transport import frames as frames_module
from safeser.dask.transport.unfinished import Unfinished
from safeser.dask.wire.codec import PayloadRow
from safeser.errors import SafeserError
from safeser.gate.session import Arrival, SessionClosed
from tests.dask.forged import forged
from tests.refusal import refusal, remembered

BEAT = {"op": "heartbeat-client", "client": "Client-1"}


# --- what is never read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frames",
    [(bytes(4 << 20),), (b"\x80", bytes(4 << 20))],
    ids=["structure", "table"],
)
async def test_more_than_its_sender_may_say_ends_the_connection_unread(wire, frames):
    w = wire("bob")
    comm = await w.greet()
    # As much of the message as the socket takes: the peer waits for its reader.
    w.mine.setblocking(False)
    w.mine.send(w.sealed(*frames)[: 1 << 17])
    with pytest.raises(CommClosedError, match="ceiling"):
        await asyncio.wait_for(comm.read(), 10)
    assert comm.closed()
    audit = comm.link.audit
    assert audit.rules[-1] == "limit.ceiling"
    assert audit.events[-1]["sender"] == "unknown"  # nothing of it was authenticated


@pytest.mark.parametrize(
    ("header", "frames", "said"),
    [(b"long" * 4, [b""], "header"), (b"renew", [bytes(1 << 14)], "a message")],
)
async def test_messages_about_the_session_are_small(wire, header, frames, said):
    """The envelope would take a megabyte of header before any policy is asked."""
    w = wire("bob")
    comm = await w.greet()
    w.mine.sendall(b"".join(map(bytes, w.near.session.seal(header, frames))))
    with pytest.raises(CommClosedError, match=said):
        await asyncio.wait_for(comm.read(), 10)


async def test_more_frames_than_may_come_end_the_connection_unread(wire):
    w = wire("bob")
    w.mine.sendall(w.sealed(b"\x80", *[b""] * 1000))
    with pytest.raises(CommClosedError, match="frames"):
        await asyncio.wait_for(w.comm.read(), 10)


async def test_the_table_of_frames_counts_towards_the_budget(wire, monkeypatch):
    budget = Unfinished(1 << 22)
    monkeypatch.setattr(module, "unfinished", budget)

    w = wire("bob")
    comm = await w.greet()
    w.mine.sendall(w.sealed(b"\x80", *[b""] * 90_000)[:1000])
    reading = asyncio.create_task(comm.read())
    while budget.held < 8 * 90_000:
        await asyncio.sleep(0.001)
    reading.cancel()


@pytest.mark.parametrize(("count", "size"), [(100_000, 0), (40_000, 1), (60_000, 3)])
async def test_many_small_frames_cost_what_is_counted(wire, monkeypatch, count, size):
    """Of a block alone, and of one with a part; both are larger than what is read at once."""
    budget, costs = Unfinished(1 << 27), []
    monkeypatch.setattr(module, "unfinished", budget)
    real = Arrival.verified

    def noted(self, end=b""):
        made = real(self, end)
        costs.append((budget.held, tracemalloc.get_traced_memory()[0] - before))
        return made

    w = wire("alice", asks=True)
    comm = await w.greet()
    await comm.write({"op": "gather", "keys": ["x"]})
    monkeypatch.setattr(Arrival, "verified", noted)
    sealed = w.sealed(b"\x80", b"\x90", *[bytes(size)] * (count - 2))
    sending = threading.Thread(target=w.mine.sendall, args=(sealed,), daemon=True)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        sending.start()
        with contextlib.suppress(SafeserError):  # no reply has frames that belong to no value
            await comm.read()
    finally:
        tracemalloc.stop()
    sending.join(10)
    (counted, taken), *_ = costs[-1:]
    assert taken <= counted
    assert budget.held == 0


# --- one budget ----------------------------------------------------------------------------------


@pytest.mark.parametrize("greeting", [{"op": "identity"}, [1], {"x": {"python": "3"}}])
async def test_whoever_greets_otherwise_than_dask_is_closed(wire, greeting):
    w = wire("bob")
    w.say(greeting)
    with pytest.raises(SafeserError):
        await w.comm.read()
    assert w.comm.closed()


# --- not all at once -----------------------------------------------------------------------------


def test_large_frames_are_read_in_pieces_between_which_others_run(wire, run, monkeypatch):
    monkeypatch.setattr(frames_module, "PIECE", 1 << 12)

    async def main():
        w = wire("alice")
        comm = await w.greet()
        ticks = 0

        async def beside():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(beside())
        w.say({"op": "set_metadata", "keys": ["x"], "value": bytes(1 << 19)})
        await comm.read()
        task.cancel()
        return ticks

    assert run(main()) >= (1 << 19) // (1 << 12)


async def test_a_long_batch_is_handed_to_dask_in_parts(wire):
    w = wire("alice")
    comm = await w.greet(stream=True)
    w.say([{**BEAT, "op": "heartbeat-client"}] * 1201)
    w.say([BEAT, {"op": "close-stream"}])
    parts = [await comm.read() for _ in range(4)]
    assert [len(part) for part in parts] == [500, 500, 201, 2]
    assert all(element == BEAT for part in parts[:3] for element in part)


async def test_a_long_list_that_answers_a_request_arrives_whole(wire):
    events = tuple((float(number), number) for number in range(1200))

    w = wire("alice", asks=True)
    comm = await w.greet()
    for answer in (events, 7):
        await comm.write({"op": "events", "topic": "t"})
        w.say(answer)
        assert await comm.read() == answer


async def test_what_takes_long_to_read_is_read_in_a_thread(wire, monkeypatch):
    offloaded = []
    real = module.offload

    def noted(function, *arguments):
        offloaded.append(function.__name__)
        return real(function, *arguments)

    monkeypatch.setattr(module, "offload", noted)

    w = wire("alice")
    comm = await w.greet()
    for size in (1 << 10, (1 << 16) + 1):
        w.say({"op": "set_metadata", "keys": ["x"], "value": bytes(size)})
        await comm.read()
    assert offloaded == ["_uncollected"]
    w.mine.sendall(w.sealed(*[b""] * 5000))  # which is refused
    w.say({"op": "identity"})
    await comm.read()
    assert len(offloaded) == 3  # to be cut into its frames, and to be understood


@pytest.mark.parametrize(("values", "long"), [(50, False), (272, True)])
async def test_what_has_many_values_is_read_in_a_thread(wire, values, long):
    """So many refused pickles held the loop for a tenth of a second, in 15 KB."""
    w = wire("alice")
    row = PayloadRow({"serializer": "pickle", "writeable": []}, (b"cos\nsystem\n.",))
    frames = forged({"status": "OK", "data": {f"{at:x}": row for at in range(values)}})
    assert sum(map(len, frames)) < 1 << 14
    assert w.comm._takes_long(SimpleNamespace(frames=frames)) is long


# --- nothing is kept -----------------------------------------------------------------------------


async def test_what_a_comm_refuses_is_gone_when_it_raises(wire, monkeypatch):
    """On the side that asked, whose user keeps the error."""
    seen = []
    real = Arrival.verified

    def noted(self, end=b""):
        made = real(self, end)
        seen.append(weakref.ref(made))
        return made

    w = wire("alice", asks=True)
    comm = await w.greet()
    await comm.write({"op": "get_metadata", "keys": ["x"]})
    monkeypatch.setattr(Arrival, "verified", noted)
    gc.collect()
    gc.disable()
    try:
        w.say({"x": {"__Pickled__": bytes(10_000)}})
        with refusal(SafeserError, "marker.pickled"):
            await comm.read()
        assert [each() for each in seen] == [None]  # while the error is still here
    finally:
        gc.enable()


SECRET = b"what nobody keeps"


@pytest.mark.parametrize("ends", ["last tag", "cut", "cancelled"])
async def test_a_large_message_that_is_not_whole_leaves_nothing(wire, monkeypatch, ends):
    budget = Unfinished(1 << 26)
    monkeypatch.setattr(module, "unfinished", budget)
    monkeypatch.setattr(frames_module, "PIECE", 1 << 14)
    w = wire("alice", asks=True)
    comm = await w.greet()
    await comm.write({"op": "gather", "keys": ["x"]})
    sealed = w.sealed(b"\x80", b"\x90", *[SECRET * 9000] * 2)
    # With a last tag that is wrong, or half of the second frame.
    w.mine.sendall(sealed[:-32] + bytes(32) if ends == "last tag" else sealed[:-80_000])
    reading = asyncio.create_task(comm.read())
    if ends == "cancelled":
        while budget.held < len(SECRET) * 13_000:
            await asyncio.sleep(0.001)
        reading.cancel()
    elif ends == "cut":
        w.mine.close()
    await asyncio.wait([reading])
    with pytest.raises((CommClosedError, asyncio.CancelledError)) as caught:
        reading.result()
    assert not remembered(caught.value, SECRET)
    assert budget.held == 0
    assert not budget._arriving


async def test_a_sender_that_stalls_while_others_wait_is_closed(wire, monkeypatch):
    now = [0.0]
    budget = Unfinished(1 << 16, patience=0.01, clock=lambda: now[0])
    monkeypatch.setattr(module, "unfinished", budget)
    said = {"op": "set_metadata", "keys": ["x"]}
    stalled, other = wire("alice"), wire("bob")
    for each in (stalled, other):
        await each.greet()
    stalled.mine.sendall(stalled.sealed(*forged({**said, "value": bytes(1 << 20)}))[: 1 << 12])
    reading = asyncio.create_task(stalled.comm.read())
    async with asyncio.timeout(60):
        while not budget._arriving:
            await asyncio.sleep(0.001)
    other.say({**said, "value": bytes(1 << 16)})
    waiting = asyncio.create_task(other.comm.read())
    async with asyncio.timeout(60):
        while not any(each.waits for each in budget._arriving):
            await asyncio.sleep(0.001)
    now[0] = 3600.0
    with pytest.raises(CommClosedError):
        await reading
    assert (await waiting)["op"] == "set_metadata"


# --- the end of a stream -------------------------------------------------------------------------


async def test_a_peer_that_closes_says_so(wire):
    w = wire("alice")
    comm = await w.greet()
    known = list(comm.link.audit.rules)
    w.mine.sendall(w.near.session.closing())
    with pytest.raises(CommClosedError, match="alice closed the connection"):
        await comm.read()
    assert comm.closed()
    assert comm.link.session.ended
    assert comm.link.audit.rules == known


@pytest.mark.parametrize("size", [0, 79, 80, 81])
async def test_a_close_message_that_is_cut_off_or_goes_on_closes_as_well(wire, size):
    w = wire("alice")
    comm = await w.greet()
    w.mine.sendall((w.near.session.closing() + b"x")[:size])
    w.mine.close()
    with pytest.raises(CommClosedError):
        await comm.read()
    assert comm.closed()


@pytest.mark.parametrize(
    ("options", "stream", "said"),
    [({"asks": True}, False, False), ({}, True, True), ({}, False, False)],
    ids=["who asks", "a stream", "who answers requests"],
)
async def test_who_closes_says_so_to_the_reader_of_a_stream(wire, options, stream, said):
    w = wire("alice", **options)
    comm = await w.greet(stream=stream)
    w.mine.setblocking(False)
    while True:  # what was said before
        try:
            w.near_reads()
        except BlockingIOError:
            break
    await comm.close()
    w.mine.setblocking(True)
    if said:
        with pytest.raises(SessionClosed):
            w.near_reads()
    assert w.mine.recv(1) == b""
    await comm.close()

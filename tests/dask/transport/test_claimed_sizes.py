"""Sizes that nobody vouches for yet: a forged prelude on an established connection."""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
from pathlib import Path

import pytest
from distributed.comm.core import CommClosedError
from tornado.iostream import IOStream

from safeser.dask.transport import frames as module
from safeser.dask.transport import unfinished as unfinished_module
from safeser.dask.transport.comm import SafeserComm
from safeser.dask.wire.ceilings import MessageBounds
from safeser.gate.format import DATA, GCM_TAG_SIZE, PRELUDE_SIZE, pack_fields
from safeser.gate.session import Arrival
from safeser.operations import Server
from tests.dask.transport.test_reading import Wire

STATM = Path("/proc/self/statm")

NO_BOUNDS = MessageBounds(1 << 62, 1 << 62, 1 << 62)


@pytest.fixture
def wire(doors):
    """Return a scheduler's side of a connection to bob, its log, and the socket at bob's end."""
    wires = []

    def made():
        wires.append(Wire(doors, "bob"))
        return wires[0].comm, wires[0].near, wires[0].mine

    yield made
    for each in wires:
        each.comm.abort()
        each.mine.close()


def claim(block, rest):
    """Return the start of a message as somebody on the way, who has no key, can write it."""
    return pack_fields(DATA, 1, block, rest).ljust(PRELUDE_SIZE, b"\0")


def resident():
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not STATM.exists(), reason="the system does not say what a process holds")
def test_a_length_takes_no_memory_before_its_bytes_arrive(wire, run, monkeypatch):
    """Of the peer itself: of anybody else none sizes a frame."""
    real = module.host_array

    async def main():
        comm, near, mine = wire()
        begun = asyncio.Event()

        def noted(size):
            assert size == 1 << 30
            asyncio.get_running_loop().call_soon(begun.set)
            return real(size)

        monkeypatch.setattr(module, "host_array", noted)
        monkeypatch.setattr(comm.conversation, "message_bounds", lambda: NO_BOUNDS)
        zeros = mmap.mmap(-1, 1 << 30)  # pages that nobody touches
        buffers = near.session.sealing(b"", [memoryview(zeros)])
        mine.sendall(next(buffers) + bytes(1 << 16))
        before = resident()
        reading = asyncio.create_task(comm.read())
        await begun.wait()
        taken = resident() - before
        comm.abort()
        with pytest.raises(CommClosedError):
            await reading
        return taken

    assert run(main()) < 64 << 20


async def test_a_length_that_the_system_refuses_ends_the_session(wire, monkeypatch):
    def refuse(size):
        raise MemoryError

    comm, near, mine = wire()
    mine.sendall(next(near.session.sealing(b"", [bytes(1 << 20)])))
    monkeypatch.setattr(module, "host_array", refuse)
    monkeypatch.setattr(comm.conversation, "message_bounds", lambda: NO_BOUNDS)
    with pytest.raises(CommClosedError):
        await comm.read()
    assert comm.closed()
    audit = comm.link.audit
    assert audit.rules == ["envelope.limits"]
    assert audit.events[0]["sender"] == "unknown"


@pytest.mark.parametrize("claimed", [(24, 1 << 30), (24, 0), (0, 0)])
async def test_a_forged_claim_asks_for_no_memory(wire, monkeypatch, claimed):
    """The lengths are authentic before a frame is received, so that no one else sizes anything."""
    sizes = []

    comm, _, mine = wire()
    mine.sendall(claim(*claimed) + bytes(claimed[0] + GCM_TAG_SIZE))
    monkeypatch.setattr(module, "frame_memory", sizes.append)
    monkeypatch.setattr(comm.conversation, "message_bounds", lambda: NO_BOUNDS)
    with pytest.raises(CommClosedError):
        await comm.read()
    assert unfinished_module.unfinished.held == 0
    assert comm.link.audit.rules == ["envelope.mac"]
    assert sizes == []


async def test_what_arrives_encrypted_counts_with_the_place_that_it_arrives_in(wire, monkeypatch):
    """One piece of ciphertext beside the frame: it is of the same budget."""
    held = []
    real = Arrival.feed

    def noted(self, piece):
        held.append(unfinished_module.unfinished.held)
        real(self, piece)

    comm, near, mine = wire()
    monkeypatch.setattr(Arrival, "feed", noted)
    monkeypatch.setattr(comm.conversation, "message_bounds", lambda: NO_BOUNDS)
    size = 3 << 20
    buffers = near.session.seal(b"", [bytes(size)])
    sending = asyncio.to_thread(lambda: [mine.sendall(buffer) for buffer in buffers])
    with unfinished_module.Arriving(unfinished_module.unfinished, "p", comm.abort) as arriving:
        await asyncio.gather(comm._receive(arriving), sending)
    comm.abort()
    assert held[0] >= 2 * module.PIECE
    assert held[-1] >= module.PIECE + size
    assert unfinished_module.unfinished.held == 0


async def test_a_large_message_is_encrypted_as_its_reader_takes_it(doors, monkeypatch):
    """A peer that does not read costs a piece or two of ciphertext, not the message once more."""
    size, turns, sent = 32 << 20, 200, []
    real = SafeserComm._enqueue

    def enqueue(self, piece):
        sent.append(len(piece))
        return real(self, piece)

    near, far = doors.links("alice", "scheduler")
    mine, theirs = socket.socketpair()
    writer = SafeserComm(IOStream(mine), "safeser://a", "safeser://b", link=near, server=None)
    reader = SafeserComm(
        IOStream(theirs), "safeser://a", "safeser://b", link=far, server=Server.SCHEDULER
    )
    monkeypatch.setattr(reader.conversation, "message_bounds", lambda: NO_BOUNDS)
    monkeypatch.setattr(SafeserComm, "_enqueue", enqueue)
    frame = os.urandom(1) * size
    writing = asyncio.create_task(writer._send([b"", frame]))
    for _ in range(turns):
        await asyncio.sleep(0)
    held = writer.stream._total_write_index - writer.stream._total_write_done_index
    begun = sum(sent)
    with unfinished_module.Arriving(unfinished_module.unfinished, "p", reader.abort) as arriving:
        verified = await reader._receive(arriving)
    await writing
    assert bytes(verified.frames[1]) == frame
    writer.abort()
    reader.abort()
    assert held <= 2 << 20
    assert begun < size // 2
    assert max(sent) <= 1 << 20

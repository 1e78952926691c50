"""Sizes that nobody vouches for yet: a forged prelude on an established connection."""

from __future__ import annotations

import asyncio
import mmap
import os
from pathlib import Path

import pytest
from distributed.comm.core import CommClosedError
from tornado.iostream import IOStream

from safeser.dask.messages.conversation import Conversation
from safeser.dask.transport import frames as module
from safeser.dask.transport import unfinished as unfinished_module
from safeser.dask.transport.comm import SafeserComm
from safeser.dask.wire.ceilings import MessageBounds
from safeser.gate.format import DATA, GCM_TAG_SIZE, PRELUDE_SIZE, pack_fields
from safeser.gate.session import Arrival

STATM = Path("/proc/self/statm")

NO_BOUNDS = MessageBounds(1 << 62, 1 << 62, 1 << 62)


@pytest.fixture(autouse=True)
def _unbounded(monkeypatch):
    monkeypatch.setattr(Conversation, "message_bounds", lambda self: NO_BOUNDS)


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
        w = wire("bob")
        begun = asyncio.Event()

        def noted(size):
            assert size == 1 << 30
            asyncio.get_running_loop().call_soon(begun.set)
            return real(size)

        monkeypatch.setattr(module, "host_array", noted)
        zeros = mmap.mmap(-1, 1 << 30)  # pages that nobody touches
        buffers = w.near.session.sealing(b"", [memoryview(zeros)])
        w.mine.sendall(next(buffers) + bytes(1 << 16))
        before = resident()
        reading = asyncio.create_task(w.comm.read())
        await begun.wait()
        taken = resident() - before
        w.comm.abort()
        with pytest.raises(CommClosedError):
            await reading
        return taken

    assert run(main()) < 64 << 20


async def test_a_length_that_the_system_refuses_ends_the_session(wire, monkeypatch):
    def refuse(size):
        raise MemoryError

    w = wire("bob")
    w.mine.sendall(next(w.near.session.sealing(b"", [bytes(1 << 20)])))
    monkeypatch.setattr(module, "host_array", refuse)
    with pytest.raises(CommClosedError):
        await w.comm.read()
    assert w.comm.closed()
    audit = w.comm.link.audit
    assert audit.rules == ["envelope.limits"]
    assert audit.events[0]["sender"] == "unknown"


@pytest.mark.parametrize("claimed", [(24, 1 << 30), (24, 0), (0, 0)])
async def test_a_forged_claim_asks_for_no_memory(wire, monkeypatch, claimed):
    """The lengths are authentic before a frame is received, so that no one else sizes anything."""
    sizes = []

    w = wire("bob")
    w.mine.sendall(claim(*claimed) + bytes(claimed[0] + GCM_TAG_SIZE))
    monkeypatch.setattr(module, "frame_memory", sizes.append)
    with pytest.raises(CommClosedError):
        await w.comm.read()
    assert unfinished_module.unfinished.held == 0
    assert w.comm.link.audit.rules == ["envelope.mac"]
    assert sizes == []


async def test_what_arrives_encrypted_counts_with_the_place_that_it_arrives_in(wire, monkeypatch):
    """One piece of ciphertext beside the frame: it is of the same budget."""
    held = []
    real = Arrival.feed

    def noted(self, piece):
        held.append(unfinished_module.unfinished.held)
        real(self, piece)

    w = wire("bob")
    monkeypatch.setattr(Arrival, "feed", noted)
    size = 3 << 20
    buffers = w.near.session.seal(b"", [bytes(size)])
    sending = asyncio.to_thread(lambda: [w.mine.sendall(buffer) for buffer in buffers])
    with unfinished_module.Arriving(unfinished_module.unfinished, "p", w.comm.abort) as arriving:
        await asyncio.gather(w.comm._receive(arriving), sending)
    w.comm.abort()
    assert held[0] >= 2 * module.PIECE
    assert held[-1] >= module.PIECE + size
    assert unfinished_module.unfinished.held == 0


async def test_a_large_message_is_encrypted_as_its_reader_takes_it(wire, monkeypatch):
    """A peer that does not read costs a piece or two of ciphertext, not the message once more."""
    size, turns, sent = 32 << 20, 200, []
    real = SafeserComm._enqueue

    def enqueue(self, piece):
        sent.append(len(piece))
        return real(self, piece)

    w = wire()
    writer = SafeserComm(IOStream(w.mine), "safeser://a", "safeser://b", link=w.near, server=None)
    monkeypatch.setattr(SafeserComm, "_enqueue", enqueue)
    frame = os.urandom(1) * size
    writing = asyncio.create_task(writer._send([b"", frame]))
    for _ in range(turns):
        await asyncio.sleep(0)
    held = writer.stream._total_write_index - writer.stream._total_write_done_index
    begun = sum(sent)
    with unfinished_module.Arriving(unfinished_module.unfinished, "p", w.comm.abort) as arriving:
        verified = await w.comm._receive(arriving)
    await writing
    assert bytes(verified.frames[1]) == frame
    writer.abort()
    assert held <= 2 << 20
    assert begun < size // 2
    assert max(sent) <= 1 << 20

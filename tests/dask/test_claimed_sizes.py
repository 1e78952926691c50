"""Sizes that nobody vouches for yet: a forged prelude on an established connection."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest
from distributed.comm.core import CommClosedError
from tornado.iostream import IOStream

from safeser.dask import unfinished as unfinished_module
from safeser.dask.ceilings import Room
from safeser.dask.comm import SafeserComm
from safeser.envelope import PRELUDE_SIZE
from safeser.envelope.format import pack_fields, pack_lengths
from safeser.operations import Server

STATM = Path("/proc/self/statm")


@pytest.fixture
def wire(doors):
    """Return a scheduler's side of a connection to bob, its log, and the socket at bob's end."""
    mine, theirs = socket.socketpair()

    def made():
        near, far = doors.links("bob", "scheduler", "demo")
        stream = IOStream(theirs)
        comm = SafeserComm(stream, "safeser://a", "safeser://b", link=far, server=Server.SCHEDULER)
        return comm, near, mine

    yield made
    mine.close()
    theirs.close()


def claim(*lengths):
    """Return the start of a message as somebody on the way, who has no key, can write it."""
    fields = pack_fields(
        sequence=1, header_length=0, frame_count=len(lengths), body_length=sum(lengths)
    )
    return fields.ljust(PRELUDE_SIZE, b"\0") + pack_lengths(lengths)


def resident():
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not STATM.exists(), reason="the system does not say what a process holds")
def test_a_claim_takes_no_memory_before_its_bytes_arrive(wire, run, monkeypatch):
    real = unfinished_module.host_array

    async def main():
        comm, _, mine = wire()
        begun = asyncio.Event()

        def noted(size):
            assert size == 2 << 30  # a full frame and the one behind it may be one
            asyncio.get_running_loop().call_soon(begun.set)
            return real(size)

        monkeypatch.setattr(unfinished_module, "host_array", noted)
        monkeypatch.setattr(comm.conversation, "room", lambda: Room(1 << 62, 1 << 62))
        mine.sendall(claim(1 << 30, 1 << 30) + bytes(1 << 16))
        before = resident()
        reading = asyncio.create_task(comm.read())
        await begun.wait()
        taken = resident() - before
        comm.abort()
        with pytest.raises(CommClosedError):
            await reading
        return taken

    assert run(main()) < 64 << 20


def test_a_claim_that_the_system_refuses_ends_the_session(wire, run, monkeypatch):
    def refuse(size):
        raise MemoryError

    async def main():
        comm, _, mine = wire()
        mine.sendall(claim(1 << 29))
        monkeypatch.setattr(unfinished_module, "host_array", refuse)
        monkeypatch.setattr(comm.conversation, "room", lambda: Room(1 << 62, 1 << 62))
        with pytest.raises(CommClosedError):
            await comm.read()
        assert comm.closed()
        return comm.link.audit

    audit = run(main())
    assert audit.rules == ["envelope.limits"]
    assert audit.events[0]["sender"] == "unknown"


@pytest.mark.parametrize("size", [1 << 18, (1 << 24) + 1])
def test_an_honest_large_frame_is_received_where_it_stays(wire, run, monkeypatch, size):
    async def main():
        comm, near, mine = wire()
        frame = os.urandom(1) * size
        buffers = near.session.seal(b"", [b"", frame, b"x"])
        sending = asyncio.to_thread(lambda: [mine.sendall(buffer) for buffer in buffers])
        monkeypatch.setattr(comm.conversation, "room", lambda: Room(1 << 62, 1 << 62))
        with unfinished_module.unfinished.arriving("p", comm.abort) as arriving:
            verified, _ = await asyncio.gather(comm._receive(arriving), sending)
        comm.abort()
        assert [bytes(each) for each in verified.frames] == [b"", frame, b"x"]
        return verified.frames[1]

    view = run(main())
    assert not view.readonly
    assert sys.getsizeof(view) < 1000
    assert view.obj.nbytes == size  # a buffer of its own, not a part of another

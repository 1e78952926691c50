"""Bytes changed on the way, connections that end inside a message, words of the comm itself."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from distributed.comm.core import CommClosedError
from distributed.protocol import to_serialize
from tornado.iostream import IOStream

from safeser.dask.messages.states import State
from safeser.dask.transport import comm as module
from safeser.values import Suite


@pytest.fixture(params=list(Suite), ids=lambda suite: suite.word)
def suite(request):
    return request.param


@pytest.mark.parametrize("where", [0, 8, 40, 63, -1])
async def test_a_byte_changed_on_the_wire_ends_the_session_and_nothing_else(net, connected, where):
    async with connected() as (listener, comm):
        frames = comm.conversation.send({"op": "nbytes", "keys": ["k" * 100], "reply": True})
        wire = bytearray(b"".join(map(bytes, comm.link.session.seal(b"", frames))))
        wire[where] ^= 1
        await comm.stream.write(bytes(wire))
        with pytest.raises(CommClosedError):
            await asyncio.wait_for(comm.read(), 10)
        assert (await net.asks(listener.contact_address))["status"] == "OK"
    assert len(net.seen) == 1


async def test_a_session_that_ended_and_a_read_that_is_cancelled_close_the_connection(connected):
    async with connected() as (_, comm):
        comm.link.session.end("it is old")
        with pytest.raises(CommClosedError, match="it is old"):
            await comm.write({"op": "nbytes", "keys": []})
    async with connected() as (_, comm):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(comm.read(), 0.1)
        assert comm.closed()


# --- sizes ------------------------------------------------------------------------------------


async def test_a_word_that_nobody_waits_for_is_not_written(connected):
    async with connected() as (_, comm):
        comm.conversation.state = State.SILENCED
        assert await comm.write("OK") == 0
        assert await comm.write("OK") > 0


@pytest.mark.parametrize("size", [2_000, 300_000, 700_001])
async def test_long_frames_are_read_into_one_buffer(net, monkeypatch, size):
    monkeypatch.setattr("safeser.envelope.format.MAX_FRAME", 100_000)
    array = np.arange(size, dtype="u1")
    joined = []
    real = module.SafeserComm._receive

    async def seen(self, arriving, **options):
        verified = await real(self, arriving, **options)
        joined.append({id(frame.obj) for frame in verified.frames if len(frame) >= 100_000})
        return verified

    async with net.serving() as listener:
        monkeypatch.setattr(module.SafeserComm, "_receive", seen)
        message = {"op": "get_metadata", "keys": ["x"], "default": {"x": to_serialize(array)}}
        reply = await net.asks(listener.contact_address, message)
        assert np.array_equal(reply["got"]["x"], array)
    assert all(len(owners) <= 1 for owners in joined)


@pytest.mark.slow
async def test_many_small_frames_take_few_reads_and_writes(net, monkeypatch):
    sizes = [(3 * n) % 2_000 for n in range(800)]
    sizes[100], sizes[101], sizes[500] = 300_000, 20_000, 16_384
    arrays = {str(n): np.full(size, n % 256, "u1") for n, size in enumerate(sizes)}
    written, read = [], []
    write, read_frames = IOStream.write, module.read_frames

    def writes(self, data):
        written.append(len(data))
        return write(self, data)

    async def reads(stream, lengths, *others):
        read.append(sum(lengths))
        return await read_frames(stream, lengths, *others)

    async with net.serving() as listener:
        monkeypatch.setattr(module, "read_frames", reads)
        monkeypatch.setattr(IOStream, "write", writes)
        data = {name: to_serialize(array) for name, array in arrays.items()}
        message = {"op": "get_metadata", "keys": ["x"], "default": data, "reply": True}
        got = (await net.asks(listener.contact_address, message))["got"]
        assert all(np.array_equal(got[name], array) for name, array in arrays.items())
    assert len(written) < 50  # there and back, handshakes included
    assert len(read) < 40
    assert 0 not in written
    # By itself: without a copy, or encrypted.
    assert max(written) >= 300_000
    assert sum(length > 1 << 18 for length in read) == 2

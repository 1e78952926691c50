"""Bytes changed on the way, connections that end inside a message, words of the comm itself."""

from __future__ import annotations

import asyncio

import pytest
from distributed.comm.core import CommClosedError

from safeser.dask.messages.states import State
from safeser.errors import SafeserError


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
        for again in (comm.write({"op": "nbytes"}), comm.read()):
            with pytest.raises(CommClosedError):
                await again


# --- sizes ------------------------------------------------------------------------------------


async def test_a_word_that_nobody_waits_for_is_not_written(connected):
    async with connected() as (_, comm):
        comm.conversation.state = State.SILENCED
        assert await comm.write("OK") == 0
        assert await comm.write("OK") > 0


async def test_a_refused_transfer_leaves_the_connection_usable(net, connected, monkeypatch):
    def refuse(*_, **__):
        raise SafeserError("refused", rule="test")

    async with connected("Worker") as (_, comm):
        await comm.write({"op": "get_data", "keys": ["x"], "reply": True})
        with monkeypatch.context() as patch:
            patch.setattr("safeser.dask.messages.conversation.judge_reply", refuse)
            with pytest.raises(SafeserError, match="refused"):
                await comm.read()
        await comm.write({"op": "get_data", "keys": ["y"], "reply": True})
        while len(net.seen) < 3:
            await asyncio.sleep(0.01)
    assert net.seen[1] == "OK"
    assert net.seen[2]["op"] == "get_data"

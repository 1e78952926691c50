"""Stock framing: honest messages in any cut, and lengths that nobody should believe."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from distributed.comm.tcp import _add_frames_header
from hypothesis import given
from hypothesis import strategies as st
from tornado.iostream import IOStream

from safeser.dask.stock.wire import lengths_of, read_message, runs_of
from safeser.dask.transport.unfinished import Arriving, unfinished
from safeser.errors import PayloadError
from safeser.gate.values import Limits
from tests.refusal import refusal

LIMITS = Limits(max_bytes=1 << 20, max_array=1 << 19, max_frames=16)


def read(data, limits=LIMITS):
    """Read one message of *data*, which a peer writes and then closes."""

    async def main():
        mine, theirs = socket.socketpair()
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        mine.sendall(data)
        mine.close()
        stream = IOStream(theirs)
        try:
            with Arriving(unfinished, "p", stream.close) as arriving:
                return [bytes(frame) for frame in await read_message(stream, limits, arriving)]
        finally:
            stream.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    "frames",
    [
        [b"one"],
        [b"one", b"", memoryview(bytearray(b"two")), memoryview(bytearray(200_000))],
        [b"h" * 10, memoryview(bytearray(140_000)), memoryview(bytearray(b"x" * 140_000)), b""],
    ],
    ids=["small", "mixed", "apart"],
)
def test_what_dask_writes_is_read(frames):
    parts, _, total = _add_frames_header(list(frames))
    data = b"".join(bytes(part) for part in parts)
    assert len(data) == total
    assert read(data) == [bytes(frame) for frame in frames]


def prelude(size, *lengths, count=None):
    return struct.pack(
        f"<QQ{len(lengths)}Q", size, len(lengths) if count is None else count, *lengths
    )


@pytest.mark.parametrize(
    "data",
    [
        prelude(8, count=0),
        prelude(1 << 63, 1),
        prelude(16 + (1 << 21), 1 << 21),
        prelude(1 << 40, count=1 << 37),
        prelude(16, count=1 << 40),
        prelude(24 + 3, 2, 4),
        prelude(24 + 9, 4, 4),
        prelude(16 + 1, 1 << 62),
        prelude(24, (1 << 64) - 1, 1),
        prelude(24 + (1 << 19), 1 << 19, 1 << 20),
    ],
    ids=range(10),
)
def test_lengths_that_cannot_be(data):
    with refusal(PayloadError, "stock.frames"):
        read(data + bytes(64))


@given(st.binary(max_size=200), st.integers(0, 1 << 64))
def test_any_table_is_read_or_refused(table, size):
    table = table[: len(table) // 8 * 8]
    try:
        assert lengths_of(size, len(table) // 8, LIMITS) == len(table)
        runs = runs_of(size, table, LIMITS)
    except PayloadError:
        return
    assert 8 + len(table) + sum(runs.together) == size
    assert len(runs.together) + len(runs.alone) == len(table) // 8
    assert sum(runs.together) + sum(runs.alone) <= LIMITS.max_bytes


def test_more_than_there_is_memory_for(monkeypatch):
    def full(length):
        raise MemoryError

    monkeypatch.setattr("safeser.dask.transport.frames.host_array", full)
    with pytest.raises(PayloadError, match="no memory"):
        read(prelude(17, 1) + b"x")

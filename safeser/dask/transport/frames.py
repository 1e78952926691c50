"""Read and write the parts of one message on a stream, and single frames.

The one rule: memory for bytes is counted first, and taken when they are about to arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from distributed.protocol.utils import host_array
from tornado.iostream import IOStream

from safeser.dask.transport.unfinished import COUNTED_FROM, Arriving
from safeser.errors import EnvelopeError
from safeser.gate.format import GCM_TAG_SIZE, HMAC_SIZE, SMALL, Buffer
from safeser.gate.session import Arrival

#: A message up to this size is read, and written, in one piece; a larger one part by part, so that
#: each large frame owns its memory and arrays need no copy.
ONE_READ = 1 << 18

#: Large frames are read in pieces of this size, each of which takes about a millisecond, decrypted
#: too. Smaller ones cost more: each goes through the event loop.
PIECE = 1 << 21

#: Bytes whose arrival is noted at once: a slow sender sends as many in less than it is waited for.
_NOTED = 1 << 18

#: Buffers up to this size are written with their neighbours: a system call for each takes longer.
_SMALL = 1 << 14


def written_pieces(buffers: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield *buffers* as what to write one after the other: small neighbours in one."""
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) <= _SMALL:
            small.append(buffer)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield buffer
    if small:
        yield b"".join(small)


async def read_parts(stream: IOStream, arriving: Arriving, arrival: Arrival) -> bytes:
    """Read the parts of *arrival*, decrypted while they arrive; return what ends the message."""
    size = min(PIECE, max(arrival.parts) + GCM_TAG_SIZE)
    await arriving.take(size)
    scratch = memoryview(bytearray(size))
    for length in arrival.parts:
        if length < SMALL:
            sealed = scratch[: length + GCM_TAG_SIZE]
            await _read_into(stream, sealed, arriving)
            arrival.take([sealed[:length]], sealed[length:])
            continue
        try:
            arrival.begin(frame_memory(length))
        except MemoryError:
            raise EnvelopeError(
                "there is no memory for a frame as long as a message says", rule="envelope.limits"
            ) from None
        for at in range(0, length, PIECE):
            piece = scratch[: min(PIECE, length - at)]
            await _read_into(stream, piece, arriving)
            arrival.feed(piece)
        arrival.finish(await stream.read_bytes(GCM_TAG_SIZE))
    end: bytes = await stream.read_bytes(HMAC_SIZE)
    return end


async def read_frame(stream: IOStream, length: int, arriving: Arriving) -> memoryview:
    """Read one frame of *length* bytes into memory of its own."""
    frame = frame_memory(length)
    for at in range(0, length, PIECE):
        await _read_into(stream, frame[at : at + PIECE], arriving, counted=length > COUNTED_FROM)
    return frame


async def _read_into(
    stream: IOStream, piece: memoryview, arriving: Arriving, *, counted: bool = True
) -> None:
    if counted:
        await arriving.take(len(piece))
    for at in range(0, len(piece), _NOTED):
        part = piece[at : at + _NOTED]
        await stream.read_into(part)
        arriving.note(len(part))
    # A sender that is as fast as this side would keep the event loop for itself.
    await asyncio.sleep(0)


def frame_memory(length: int) -> memoryview:
    """Return memory of its own for *length* bytes, which an array can keep without a copy.

    That much address space is asked for, of one frame at a time, but the system gives memory to it
    only where bytes arrive: a peer can claim a gigabyte. Growing the buffer with them would copy
    each large frame once more.

    :raises MemoryError: if there is no address space for it.
    """
    return memoryview(host_array(length)).cast("B")

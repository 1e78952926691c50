"""Stock Dask's framing: how many bytes come next, bounded before memory is taken for them.

The one rule: lengths are not authenticated. Each count and size of a message is checked against the
limits, and all of them against each other, before a buffer of that size exists.

A message is a 64-bit size, then as much: a 64-bit number of frames, the 64-bit length of each, and
the first few of the frames; the others follow one by one. (Dask keeps large buffers apart so that
each owns its memory: distributed 2026.8.0, ``comm/tcp.py``.)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tornado.iostream import IOStream

from safeser.dask.transport.frames import read_frame
from safeser.dask.transport.unfinished import Arriving
from safeser.errors import PayloadError
from safeser.gate.format import cut_at
from safeser.gate.values import Limits

__all__ = ["GREETING", "lengths_of", "read_message", "runs_of"]

_WORD = 8
_MAX_FRAMES_FACTOR = 2  # each payload has a header in a frame of its own

#: What a peer may say before Dask's own handshake is over: versions, in one small frame.
GREETING = Limits(max_bytes=1 << 16, max_frames=8, max_memory=1 << 17, max_depth=8)


@dataclass(frozen=True, slots=True)
class Runs:
    """Lengths of a message's frames: those that lie in one run, and those that follow alone."""

    together: tuple[int, ...]
    alone: tuple[int, ...]


def lengths_of(size: int, count: int, limits: Limits) -> int:
    """Return how many bytes the table of lengths takes, if *size* and *count* can be true."""
    if not 0 < count <= _MAX_FRAMES_FACTOR * limits.max_frames:
        raise _refused("the number of its frames is not between 1 and max_frames")
    table = _WORD * count
    if not _WORD + table <= size <= _WORD + table + limits.max_bytes:
        raise _refused("its first run is not as long as its frames can be")
    return table


def runs_of(size: int, table: bytes, limits: Limits) -> Runs:
    """Return the lengths of all frames, if those of the first run add up to *size* exactly."""
    count = len(table) // _WORD
    lengths: tuple[int, ...] = struct.unpack(f"<{count}Q", table)
    if max(lengths) > limits.max_array or sum(lengths) > limits.max_bytes:
        raise _refused("its frames are larger than max_array or max_bytes")
    left = size - _WORD - len(table)
    for position, length in enumerate(lengths):
        if not left:
            return Runs(lengths[:position], lengths[position:])
        left -= length
        if left < 0:
            break
    if left:
        raise _refused("its first run does not end where a frame ends")
    return Runs(lengths, ())


async def read_message(stream: IOStream, limits: Limits, arriving: Arriving) -> list[memoryview]:
    """Read the frames of one message.

    :raises PayloadError: if it says of itself what cannot be; then the stream cannot be read on.
    """
    size, count = struct.unpack("<QQ", await stream.read_bytes(2 * _WORD))
    table = await stream.read_bytes(lengths_of(size, count, limits))
    runs = runs_of(size, table, limits)
    frames = cut_at(await _read(stream, sum(runs.together), arriving), runs.together)
    for length in runs.alone:
        frames.append(await _read(stream, length, arriving))
    return frames


async def _read(stream: IOStream, length: int, arriving: Arriving) -> memoryview:
    try:
        return await read_frame(stream, length, arriving)
    except MemoryError:
        raise _refused("there is no memory for a frame as long as it says") from None


def _refused(problem: str) -> PayloadError:
    return PayloadError(f"a message of stock Dask is refused: {problem}", rule="stock.frames")

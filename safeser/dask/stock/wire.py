"""Stock Dask's framing: lengths, compression and splitting, bounded before memory is taken.

The one rule: lengths are not authenticated. Each count and size of a message is checked against the
limits, and all of them against each other, before a buffer of that size exists; and the size of a
decompressed frame is bounded before decompression. Dask's own decompression has no bound, and a
compressed frame says little or nothing about its size. This side asks for no compression, but a
scheduler passes on what a worker compressed for it.

A message is a 64-bit size, then as much: a 64-bit number of frames, the 64-bit length of each, and
the first few of the frames; the others follow one by one. (Dask keeps large buffers apart so that
each owns its memory: distributed 2026.8.0, ``comm/tcp.py``.)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tornado.iostream import IOStream

from safeser.dask.contents.unreadable import malformed
from safeser.dask.transport.frames import read_frame
from safeser.dask.transport.unfinished import Arriving
from safeser.errors import PayloadError
from safeser.families import compression, framing
from safeser.families.compression import CODECS
from safeser.gate.format import cut_at
from safeser.gate.values import Limits

__all__ = ["GREETING", "Room", "decompressed", "joined", "lengths_of", "read_message", "runs_of"]

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


# --- what is done to frames ----------------------------------------------------------------------

#: LZ4's blocks begin with their size when Dask writes them.
_LZ4_SIZE = 4

#: Of a Zstandard frame, enough for its header.
_ZSTD_HEADER = 18


class Room:
    """How much the frames of one message may still become when they are opened."""

    def __init__(self, limits: Limits) -> None:
        self._left = limits.max_bytes
        self.largest = limits.max_array

    @property
    def for_one(self) -> int:
        """How large the next frame may become."""
        return min(self.largest, self._left)

    def take(self, size: int) -> int:
        """Return *size* if there is room for it, or refuse it."""
        self._left -= size
        if size < 0 or self._left < 0 or size > self.largest:
            raise PayloadError(
                "compressed frames do not say their size, or it is over max_array or max_bytes",
                rule="stock.compression",
            )
        return size


def decompressed(ways: Any, frames: Sequence[Any], room: Room) -> list[Any]:
    """Return *frames* opened, each by the name at its place in *ways*; None for all is no name."""
    if ways is None:
        return list(frames)
    if type(ways) is not tuple or len(ways) != len(frames):
        malformed("it says of too many or too few frames how they are compressed")
    return [
        frame if way is None else _opened(frame, way, room)
        for frame, way in zip(frames, ways, strict=True)
    ]


def _opened(frame: memoryview, way: Any, room: Room) -> Any:
    if type(way) is not str or way not in CODECS:
        raise PayloadError(
            "a frame is compressed in a way that safeser does not open",
            rule="stock.compression",
            fix="Set distributed.comm.compression to null, lz4, zstd or zlib on the cluster.",
        )
    if way == "zlib":
        return _inflated(frame, room)
    length = _size_of(frame, way)
    body = frame[_LZ4_SIZE:] if way == "lz4" else frame
    return compression.decompressed(body, way, room.take(length), where="")


def _size_of(frame: memoryview, way: str) -> int:
    """Return the size that a frame declares, which opening it then holds it to."""
    if way == "lz4":
        return int.from_bytes(frame[:_LZ4_SIZE], "little")
    try:
        import zstandard  # noqa: PLC0415 - optional

        return int(zstandard.frame_content_size(bytes(frame[:_ZSTD_HEADER])))
    except ImportError:
        return 1  # what opens it says what to install
    except zstandard.ZstdError:
        malformed("a compressed frame does not say how large it is")


def _inflated(frame: memoryview, room: Room) -> bytes:
    """Return *frame* opened. It says nothing about its size, so that the work is what is charged.

    A frame that was opened in vain took as long as another, and a message has many.
    """
    most = room.for_one
    if most <= 0:
        room.take(1)
    opener = zlib.decompressobj()
    try:
        whole = opener.decompress(frame, most + 1)
    except zlib.error:
        room.take(most)
        malformed("a compressed frame is none")
    room.take(len(whole))
    if not opener.eof or opener.unused_data:
        malformed("a compressed frame is cut, or more than one")
    return whole


def joined(header: Mapping[str, Any], frames: list[Any], limits: Limits) -> list[Any]:
    """Return *frames* as they were before Dask cut them for the wire."""
    if "split-num-sub-frames" not in header:
        return frames
    counts, offsets = header["split-num-sub-frames"], header.get("split-offsets")
    if type(counts) is not tuple or type(offsets) is not tuple or len(counts) != len(offsets):
        malformed("it does not say how its frames were cut")
    lengths, at = [], 0
    for count, offset in zip(counts, offsets, strict=True):
        # One after the other, and each once: the same frame in two values would be twice its size.
        if type(count) is not int or count < 0 or type(offset) is not int or offset != at:
            malformed("its frames were not cut one after the other")
        lengths.append(sum(memoryview(frame).nbytes for frame in frames[at : at + count]))
        at += count
    if at != len(frames):
        malformed("its frames were cut into others than it has")
    return framing.opened({"lengths": lengths}, frames, limits=limits)[1]

"""Read and write the frames of one message on a stream; adjacent small frames go together.

The one rule: memory for a frame is counted first, and taken when its bytes are about to arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tornado.iostream import IOStream

from safeser.dask.transport.unfinished import Arriving, fill, frame_memory, receive
from safeser.envelope import Arrival, Buffer, byte_count, runs
from safeser.errors import EnvelopeError

#: A body up to this size is read in one piece; a larger one frame by frame, so that each large
#: buffer owns its memory and arrays need no copy.
ONE_READ = 1 << 18

#: Frames up to this size are read and written with their neighbours: ten thousand results are as
#: many frames, and a system call for each takes longer than everything else that is done to it.
_SMALL = 1 << 14

#: What a frame counts among those besides its length: at most four thousand are verified at once,
#: in some 10 milliseconds.
_EACH = 1 << 6


def counted_size(frames: Sequence[Any]) -> int:
    """Return what *frames* count among those that are written together."""
    return _EACH * len(frames) + byte_count(frames)


def arrives_whole(size: int, count: int) -> bool:
    """Tell whether a message of *count* frames, *size* bytes together, is read in one piece."""
    return size + _EACH * count <= ONE_READ


def read_groups(lengths: Sequence[int]) -> list[list[int]]:
    """Return *lengths* of frames in groups that share one buffer each."""
    return runs(lengths, small=_SMALL, together=ONE_READ, each=_EACH)


def written_pieces(buffers: Iterable[Any]) -> Iterator[Buffer]:
    """Yield *buffers* as what to write one after the other: small neighbours in one, none empty."""
    small: list[Any] = []
    size = 0
    for buffer in buffers:
        view = memoryview(buffer)
        if small and (view.nbytes > _SMALL or size + view.nbytes > ONE_READ):
            yield b"".join(small)
            small, size = [], 0
        if view.nbytes > _SMALL:
            yield view.cast("B")
        elif view.nbytes:
            small.append(buffer)
            size += view.nbytes
    if small:
        yield b"".join(small)


async def read_frames(
    stream: IOStream, lengths: Sequence[int], arriving: Arriving, arrival: Arrival, added: int
) -> None:
    """Read frames of *lengths* into memory that they share, and give each to *arrival*.

    :param added: bytes that follow each of them on the wire.
    """
    small = sum(lengths) <= ONE_READ
    sealed = [length + added for length in lengths] if small else lengths
    try:
        memory = frame_memory(sum(sealed))
    except MemoryError:
        raise EnvelopeError(
            "there is no memory for a frame as long as a message says", rule="envelope.limits"
        ) from None
    frames = cut_at(memory, sealed)
    if small:
        await fill(stream, memory, arriving)
        for frame in frames:
            arrival.take(frame)
        return
    for frame in frames:
        # Parts of one value lie behind each other, without what follows them on the wire.
        arrival.begin(frame)
        await receive(stream, len(frame), arriving, arrival.space, arrival.arrived)
        arrival.finish(await read_end(stream, added))


async def read_end(stream: IOStream, size: int) -> bytes:
    data: bytes = await stream.read_bytes(size) if size else b""
    return data


def cut_at(data: memoryview, lengths: Iterable[int]) -> list[memoryview]:
    frames, at = [], 0
    for length in lengths:
        frames.append(data[at : at + length])
        at += length
    return frames

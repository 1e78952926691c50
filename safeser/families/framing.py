"""Split, join and decompress frames as transports do, and restore the frames as they were made.

The one rule: the lengths in a header are accepted only if they add up to exactly the received
bytes, and no frame is joined or decompressed beyond the limits.

Two keys of the outermost header describe this, and both are removed before it is parsed:
``lengths``, of each frame as it was made, and ``compression``, for each frame null or its codec and
its length on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from safeser.errors import PayloadError
from safeser.families.compression import compressed, decompressed
from safeser.families.plain import RAISE
from safeser.families.tree import TRANSPORT
from safeser.gate.values import Limits

__all__ = ["address", "bare", "opened", "prepared"]

#: Types whose length is their size.
_COUNTED = (bytes, bytearray)


def prepared(
    header: dict[str, Any], frames: Sequence[Any], *, codec: str | None
) -> tuple[dict[str, Any], list[Any]]:
    """Return *header* with the lengths of *frames*, compressed by *codec* where it pays."""
    header = {**header, "lengths": [memoryview(frame).nbytes for frame in frames]}
    if codec is None:
        return header, list(frames)
    sent: list[Any] = []
    ways: list[list[Any] | None] = []
    for frame in frames:
        body = compressed(frame, codec)
        sent.append(frame if body is None else body)
        ways.append(None if body is None else [codec, len(body)])
    if any(ways):
        header["compression"] = ways
    return header, sent


def opened(
    header: Mapping[str, Any], frames: Sequence[Any], *, limits: Limits
) -> tuple[dict[str, Any], list[Any]]:
    """Return *header* and *frames* as they were made: joined, cut and decompressed.

    Frames of a header that declares no lengths are left as they are.

    :raises PayloadError: if what is declared is over *limits*, or is not what came.
    """
    if not isinstance(header, dict | Mapping):  # the former takes less time to tell
        _refuse("it is not a dictionary")
    plain = bare(header)
    if "lengths" not in header:
        if "compression" in header:
            _refuse("it declares compression and no lengths")
        return plain, list(frames)
    whole = None if "compression" in header else _as_made(header["lengths"], frames, limits)
    if whole is not None:
        return plain, whole
    lengths = _lengths(header["lengths"], limits)
    ways = _ways(header.get("compression"), len(lengths), limits)
    on_wire = [length if way is None else way[1] for length, way in zip(lengths, ways, strict=True)]
    whole = _cut(_views(frames, limits), on_wire)
    made: list[Any] = []
    for index, (frame, length, way) in enumerate(zip(whole, lengths, ways, strict=True)):
        where = f"frame {index}"
        made.append(frame if way is None else decompressed(frame, way[0], length, where=where))
    return plain, made


def _as_made(lengths: object, frames: Sequence[Any], limits: Limits) -> list[Any] | None:
    """Return *frames* if they came as they were made and are within *limits*, as most do."""
    if type(lengths) is not list or not len(frames) == len(lengths) <= limits.max_frames:
        return None
    left = limits.max_bytes
    for length, frame in zip(lengths, frames, strict=True):
        if type(frame) in _COUNTED:
            size = len(frame)
        elif type(frame) is memoryview and frame.c_contiguous:
            size = frame.nbytes
        else:  # whatever else has a length may count it otherwise
            return None
        left -= size
        if type(length) is not int or length != size or size > limits.max_array or left < 0:
            return None
    return list(frames)


def bare(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return *header* without the keys that transports add, without reading these."""
    return {key: value for key, value in header.items() if key not in TRANSPORT}


def _refuse(problem: str, *, fix: str = "") -> NoReturn:
    raise PayloadError(f"the header is refused: {problem}", rule="families.framing", fix=fix)


def _lengths(lengths: object, limits: Limits) -> list[int]:
    if not isinstance(lengths, list | tuple) or len(lengths) > limits.max_frames:
        _refuse("lengths must be a list of at most max_frames")
    if not all(type(length) is int and 0 <= length <= limits.max_array for length in lengths):
        _refuse("a length is no size up to max_array", fix=RAISE)
    if sum(lengths) > limits.max_bytes:
        _refuse("its frames are longer than max_bytes", fix=RAISE)
    return list(lengths)


def _ways(ways: object, count: int, limits: Limits) -> list[tuple[str, int] | None]:
    if ways is None:
        return [None] * count
    if not isinstance(ways, list | tuple) or len(ways) != count:
        _refuse("compression must list one entry for each frame")
    read: list[tuple[str, int] | None] = []
    for way in ways:
        if way is None:
            read.append(None)
            continue
        if not isinstance(way, list | tuple) or len(way) != 2:
            _refuse("compression is a codec and a length")
        name, size = way
        if not isinstance(name, str) or type(size) is not int or not 0 < size <= limits.max_array:
            _refuse("compression is a codec and a length")
        read.append((name, size))
    return read


def _views(frames: Sequence[Any], limits: Limits) -> list[memoryview]:
    # There are more split frames than whole ones; each real one has at least a byte.
    if len(frames) > 2 * limits.max_frames:
        raise PayloadError("a payload has more than max_frames frames", rule="families.too-large")
    views = []
    for index, frame in enumerate(frames):
        try:
            views.append(memoryview(frame).cast("B"))
        except TypeError:
            raise PayloadError(
                "a frame is not one run of bytes", rule="families.frame", where=f"frame {index}"
            ) from None
    return views


def _cut(views: list[memoryview], sizes: list[int]) -> list[memoryview]:
    """Return frames of *sizes* from *views* in order; copy only frames that span several views."""
    if [view.nbytes for view in views] == sizes:
        return views
    if sum(view.nbytes for view in views) != sum(sizes):
        _refuse("its frames differ from the declared lengths")
    waiting = iter(view for view in views if view.nbytes)
    rest = memoryview(b"")
    whole = []
    for size in sizes:
        parts = []
        while size > 0:
            rest = rest or next(waiting)
            parts.append(rest[:size])
            rest, size = rest[size:], size - parts[-1].nbytes  # noqa: PLW2901
        whole.append(_joined(parts))
    return whole


def _joined(parts: list[memoryview]) -> memoryview:
    if len(parts) == 1:
        return parts[0]
    return _adjacent(parts) or memoryview(bytearray().join(parts))


def _adjacent(parts: list[memoryview]) -> memoryview | None:
    """Return the run that *parts* are neighbours in, as after one read from a socket; else None."""
    if not parts or any(part.obj is not parts[0].obj for part in parts):
        return None
    starts = [address(part) for part in parts]
    ends = [start + part.nbytes for start, part in zip(starts, parts, strict=True)]
    if starts[1:] != ends[:-1]:
        return None
    try:
        base = memoryview(parts[0].obj).cast("B")
    except TypeError:
        return None
    first = starts[0] - address(base)
    whole = base[first : first + ends[-1] - starts[0]]
    return whole.toreadonly() if any(part.readonly for part in parts) else whole


def address(view: memoryview) -> int:
    """Return where the bytes of *view* lie in memory."""
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])

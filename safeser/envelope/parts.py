"""Frames longer than one frame of the envelope may be: cut before sealing, joined after verifying.

The one rule: a list of frames has one encoding. Only a frame above :data:`format.MAX_FRAME` is cut,
each of its parts but the last is exactly that long, and counts that say anything else are refused
before memory is taken for what they claim.

The counts travel inside the message, where its MAC covers them
(``docs/reference/envelope-v1-messages.md``, section 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from safeser.envelope import format as wire
from safeser.envelope.format import Buffer, byte_count, flat
from safeser.errors import PayloadError
from safeser.values import Limits

__all__ = ["check_payload", "join", "runs", "split", "too_large"]

_FIX = "Send less at once, or raise limits.{limit} in the policies of both sides."


def check_payload(frames: Sequence[Buffer], limits: Limits) -> None:
    """Refuse to send a payload that a receiver under *limits* refuses: it would ask for it again.

    :raises PayloadError: by the rule of the limit, as ``"limit.max_bytes"``.
    """
    size = byte_count(frames)
    if size > limits.max_bytes:
        raise too_large("a value", "max_bytes", size, limits)
    if len(frames) <= limits.max_frames and size <= limits.max_array and size <= wire.MAX_FRAME:
        return  # as nearly all
    sizes = [memoryview(frame).nbytes for frame in frames]
    longest = max(sizes, default=0)
    if longest > limits.max_array:
        raise too_large("a buffer inside a value", "max_array", longest, limits)
    count = sum(max(1, -(-each // wire.MAX_FRAME)) for each in sizes)  # some are cut
    if count > limits.max_frames:
        raise too_large("the number of a value's frames", "max_frames", count, limits)


def too_large(what: str, limit: str, size: int, limits: Limits) -> PayloadError:
    """Return the refusal of *what* by the limit of that name."""
    return PayloadError(
        f"{what} is over the policy's limit {limit} ({size} > {getattr(limits, limit)})",
        rule=f"limit.{limit}",
        fix=_FIX.format(limit=limit),
    )


def split(frames: Sequence[Buffer]) -> tuple[list[Buffer], list[int]]:
    """Return *frames* cut to what the envelope moves, and how many parts each became.

    The parts are views, not copies. The counts are empty where nothing was cut.
    """
    longest = wire.MAX_FRAME
    if byte_count(frames) <= longest:  # as nearly all
        return list(frames), []
    if all(memoryview(frame).nbytes <= longest for frame in frames):
        return list(frames), []
    parts: list[Buffer] = []
    counts: list[int] = []
    for frame in frames:
        view = flat(frame)
        cut = [view[at : at + longest] for at in range(0, len(view), longest)] or [view]
        parts += cut
        counts.append(len(cut))
    return parts, counts


def join(parts: Sequence[Buffer], counts: Any) -> list[Buffer]:
    """Return the frames that :func:`split` cut into *parts*.

    Parts that lie behind each other in memory, as a reader who asked :func:`runs` puts them, are
    not copied.

    :param counts: as they came from the peer; whatever they are.
    :raises PayloadError: if :func:`split` does not make *counts* of any frames.
    """
    if not isinstance(counts, list | tuple) or not all(type(n) is int and n > 0 for n in counts):
        _refuse("they are no positive counts")
    if sum(counts) != len(parts):
        _refuse("they count other parts than there are")
    if max(counts, default=1) == 1:
        _refuse("they say that nothing was cut")
    cut, at = [], 0
    for count in counts:
        cut.append([flat(part) for part in parts[at : at + count]])
        at += count
    for pieces in cut:
        if len(pieces) > 1 and not _is_cut(list(map(len, pieces))):
            _refuse("a part has another size than its place gives it")
    return [_joined(pieces) for pieces in cut]


def _is_cut(sizes: Sequence[int]) -> bool:
    return set(sizes[:-1]) == {wire.MAX_FRAME} and 0 < sizes[-1] <= wire.MAX_FRAME


def runs(lengths: Sequence[int], *, small: int, together: int, each: int = 0) -> list[list[int]]:
    """Return *lengths* in groups that a reader best puts into one buffer each.

    A frame of the largest size and the one behind it may be parts of one: only the message itself
    says so, and nothing in it may be read before its MAC holds.

    :param small: frames up to this size share a buffer with small neighbours: to read each by
        itself takes longer than what it holds is worth.
    :param together: the most that such frames fill of one buffer.
    :param each: what a frame counts there besides its length: empty ones take time as well.
    """
    groups: list[list[int]] = []
    last, room = 0, -1
    for length in lengths:
        if last == wire.MAX_FRAME:
            groups[-1].append(length)
        elif length <= small and length + each <= room:
            groups[-1].append(length)
            room -= length + each
        else:
            groups.append([length])
            room = together - length - each if length <= small else -1
        last = length
    return groups


def _joined(pieces: Sequence[memoryview]) -> memoryview:
    if len(pieces) == 1:
        return pieces[0]
    total = sum(map(len, pieces))
    starts = [_address(piece) for piece in pieces]
    behind = all(a + len(p) == b for (a, b), p in zip(pairwise(starts), pieces, strict=False))
    if behind and all(piece.obj is pieces[0].obj for piece in pieces):
        whole = flat(memoryview(pieces[0].obj))
        at = starts[0] - _address(whole)
        view = whole[at : at + total]
        return view.toreadonly() if any(piece.readonly for piece in pieces) else view
    buffer = memoryview(bytearray(total))
    at = 0
    for piece in pieces:
        buffer[at : at + len(piece)] = piece
        at += len(piece)
    return buffer


def _address(view: memoryview) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def _refuse(problem: str) -> NoReturn:
    raise PayloadError(f"the part counts of a message are wrong: {problem}", rule="payload.parts")

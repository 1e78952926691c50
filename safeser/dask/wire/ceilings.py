"""Hold requests, stream elements and replies to their ceilings before they are parsed.

The one rule: what is larger than every operation may be is looked at first: the operation that it
names, right at its beginning, says how large it may be. Nothing of it is built for that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack

from safeser.channel import Link
from safeser.dask.wire.reader import Reader
from safeser.errors import EnvelopeError, PayloadError
from safeser.gate.values import ELEMENT, Kind, Limits
from safeser.operations import (
    FLOOR,
    MANY,
    NAMES,
    UNBOUNDED,
    Ceiling,
    Channel,
    Server,
    lookup,
)
from safeser.policy.ceilings import ceiling, largest

#: Tells how large an operation of that name may be; None where there is no such operation.
CeilingOf = Callable[[str], Ceiling | None]

#: Bytes of values that have a frame of their own, at least, on average.
_FRAME = 1 << 5

#: Bytes in which a map names its operation: its header, its first key and the longest name.
_HEAD = 5 + len(msgpack.packb("op")) + max(len(msgpack.packb(name)) for name in NAMES)


class MessageBounds(NamedTuple):
    """What the next message of a connection may take.

    :param structure: bytes of frame 0, and likewise of frame 1.
    :param whole: bytes of all frames.
    :param frames: frames, of which those after the first two belong to values.
    """

    structure: int
    whole: int
    frames: int


#: Those of Dask's own handshake, a few versions, and of a message about the session: a step of a
#: handshake, or why it ends.
GREETING_BOUNDS = MessageBounds(FLOOR, FLOOR, 2 + FLOOR // _FRAME)
CONTROL_BOUNDS = MessageBounds(FLOOR, FLOOR, 2)


def incoming_bounds(link: Link, server: Server, channel: Channel) -> MessageBounds:
    """Return the bounds of a request to *server*, or of a batch of its stream elements."""
    context = link.inbound(Kind.ADMIN)
    most = largest(link.policy, context, server, channel)
    # A sender cuts batches to half as many bytes as the limit has elements.
    structure = max(FLOOR, most.structure) + link.policy.limits.max_memory // ELEMENT
    return _bounds(structure, most.values, link.policy.limits)


@lru_cache(maxsize=16)  # a process has few policies
def reply_bounds(limits: Limits, *, values: bool) -> MessageBounds:
    """Return the bounds of the reply to a request, which may hold *values* or not."""
    return _bounds(MANY, UNBOUNDED if values else MANY, limits)


def _bounds(structure: int, values: int, limits: Limits) -> MessageBounds:
    frames = min(limits.max_frames, 2 + max(FLOOR, values) // _FRAME)
    return MessageBounds(structure, min(UNBOUNDED, 2 * structure + values), frames)


def over_bounds(what: str, size: int, most: int) -> EnvelopeError:
    """Return why what is larger than anything that its sender may say now is not read.

    The connection cannot be read any further.
    """
    return EnvelopeError(
        f"{what} is over the ceiling of all that its sender may say now ({size} > {most})",
        rule="limit.ceiling",
    )


def named_first(packed: Any) -> str:
    """Return the operation that *packed*, one map, names as its first key; empty if it does not.

    The sender's encoder writes it there.
    """
    head = msgpack.Unpacker(max_buffer_size=_HEAD)
    try:
        head.feed(memoryview(packed)[:_HEAD])
        head.read_map_header()
        first, name = head.unpack(), head.unpack()
    except (msgpack.UnpackException, ValueError):
        return ""
    return name if first == "op" and type(name) is str and name in NAMES else ""


def check_element(packed: Any, limits: Limits, ceiling_of: CeilingOf) -> None:
    """Refuse one packed request or element that is over the ceiling of the operation it names.

    :param ceiling_of: returns the ceiling of an operation, by its name; None for an unknown one.
    :raises PayloadError: naming the operation and the ceiling.
    """
    size = len(packed)
    if size <= FLOOR:
        return
    name = named_first(packed)
    found = ceiling_of(name) if name else None
    if found is None:
        raise _over(f"an element of {size} bytes that names no known operation first", FLOOR, name)
    if size > found.structure:
        raise _over(f"operation {name} with {size} bytes", found.structure, name)
    if 2 * size > found.elements:
        try:
            Reader(limits, min(limits.elements, found.elements)).read(packed)
        except PayloadError as error:
            error.operation = name
            if error.rule != "limit.max_memory":
                raise
            raise _over(
                f"operation {name} with more keys and elements", found.elements, name
            ) from None


def _over(what: str, most: int, name: str) -> PayloadError:
    error = PayloadError(
        f"{what} is over its ceiling for this sender ({most})",
        rule="limit.operation",
        fix="Send less at a time (fewer keys, a smaller event), or large data as values. A policy"
        " can raise this only for a sender without a submission, by granting one.",
    )
    error.operation = name
    return error


def ceilings_of(
    link: Link, server: Server, channel: Channel, *, outbound: bool = False
) -> CeilingOf:
    """Return what tells how large an operation on *server* may be, in one direction of *link*."""
    context = link.outbound if outbound else link.inbound

    def ceiling_of(name: str) -> Ceiling | None:
        row = lookup(server, channel, name)
        return None if row is None else ceiling(link.policy, context(row.kind, row.name), row)

    return ceiling_of

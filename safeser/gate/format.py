"""The bytes of one message: prelude, tag, block, further parts, last tag.

The one rule: every number that a peer wrote is checked against the limits, and against the other
numbers, before it sizes anything. Nothing here encrypts or authenticates; see
:mod:`safeser.gate.session`.

The lengths of all frames are in the block, which is encrypted. They alone decide how frames are
grouped to parts, each of which is one call of AES-GCM: a list of frames has one encoding, and no
length on the wire contradicts another one unnoticed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from safeser.gate.refusals import EnvelopeError, PayloadError
from safeser.gate.values import Limits

Buffer = bytes | bytearray | memoryview

MAGIC = b"SSm2"
DATA, CLOSE = 1, 2  # 3 is a detached message; each that comes has a decision of its own

#: Magic, message type, reserved: how every message begins, by its type.
BEGIN = {kind: struct.pack("<4sB3x", MAGIC, kind) for kind in (DATA, CLOSE)}
#: Sequence, length of the block, bytes behind the sealed block.
_NUMBERS = struct.Struct("<QQQ")
FIELDS_SIZE = 8 + _NUMBERS.size
#: A tag of HMAC-SHA256.
HMAC_SIZE = 32
PRELUDE_SIZE = FIELDS_SIZE + HMAC_SIZE

#: A tag of AES-256-GCM.
GCM_TAG_SIZE = 16

#: A frame of this size is a part of its own; smaller ones share a part that stays below it. So a
#: small frame that a caller keeps, which is a view of its part, keeps fewer bytes than this.
SMALL = 1 << 16

#: The longest frame: one invocation of AES-GCM covers at most 2**36 - 32 bytes (SP 800-38D).
MAX_FRAME = 1 << 35

#: Header length and frame count, how a block begins.
_HEAD = struct.Struct("<II")
_LENGTH_SIZE = 8


class Prelude(NamedTuple):
    """The fixed start of a message, well-formed and within limits, but not yet authenticated.

    :param fields: the 32 bytes that all other numbers were read from.
    :param tag: the 32 bytes of HMAC that the peer sent.
    :param closes: whether it says that nothing follows it.
    :param sequence: the number of the message in its direction, from 1.
    :param block: bytes of the sealed block, its GCM tag included, which follow the prelude.
    :param rest: bytes behind that: the other parts and the last tag; 0 if there are none.
    """

    fields: bytes
    tag: bytes
    closes: bool
    sequence: int
    block: int
    rest: int


class Block(NamedTuple):
    """What an authentic block says.

    :param lengths: bytes of each frame of the message.
    :param counts: how many frames each part has; the block is the first part.
    :param sizes: how many bytes these frames have together.
    :param inside: the frames that are in the block, in memory of their own.
    """

    header: bytes
    lengths: tuple[int, ...]
    counts: list[int]
    sizes: list[int]
    inside: memoryview


def longest_block(header: int, frames: int) -> int:
    """Return the bytes of the longest sealed block with so many bytes of header and frames."""
    return _HEAD.size + _LENGTH_SIZE * frames + header + SMALL + GCM_TAG_SIZE


def longest_rest(size: int) -> int:
    """Return the most bytes behind the block of a message whose frames have *size* together.

    Two parts that follow each other have :data:`SMALL` bytes or more, or they would be one. So
    there are at most two for so many bytes.
    """
    return size + 2 * GCM_TAG_SIZE * (size // SMALL) + HMAC_SIZE


def grouped(lengths: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return how many frames of *lengths* each part has, and bytes; the first is the block."""
    counts, sizes = [0], [0]
    for length in lengths:
        if sizes[-1] + length < SMALL:
            counts[-1] += 1
            sizes[-1] += length
        else:
            counts.append(1)
            sizes.append(length)
    return counts, sizes


def rest_size(sizes: Sequence[int]) -> int:
    """Return the bytes behind the sealed block of a message whose parts have *sizes*."""
    if len(sizes) == 1:
        return 0
    return sum(sizes[1:]) + GCM_TAG_SIZE * (len(sizes) - 1) + HMAC_SIZE


def check_sizes(limits: Limits, header: int, lengths: Sequence[int]) -> int:
    """Return the sum of *lengths*, the bytes of frames beside a header of *header* bytes.

    :raises EnvelopeError: if *limits* do not allow a message of these.
    """
    if header > limits.max_header:
        raise _over_limit("header", header, limits.max_header)
    if len(lengths) > limits.max_frames:
        raise _over_limit("number of frames", len(lengths), limits.max_frames)
    size = sum(lengths)
    if size > limits.max_bytes:
        raise _over_limit("body", size, limits.max_bytes)
    if size > MAX_FRAME and max(lengths) > MAX_FRAME:
        raise _over_limit("longest frame", max(lengths), MAX_FRAME)
    return size


def pack_fields(kind: int, sequence: int, block: int, rest: int) -> bytes:
    """Return the first 32 bytes of a prelude: all but the tag.

    :param block: bytes of the block, its GCM tag aside.
    """
    return BEGIN[kind] + _NUMBERS.pack(sequence, block, rest)


def pack_block(header: bytes, lengths: Sequence[int], frames: Iterable[Buffer]) -> bytes:
    """Return the block of a message, in which *frames* are those of the first group."""
    head = struct.pack(f"<II{len(lengths)}Q", len(header), len(lengths), *lengths)
    return b"".join((head, header, *frames))


def parse_prelude(data: Buffer, limits: Limits) -> Prelude:
    """Return the prelude that *data* spells, or raise :class:`EnvelopeError`."""
    raw = bytes(data)
    if len(raw) != PRELUDE_SIZE:
        raise malformed(f"a prelude has {PRELUDE_SIZE} bytes")
    closes = raw.startswith(BEGIN[CLOSE])
    if not closes and not raw.startswith(BEGIN[DATA]):
        raise malformed("that is not the start of a message of this version")
    sequence, block, rest = _NUMBERS.unpack_from(raw, 8)
    if closes and (block or rest):
        raise malformed("a message that closes a connection has no content")
    longest = longest_block(limits.max_header, limits.max_frames) - GCM_TAG_SIZE
    if block > longest:
        raise _over_limit("block", block, longest)
    if rest and rest > longest_rest(limits.max_bytes):
        raise _over_limit("body", rest, longest_rest(limits.max_bytes))
    fields, tag = raw[:FIELDS_SIZE], raw[FIELDS_SIZE:]
    return Prelude(fields, tag, closes, sequence, block + GCM_TAG_SIZE, rest)


def parse_block(block: bytes, rest: int, limits: Limits, *, tags: bool = True) -> Block:
    """Return what an authentic *block* says, or raise :class:`EnvelopeError`.

    :param rest: bytes behind it, as the prelude announced them.
    :param tags: whether the parts are encrypted, and so have tags among these bytes.
    """
    if len(block) < _HEAD.size:
        raise malformed("a block is shorter than its own numbers")
    header_length, count = _HEAD.unpack_from(block)
    at = _HEAD.size + _LENGTH_SIZE * count
    if len(block) < at + header_length:
        raise malformed("a block is shorter than its header and lengths")
    lengths = struct.unpack_from(f"<{count}Q", block, _HEAD.size)
    size = check_sizes(limits, header_length, lengths)
    first = at + header_length
    if size < SMALL:  # as nearly all
        counts, sizes, more = [count], [size], 0
    else:
        counts, sizes = grouped(lengths)
        more = rest_size(sizes) if tags else sum(sizes[1:])
    if len(block) != first + sizes[0] or rest != more:
        raise malformed("the lengths of a message's frames don't add up to its size")
    # Memory that can be written to, as frames of their own are, and without what is not theirs.
    inside = memoryview(bytearray(memoryview(block)[first:]))
    return Block(block[at:first], lengths, counts, sizes, inside)


def cut_at(data: memoryview, lengths: Iterable[int]) -> list[memoryview]:
    """Return views of *data*, one behind the other, with *lengths* bytes each."""
    frames, at = [], 0
    for length in lengths:
        frames.append(data[at : at + length])
        at += length
    return frames


def byte_count(frames: Iterable[Any]) -> int:
    """Return how many bytes *frames*, buffers of any form, have together."""
    return sum(map(_nbytes, map(_view, frames)))


_view: Callable[[Any], memoryview] = memoryview  # for mypy: of any object, by map
_nbytes = attrgetter("nbytes")


def all_flat(frames: Iterable[Buffer]) -> list[memoryview]:
    """Return *frames* as views of single bytes, without copies.

    :raises EnvelopeError: if one is not contiguous.
    """
    views = [*map(_view, frames)]
    if not _FLAT.issuperset(map(_form, views)):  # nearly all are
        views = [view if _form(view) in _FLAT else _cast(view) for view in views]
    return views


_form = attrgetter("format", "ndim", "c_contiguous")
_FLAT = frozenset({("B", 1, True)})


def _cast(view: memoryview) -> memoryview:
    if not view.c_contiguous:
        raise malformed("a frame must be one contiguous piece of memory")
    # A shape with a zero in it cannot be cast.
    return view.cast("B") if view.nbytes else memoryview(b"")


def malformed(problem: str) -> EnvelopeError:
    """Return the refusal of bytes that are no message."""
    return EnvelopeError(problem, rule="envelope.format")


def _over_limit(what: str, size: int, limit: int) -> EnvelopeError:
    return EnvelopeError(
        f"the {what} of a message is over the limit ({size} > {limit})",
        rule="envelope.limits",
        fix="Send less at once, or raise the limit in the policy.",
    )


def check_payload(frames: Sequence[Buffer], limits: Limits) -> None:
    """Refuse to send a payload that a receiver under *limits* refuses: it would ask for it again.

    :raises PayloadError: by the rule of the limit, as ``"limit.max_bytes"``.
    """
    size = byte_count(frames)
    if size > limits.max_bytes:
        raise too_large("a value", "max_bytes", size, limits)
    if size > limits.max_array:
        longest = max(memoryview(frame).nbytes for frame in frames)
        if longest > limits.max_array:
            raise too_large("a buffer inside a value", "max_array", longest, limits)
    if len(frames) > limits.max_frames:
        raise too_large("the number of a value's frames", "max_frames", len(frames), limits)


def too_large(what: str, limit: str, size: int, limits: Limits) -> PayloadError:
    """Return the refusal to send *what*, by the field of :class:`Limits` that *limit* names."""
    return PayloadError(
        f"{what} is over the policy's limit {limit} ({size} > {getattr(limits, limit)})",
        rule=f"limit.{limit}",
        fix=f"Send less at once, or raise limits.{limit} in the policies of both sides.",
    )

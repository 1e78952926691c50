"""The bytes of one message: prelude, header, table of frames, frames.

The one rule: every number that a peer wrote is checked against the limits, and against the other
numbers, before it sizes anything. Nothing here authenticates; see :mod:`safeser.envelope.mac` and
:mod:`safeser.envelope.aead`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from safeser.errors import EnvelopeError
from safeser.values import Limits, Suite

Buffer = bytes | bytearray | memoryview

MAGIC = b"SSm1"
VERSION = 1
TYPE_DATA = 1  # 2 and up: detached messages and whatever comes; each has a decision of its own

#: Magic, version, message type, reserved: how every message begins.
_BEGIN = struct.pack("<4sBBH", MAGIC, VERSION, TYPE_DATA, 0)
#: Sequence, header length, frame count, body length.
_NUMBERS = struct.Struct("<QIIQ")
FIELDS_SIZE = len(_BEGIN) + _NUMBERS.size
TAG_SIZE = 32
PRELUDE_SIZE = FIELDS_SIZE + TAG_SIZE

#: A tag of AES-256-GCM or AES-256-GMAC.
GCM_TAG_SIZE = 16

#: One row of the table: the length of a frame.
_ROW_SIZE = 8


class Overhead(NamedTuple):
    """Bytes that a suite adds to the wire: to the header, to each frame, and at the end."""

    header: int
    frame: int
    end: int


OVERHEAD = {
    Suite.AUTHENTICATE: Overhead(0, 0, 0),
    Suite.ENCRYPT: Overhead(GCM_TAG_SIZE, GCM_TAG_SIZE, TAG_SIZE),
}

#: One GMAC, and one call of the library, covers at most this. Longer frames are split before; see
#: :mod:`safeser.envelope.parts`.
MAX_FRAME = 1 << 30


class Prelude(NamedTuple):
    """The fixed start of a message, well-formed and within limits, but not yet authenticated.

    :param suite: of the session; nothing in the prelude says it.
    :param fields: the 32 bytes that all other numbers were read from; the MAC covers these.
    :param tag: the 32 bytes of MAC that the peer sent.
    :param start_length: bytes between the prelude and the first frame: the header and the table.
    :param message_length: bytes of the whole message on the wire.
    """

    suite: Suite

    fields: bytes
    tag: bytes
    sequence: int
    header_length: int
    frame_count: int
    body_length: int
    start_length: int
    message_length: int

    @property
    def overhead(self) -> Overhead:
        return OVERHEAD[self.suite]


class Start(NamedTuple):
    """Everything of a message before its first frame: parsed by shape, not verified.

    :param header: as it stands on the wire; in suite 2 ciphertext with its tag.
    :param table: as it stands on the wire.
    :param lengths: of the frames, without what the suite adds to them.
    :param sealed_lengths: of the frames on the wire.
    """

    prelude: Prelude
    header: bytes
    table: bytes
    lengths: tuple[int, ...]
    sealed_lengths: tuple[int, ...]


class Sealed(NamedTuple):
    """A message as it arrived: parsed by shape, not verified. Nothing in it may be believed.

    :param frames: as they stand on the wire; in suite 2 ciphertext with its tag.
    :param end: what follows the last frame; empty in suite 1.
    """

    start: Start
    frames: Sequence[Buffer]
    end: Buffer = b""


def message_length(suite: Suite, header_length: int, frame_count: int, body_length: int) -> int:
    """Return the bytes of a whole message on the wire."""
    header, frame, end = OVERHEAD[suite]
    start = PRELUDE_SIZE + header_length + header
    return start + frame_count * (_ROW_SIZE + frame) + body_length + end


def check_sizes(limits: Limits, header_length: int, frame_count: int, body_length: int) -> None:
    """Refuse a message whose sizes the limits don't allow or that contradict each other."""
    if header_length > limits.max_header:
        raise _too_large("header", header_length, limits.max_header)
    if frame_count > limits.max_frames:
        raise _too_large("number of frames", frame_count, limits.max_frames)
    if body_length > limits.max_bytes:
        raise _too_large("body", body_length, limits.max_bytes)
    if body_length > frame_count * MAX_FRAME:
        raise EnvelopeError(
            "a message has more bytes than its frames can hold", rule="envelope.format"
        )


def pack_fields(sequence: int, header_length: int, frame_count: int, body_length: int) -> bytes:
    """Return the first 32 bytes of a prelude: all but the tag."""
    return _BEGIN + _NUMBERS.pack(sequence, header_length, frame_count, body_length)


def parse_prelude(data: Buffer, limits: Limits, suite: Suite) -> Prelude:
    """Return the prelude that *data* spells, or raise :class:`EnvelopeError`."""
    raw = bytes(data)
    if len(raw) != PRELUDE_SIZE:
        raise EnvelopeError(f"a prelude has {PRELUDE_SIZE} bytes", rule="envelope.format")
    if not raw.startswith(_BEGIN):
        raise EnvelopeError(
            "that is not the start of a message of this version", rule="envelope.format"
        )
    sequence, header_length, frame_count, body_length = _NUMBERS.unpack_from(raw, len(_BEGIN))
    check_sizes(limits, header_length, frame_count, body_length)
    header, frame, end = OVERHEAD[suite]
    start_length = header_length + header + frame_count * _ROW_SIZE
    return Prelude(
        suite,
        raw[:FIELDS_SIZE],
        raw[FIELDS_SIZE:],
        sequence,
        header_length,
        frame_count,
        body_length,
        start_length,
        PRELUDE_SIZE + start_length + frame_count * frame + body_length + end,
    )


def parse_start(prelude: Prelude, data: Buffer) -> Start:
    """Return what *data* holds, the bytes between *prelude* and the first frame.

    The lengths of the frames must add up to what the prelude announced.
    """
    # Copied: what was verified must not change afterwards.
    raw = bytes(data)
    if len(raw) != prelude.start_length:
        raise EnvelopeError(
            "the header and the table of a message have another size", rule="envelope.format"
        )
    more, added, _ = OVERHEAD[prelude.suite]
    table_at = prelude.header_length + more
    table = raw[table_at:]
    lengths: tuple[int, ...] = struct.unpack(f"<{prelude.frame_count}Q", table)
    if sum(lengths) != prelude.body_length:
        raise EnvelopeError("frame lengths don't add up to the body", rule="envelope.format")
    if prelude.body_length > MAX_FRAME:
        check_lengths(lengths)
    sealed_lengths = tuple([length + added for length in lengths]) if added else lengths
    return Start(prelude, raw[:table_at], table, lengths, sealed_lengths)


def pack_lengths(lengths: Sequence[int]) -> bytes:
    """Return the table of a message."""
    return struct.pack(f"<{len(lengths)}Q", *lengths)


def check_lengths(lengths: Sequence[int]) -> None:
    """Refuse a frame that is longer than the envelope moves in one piece."""
    if max(lengths, default=0) > MAX_FRAME:
        raise EnvelopeError(
            f"a frame of a message is over the limit ({max(lengths)} > {MAX_FRAME})",
            rule="envelope.limits",
            fix="Split it; see safeser.envelope.split.",
        )


def byte_count(frames: Iterable[Any]) -> int:
    """Return how many bytes *frames*, buffers of any form, have together."""
    return sum(map(_nbytes, map(_view, frames)))


_view: Callable[[Any], memoryview] = memoryview
_nbytes = attrgetter("nbytes")


def flat(frame: Buffer) -> memoryview:
    """Return *frame* as a view of single bytes, without a copy."""
    return all_flat((frame,))[0]


def all_flat(frames: Iterable[Buffer]) -> list[memoryview]:
    """Return *frames* as views of single bytes, without copies."""
    views = [*map(_view, frames)]
    if not _FLAT.issuperset(map(_form, views)):  # nearly all are
        views = [view if _form(view) in _FLAT else _cast(view) for view in views]
    return views


_form = attrgetter("format", "ndim", "c_contiguous")
_FLAT = frozenset({("B", 1, True)})


def _cast(view: memoryview) -> memoryview:
    if not view.c_contiguous:
        raise EnvelopeError(
            "a frame must be one contiguous piece of memory", rule="envelope.format"
        )
    # A shape with a zero in it cannot be cast.
    return view.cast("B") if view.nbytes else memoryview(b"")


def _too_large(what: str, size: int, limit: int) -> EnvelopeError:
    return EnvelopeError(
        f"the {what} of a message is over the limit ({size} > {limit})",
        rule="envelope.limits",
        fix="Send less at once, or raise the limit in the policy.",
    )

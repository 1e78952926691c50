"""The bytes of one message: prelude, header, table of frames, frames.

The one rule: every number that a peer wrote is checked against the limits, and against the other
numbers, before it sizes anything. Nothing here authenticates; see :mod:`safeser.envelope.mac` and
:mod:`safeser.envelope.aead`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from safeser.errors import EnvelopeError
from safeser.values import Limits, Suite

__all__ = [
    "MAX_FRAME",
    "PRELUDE_SIZE",
    "Buffer",
    "Prelude",
    "Sealed",
    "Start",
    "flat",
    "message_length",
    "pack_fields",
    "pack_lengths",
    "parse_prelude",
    "parse_start",
]

Buffer = bytes | bytearray | memoryview

MAGIC = b"SSm1"
VERSION = 1
TYPE_DATA = 1  # 2 and up: detached messages and whatever comes; each has a decision of its own

#: magic, version, message type, reserved, sequence, header length, frame count, body length.
_FIELDS = struct.Struct("<4sBBHQIIQ")
FIELDS_SIZE = _FIELDS.size
TAG_SIZE = 32
PRELUDE_SIZE = FIELDS_SIZE + TAG_SIZE

#: A tag of AES-256-GCM or AES-256-GMAC.
GCM_TAG_SIZE = 16

#: One row of the table in suite 2: the length of a frame, and its tag.
SEALED_ROW = struct.Struct("<Q16s")

#: For each suite, how much longer a header is on the wire than its own bytes, and a row's size.
_EXTRA_AND_ROW = {Suite.AUTHENTICATE: (0, 8), Suite.ENCRYPT: (GCM_TAG_SIZE, SEALED_ROW.size)}

#: One GMAC, and one call of the library, covers at most this. Longer frames are split before; see
#: :mod:`safeser.envelope.parts`.
MAX_FRAME = 1 << 30


@dataclass(frozen=True, slots=True)
class Prelude:
    """The fixed start of a message, well-formed and within limits, but not yet authenticated.

    :param suite: of the session; nothing in the prelude says it.
    :param fields: the 32 bytes that all other numbers were read from; the MAC covers these.
    :param tag: the 32 bytes of MAC that the peer sent.
    """

    suite: Suite

    fields: bytes
    tag: bytes
    sequence: int
    header_length: int
    frame_count: int
    body_length: int

    @property
    def start_length(self) -> int:
        """Bytes between the prelude and the first frame: the header and the table."""
        return _start_length(self.suite, self.header_length, self.frame_count)

    @property
    def message_length(self) -> int:
        """Bytes of the whole message on the wire."""
        return PRELUDE_SIZE + self.start_length + self.body_length


@dataclass(frozen=True, slots=True)
class Start:
    """Everything of a message before its first frame: parsed by shape, not verified.

    :param header: as it stands on the wire; in suite 2 ciphertext with its tag.
    :param lengths: of the frames.
    :param tags: of the frames; none in suite 1.
    """

    prelude: Prelude
    header: bytes
    lengths: tuple[int, ...]
    tags: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A message as it arrived: parsed by shape, not verified. Nothing in it may be believed."""

    start: Start
    frames: Sequence[Buffer]


def _start_length(suite: Suite, header_length: int, frame_count: int) -> int:
    extra, row = _EXTRA_AND_ROW[suite]
    return header_length + extra + frame_count * row


def message_length(suite: Suite, *, header_length: int, frame_count: int, body_length: int) -> int:
    """Return the bytes of a whole message on the wire."""
    return PRELUDE_SIZE + _start_length(suite, header_length, frame_count) + body_length


def check_sizes(limits: Limits, *, header_length: int, frame_count: int, body_length: int) -> None:
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


def pack_fields(*, sequence: int, header_length: int, frame_count: int, body_length: int) -> bytes:
    """Return the first 32 bytes of a prelude: all but the tag."""
    return _FIELDS.pack(
        MAGIC, VERSION, TYPE_DATA, 0, sequence, header_length, frame_count, body_length
    )


def parse_prelude(data: Buffer, limits: Limits, suite: Suite) -> Prelude:
    """Return the prelude that *data* spells, or raise :class:`EnvelopeError`."""
    if memoryview(data).nbytes != PRELUDE_SIZE:
        raise EnvelopeError(f"a prelude has {PRELUDE_SIZE} bytes", rule="envelope.format")
    raw = bytes(data)
    magic, version, kind, reserved, sequence, header_length, frame_count, body_length = (
        _FIELDS.unpack_from(raw)
    )
    if magic != MAGIC or version != VERSION or kind != TYPE_DATA or reserved:
        raise EnvelopeError(
            "that is not the start of a message of this version", rule="envelope.format"
        )
    check_sizes(
        limits, header_length=header_length, frame_count=frame_count, body_length=body_length
    )
    fields, tag = raw[:FIELDS_SIZE], raw[FIELDS_SIZE:]
    return Prelude(suite, fields, tag, sequence, header_length, frame_count, body_length)


def parse_start(prelude: Prelude, data: Buffer) -> Start:
    """Return what *data* holds, the bytes between *prelude* and the first frame.

    The lengths of the frames must add up to what the prelude announced.
    """
    view = memoryview(data)
    if view.nbytes != prelude.start_length:
        raise EnvelopeError(
            "the header and the table of a message have another size", rule="envelope.format"
        )
    table_at = prelude.header_length + _EXTRA_AND_ROW[prelude.suite][0]
    lengths, tags = _columns(prelude, view[table_at:])
    if sum(lengths) != prelude.body_length:
        raise EnvelopeError("frame lengths don't add up to the body", rule="envelope.format")
    check_lengths(lengths)
    # Copied: what was verified must not change afterwards.
    return Start(prelude, bytes(view[:table_at]), lengths, tags)


def _columns(prelude: Prelude, table: memoryview) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
    if prelude.suite is Suite.AUTHENTICATE:
        return struct.unpack(f"<{prelude.frame_count}Q", table), ()
    rows = list(SEALED_ROW.iter_unpack(table))
    return tuple([length for length, _ in rows]), tuple([tag for _, tag in rows])


def pack_lengths(lengths: Sequence[int]) -> bytes:
    """Return the table of a message of suite 1."""
    return struct.pack(f"<{len(lengths)}Q", *lengths)


def check_lengths(lengths: Sequence[int]) -> None:
    """Refuse a frame that is longer than the envelope moves in one piece."""
    if max(lengths, default=0) > MAX_FRAME:
        raise EnvelopeError(
            f"a frame of a message is over the limit ({max(lengths)} > {MAX_FRAME})",
            rule="envelope.limits",
            fix="Split it; see safeser.envelope.split.",
        )


def flat(frame: Buffer) -> memoryview:
    """Return *frame* as a view of single bytes, without a copy."""
    view = memoryview(frame)
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
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

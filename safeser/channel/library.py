"""The header of a library message: a family header, a kind, an operation, and part counts.

The one rule: a header has the exact form of ``docs/reference/envelope-v1.md``, or is refused. The
kind and operation that it claims decide nothing: they must be those that the recipient expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from safeser.envelope import Buffer, Verified, canonical, join, split
from safeser.errors import PayloadError
from safeser.values import Context, Kind

__all__ = ["LibraryMessage", "pack", "parse"]

_MAX_OPERATION = 128
_KINDS = frozenset(kind.value for kind in Kind)


class LibraryMessage(NamedTuple):
    """A parsed library message, not yet decided; *frames* are joined from their parts."""

    header: dict[str, Any]
    kind: str
    operation: str | None
    frames: Sequence[Buffer]


def pack(
    header: dict[str, Any], frames: Sequence[Buffer], context: Context
) -> tuple[bytes, Sequence[Buffer]]:
    """Return the envelope's header and frames of a message for *context*."""
    parts, counts = split(frames)
    words = [header, context.kind.value, context.operation]
    return canonical.pack([*words, counts] if counts else words), parts


def parse(verified: Verified) -> LibraryMessage:
    """Parse the header of *verified* and join its frames.

    :raises PayloadError: if :func:`pack` could not have made the header. Of the family header only
        the encoding is checked here.
    """
    try:
        words = canonical.unpack(verified.header)
    except ValueError:
        raise _malformed("is not canonical MessagePack") from None
    match words:
        case [dict() as header, str() as kind, operation, *counts] if len(counts) <= 1:
            _check(kind, operation)
            frames = join(verified.frames, counts[0]) if counts else verified.frames
            return LibraryMessage(header, kind, operation, frames)
    raise _malformed("is no list of a family header, a kind and an operation")


def _check(kind: str, operation: Any) -> None:
    if kind not in _KINDS:
        raise _malformed("names no kind")
    if operation is not None and not (type(operation) is str and len(operation) <= _MAX_OPERATION):
        raise _malformed("names no operation")


def _malformed(problem: str) -> PayloadError:
    return PayloadError(
        f"the message's header {problem}",
        rule="payload.header",
        fix="Seal messages with safeser.Channel, or as docs/reference/envelope-v1.md says.",
    )

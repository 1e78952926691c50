"""One connection: decide, record and load what its peer sends; decide and seal what it sends.

The one rule: sealed -> verified -> received -> admitted -> loaded, each made only by the step
before it (DESIGN, invariants 2, 5 and 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from safeser import families as serialization
from safeser.channel.admitted import Admitted
from safeser.channel.events import PendingRecords
from safeser.channel.receiving import Receiving
from safeser.envelope import PRELUDE_SIZE, Buffer, Verified, canonical, check_payload, join, split
from safeser.errors import EnvelopeError, PayloadError, SafeserError
from safeser.values import Context, Kind, Payload

__all__ = ["Link"]


class Link(Receiving):
    """One authenticated connection between this process and one peer, under one policy.

    Made by :meth:`Channel.link` from an established session. Dask's comm decides and loads the
    payloads of its messages one by one; a program's own messages are one payload each.
    """

    def seal(self, obj: Any, context: Context) -> list[Any]:
        """Return the buffers of one sealed message that carries *obj*.

        :raises PolicyDenied: if policy lets no family that can carry *obj* leave in *context*.
        :raises PayloadError: if it is larger than the policy's limits.
        """
        if context.sender != self.local or context.recipient != self.peer:
            self.refuse(
                context, "context.session", f"this link goes from {self.local} to {self.peer}"
            )
        context = self.placed(context)
        grant = self.allowed(context)
        header, frames = self.serialize(obj, grant, context=context)
        family = serialization.claimed(header)
        self.permit_sending(context, Payload("message", family, header, tuple(frames), self.local))
        check_payload(frames, self.policy.limits)
        return self.session.seal(*_pack(header, frames, context))

    def verify(self, frames: Sequence[Any]) -> Verified:
        """Verify the buffers of one sealed message, as :meth:`seal` made or a socket gave them.

        :raises EnvelopeError: if it is not the next message that the peer sealed; it is recorded.
        """
        try:
            return self._verify(frames)
        except EnvelopeError as error:
            self.note_unauthenticated(error)
            raise

    def _verify(self, frames: Sequence[Any]) -> Verified:
        # One copy, in which frames of suite 2 are decrypted.
        joined = memoryview(bytearray().join(frames))
        if len(joined) < PRELUDE_SIZE:
            raise EnvelopeError("the message is shorter than its prelude", rule="envelope.format")
        prelude = self.session.prelude(joined[:PRELUDE_SIZE])
        at = PRELUDE_SIZE + prelude.start_length
        start = self.session.start(prelude, joined[PRELUDE_SIZE:at])
        if len(joined) != prelude.message_length:
            raise EnvelopeError("the message is not as long as it says", rule="envelope.format")
        return self.session.verify_whole(start, joined[at:])

    def admit_message(
        self, verified: Verified, context: Context, *, records: PendingRecords | None = None
    ) -> Admitted:
        """Decide a verified library message under *context*.

        The kind and operation that the sender sealed must be those of *context*: the recipient
        chooses them, not the message.
        """
        context = self.placed(context)
        try:
            header, kind, operation, frames = parse(verified)
        except PayloadError as error:
            self.note_refusal(context, error)
            raise
        if (kind, operation) != (context.kind.value, context.operation):
            self.refuse(
                context,
                "context.mismatch",
                "the message was sealed for another kind or operation",
                fix="Open it by the kind and operation for which its sender sealed it.",
            )
        try:
            payload = self.payload(verified, context, "message", header, frames)
        except SafeserError as error:
            self.note_refusal(context, error)
            raise
        return self.admit(verified, context, [payload], records=records)


# --- the header of a library message: a family header, a kind, an operation, and part counts ------
# The one rule: a header has the exact form of ``docs/reference/envelope-v1-library.md``, or is
# refused. Kind and operation that it claims decide nothing: the recipient expects its own.

_MAX_OPERATION = 128
_KINDS = frozenset(kind.value for kind in Kind)


class LibraryMessage(NamedTuple):
    """A parsed library message, not yet decided; *frames* are joined from their parts."""

    header: dict[str, Any]
    kind: str
    operation: str | None
    frames: Sequence[Buffer]


def _pack(
    header: dict[str, Any], frames: Sequence[Buffer], context: Context
) -> tuple[bytes, Sequence[Buffer]]:
    """Return the envelope's header and frames of a message for *context*."""
    parts, counts = split(frames)
    words = [header, context.kind.value, context.operation]
    return canonical.pack([*words, counts] if counts else words), parts


def parse(verified: Verified) -> LibraryMessage:
    """Parse the header of *verified* and join its frames.

    :raises PayloadError: if :func:`_pack` could not have made the header. Of the family header only
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
        fix="Seal messages with safeser.Channel, or as docs/reference/envelope-v1-library.md says.",
    )

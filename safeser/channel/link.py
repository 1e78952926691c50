"""One connection: decide, record and load what its peer sends; decide and seal what it sends.

The one rule: sealed -> verified -> received -> admitted -> loaded, each made only by the step
before it (DESIGN, invariants 2, 5 and 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safeser import families as serialization
from safeser.channel import library
from safeser.channel.admitted import Admitted
from safeser.channel.events import PendingRecords
from safeser.channel.receiving import Receiving
from safeser.envelope import PRELUDE_SIZE, Verified, check_payload
from safeser.errors import EnvelopeError, PayloadError, SafeserError
from safeser.values import Context, Payload

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
        return self.session.seal(*library.pack(header, frames, context))

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
            header, kind, operation, frames = library.parse(verified)
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

"""Renew the keys of an open connection by another handshake inside its session.

The one rule: each direction switches to the new keys after a message sealed by the old ones, and
only when both sides have accepted each other again. A side that refuses goes on with the old keys.

The initiator of the connection initiates each renewal; the responder may ask for one. The messages
follow. Each is one sealed message with the header ``renew`` and two frames, a
step and bytes::

    initiator                         responder
                     <-- ask
    hello     -->                                  preamble and message 1 of the handshake
                     <-- answer                    preamble and message 2
    proof     -->                                  message 3
                     <-- accept                    the last one under the old keys in this direction
    accept    -->                                  likewise
                     <-- refuse                    in place of any other: the old keys stay
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from safeser.errors import AuthenticationError, EnvelopeError
from safeser.gate.handshake import Handshake

__all__ = ["Renewal", "Step"]


class Step(NamedTuple):
    """One message to send; if *over*, this side seals with the new keys after it."""

    name: bytes
    data: bytes = b""
    over: bool = False


class Renewal:
    """One side of the renewals of one connection, without I/O: bytes in, steps out.

    :param begin: returns a new handshake of this side.
    :param receive_anew: called with the complete handshake when the peer's next message is sealed
        by its keys.
    """

    #: The steps that begin a renewal.
    FIRST = frozenset({b"ask", b"hello"})

    def __init__(
        self,
        *,
        initiator: bool,
        begin: Callable[[], Handshake],
        receive_anew: Callable[[Handshake], None],
    ) -> None:
        self._initiator = initiator
        self._begin = begin
        self._receive_anew = receive_anew
        self._handshake: Handshake | None = None
        self._awaited: bytes = b""

    @property
    def under_way(self) -> Handshake | None:
        """The handshake of the renewal in progress, or None."""
        return self._handshake

    def start(self) -> Step | None:
        """Return the first step of a renewal, or None while one is in progress.

        A second renewal would mistake answers to the first for its own.
        """
        if not self._initiator:
            return Step(b"ask")
        if self._handshake is not None:
            return None
        handshake = self._handshake = self._begin()
        self._awaited = b"answer"
        return Step(b"hello", handshake.outgoing)

    def take(self, name: bytes, data: bytes) -> Step | None:
        """Process one step of the peer and return the step to send, if any.

        :raises EnvelopeError: if the step is out of order; the session cannot go on.
        """
        if name == b"refuse":
            self._drop()
            return None
        first = b"ask" if self._initiator else b"hello"
        if name == first:
            return self._first(data)
        if name != self._awaited or self._handshake is None:
            raise EnvelopeError("a step of a renewal is out of order", rule="envelope.renewal")
        if name == b"accept":
            return self._accepted(self._handshake)
        try:
            answer = _fed(self._handshake, data)
            self._handshake.session()  # refuses one that is not complete
        except AuthenticationError:
            self._drop()
            return Step(b"refuse")
        if self._initiator:
            self._awaited = b"accept"
            return Step(b"proof", answer)
        self._awaited = b"accept"
        return Step(b"accept", over=True)

    def decline(self) -> Step:
        """Return the refusal of a ``hello``, and drop the renewal in progress.

        :raises EnvelopeError: if the ``hello`` is out of order; the session cannot go on.
        """
        self._require_none_over()
        self._drop()
        return Step(b"refuse")

    def _require_none_over(self) -> None:
        if self._initiator or self._awaited == b"accept":
            raise EnvelopeError("a renewal begins inside another", rule="envelope.renewal")

    def _first(self, data: bytes) -> Step | None:
        if self._initiator:
            return self.start()
        self._require_none_over()
        try:
            self._handshake = self._begin()
            answer = _fed(self._handshake, data)
        except AuthenticationError:
            self._drop()
            return Step(b"refuse")
        self._awaited = b"proof"
        return Step(b"answer", answer)

    def _accepted(self, handshake: Handshake) -> Step | None:
        self._receive_anew(handshake)
        if self._initiator:
            self._awaited = b""
            return Step(b"accept", over=True)
        self._drop()
        return None

    def sent(self, step: Step) -> Handshake | None:
        """Note that *step* was sent; return the handshake whose keys now seal, if they changed."""
        handshake = self._handshake if step.over else None
        if step.over and self._initiator:
            self._drop()
        return handshake

    def _drop(self) -> None:
        self._handshake, self._awaited = None, b""


def _fed(handshake: Handshake, data: bytes) -> bytes:
    """Feed *data*, one complete message of the peer, and return the answer."""
    answer = b""
    while size := handshake.wanted:
        if len(data) < size:
            break
        answer += handshake.feed(data[:size])
        data = data[size:]
    if data or not (answer or handshake.complete):
        raise AuthenticationError("a handshake message has another size")
    return answer

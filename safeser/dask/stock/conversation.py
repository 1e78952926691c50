"""One connection to a stock cluster: messages in Dask's layout, decided as those of safeser.

The one rule: only the reading differs from a connection on ``safeser://``. :class:`Conversation`
decides which message may come, what follows from a refusal, and what Dask's client gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from safeser.channel import Arrived, OpenLink
from safeser.dask.messages.conversation import Conversation
from safeser.dask.messages.deciding import Message, unknown_operation
from safeser.dask.messages.elements import Elements
from safeser.dask.messages.pending import pending
from safeser.dask.messages.refused import Refusals
from safeser.dask.stock.errors import PlainFields
from safeser.dask.stock.reader import Stock
from safeser.dask.stock.wire import GREETING
from safeser.operations import Operation, Server

__all__ = ["GuardedConversation"]

#: A restart cancels futures, all at once. The scheduler's request of that name is authority, which
#: no policy grants to unknown; this is what it says to clients, and they must hear of it.
_RESTART, _CANCELS = "restart", "cancelled-keys"


class _StockElements(Elements):
    """The stream elements that a stock scheduler sends."""

    def row_of(self, element: Any) -> Operation:
        row = super().row_of(element)
        return replace(row, name=_CANCELS) if row.name == _RESTART else row


class GuardedConversation(Conversation):
    """The state of one connection to a stock scheduler or worker.

    :param deserializers: families that this side is willing to open at all.
    """

    def __init__(self, link: OpenLink, *, deserializers: Sequence[str] | None = None) -> None:
        super().__init__(link, server=None, opens=True, deserializers=deserializers)

    def _parse(self, verified: Arrived, refusals: Refusals) -> Message:
        policy = self.link.policy
        limits = policy.limits if self.greeted else GREETING
        stock = Stock(verified.frames, limits)
        body, plainer = stock.body, PlainFields(stock)
        if self.reads_stream and not (isinstance(body, dict) and "op" not in body):
            listed = body if isinstance(body, tuple) else (body,)
            body = plainer.elements(listed)
        elif self.greeted:
            body = plainer.reply(self._asked.fields.encodings, body)
        return Message(verified, body, tuple(stock.rows), policy)

    def _parse_apart(self, verified: Arrived, refusals: Refusals) -> Message:
        # Dask's layout has no element of which one could be malformed without the others.
        return Message(verified, (), (), self.link.policy)

    def _made_elements(self, stream: str, reads: Server) -> Elements:
        return _StockElements(
            self.link, stream, reads, identity=self._identity, answers_clients=False, renewed=None
        )

    def _plain(self, elements: Sequence[Any], *, listed: bool = False) -> list[Any]:
        return list(elements)  # written by Dask's own protocol, which the other side reads

    def note_sent(self, message: Any) -> None:
        """Record the request that Dask writes, by which the answer is read.

        :raises PolicyDenied: if no answer to it could be read.
        """
        if not self._greeting_sent:
            self._greeting_sent = True
            return
        if not isinstance(message, dict) or "op" not in message:
            return  # a batch of stream elements, or the last word of an exchange
        row = self._row_for(message)
        if row is None:
            raise unknown_operation(message["op"])
        self._request_written(row, pending(message))

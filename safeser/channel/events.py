"""Records of the permissions of several messages, which are written at once.

The one rule: nothing that they permit is loaded before they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeser.values import Context

__all__ = ["PendingRecords"]


class PendingRecords:
    """Records of permissions that are written together at the end of a block.

    A batch of Dask's stream has a record for each element, and writing them singly costs more than
    deciding them. Made by :meth:`Link.recorded_together`.

    :param write: writes them to the log.
    :ivar events: the events to record.
    :ivar counts: how many messages without authority were permitted, by their contexts.
    :ivar written: whether the log has them all.
    """

    __slots__ = ("_write", "counts", "events", "written")

    def __init__(self, write: Callable[[PendingRecords], None]) -> None:
        self._write = write
        self.events: list[dict[str, Any]] = []
        self.counts: dict[Context, int] = {}
        self.written = False

    def count(self, context: Context) -> None:
        """Add a message that was permitted and needs no authority."""
        self.counts[context] = self.counts.get(context, 0) + 1

    def __enter__(self) -> PendingRecords:
        return self

    def __exit__(self, *_: object) -> None:
        self._write(self)
        self.written = True
        # An Admission refers to this object and may live as long as its connection.
        self.events, self.counts = [], {}

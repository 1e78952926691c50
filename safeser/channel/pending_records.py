"""Records of the permissions of several messages, which are written at once.

The one rule: what they permit is not loaded before they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from safeser.values import Context

__all__ = ["PendingRecords"]


class PendingRecords:
    """Permissions that wait to be written at the end of a block, together.

    A batch of Dask's has a record for each element: to write them one by one costs more than to
    decide them. Made by :meth:`Link.recorded_together`.

    :param write: writes them.
    :ivar events: to be recorded.
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
        # What was admitted may be kept for as long as its connection, and need not keep these.
        self.events, self.counts = [], {}

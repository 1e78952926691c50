"""Records of messages that passed while the log could not be written.

The one rule: what waits is bounded by number and bytes, and what is lost is counted. The log says
both, and writes what waits, as soon as it can be written again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from safeser.audit.record import printable
from safeser.errors import AuditError
from safeser.gate.event import Field, clean
from safeser.gate.values import AUDIT_FAILURES, AuditFailure

__all__ = ["AT_ONCE", "Told", "Waiting", "is_of_disk"]

logger = logging.getLogger("safeser.audit")

#: Bytes that all that waits may take together, and records of contexts that go on without: those
#: take half at most, so that they leave room for the others.
MAX_BYTES: Final = 64 << 20
MAX_GOING_ON: Final = 10_000

#: Refusals that wait, whatever their contexts say: a peer that is refused fills no queue of others.
#: Beyond a hundred of one sender and rule, the log would only count them anyway.
MAX_REFUSALS: Final = 1_000

#: What an event takes in memory beside its texts.
_EVENT = 1_024

#: Records that one call writes of those that wait, before its own: some 10 ms.
AT_ONCE: Final = 1_000

#: The same after a write that failed: each message tries again, and must not take long for it.
AGAIN: Final = 10

#: The rule of failures that a disk may get over. A log that was changed under its process, or that
#: is closed, is written never again: no message passes then.
_OF_DISK: Final = "audit.write"

_QUEUE = AUDIT_FAILURES.index("queue")


def is_of_disk(failure: AuditError) -> bool:
    """Tell whether the log may be written again after *failure*."""
    return failure.rule == _OF_DISK


class Told(NamedTuple):
    """What the log has of :class:`Waiting`: part of the value that is replaced with each write.

    :param kept: records that waited, as the log says, and *lost* those that are lost.
    :param written: records that waited and are written.
    """

    kept: int = 0
    lost: int = 0
    written: int = 0


class _Kept(NamedTuple):
    time: int
    fields: dict[str, object]
    size: int
    queued: bool
    refused: bool


class Waiting:
    """The records of one process that wait, and how many waited and were lost since it began.

    :ivar since: when the log failed first since it was written, in microseconds since 1970.
    :ivar reason: why.
    """

    def __init__(self) -> None:
        self._events: deque[_Kept] = deque()
        self._before = 0  # records that are written and not in the deque any more
        self._bytes = 0
        self._queued = 0
        self._refused = 0
        self._fails = False  # the last write did, so that something waits
        self.kept = 0
        self.lost = 0
        self.since = 0
        self.reason = ""

    def take(
        self,
        events: Sequence[Mapping[str, Field]],
        answers: Sequence[AuditFailure],
        now: int,
        failure: AuditError,
    ) -> bool:
        """Keep *events*, or count them as lost; return False where they have to be refused.

        :param answers: of their contexts, one for each.
        """
        kept: list[_Kept] = []
        lost, size, queued, refused = 0, self._bytes, self._queued, self._refused
        for event, answer in zip(events, answers, strict=True):
            fields = clean(event)
            own = _EVENT + sum(len(value) for value in fields.values() if type(value) is str)
            permitted = event.get("permitted") is True
            queues = permitted and answer.level == _QUEUE
            if queues and (queued >= answer.most or size + own > MAX_BYTES):
                return False
            full = len(self._events) + len(kept) >= MAX_GOING_ON or size + own > MAX_BYTES // 2
            full |= not permitted and refused >= MAX_REFUSALS
            if not queues and full:
                lost += 1
                continue
            kept.append(_Kept(now, fields, own, queues, not permitted))
            size, queued, refused = size + own, queued + queues, refused + (not permitted)
        self._fails = True
        self._begin(now, failure)
        self._events += kept
        self._bytes, self._queued, self._refused = size, queued, refused
        self.kept += len(kept)
        self.lost += lost
        return True

    def lose(self, times: int, now: int, failure: AuditError) -> None:
        """Count decisions that are lost."""
        self._begin(now, failure)
        self.lost += times

    def _begin(self, now: int, failure: AuditError) -> None:
        if not self.reason:
            self.since, self.reason = now, printable(failure.message, 100)
            logger.error(
                "The audit log is not written, and messages pass where audit_failure of their"
                " context says so: %s",
                failure,
            )

    def is_told(self, told: Told) -> bool:
        """Whether the log has all that there is to say and to write."""
        return told == (self.kept, self.lost, self.kept)

    def next(self, told: Told) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield the times and fields of the next records that wait, a bounded number."""
        at = told.written - self._before
        for each in islice(
            self._events, at, at + (min(AGAIN, AT_ONCE) if self._fails else AT_ONCE)
        ):
            yield each.time, dict(each.fields)

    def forget(self, told: Told) -> None:
        """Forget what the log has by now."""
        self._fails = False
        while self._before < told.written:
            each = self._events.popleft()
            self._before += 1
            self._bytes -= each.size
            self._queued -= each.queued
            self._refused -= each.refused
        if self.reason and self.is_told(told):
            logger.warning("The audit log is written again, and has what waited")
            self.reason = ""

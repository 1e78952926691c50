"""What is counted instead of written one by one: administrative decisions, and floods of refusals.

The one rule: memory and disk that a peer can make us use are bounded, and nothing is dropped
without being counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from safeser.audit.record import label

__all__ = ["SECOND", "Tally", "Throttle"]

SECOND = 1_000_000  # all times here are microseconds

Key: TypeAlias = tuple[str, str, str, str, bool]

# A peer that invents operations makes one label each: 128 times the longest labels still fit into
# one record of 64 KiB. Honest clusters use about 40 in a second.
MAX_LABELS = 128
MAX_COUNTS = 1_000  # decisions that a kill may leave uncounted

# What one sender can write with one rule: 100 records at once, then one in ten seconds, and the
# number of the others in one record in ten seconds. That is below 8 MB a day.
BURST = 100
REFILL = 10 * SECOND
SUMMARY = 10 * SECOND
MAX_SENDERS = 1_024  # pairs of sender and rule that are told apart
MAX_SUMMARY = 256  # pairs in one record, which must fit into 64 KiB

_OTHER = "other"


class Tally:
    """Counts of decisions since the last record of counts."""

    __slots__ = ("_counts", "since", "total")

    def __init__(self) -> None:
        self._counts: dict[Key, int] = {}
        self.total = 0
        self.since = 0

    def add(self, key: Key, now: int) -> bool:
        """Count one decision; return whether the counts should be written now."""
        counts = self._counts
        if key in counts:
            counts[key] += 1
        else:
            self._add_new(key)
        self.total += 1
        if self.total == 1:
            self.since = now
        return self.total >= MAX_COUNTS or self.due(now)

    def _add_new(self, key: Key) -> None:
        # Cut before it is kept: the labels of a refused message are the peer's.
        sender, recipient, operation, rule, permitted = key
        key = (label(sender), label(recipient), label(operation), label(rule), bool(permitted))
        if key not in self._counts and len(self._counts) >= MAX_LABELS:
            key = (_OTHER, _OTHER, _OTHER, _OTHER, bool(permitted))
        self._counts[key] = self._counts.get(key, 0) + 1

    def due(self, now: int) -> bool:
        """Return whether a second has passed; a clock that went back counts as one."""
        return self.total > 0 and not 0 <= now - self.since < SECOND

    def peek(self) -> list[list[str | bool | int]]:
        """Return what to write, sorted; the tally keeps it until :meth:`clear`."""
        return [[*key, count] for key, count in sorted(self._counts.items())]

    def clear(self) -> None:
        self._counts.clear()
        self.total = 0


@dataclass(slots=True)
class _Bucket:
    tokens: int
    refilled: int  # when the last token came back
    suppressed: int = 0
    since: int = 0  # when the first of them was suppressed


class Throttle:
    """One bucket of tokens for each pair of sender and rule; without a token a refusal is counted.

    Permitted loads never pass through here.
    """

    __slots__ = ("_buckets", "_next", "_pending")

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._pending = 0
        self._next = 0

    def admit(self, sender: object, rule: object, now: int) -> tuple[bool, bool]:
        """Return whether to write this refusal, and whether it is the last one before counting."""
        key = (label(sender), label(rule))
        if key not in self._buckets and len(self._buckets) >= MAX_SENDERS:
            self._forget(now)
            if len(self._buckets) >= MAX_SENDERS:
                key = (_OTHER, _OTHER)
        bucket = self._buckets.setdefault(key, _Bucket(BURST, now))
        self._refill(bucket, now)
        if bucket.tokens:
            bucket.tokens -= 1
            return True, bucket.tokens == 0
        if not self._pending:
            self._next = now + SUMMARY
        if not bucket.suppressed:
            bucket.since = now
        bucket.suppressed += 1
        self._pending += 1
        return False, False

    @staticmethod
    def _refill(bucket: _Bucket, now: int) -> None:
        gained, rest = divmod(now - bucket.refilled, REFILL)
        if gained < 0:  # the clock went back; tokens are not taken away for that
            bucket.refilled = now
        elif gained:
            bucket.tokens = min(BURST, bucket.tokens + gained)
            bucket.refilled = now - rest

    def _forget(self, now: int) -> None:
        for key, bucket in list(self._buckets.items()):
            self._refill(bucket, now)
            if bucket.tokens == BURST and not bucket.suppressed:
                del self._buckets[key]

    def due(self, now: int) -> bool:
        """Return whether suppressed refusals wait to be written."""
        return self._pending > 0 and not self._next - SUMMARY <= now < self._next

    @property
    def pending(self) -> int:
        return self._pending

    def peek(self) -> list[list[str | int]]:
        """Return sender, rule, number and first time of what was suppressed, for one record."""
        entries: list[list[str | int]] = [
            [sender, rule, bucket.suppressed, bucket.since]
            for (sender, rule), bucket in self._buckets.items()
            if bucket.suppressed
        ]
        return sorted(entries, key=lambda entry: str(entry[:2]))[:MAX_SUMMARY]

    def clear(self, entries: list[list[str | int]]) -> None:
        """Forget the suppressed refusals of *entries*, which were written."""
        for sender, rule, count, _ in entries:
            bucket = self._buckets[str(sender), str(rule)]
            bucket.suppressed -= int(count)
            self._pending -= int(count)

"""Count administrative decisions and floods of refusals instead of recording each.

The one rule: memory and disk that a peer can make us use are bounded, and nothing is dropped
without being counted.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from safeser.audit.record import label

__all__ = ["SECOND", "Tally", "Throttle", "note_refusal"]

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
MAX_SENDERS = 1_024  # pairs of sender and rule that are distinguished
MAX_SUMMARY = 256  # pairs in one record, which must fit into 64 KiB

MAX_RULES = 256  # by which refusals are distinguished; there are fewer

_OTHER = "other"


class Tally:
    """Counts of decisions since the last record of counts."""

    __slots__ = ("_added", "_counts", "since")

    def __init__(self) -> None:
        self._counts: dict[Key, int] = {}
        self._added = 0
        self.since = 0

    def add(self, key: Key, now: int, times: int = 1) -> bool:
        """Count a decision that was taken *times*; return whether to write the counts now."""
        counts = self._counts
        before = counts.get(key)
        if before is None:
            key = self._bounded(key)
            before = counts.get(key, 0)
        if not counts:
            self.since = now
        self._added += times
        # Last, and one assignment: an exception before it leaves the decision uncounted.
        counts[key] = before + times
        return self._added >= MAX_COUNTS or not 0 <= now - self.since < SECOND

    def _bounded(self, key: Key) -> Key:
        # Cut before it is kept: the labels of a refused message are the peer's.
        sender, recipient, operation, rule, permitted = key
        key = (label(sender), label(recipient), label(operation), label(rule), bool(permitted))
        if key not in self._counts and len(self._counts) >= MAX_LABELS:
            key = (_OTHER, _OTHER, _OTHER, _OTHER, bool(permitted))
        return key

    def due(self, now: int) -> bool:
        """Return whether a second has passed; a clock that went back counts as one."""
        return bool(self._counts) and not 0 <= now - self.since < SECOND

    @property
    def pending(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._counts)

    def rows(self) -> list[list[str | bool | int]]:
        """Return what to write, sorted."""
        return [[*key, count] for key, count in sorted(self._counts.items())]


class _Bucket(NamedTuple):
    tokens: int
    refilled: int  # when the last token came back
    suppressed: int = 0
    since: int = 0  # when the first of them was suppressed


class Throttle:
    """One bucket of tokens for each pair of sender and rule; without a token a refusal is counted.

    Permitted loads never pass through here.
    """

    __slots__ = ("_buckets", "_next", "pending")

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self.pending = 0  # refusals that were counted and not yet written
        self._next = 0

    def copy(self) -> Throttle:
        """Return another throttle in the same state."""
        other = Throttle()
        other._buckets = self._buckets.copy()
        other.pending = self.pending
        other._next = self._next
        return other

    def admit(self, sender: object, rule: object, now: int) -> tuple[bool, bool]:
        """Return whether to write this refusal, and whether it is the last one before counting."""
        key = (label(sender), label(rule))
        if key not in self._buckets and len(self._buckets) >= MAX_SENDERS:
            self._forget(now)
            if len(self._buckets) >= MAX_SENDERS:
                key = (_OTHER, _OTHER)
        bucket = _refilled(self._buckets.get(key, _Bucket(BURST, now)), now)
        if bucket.tokens:
            left = bucket.tokens - 1
            self._buckets[key] = bucket._replace(tokens=left)
            return True, left == 0
        if not self.pending:
            self._next = now + SUMMARY
        since = bucket.since if bucket.suppressed else now
        self._buckets[key] = bucket._replace(suppressed=bucket.suppressed + 1, since=since)
        self.pending += 1
        return False, False

    def _forget(self, now: int) -> None:
        for key, bucket in list(self._buckets.items()):
            if _refilled(bucket, now).tokens == BURST and not bucket.suppressed:
                del self._buckets[key]

    def due(self, now: int) -> bool:
        """Return whether suppressed refusals wait to be written."""
        return self.pending > 0 and not self._next - SUMMARY <= now < self._next

    def take(self) -> list[list[str | int]]:
        """Forget suppressed refusals, and return what to write of them in one record.

        Each row is a sender, a rule, the number and the time of the first.
        """
        keys = sorted(key for key, bucket in self._buckets.items() if bucket.suppressed)
        rows: list[list[str | int]] = []
        for key in keys[:MAX_SUMMARY]:
            bucket = self._buckets[key]
            rows.append([*key, bucket.suppressed, bucket.since])
            self._buckets[key] = bucket._replace(suppressed=0)
            self.pending -= bucket.suppressed
        return rows


def _refilled(bucket: _Bucket, now: int) -> _Bucket:
    """Return *bucket* with the tokens that came back since it was last used."""
    gained, rest = divmod(now - bucket.refilled, REFILL)
    if gained < 0:  # the clock went back; tokens are not taken away for that
        return bucket._replace(refilled=now)
    if gained:
        return bucket._replace(tokens=min(BURST, bucket.tokens + gained), refilled=now - rest)
    return bucket


def note_refusal(refusals: dict[str, int], rule: object, times: int = 1) -> None:
    """Count in *refusals* one more refusal by *rule*, or as many as *times*."""
    name = label(rule)
    # A rule may be a peer's word, where its error is what was refused.
    if name not in refusals and len(refusals) >= MAX_RULES:
        name = _OTHER
    refusals[name] = refusals.get(name, 0) + times

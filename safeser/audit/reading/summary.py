"""What many records come to, for a report: over time, between whom, by which rule, who ran code.

The one rule: it holds a bounded number of names, however many a log has; what comes after those is
counted as ``other``, so that all sums are right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from safeser.audit.reading.search import Found
from safeser.audit.reading.show import user_of
from safeser.audit.record import Record

__all__ = ["OTHER", "Code", "Summary", "summarize"]

#: Combinations of names that are told apart in one table.
MAX_NAMES = 5_000
#: Parts of the time that are told apart; parts are joined, two and two, where there are more.
MAX_PARTS = 2_000

OTHER = "other"

#: Families that bring code to who opens them.
_CODE = frozenset({"cloudpickle", "sealed"})

_FIRST_PART = 1_000_000  # a second


@dataclass(slots=True)
class Code:
    """Code of one user that one principal sent and another opened.

    :param tasks: the start of the names of its tasks, a few.
    """

    count: int = 0
    first: int = 0
    last: int = 0
    tasks: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Summary:
    """The sums of a report.

    :param parts: by the number of its part of the time, how many were permitted and refused; each
        part is *part* microseconds.
    :param pairs: by sender, recipient and family, how many were permitted and refused.
    :param refusals: how many, by rule and sender.
    :param reasons: one reason for each of those, such as whose key is retired.
    :param code: by user, sender, recipient and family.
    :param shadow: what another policy would have refused, by its rule and the sender.
    """

    records: int = 0
    first: int = -1
    last: int = -1
    part: int = _FIRST_PART
    parts: dict[int, list[int]] = field(default_factory=dict)
    pairs: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    refusals: Counter[tuple[str, ...]] = field(default_factory=Counter)
    reasons: dict[tuple[str, ...], str] = field(default_factory=dict)
    code: dict[tuple[str, ...], Code] = field(default_factory=dict)
    shadow: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def add(self, record: Record) -> None:
        """Add one decision, or as many as a record of counts says."""
        fields, time = record.fields, record.time
        permitted = fields.get("permitted")
        if permitted is not True and permitted is not False:
            return
        times = max(0, record.number("times")) if "times" in fields else 1
        self.records += times
        self.first = time if self.first < 0 else min(self.first, time)
        self.last = max(self.last, time)
        place = 0 if permitted else 1
        self._part_of(time)[place] += times
        sender, family = record.text("sender"), record.text("family")
        recipient = record.text("recipient")
        # What a process does by itself, such as taking a new policy, is no conversation.
        if sender != recipient or "session" in fields or record.type != "event":
            pair = (sender, recipient, family or "no payload")
            counts = self.pairs.get(pair)
            if counts is None:
                counts = self.pairs.setdefault(_known(self.pairs, pair), [0, 0])
            counts[place] += times
        if not permitted:
            rule = _known(self.refusals, (record.text("rule"), sender))
            self.refusals[rule] += times
            if rule != (OTHER, OTHER) and not self.reasons.get(rule):
                self.reasons[rule] = record.text("reason")
        elif family in _CODE:
            self._add_code(record, family)
        if "shadow_rule" in fields:
            shadow = (record.text("shadow_rule"), sender)
            self.shadow[_known(self.shadow, shadow)] += times

    def _part_of(self, time: int) -> list[int]:
        counts = self.parts.get(time // self.part)
        if counts is not None:
            return counts
        counts = self.parts[time // self.part] = [0, 0]
        if len(self.parts) > MAX_PARTS:
            joined: dict[int, list[int]] = {}
            self.part *= 2
            for number, (permitted, refused) in self.parts.items():
                both = joined.setdefault(number // 2, [0, 0])
                both[0] += permitted
                both[1] += refused
            self.parts = joined
            counts = joined[time // self.part]
        return counts

    def _add_code(self, record: Record, family: str) -> None:
        # Without a signature the author of a task's pickle is the scheduler, which packed it for a
        # user. So the user is the one whom the sender states, and the sender, whom its session
        # proved, stands beside.
        sender = record.text("sender")
        key = _known(
            self.code, (user_of(record) or sender, sender, record.text("recipient"), family)
        )
        code = self.code.setdefault(key, Code(first=record.time, last=record.time))
        code.count += 1
        code.first, code.last = min(code.first, record.time), max(code.last, record.time)
        task = record.text("task")
        if task and len(code.tasks) < 5:
            code.tasks.add(_prefix(task))


def _known(table: dict[tuple[str, ...], object] | object, key: tuple[str, ...]) -> tuple[str, ...]:
    assert isinstance(table, dict)
    return key if key in table or len(table) < MAX_NAMES else (OTHER,) * len(key)


def _prefix(task: str) -> str:
    """Return what stands before the token in a task's key, such as ``inc`` of ``inc-5a3f...``."""
    text = task.removeprefix("('").partition("'")[0]
    words = text.split("-")
    kept = [word for word in words if _TOKEN.fullmatch(word) is None]
    return "-".join(kept)[:40] or text[:40]


_TOKEN = re.compile("[0-9a-f]{8,}")


def summarize(found: Iterable[Found]) -> Summary:
    """Return the sums of *found*."""
    summary = Summary()
    for each in found:
        summary.add(each.record)
    return summary

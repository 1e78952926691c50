"""Reads one chained file from start to end and says which lines verify, and why others do not.

The one rule: any bytes give a result, with memory that does not depend on the file's size. Only
what verified is believed; what did not is used to name the place, never as a fact.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from safeser.audit.chain import ZERO, Keys, step
from safeser.audit.record import MAX_LINE, Record, begins_like_a_line, parse, salvage, split
from safeser.audit.report import Mark, Problem, lines_text, records_text
from safeser.errors import AuditError

__all__ = ["Line", "Scan", "lines", "scan"]

_CHUNK = 64 << 10

# A file that is no log at all may be one endless line. After so much of it nothing that follows
# can be placed, and reading a terabyte of zeros would only be waiting.
_MAX_JUNK = 16 << 20

MAX_PROBLEMS = 50  # of one file

# Failing lines whose claimed place is remembered, to tell lines that changed places from others.
_REMEMBERED = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file.

    :param raw: its bytes without the newline, or None if it is longer than any record.
    :param whole: whether a newline ended it.
    """

    raw: bytes | None
    whole: bool = True


def lines(handle: int) -> Iterator[Line]:
    """Yield the lines of an open file as long as it is now, holding at most one of them.

    A process that writes faster than this reads would keep it busy for ever.
    """
    buffer = b""
    junk = 0
    left = os.fstat(handle).st_size
    while chunk := os.read(handle, min(left, _CHUNK)):
        left -= len(chunk)
        if junk:
            _, newline, rest = chunk.partition(b"\n")
            junk += len(chunk)
            if not newline:
                if junk > _MAX_JUNK:
                    yield Line(None, whole=False)
                    return
                continue
            yield Line(None)
            junk, buffer = 0, rest
        else:
            buffer += chunk
        *whole, buffer = buffer.split(b"\n")
        for raw in whole:
            yield Line(raw if len(raw) <= MAX_LINE else None)
        if len(buffer) > MAX_LINE:
            junk, buffer = len(buffer), b""
    if junk:
        yield Line(None, whole=False)
    elif buffer:
        yield Line(buffer, whole=False)


#: Finds the keys of a file from its first record, which is not verified yet.
FindKeys: TypeAlias = Callable[[Record | None], Keys | None]


@dataclass(slots=True)
class Scan:
    """What one file holds.

    :param records: records that verified.
    :param lines: whole lines in the file.
    :param end: number that the next record would have.
    :param torn: whether bytes without a newline follow the last line that a kill could leave.
    """

    problems: list[Problem] = field(default_factory=list)
    records: int = 0
    lines: int = 0
    end: int = 0
    torn: bool = False
    first: int = -1
    last: int = -1
    genesis: Record | None = None
    final: Record | None = None
    readable: bool = True


# Where the chain may go on: the number of the next record, and the MAC before it.
_State: TypeAlias = tuple[int, bytes]


class _Run:
    """Consecutive lines that do not verify, and where the chain could go on after them."""

    def __init__(self, start: int, state: _State) -> None:
        self.start = start
        self.length = 0
        self.state = state
        self.claims: list[tuple[int, bytes]] = []  # what failing lines say they are
        self.in_place: list[bytes] = [state[1]]  # MACs that the last of them may have had
        self.recomputed: list[bytes] = []

    def add(self, keys: Keys, raw: bytes | None) -> None:
        number = self.state[0] + self.length
        self.length += 1
        if raw is None:
            self.in_place = []
            return
        # A line whose MAC was changed still leads to the next one with its real MAC, which the
        # record gives; a line whose record was changed leads there with the MAC that it shows.
        mac, body = salvage(raw)
        computed = [step(keys.chain, previous, number, body) for previous in self.in_place[:2]]
        self.in_place = computed if mac is None else [mac, *computed]
        if mac is None:
            return
        try:
            self.claims = [*self.claims, (parse(raw).sequence, mac)][-_REMEMBERED:]
        except AuditError:
            return

    def next_states(self) -> list[_State]:
        """Return the states after which the chain could go on, the likeliest first."""
        place = self.state[0] + self.length
        states = [(place, mac) for mac in self.in_place]
        states += [(claimed + 1, mac) for claimed, mac in reversed(self.claims)]
        states.append(self.state)
        return states

    def explain(self, file: str, resumed: int | None) -> Problem:
        """Return the problem that this run is, the chain going on at record *resumed* or never."""
        start, last = self.start, self.start + self.length - 1
        expected = self.state[0]
        where = lines_text(start, last)
        claimed = self.claims[-1][0] if self.claims else -1
        if resumed is None:
            if self.length == 1 and claimed > expected:
                return self._missing(file, claimed)
            kind = "changed record" if self.length == 1 else "broken chain"
            what = records_text(expected, expected + self.length - 1)
            text = (
                f"{what} ({where}, up to the end) did not come from the process that holds the key:"
                " changed, or written anew without it"
            )
            return Problem(file, start, expected, kind, text)
        return self._resumed(file, resumed, where)

    def _resumed(self, file: str, resumed: int, where: str) -> Problem:
        start, expected = self.start, self.state[0]
        if resumed == expected:
            text = f"{where} is not what the process wrote there: inserted, repeated or moved"
            return Problem(file, start, expected, "inserted record", text)
        gap = resumed - expected - self.length
        if gap > 0:
            return self._missing(file, resumed - self.length)
        if gap < 0:
            text = f"{where} hold records that stand in another place of the chain"
            return Problem(file, start, expected, "broken chain", text)
        kind = "changed record" if self.length == 1 else "broken chain"
        text = f"{records_text(expected, resumed - 1)} ({where}) changed after being written"
        return Problem(file, start, expected, kind, text)

    def _missing(self, file: str, found: int) -> Problem:
        expected = self.state[0]
        text = (
            f"{records_text(expected, found - 1)} missing before line {self.start}; record {found},"
            " which follows, cannot be checked without them"
        )
        return Problem(file, self.start, expected, "missing records", text)


def scan(
    handle: int,
    *,
    file: str,
    find_keys: FindKeys,
    marks: Sequence[Mark] = (),
    see: Callable[[Record], None] = lambda record: None,
) -> Scan:
    """Verify the chain of one open file.

    :param file: its name, for problems.
    :param find_keys: called once, with the record on the first line if that is one.
    :param marks: records that must be there.
    :param see: called with each record that verified, in order.
    """
    result = Scan()
    keys: Keys | None = None
    state: _State = (0, ZERO)
    run: _Run | None = None
    wanted: dict[int, list[Mark]] = {}
    for mark in marks:
        wanted.setdefault(mark.sequence, []).append(mark)
    try:
        for number, each in enumerate(lines(handle), start=1):
            if number == 1:
                keys = find_keys(_record(each.raw))
            if keys is None:
                result.readable = False
                break
            if not each.whole:
                _end(result, file, number, each.raw)
                break
            result.lines = number
            states = run.next_states() if run is not None else [state]
            found = _verified(keys, each.raw, states)
            if found is None:
                run = run or _Run(number, state)
                run.add(keys, each.raw)
                continue
            record, state = found
            if run is not None:
                result.problems.append(run.explain(file, record.sequence))
                run = None
                if len(result.problems) >= MAX_PROBLEMS:
                    text = "the rest of this file was not read"
                    result.problems.append(Problem(file, number, -1, "more problems", text))
                    result.readable = False
                    break
            _take(result, record)
            result.problems += _marked(record, file, number, wanted.get(record.sequence, ()))
            see(record)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        result.problems.append(Problem(file, 0, -1, "unreadable file", f"reading failed: {reason}"))
        result.readable = False
    result.end = state[0]
    if run is not None:
        problem = run.explain(file, None)
        result.problems.append(problem)
        result.end = state[0] + run.length
        if problem.kind == "missing records":
            result.end = run.claims[-1][0] + 1
    if result.readable:
        _missing_tail(result, file, wanted)
    return result


def _record(raw: bytes | None) -> Record | None:
    try:
        return parse(raw) if raw is not None else None
    except AuditError:
        return None


def _verified(
    keys: Keys, raw: bytes | None, states: Sequence[_State]
) -> tuple[Record, _State] | None:
    parts = split(raw) if raw is not None else None
    if parts is None or raw is None:
        return None
    mac, body = parts
    for sequence, previous in states:
        # MACs in the files are not secret, so the time of the comparison reveals nothing.
        if step(keys.chain, previous, sequence, body) == mac:
            record = _record(raw)
            if record is not None and record.sequence == sequence:
                return record, (sequence + 1, mac)
    return None


def _take(result: Scan, record: Record) -> None:
    result.records += 1
    if record.sequence == 0:
        result.genesis = record
    result.final = record
    result.first = record.time if result.first < 0 else min(result.first, record.time)
    result.last = max(result.last, record.time)


def _marked(record: Record, file: str, number: int, marks: Sequence[Mark]) -> list[Problem]:
    return [
        Problem(
            file,
            number,
            record.sequence,
            mark.kind,
            f"this is not the record that {mark.source} names",
        )
        for mark in marks
        if mark.mac != record.mac
    ]


def _end(result: Scan, file: str, number: int, raw: bytes | None) -> None:
    if raw is not None and begins_like_a_line(raw):
        result.torn = True
        return
    text = "bytes follow the last record that no process wrote there"
    result.problems.append(Problem(file, number, -1, "changed record", text))


def _missing_tail(result: Scan, file: str, wanted: dict[int, list[Mark]]) -> None:
    beyond = [sequence for sequence in wanted if sequence >= result.end]
    if not beyond:
        return
    last = max(beyond)
    mark = wanted[last][0]
    text = (
        f"{records_text(result.end, last)} missing from the end (line {result.lines + 1} on);"
        f" {mark.source} says that the file had at least {last + 1} records"
    )
    result.problems.append(Problem(file, result.lines + 1, result.end, "missing tail", text))

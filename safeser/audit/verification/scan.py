"""Reads one chained file from start to end and says which lines verify, and why others do not.

The one rule: any bytes give a result, with memory that does not depend on the file's size. Only
what verified is believed; what did not is used to name the place, never as a fact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from safeser.audit.compressed import Read
from safeser.audit.record import (
    BODY_AT,
    MAX_LINE,
    Record,
    begins_like_a_line,
    fields_of,
    parse,
    position,
    salvage,
)
from safeser.audit.report import Mark, Problem, span_text
from safeser.errors import AuditError
from safeser.gate.chain import STEP, ZERO, Keys, keyed, step
from safeser.gate.event import MAX_INT

__all__ = ["Lines", "Scan", "lines", "scan"]

_ENDS = (b",", b"}")  # what may follow a number in a record

_CHUNK = 64 << 10

# A file that is no log at all may be one endless line. After so much of it nothing that follows
# can be placed, and reading a terabyte of zeros would only be waiting.
_MAX_JUNK = 16 << 20

MAX_PROBLEMS = 50  # of one file

# So many bytes of lines that do not verify are looked at, in all of one file: some 35,000 records,
# which take seconds. A megabyte that is compressed holds a billion of empty lines.
_MAX_FAILED = 16 << 20
_LINE_COST = 256  # bytes that a line takes as long as, however short it is

# Failing lines whose claimed place is remembered, to tell lines that changed places from others.
_REMEMBERED = 8


class Lines(NamedTuple):
    """Consecutive lines of a file.

    :param raws: the bytes of each without its newline, or None if it is longer than any record.
    :param whole: whether newlines ended them all.
    """

    raws: Sequence[bytes | None]
    whole: bool = True


def lines(read: Read) -> Iterator[Lines]:
    """Yield the lines of a file, holding those of one chunk."""
    buffer = b""
    junk = 0
    while chunk := read(_CHUNK):
        if junk:
            _, newline, rest = chunk.partition(b"\n")
            junk += len(chunk)
            if not newline:
                if junk > _MAX_JUNK:
                    yield Lines((None,), whole=False)
                    return
                continue
            yield Lines((None,))
            junk, buffer = 0, rest
        else:
            buffer += chunk
        *whole, buffer = buffer.split(b"\n")
        yield Lines([raw if len(raw) <= MAX_LINE else None for raw in whole])
        if len(buffer) > MAX_LINE:
            junk, buffer = len(buffer), b""
    if junk:
        yield Lines((None,), whole=False)
    elif buffer:
        yield Lines((buffer,), whole=False)


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
    final: End | None = None
    readable: bool = True

    def add(self, found: Verified, final: End) -> None:
        """Add records that verified, of which *final* is the last."""
        self.records += found.records
        self.lines += found.records
        self.final = final
        self.first = found.first if self.first < 0 else min(self.first, found.first)
        self.last = max(self.last, found.last)

    @property
    def goes_on(self) -> bool:
        """Whether the last record says that the log goes on in another file."""
        last = _record(self.final.raw) if self.final is not None else None
        return last is not None and (last.type, last.text("then")) == ("close", "rotated")


class End(NamedTuple):
    """A record that verified: its number, time and MAC, and its line."""

    sequence: int
    time: int
    mac: bytes
    raw: bytes


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
        where = span_text("line", start, last)
        claimed = self.claims[-1][0] if self.claims else -1
        if resumed is None:
            if self.length == 1 and claimed > expected:
                return self._missing(file, claimed)
            kind = "changed record" if self.length == 1 else "broken chain"
            what = span_text("record", expected, expected + self.length - 1)
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
        what = span_text("record", expected, resumed - 1)
        text = f"{what} ({where}) changed after being written"
        return Problem(file, start, expected, kind, text)

    def _missing(self, file: str, found: int) -> Problem:
        expected = self.state[0]
        text = (
            f"{span_text('record', expected, found - 1)} missing before line {self.start}; record"
            f" {found}, which follows, cannot be checked without them"
        )
        return Problem(file, self.start, expected, "missing records", text)


def scan(
    read: Read,
    *,
    file: str,
    find_keys: FindKeys,
    marks: Sequence[Mark] = (),
    see: Callable[[Record], None] | None = None,
    rekey: Callable[[Record], Keys | None] | None = None,
) -> Scan:
    """Verify the chain of one file.

    :param read: gives its bytes.
    :param file: its name, for problems.
    :param find_keys: called once, with the record on the first line if that is one.
    :param marks: records that must be there.
    :param see: called with each record that verified, in order.
    :param rekey: called with each record that verified before it is seen; returns the keys of the
        records that follow, if they change.
    """
    scanner = _Scanner(file, marks, see, rekey)
    try:
        for each in lines(read):
            if not scanner.take(each, find_keys):
                break
    except AuditError as error:
        scanner.stop("unreadable file", f"{error.message}; what follows was not verified")
    return scanner.end()


class _Scanner:
    """The state of a scan between two lines."""

    def __init__(
        self,
        file: str,
        marks: Sequence[Mark],
        see: Callable[[Record], None] | None,
        rekey: Callable[[Record], Keys | None] | None,
    ) -> None:
        self._file = file
        self._see = see
        self._rekey = rekey
        self._result = Scan()
        self._keys: Keys | None = None
        self._state: _State = (0, ZERO)
        self._run: _Run | None = None
        self._failed = 0
        self._wanted: dict[int, list[Mark]] = {}
        for mark in marks:
            self._wanted.setdefault(mark.sequence, []).append(mark)
        self._places = sorted(self._wanted)

    def take(self, each: Lines, find_keys: FindKeys) -> bool:
        """Take further lines; return whether to go on."""
        result, at = self._result, 0
        if result.lines == 0 and each.raws:
            self._keys = find_keys(_record(each.raws[0]))
            result.readable = self._keys is not None
        if self._keys is None:
            return result.readable
        if not each.whole:
            raw = each.raws[0]
            result.torn = raw is not None and begins_like_a_line(raw)
            if not result.torn:
                text = "bytes follow the last record that no process wrote there"
                end = Problem(self._file, result.lines + 1, -1, "changed record", text)
                result.problems.append(end)
            return False
        while at < len(each.raws):
            at += self._take_many(self._keys, each.raws, at)
            if at < len(each.raws):
                if not self._take_one(self._keys, each.raws[at]):
                    return False
                at += 1
        return True

    def _take_many(self, keys: Keys, raws: Sequence[bytes | None], at: int) -> int:
        """Take lines from number *at* on that follow the last one; return how many."""
        sequence, previous = self._state
        if self._run is not None or self._see is not None or not sequence:
            return 0
        # Up to the next record that must be another's, which is looked at by itself.
        ahead = bisect_left(self._places, sequence)
        until = len(raws)
        if ahead < len(self._places):
            until = min(until, self._places[ahead] - sequence + at)
        some = [raw for raw in raws[at:until] if raw is not None]
        found = verified_start(keys.chain, sequence, previous, some)
        if not found.records:
            return 0
        if len(some) < until - at:  # one that is too long stands between them
            return 0
        self._state = sequence + found.records, found.mac
        raw = some[found.records - 1]
        self._result.add(found, End(self._state[0] - 1, found.time, found.mac, raw))
        return found.records

    def _take_one(self, keys: Keys, raw: bytes | None) -> bool:
        """Take one line; return whether to go on."""
        result, run = self._result, self._run
        result.lines += 1
        states = run.next_states() if run is not None else [self._state]
        found = _verified(keys, raw, states, parsed=self._see is not None)
        if found is None:
            self._run = run or _Run(result.lines, self._state)
            self._run.add(keys, raw)
            return self._goes_on_after(raw)
        end, record, self._state = found
        if run is not None:
            result.problems.append(run.explain(self._file, end.sequence))
            self._run = None
            if len(result.problems) >= MAX_PROBLEMS:
                self.stop("more problems", "the rest of this file was not read")
                return False
        if record is not None and end.sequence == 0:
            result.genesis = record
        result.lines -= 1
        result.add(Verified(1, end.mac, end.time, end.time, end.time), end)
        for mark in self._wanted.get(end.sequence, ()):
            if mark.mac != end.mac:
                text = f"this is not the record that {mark.source} names"
                problem = Problem(self._file, result.lines, end.sequence, mark.kind, text)
                result.problems.append(problem)
        if record is not None and self._rekey is not None:
            self._keys = self._rekey(record) or keys
        if self._see is not None and record is not None:
            self._see(record)
        return True

    def _goes_on_after(self, raw: bytes | None) -> bool:
        """Count a line that does not verify; return whether more of them are looked at."""
        self._failed += _LINE_COST + len(raw or b"")
        if self._failed <= _MAX_FAILED:
            return True
        text = "too much before this line does not verify; the rest of this file was not read"
        self.stop("more problems", text)
        return False

    def stop(self, kind: str, text: str) -> None:
        """Note why the rest is not read."""
        self._result.problems.append(Problem(self._file, self._result.lines, -1, kind, text))
        self._result.readable = False

    def end(self) -> Scan:
        """Return what was found, with what the last lines are."""
        result, run = self._result, self._run
        result.end = self._state[0]
        if run is not None:
            problem = run.explain(self._file, None)
            result.problems.append(problem)
            result.end = self._state[0] + run.length
            if problem.kind == "missing records":
                result.end = run.claims[-1][0] + 1
        if result.readable:
            _missing_tail(result, self._file, self._wanted)
        return result


def _record(raw: bytes | None) -> Record | None:
    try:
        return parse(raw) if raw is not None else None
    except AuditError:
        return None


def _verified(
    keys: Keys, raw: bytes | None, states: Sequence[_State], *, parsed: bool
) -> tuple[End, Record | None, _State] | None:
    """Return the record in *raw* if it follows one of *states*, and where the chain goes on.

    :param parsed: whether all of it is wanted. Otherwise only its place and time are read, except
        of the first: what a holder of the key wrote is not the verifier's to judge.
    """
    parts = fields_of(raw) if raw is not None else None
    if parts is None or raw is None:
        return None
    digits, body = parts
    for sequence, previous in states:
        mac = step(keys.chain, previous, sequence, body)
        # MACs in the files are not secret, so the time of the comparison reveals nothing. Only
        # lower-case digits are equal: a changed byte must not give the same MAC.
        if mac.hex().encode("ascii") != digits:
            continue
        place = position(body)
        if place is None or place[0] != sequence:
            continue
        record = _record(raw) if parsed or sequence == 0 else None
        if record is not None or (sequence and not parsed):
            return End(*place, mac, raw), record, (sequence + 1, mac)
    return None


def _missing_tail(result: Scan, file: str, wanted: dict[int, list[Mark]]) -> None:
    beyond = [sequence for sequence in wanted if sequence >= result.end]
    if not beyond:
        return
    last = max(beyond)
    mark = wanted[last][0]
    text = (
        f"{span_text('record', result.end, last)} missing from the end"
        f" (line {result.lines + 1} on); {mark.source} says that the file had at least"
        f" {last + 1} records"
    )
    result.problems.append(Problem(file, result.lines + 1, result.end, "missing tail", text))


class Verified(NamedTuple):
    """Records that verified, one after the other.

    :param records: how many.
    :param mac: of the last.
    :param first: the earliest of their times, and *last* the latest, and *time* that of the last.
    """

    records: int
    mac: bytes
    first: int
    last: int
    time: int


def verified_start(key: bytes, sequence: int, previous: bytes, raws: Sequence[bytes]) -> Verified:
    """Verify *raws* from the first on, as far as each is the record that follows the one before.

    What this takes, a scan would take as well, and the scan says what the line is before which this
    ends: one loop for the millions that nothing is wrong with.

    :param key: of the chain.
    :param sequence: number of the record that the first is to be, after the MAC *previous*.
    """
    inner_start, outer_start = keyed(key)
    pack = STEP.pack
    start = sequence
    first, last, time = MAX_INT, -1, -1
    for raw in raws:
        body = raw[BODY_AT:-1]
        inner, outer = inner_start.copy(), outer_start.copy()
        inner.update(pack(3, 32, previous, 8, sequence, len(body)) + body)
        outer.update(inner.digest())
        mac = outer.digest()
        # MACs in the files are not secret, so the time of the comparison reveals nothing.
        head = b'{"mac":"%b","record":' % mac.hex().encode("ascii")
        if raw[:BODY_AT] != head or raw[-1:] != b"}" or len(raw) > MAX_LINE:
            break
        # A quotation mark inside a JSON string has a backslash before it: neither is found there.
        at = body.rfind(b',"time":') + 8
        digits = body[at : at + 16]
        if b',"seq":%d,' % sequence not in body or not digits.isdigit():
            break
        if body[at + 16 : at + 17] not in _ENDS or digits[:1] == b"0":
            break
        time = int(digits)
        first, last = (time if time < first else first), (time if time > last else last)
        previous = mac
        sequence += 1
    return Verified(sequence - start, previous, first, last, time)

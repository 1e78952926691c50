"""What verification found: problems that name their place, and the heads to keep elsewhere.

The one rule: whatever the files hold, what is printed from here is short, printable text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from safeser.audit.record import printable
from safeser.errors import ConfigError

__all__ = ["Expected", "Mark", "Problem", "Report", "head_line"]

_EXPECTED = re.compile(
    r"safeser-audit-head-v1 ([0-9a-f]{32})((?: [0-9a-f]{32}=\d{1,16}:[0-9a-f]{64})*)"
)
_MAX_EXPECTED = 16 << 20  # some 140,000 open files; the text comes from the operator, not a peer


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as the process left it.

    :param file: name of the file in its directory.
    :param line: line of the file, from 1; 0 where the file as a whole is meant.
    :param sequence: number of the record, from 0; -1 where none is meant.
    :param kind: short and stable, e.g. ``"changed record"``.
    :param text: what was found and what it means.
    """

    file: str
    line: int
    sequence: int
    kind: str
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Mark:
    """A record that must be there: the one at *sequence* has the MAC *mac*.

    :param kind: kind of the problem where it is another one.
    :param source: where the expectation comes from, for the text of the problem.
    """

    sequence: int
    mac: bytes
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of :func:`safeser.audit.verify`.

    :param problems: what is wrong; empty means that nothing was found.
    :param notes: what is worth knowing and not wrong, such as the traces of a kill.
    :param files: log files that were read.
    :param records: records that verified.
    :param first: time of the earliest verified record.
    :param last: time of the latest verified record.
    :param head: text to keep on another machine and pass as ``expect=`` later.
    """

    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    files: int
    records: int
    first: datetime | None
    last: datetime | None
    head: str = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def __bool__(self) -> bool:
        raise TypeError("ask report.ok; a Report has no truth value")

    def __str__(self) -> str:
        found = f"{len(self.problems)} problems" if self.problems else "no problem"
        lines = [f"{self.records} records in {self.files} files verified, {found} found"]
        lines += [str(problem) for problem in self.problems]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Expected:
    """The ends that a directory's chains had when its head was written down.

    :param directory: id of the directory.
    :param ends: id of a chain to the ends that it had: the number of the last record and that
        record's MAC. The index has the directory's id.
    :param source: where they come from, for the text of a problem.
    """

    directory: str
    ends: Mapping[str, Sequence[tuple[int, bytes]]]
    source: str = "the expected head"

    def marks(self, chain: str) -> list[Mark]:
        """Return the records that *chain* must have."""
        ends = dict.fromkeys(self.ends.get(chain, ()))
        return [Mark(sequence, mac, "rolled back", self.source) for sequence, mac in ends]

    @staticmethod
    def parse(text: str) -> Expected:
        """Return what :attr:`Report.head` says, or raise :class:`ConfigError`."""
        found = _EXPECTED.fullmatch(text.strip()) if len(text) <= _MAX_EXPECTED else None
        if found is None:
            raise ConfigError(
                "this is not the head of a log as verification prints it", rule="config.audit-head"
            )
        return Expected(found[1], {chain: [end] for chain, end in _ends(found[2])})

    @staticmethod
    def gather(lines: Iterable[str]) -> list[Expected]:
        """Return what the heads in *lines* say, of each directory; other text is left out.

        A system log puts a date and a name before each.
        """
        found: dict[str, dict[str, list[tuple[int, bytes]]]] = {}
        for line in lines:
            # A write that a full disk cut short leaves the start of a head before the next one.
            for head in _EXPECTED.finditer(line):
                for chain, end in _ends(head[2]):
                    found.setdefault(head[1], {}).setdefault(chain, []).append(end)
        return [Expected(each, ends, "the kept head") for each, ends in found.items()]


def _ends(text: str) -> Iterator[tuple[str, tuple[int, bytes]]]:
    for entry in text.split():
        chain, _, end = entry.partition("=")
        sequence, _, mac = end.partition(":")
        yield chain, (int(sequence), bytes.fromhex(mac))


def head_line(directory: str, ends: Mapping[str, tuple[int, bytes]]) -> str:
    """Return the one line that :meth:`Expected.parse` reads."""
    texts = (f"{chain}={n}:{mac.hex()}" for chain, (n, mac) in sorted(ends.items()))
    return " ".join(["safeser-audit-head-v1", directory, *texts])


def moment(microseconds: int) -> datetime | None:
    """Return a record's time, or None if no calendar has it."""
    try:
        return datetime.fromtimestamp(microseconds / 1e6, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def stamp(microseconds: int) -> str:
    """Return a record's time as RFC 3339 text in UTC, or ``"-"`` if it is outside the calendar."""
    second, rest = divmod(microseconds, 1_000_000)
    start = _stamp_of_second(second)
    return f"{start}.{rest:06d}Z" if start else "-"


@lru_cache(maxsize=64)
def _stamp_of_second(second: int) -> str:
    found = moment(second * 1_000_000)
    return "" if found is None else found.strftime("%Y-%m-%dT%H:%M:%S")


def shown(name: str) -> str:
    """Return a file's name, escaped and cut: any process may have created the file."""
    return printable(name, 160)


def span_text(what: str, first: int, last: int) -> str:
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


def limited(problems: Iterable[Problem], limit: int) -> list[Problem]:
    """Return at most *limit* of *problems*, the last of them saying how many there are."""
    found = list(problems)
    if len(found) <= limit:
        return found
    more = len(found) - limit + 1
    last = found[limit - 1]
    text = f"{more} more problems are not listed"
    return [*found[: limit - 1], Problem(last.file, 0, -1, "more problems", text)]

"""Finds the records of many logs that answer a question, in the order of their times.

The one rule: reading is not verifying, and no file stops the search. What is not a record of a
version that this reader knows is named and left out; of what safeser writes, nothing that could
match is skipped unread. A file that was changed may hide records: verification finds that.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import NamedTuple

from safeser.audit.compressed import Unpacking
from safeser.audit.files import COMPRESSED, Directory, head_name, is_log, log_name
from safeser.audit.index import INDEX, PART
from safeser.audit.names import VERSION, Resolver
from safeser.audit.reading.alike import Forms, shared_of
from safeser.audit.record import MAX_LINE, Record
from safeser.audit.report import shown
from safeser.errors import AuditError

__all__ = ["Found", "Question", "Skipped", "follow", "search"]

_CHUNK = 256 << 10

#: Lines of one file that are named singly when they are no records.
_NAMED = 10

# A quotation mark inside a JSON string has a backslash before it, so these stand outside of all.
_CASE = re.compile(rb'[,{]"case":([0-9]{1,16})[,}]')
_TIME = re.compile(rb',"time":([0-9]{1,16})[,}]')

_COUNTED = ("sender", "recipient", "operation", "rule", "permitted", "times")
_SUPPRESSED = ("sender", "rule", "times", "since")


@dataclass(frozen=True, slots=True)
class Question:
    """Which records are asked for; an empty field asks for nothing.

    :param since: microseconds since 1970; the first that counts, and *until* the first that does
        not any more.
    :param principal: sender or recipient.
    :param author: who wrote the payload, or whose task it is.
    :param peer: the other end of a connection: its principal, address, host or key.
    :param permitted: the outcome; None for either.
    :param refers_to: the global that was refused.
    :param everything: also what was permitted and only counted, and records about the log itself.
    """

    since: int = 0
    until: int = 1 << 62
    principal: frozenset[str] = frozenset()
    author: frozenset[str] = frozenset()
    peer: frozenset[str] = frozenset()
    rule: frozenset[str] = frozenset()
    operation: frozenset[str] = frozenset()
    family: frozenset[str] = frozenset()
    refers_to: frozenset[str] = frozenset()
    task: frozenset[str] = frozenset()
    permitted: bool | None = None
    everything: bool = False

    @property
    def needed(self) -> list[list[bytes]]:
        """Texts of which each matching line has one, spelled as in the file, for each field."""
        fields = (self.refers_to, self.task)
        return [[_spelled(text) for text in each] for each in fields if each]

    @property
    def takes_all(self) -> bool:
        """Whether each event of the time asked for matches."""
        return self == Question(self.since, self.until, everything=self.everything)

    @property
    def is_of_cases(self) -> bool:
        """Whether the time and the case of an event decide whether it matches."""
        return not (self.refers_to or self.task or self.peer)

    def may_match(self, fields: Mapping[str, object]) -> bool:
        """Tell whether an event that has at least *fields*, those of its case, can match."""
        return (
            (not self.rule or _has(fields, self.rule, "rule"))
            and (not self.operation or _has(fields, self.operation, "operation"))
            and (not self.family or _has(fields, self.family, "family"))
            and (self.permitted is None or fields.get("permitted") is self.permitted)
            and (not self.principal or _has(fields, self.principal, "sender", "recipient"))
            and (not self.author or _has(fields, self.author, "author", "task_author"))
        )

    def matches(self, record: Record) -> bool:
        fields = record.fields
        return (
            self.since <= record.time < self.until
            and self.may_match(fields)
            and (not self.refers_to or _has(fields, self.refers_to, "global"))
            and (not self.task or _has(fields, self.task, "task"))
            and (not self.peer or self._is_of_peer(fields))
        )

    def _is_of_peer(self, fields: Mapping[str, object]) -> bool:
        address = fields.get("address")
        host = address.rpartition(":")[0] if isinstance(address, str) else ""
        return host in self.peer or _has(fields, self.peer, "peer", "address", "key")


def _spelled(text: str) -> bytes:
    """Return *text* as the encoder of records spells it."""
    return json.dumps(text).replace("\x7f", "\\u007f").encode("ascii")


def _has(fields: Mapping[str, object], wanted: frozenset[str], *names: str) -> bool:
    return any(isinstance(value := fields.get(name), str) and value in wanted for name in names)


class Found(NamedTuple):
    """One answer.

    :param log: principal whose process wrote it, as its file is named.
    :param record: the record with all of its fields; of counts, one for each row, with ``times``.
    """

    log: str
    record: Record


def _order(found: Found) -> int:
    return found.record.time


#: Called with a file, or a place in it, that is left out, and why.
Skipped = Callable[[str, str], None]


def search(
    places: Iterable[str | os.PathLike[str]], question: Question, *, skipped: Skipped
) -> Iterator[Found]:
    """Yield the records in the files and folders *places* that answer *question*, oldest first.

    The records of one file are taken to be in the order of their times.
    """
    for part in follow(places, question, skipped=skipped, wait=lambda: False):
        yield from part


def follow(
    places: Iterable[str | os.PathLike[str]],
    question: Question,
    *,
    skipped: Skipped,
    wait: Callable[[], bool],
) -> Iterator[Iterator[Found]]:
    """Yield what :func:`search` does, then what is new in those files and folders, again and again.

    :param wait: called at the end of each part, which must be taken before the next is asked for;
        following ends where it returns False.
    """
    files: dict[tuple[str, str], _LogFile] = {}
    named: set[tuple[str, str]] = set()

    def name_once(place: str, why: str) -> None:
        if (place, why) not in named:
            named.add((place, why))
            skipped(place, why)

    asked = [os.fspath(place) for place in places]
    while True:
        for place in asked:
            for key in _files(place, name_once):
                if key not in files:
                    files[key] = _LogFile(*key, question, name_once)
        grown = [each.found() for each in files.values() if each.has_grown]
        yield grown[0] if len(grown) == 1 else heapq.merge(*grown, key=_order)
        if not wait():
            break
    for each in files.values():
        each.name_half_line()


def _files(place: str, skipped: Skipped) -> Iterator[tuple[str, str]]:
    """Yield folder and plain name of each log file that *place* is or holds."""
    if not os.path.isdir(place):
        folder, name = os.path.split(place)
        yield folder or ".", log_name(name)
        return
    try:
        names = os.listdir(place)
    except OSError as error:
        skipped(place, f"it cannot be read ({os.strerror(error.errno or 0)})")
        return
    logs = set(filter(is_log, names))
    own = {*logs, *map(head_name, logs), INDEX, head_name(INDEX)}
    for name in sorted(set(names) - own):
        if not is_log(name.removesuffix(PART)):
            skipped(os.path.join(place, name), "it is no file of an audit log")
    for name in sorted(set(map(log_name, logs))):
        yield place, name


class _LogFile:
    """One file that is searched."""

    def __init__(self, folder: str, name: str, question: Question, skipped: Skipped) -> None:
        self._folder = folder
        self._name = name
        # <principal>-<UTC>-<id>.log; other files of the folder may have any name.
        self._log = shown(PurePath(name).name.rsplit("-", 2)[0])[:64]
        self._question = question
        self._skipped = skipped
        self._resolver = Resolver()
        self._forms = Forms(self._resolver)
        self._needed = question.needed
        self._takes_all = question.takes_all
        self._other_cases: set[int] = set()  # in which no event can match
        self._matching: Mapping[str, object] | None = None  # shared by events that match
        self._unread = 0
        self._number = 0  # of the last line that was taken
        self._start = 0  # of the next
        self._size = -1  # when it was last read
        self._unpacking: Unpacking | None = None  # once it is compressed
        self._complete = False
        self._foreign = False

    @property
    def has_grown(self) -> bool:
        """Whether the file has another size than when it was read."""
        if self._foreign or self._complete:
            return False
        try:
            return os.stat(self._path).st_size != self._size
        except OSError:
            # Compressed meanwhile, or gone; the latter is said once.
            return self._size < 0 or os.path.exists(self._path + COMPRESSED)

    @property
    def _path(self) -> str:
        return os.path.join(self._folder, self._name)

    def found(self) -> Iterator[Found]:
        """Yield the answers in the lines that were not taken before."""
        for raw in self._lines():
            self._number += 1
            number = self._number
            if number > 1 and self._is_other(raw):
                continue
            try:
                record = self._forms.read(raw)
            except AuditError as error:
                if number == 1:
                    self._leave("it is no audit log: its first line is no record")
                    return
                self._skip(f", line {number}", error.message)
                continue
            if number == 1 and not self._is_known(record):
                return
            if record.type != "event":
                # In a changed file a session may state what is asked for, and its events need not.
                if any(text in raw for texts in self._needed for text in texts):
                    self._needed = []
                yield from self._others(record)
            elif self._is_answer(record, raw):
                yield Found(self._log, record)

    def _is_known(self, genesis: Record) -> bool:
        """Tell whether this reader knows the file's version; name the file if not."""
        if genesis.type != "genesis":
            self._leave("its first record is not that of a log file")
        elif not 1 <= self._resolver.version <= VERSION:
            self._leave(f"it has version {self._resolver.version}, and this reads {VERSION}")
        else:
            return True
        return False

    def _is_other(self, raw: bytes) -> bool:
        """Tell, without parsing it, whether *raw* is an event that cannot match."""
        if not self._other_cases and not self._needed and not self._question.since:
            return False
        # A record with one of these defines what later ones refer to, or is no event.
        if b'"event":' in raw or b'"type":' in raw:
            return False
        case = _CASE.search(raw)
        if case is not None and int(case[1]) in self._other_cases:
            return True
        for texts in self._needed:
            if not any(text in raw for text in texts):
                return True
        if not self._question.since:
            return False
        time = _TIME.search(raw)
        return time is not None and int(time[1]) < self._question.since

    def _is_answer(self, event: Record, raw: bytes) -> bool:
        question = self._question
        if self._takes_all:
            return question.since <= event.time < question.until
        shared = shared_of(event.fields) if question.is_of_cases else None
        if shared is not None:
            if shared is not self._matching:
                if not question.may_match(shared):
                    return False
                self._matching = shared
            return question.since <= event.time < question.until
        case = _CASE.search(raw) if b'"event":' in raw else None
        if case is not None:
            if not question.may_match(event.fields):
                self._other_cases.add(int(case[1]))
            else:  # a file that was changed may define it anew
                self._other_cases.discard(int(case[1]))
        return question.matches(event)

    def _others(self, record: Record) -> Iterator[Found]:
        """Yield what a record that is no event says, if that is asked for."""
        question = self._question
        if record.type in ("counts", "suppressed"):
            for each in _rows(record):
                counted = each.fields.get("permitted") is not False
                if (question.everything or not counted) and question.matches(each):
                    yield Found(self._log, each)
        elif question.everything and question.matches(record):
            yield Found(self._log, record)

    def _lines(self) -> Iterator[bytes]:
        """Yield further whole lines of the file, which is open only while it is read.

        Many files are searched at a time, more than a process may have open. A line that is not
        whole is read again: its process may take it back, and write another.
        """
        rest, ended = b"", False
        while not ended:
            chunk = self._read(self._start + len(rest))
            ended = len(chunk) < _CHUNK
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._start += len(line) + 1
                yield line
            if len(rest) > MAX_LINE:
                self._leave("it has a line longer than any record; the rest is not read")
                return
        self._size = self._start + len(rest)

    def name_half_line(self) -> None:
        """Name the last line of the file if it is not whole."""
        if not self._foreign and self._size > self._start:
            self._skip("", "its last line is not whole: it is being written, or was cut off")

    def _leave(self, why: str) -> None:
        self._foreign = True
        self._skip("", why)

    def _read(self, start: int) -> bytes:
        try:
            with closing(Directory(self._folder, create=False)) as directory:
                return self._read_in(directory, start)
        except AuditError as error:
            self._leave(error.message)
            return b""

    def _read_in(self, directory: Directory, start: int) -> bytes:
        handle = directory.open(self._name) if self._unpacking is None else None
        if handle is not None:
            with closing(handle):
                return handle.read(_CHUNK, start)
        handle = directory.open(self._name + COMPRESSED)
        if handle is None:
            self._leave("it is not there")
            return b""
        with closing(handle):
            # What was read while the file was plain is skipped.
            if self._unpacking is None:
                self._unpacking = Unpacking()
            unpacking, data = self._unpacking, b""
            while unpacking.position < start:
                if not unpacking.read(handle, min(_CHUNK, start - unpacking.position)):
                    break
            while len(data) < _CHUNK and (more := unpacking.read(handle, _CHUNK - len(data))):
                data += more
            self._complete = len(data) < _CHUNK
            return data

    def _skip(self, place: str, why: str) -> None:
        self._unread += 1
        if self._unread <= _NAMED:
            self._skipped(self._path + place, why)
        elif self._unread == _NAMED + 1:
            self._skipped(self._path, "further lines are no records")


def _rows(record: Record) -> Iterator[Record]:
    """Yield each row of a record of counts or suppressed refusals as a record of its own."""
    names = _COUNTED if record.type == "counts" else _SUPPRESSED
    rows = record.fields.get(record.type)
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, list) and len(row) == len(names):
            said = dict(zip(names, row, strict=True))
            said.setdefault("permitted", False)
            yield replace(record, fields={**said, "policy": record.fields.get("policy", "")})

"""What the index of a directory says about each file: begun, closed, compressed, removed.

The one rule: what is registered once stays. One ``open`` entry registers a file's id and its name;
``close``, ``compress`` and ``remove`` follow at most once each, in this order, and of a process
that was killed without the first. Any other entry changes nothing and is a problem: a holder of the
present key can write it, and an earlier file would be verified by what it says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from safeser.audit.files import log_name
from safeser.audit.index import RULE_VERSION, WAIT
from safeser.audit.record import Record
from safeser.audit.report import Mark, shown
from safeser.audit.tally import SECOND
from safeser.audit.vouched import mac_of

__all__ = ["Compressed", "Registered", "Registry", "Removed", "id_in"]

#: A name of a file that a log begins; no other file is ever compressed or removed.
_NAME = re.compile(r"[^/\0]{1,200}-[0-9]{8}T[0-9]{6}Z-([0-9a-f]{32})\.log\Z")

_ORDER = ("open", "close", "compress", "remove")

_AGE = re.compile(r"older than ([0-9]{1,16}) s\Z")
_SIZE = re.compile(r"more than ([0-9]{1,16}) bytes\Z")


@dataclass(frozen=True, slots=True)
class Compressed:
    """The compressed form of a file: the SHA-256 of its bytes, their number, and when it was made.

    :param size: -1 where an older release entered it.
    """

    sha256: bytes
    line: int
    time: int
    size: int


@dataclass(frozen=True, slots=True)
class Removed:
    """The removal of a file by retention: when, by which rule, and where the file ended.

    :param count: records of the file; *mac* is that of the last of them. 0 where no process could
        know that: of the file of a process that was killed, whose key has moved.
    """

    time: int
    why: str
    count: int
    mac: bytes
    line: int


@dataclass(slots=True)
class Registered:
    """The entries of the index about one file.

    :param line: of the entry that registers its start.
    :param moves: how often the key had moved when it was begun.
    :param begun: when, in microseconds since 1970, and *ended* likewise; -1 if it is not closed.
    :param after: when its end was entered at the earliest, by the entries before that one.
    :param size: its bytes when it was closed; -1 if it is not.
    :param stage: the type of its last entry.
    """

    name: str
    genesis: bytes
    line: int
    moves: int
    begun: int
    ended: int = -1
    after: int = -1
    size: int = -1
    stage: str = "open"
    closed: Mark | None = None
    compressed: Compressed | None = None
    removed: Removed | None = None

    @property
    def is_plain_name(self) -> bool:
        """Whether its name is one that a log gives to its files."""
        return _NAME.match(self.name) is not None

    @property
    def stated_size(self) -> int:
        """Its bytes as the index states them; 0 where it does not, or the file was removed."""
        if self.removed is not None:
            return 0
        if self.compressed is not None and self.compressed.size >= 0:
            return self.compressed.size
        return max(self.size, 0)

    @property
    def stated_end(self) -> int:
        """The time from which its age counts; -1 where no entry states it."""
        if self.ended >= 0:
            return self.ended
        return self.compressed.time if self.compressed is not None else -1


@dataclass(slots=True)
class Registry:
    """The files that an index registers, from its records in their order.

    :param partial: whether entries before these are not known.
    :ivar moves: how often the key had moved at the last of them.
    :ivar total: bytes of all files that are not removed, as far as entries state them.
    :ivar wrong: the lines of entries that contradict the rule, and in what.
    """

    partial: bool = False
    files: dict[str, Registered] = field(default_factory=dict)
    macs: list[bytes] = field(default_factory=list)
    moves: int = 0
    total: int = 0
    wrong: list[tuple[int, str]] = field(default_factory=list)
    _latest: int = 0
    _names: set[str] = field(default_factory=set)
    _is_strict: bool = False

    def take(self, record: Record) -> None:
        """Take one record of the index."""
        # After a gap the numbers do not fit, but then there is a problem already.
        self.macs.append(record.mac)
        if record.type == "key":
            self.moves += 1
        elif record.type in _ORDER:
            why = self._open(record) if record.type == "open" else self._more(record)
            if why:
                self.wrong.append((record.sequence + 1, why))
        self._latest = max(self._latest, record.time)

    def _open(self, record: Record) -> str:
        """Register a file; return what contradicts that."""
        file, name = record.text("file"), record.text("name")
        self._is_strict = self._is_strict or record.number("version") >= RULE_VERSION
        if file in self.files:
            line = self.files[file].line
            return f"a second start of {shown(name)}, which line {line} registers"
        if log_name(name) in self._names:
            return f"a second file of the name {shown(name)}"
        self._names.add(log_name(name))
        self.files[file] = Registered(
            name, mac_of(record.text("genesis")), record.sequence + 1, self.moves, record.time
        )
        return ""

    def _more(self, record: Record) -> str:
        """Register what happened to a file; return what contradicts that."""
        kind, entry = record.type, self.files.get(record.text("file"))
        if entry is None:
            return "" if self.partial else f"an entry '{kind}' of a file that no entry begins"
        if _ORDER.index(kind) <= _ORDER.index(entry.stage):
            return self._again(entry, record)
        why, before = "", entry.stated_size
        if entry.stated_end < 0:
            # The time of an entry is taken before the lock of the index is waited for.
            entry.after = self._latest - int(WAIT) * SECOND
        if kind == "close":
            source = f"the index (line {record.sequence + 1})"
            mac = mac_of(record.text("mac"))
            entry.closed = Mark(record.number("count") - 1, mac, "changed file", source)
            entry.ended = record.time
            entry.size = record.number("size")
        elif kind == "compress":
            entry.compressed = _compressed(record)
        else:
            why = self._contradiction(entry, record)
            count, mac = record.number("count"), mac_of(record.text("mac"))
            entry.removed = Removed(
                record.time, record.text("why"), count, mac, record.sequence + 1
            )
        entry.stage = kind
        self.total += entry.stated_size - before
        return why

    def _again(self, entry: Registered, record: Record) -> str:
        kind = record.type
        if not self._is_strict and kind in {"compress", "remove"}:
            # Two processes of an older release, or one that was killed between entry and file.
            # What is compressed is verified by its records as well.
            if entry.stage == "compress":
                entry.compressed = _compressed(record)
            return ""
        return f"an entry '{kind}' of {shown(entry.name)} after its entry '{entry.stage}'"

    def _contradiction(self, entry: Registered, record: Record) -> str:
        """Return in what the entry of a removal contradicts those before it."""
        name, why, closed = shown(entry.name), record.text("why"), entry.closed
        end = (record.number("count") - 1, mac_of(record.text("mac")))
        if closed is not None and end != (closed.sequence, closed.mac):
            return f"the removal of {name} states another end than {closed.source}"
        if self._is_strict and self.moves and entry.stated_end < 0:
            # Under a key that has moved no process verifies where the file of another ended.
            return f"{name} was removed, and no entry states its end"
        return self._unmet_rule(entry, record.time, why, record.number("total"))

    def _unmet_rule(self, entry: Registered, time: int, why: str, total: int) -> str:
        """Return in what a removal does not meet the rule *why* that it states."""
        name = shown(entry.name)
        age, size = _AGE.match(why), _SIZE.match(why)
        if age is not None:
            passed = time - entry.stated_end
            if entry.stated_end >= 0 and passed < int(age[1]) * SECOND:
                return f"{name} was removed as {shown(why)}, {passed // SECOND} s after its end"
            return ""
        if size is None:
            return f"the removal of {name} states no rule of retention"
        if self._is_strict and not self.total >= total > int(size[1]):
            return f"{name} was removed as {shown(why)}, and the index has {self.total} bytes"
        return ""


def _compressed(record: Record) -> Compressed:
    sha256 = mac_of(record.text("sha256"))
    return Compressed(sha256, record.sequence + 1, record.time, record.number("size"))


def id_in(name: str) -> str:
    """Return the id in the name of a file, if it is one that a log gives; else nothing."""
    found = _NAME.match(log_name(name))
    return "" if found is None else found[1]

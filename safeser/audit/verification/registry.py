"""What the index of a directory says about each file: begun, closed, compressed, removed.

The one rule: nothing is taken from a record but text and numbers, whose meaning the reader
checks. A holder of the key may have written any of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from safeser.audit.record import Record
from safeser.audit.report import Mark

__all__ = ["Compressed", "Registered", "Registry", "Removed"]

#: A name of a file that a log begins; no other file is ever compressed or removed.
_NAME = re.compile(r"[^/\0]{1,200}-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{32}\.log\Z")


@dataclass(frozen=True, slots=True)
class Compressed:
    """The compressed form of a file: the SHA-256 of its bytes, and when it was made."""

    sha256: bytes
    line: int
    time: int


@dataclass(frozen=True, slots=True)
class Removed:
    """The removal of a file by retention: when, by which rule, and where the file ended.

    :param count: records of the file; *mac* is that of the last of them.
    """

    time: int
    why: str
    count: int
    mac: bytes


@dataclass(slots=True)
class Registered:
    """The entries of the index about one file.

    :param line: of the entry that registers its start.
    :param moves: how often the key had moved when it was begun.
    :param begun: when, in microseconds since 1970, and *ended* likewise; -1 if it is not closed.
    :param size: its bytes when it was closed; -1 if it is not.
    """

    name: str
    genesis: bytes
    line: int
    moves: int
    begun: int
    ended: int = -1
    size: int = -1
    closed: Mark | None = None
    compressed: Compressed | None = None
    removed: Removed | None = None

    @property
    def is_plain_name(self) -> bool:
        """Whether its name is one that a log gives to its files."""
        return _NAME.match(self.name) is not None


@dataclass(slots=True)
class Registry:
    """The files that an index registers, from its records in their order.

    :ivar moves: how often the key had moved at the last of them.
    """

    files: dict[str, Registered] = field(default_factory=dict)
    macs: list[bytes] = field(default_factory=list)
    moves: int = 0

    def take(self, record: Record) -> None:
        """Take one record of the index."""
        # After a gap the numbers do not fit, but then there is a problem already.
        self.macs.append(record.mac)
        line = record.sequence + 1
        file = record.text("file")
        if record.type == "key":
            self.moves += 1
        elif record.type == "open":
            genesis = mac_of(record.text("genesis"))
            self.files[file] = Registered(
                record.text("name"), genesis, line, self.moves, record.time
            )
        elif file in self.files:
            self._more(self.files[file], record, line)

    @staticmethod
    def _more(entry: Registered, record: Record, line: int) -> None:
        source = f"the index (line {line})"
        count, mac = record.number("count"), mac_of(record.text("mac"))
        match record.type:
            case "close":
                entry.closed = Mark(count - 1, mac, "changed file", source)
                entry.ended = record.time
                entry.size = record.number("size")
            case "compress":
                entry.compressed = Compressed(mac_of(record.text("sha256")), line, record.time)
            case "remove":
                entry.removed = Removed(record.time, record.text("why"), count, mac)


def mac_of(text: str) -> bytes:
    """Return the MAC that *text* spells; of anything else the empty one, which no record has.

    Another process that holds the key may write what it likes: it verifies, and is none the less
    only text.
    """
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""

"""What an attacker needs who can write to a log's folder: forged files, entries and edits.

The folder and its moving key are made by the product; nothing here has an earlier key than an
attacker would.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from safeser.audit import AuditFiles, AuditKey, AuditLog, index
from safeser.audit.files import Directory, head_name
from safeser.audit.key import KeyFile, file_keys, source
from safeser.audit.record import line, parse
from safeser.audit.upkeep.closed_files import tidy
from safeser.gate.chain import Head, step
from safeser.gate.event import encode

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True}
DAY = 86_400
FILES = AuditFiles(rotate_size=64 << 10, compress=False)

Fields = dict[str, object]


class Folder:
    """A folder of logs with a moving key, whose initial key is elsewhere.

    :ivar now: seconds since 1970, of the machine's clock.
    """

    def __init__(self, home: Path, *, initial: AuditKey | None = None, moving: bool = True) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.place = home / "audit"
        self.key = home / "audit.key"
        self.initial = initial or AuditKey.new()
        self.initial.save(self.key, moving=moving)
        self.now = 1_795_000_000

    def clock(self) -> int:
        return self.now * 1_000_000_000

    def log(self, principal: str, files: AuditFiles = FILES) -> AuditLog:
        log = AuditLog.open(
            self.place, key=self.key, principal=principal, clock=self.clock, files=files
        )
        log._keep = lambda: None  # no thread: each pass is made by name
        return log

    def closed(self, principal: str, records: int = 20) -> Path:
        """Return a file of so many records that its process has closed."""
        with self.log(principal) as log:
            log.record_all([{**ADMIT, "bytes": n} for n in range(records)])
        return Path(log.path)

    def large(self, principal: str) -> Path:
        """Return a closed file of more than 64 KiB."""
        with self.log(principal) as log:
            log.record_all([{"event": "admit", "task": index.new_id()} for _ in range(700)])
        return Path(log.path)

    def killed(self, principal: str) -> Path:
        """Return a file of a process that was killed."""
        log = self.log(principal)
        log.record_all([{**ADMIT, "bytes": n} for n in range(700)])
        log._closed = True
        log._close_files()
        return Path(log.path)

    def tidy(self, files: AuditFiles) -> None:
        """Make one pass of the thread that keeps the files."""
        directory = Directory(self.place, create=False)
        try:
            tidy(directory, source(self.key), files, now=self.now * 1_000_000)
        finally:
            directory.close()

    # --- with the current key --------------------------------------------------------------------

    def add(self, *entries: Fields) -> None:
        """Append entries to the index as a thief of the current key does."""
        directory = Directory(self.place, create=False)
        try:
            index.update(
                directory,
                source(self.key),
                now=self.now * 1_000_000,
                write=lambda held: [held.add({"time": self.now * 1_000_000, **e}) for e in entries],
            )
        finally:
            directory.close()

    def move_key(self) -> None:
        directory = Directory(self.place, create=False)
        try:
            now = self.now * 1_000_000
            index.update(
                directory, source(self.key), now=now, write=lambda held: held.move_key(now)
            )
        finally:
            directory.close()

    def rewritten(
        self, path: Path, change: Callable[[Fields], Fields | None]
    ) -> tuple[Fields, Fields]:
        """Write a closed file anew with the current key, and its head.

        :param change: gives each record's fields as they shall be; None leaves a record out.
        :return: the entries that register its start and its end.
        """
        key = source(self.key)
        home = str(next(iter(self.entries()))["directory"])
        if isinstance(key, KeyFile):
            home, key = key.load()
        file = path.stem.rpartition("-")[2]
        keys = file_keys(key, directory=home, file=file)
        written, mac, genesis = [], bytes(32), ""
        for raw in path.read_bytes().splitlines():
            record = parse(raw)
            fields: Fields | None = {**record.fields, "time": record.time}
            if record.type != "event":
                fields["type"] = record.type
            fields = change(fields)
            if fields is None:
                continue
            body = encode({**fields, "seq": len(written)})
            mac = step(keys.chain, mac, len(written), body)
            written.append(line(mac, body))
            genesis = genesis or mac.hex()
        data = b"".join(written)
        path.write_bytes(data)
        head = Head(file, len(written), mac, len(data)).encode(keys.head)
        (path.parent / head_name(path.name)).write_bytes(head)
        count = len(written)
        return (
            {"type": "open", "file": file, "name": path.name, "genesis": genesis},
            {"type": "close", "file": file, "count": count, "mac": mac.hex(), "size": len(data)},
        )

    # --- without any key -------------------------------------------------------------------------

    def entries(self) -> list[Fields]:
        """Return what the lines of the index say."""
        found = []
        for raw in (self.place / "index").read_bytes().splitlines():
            record = parse(raw)
            found.append({**record.fields, "type": record.type, "time": record.time})
        return found

    def entry(self, kind: str, path: Path) -> Fields:
        """Return the entry of one kind about a file."""
        file = path.name.partition(".")[0].rpartition("-")[2]
        (found,) = [e for e in self.entries() if e["type"] == kind and e.get("file") == file]
        return found

    def edit(self, old: bytes, new: bytes) -> Callable[[], None]:
        """Replace bytes of the index by as many; return what puts them back."""
        path = self.place / "index"
        before = path.read_bytes()
        assert before.count(old) == 1
        assert len(old) == len(new)
        at = before.index(old)

        def write(data: bytes) -> None:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(data)

        write(new)
        return lambda: write(old)

    def date_back(self, path: Path, seconds: int) -> Callable[[], None]:
        """Have the index say that a file was closed so long before; return what undoes it."""
        entry = self.entry("close", path)
        text = f'"mac":"{entry["mac"]}","seq":%d,"size":{entry["size"]},"time":%d'
        number = self.entries().index(entry)
        old = text % (number, entry["time"])
        return self.edit(
            old.encode(), (text % (number, int(str(entry["time"])) - seconds * 1_000_000)).encode()
        )


def copied(place: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a folder."""
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


def put_back(place: Path, files: dict[str, bytes]) -> None:
    """Write files as they were; others stay."""
    for name, data in files.items():
        handle = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)

"""Verifies a directory of logs, or one file of it, against the key.

The one rule: nothing is believed before its MAC holds, any bytes give a report, and every problem
names its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass

from safeser.audit import index
from safeser.audit.chain import Head, Keys, file_keys, index_keys
from safeser.audit.files import Directory, Handle, head_name
from safeser.audit.index import INDEX
from safeser.audit.key import AuditKey, KeySource, resolve
from safeser.audit.record import MAX_LINE, Record, begins_like_a_line
from safeser.audit.report import Expected, Mark, Problem, Report, limited, moment, shown
from safeser.audit.scan import Scan, scan
from safeser.errors import AuditError

__all__ = ["verify"]

MAX_PROBLEMS = 1_000  # of one report

# Verification waits this long for processes that are opening or closing; without the lock it goes
# on, so that a process that never releases it does not prevent verification.
_WAIT = 2.0


def verify(
    path: str | os.PathLike[str],
    *,
    key: KeySource,
    expect: str = "",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Return what is wrong with the log in the directory *path*, or with the one file *path*.

    A file alone shows whether its own records are whole; only the directory shows whether files
    are missing. A directory that was put back to an older state as a whole looks like one that has
    just been written: *expect* finds that.

    :param key: the log's key, its 32 bytes or the path of its file.
    :param expect: :attr:`Report.head` of an earlier verification, kept where a user who can change
        the log cannot change it. The log must have grown from there.
    :param progress: called before each file of a directory with how many are done, and of how many.
    :raises ConfigError: if the key cannot be read or *expect* is not such a text. Whatever the log
        holds gives a report.
    """
    secret = resolve(key)
    expected = Expected.parse(expect) if expect else None
    path = os.fspath(path)
    single = not os.path.isdir(path)
    folder, name = os.path.split(path) if single else (path, "")
    verification = _Verification(secret, expected)
    try:
        directory = Directory(folder or ".", create=False)
    except AuditError as error:
        verification.problem(path, "missing directory", f"{error.message}; nothing could be read")
        return verification.report()
    try:
        if single:
            verification.one_file(directory, name)
        else:
            verification.everything(directory, progress)
    except AuditError as error:
        text = f"{error.message}; what was not read was not verified"
        verification.problem(path, "unreadable file", text)
    finally:
        directory.close()
    return verification.report()


@dataclass(slots=True)
class _Registered:
    """The entry of the index about one file."""

    name: str
    genesis: bytes
    line: int
    closed: Mark | None = None


class _Verification:
    def __init__(self, key: AuditKey, expected: Expected | None) -> None:
        self.key = key
        self.expected = expected
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.files = 0
        self.records = 0
        self.first = -1
        self.last = -1
        self.directory_id = ""
        self.registered: dict[str, _Registered] = {}
        self.index_macs: list[bytes] = []
        self.index_whole = False
        self.ends: dict[str, tuple[int, bytes]] = {}
        self.reached: set[str] = set()

    def problem(self, file: str, kind: str, text: str, *, line: int = 0, seq: int = -1) -> None:
        self.problems.append(Problem(shown(file), line, seq, kind, text))

    # --- the directory -------------------------------------------------------------------------

    def everything(self, directory: Directory, progress: Callable[[int, int], None]) -> None:
        # 1. The names and the index, under one lock, so that a process that is just opening is
        #    seen with its file or without it, never half.
        names = self._names_and_index(directory)
        # 2. Each file that the index names.
        for done, (file, entry) in enumerate(self.registered.items()):
            progress(done, len(self.registered))
            self._registered(directory, file, entry, names)
        # 3. Each file that it does not name.
        known = {entry.name for entry in self.registered.values()}
        logs = {name for name in names if name.endswith(".log")}
        for name in sorted(logs - known):
            self._unregistered(directory, name)
        expected_names = logs | known | {INDEX}
        heads = {head_name(name) for name in expected_names}
        for name in sorted(names - expected_names - heads):
            self.notes.append(f"{shown(name)} does not belong to the log and was not read")
        # 4. What the operator wrote down.
        self._expectations()

    def _names_and_index(self, directory: Directory) -> set[str]:
        try:
            handle = directory.open(INDEX)
        except AuditError as error:
            self.problem(INDEX, "index changed", f"{error.message}; safeser did not create it so")
            return directory.names()
        if handle is None:
            self.problem(
                INDEX,
                "missing index",
                "the directory has no index: it was removed, or this never was a log",
            )
            return directory.names()
        with closing(handle):
            try:
                index.lock(handle, directory, shared=True, wait=_WAIT)
            except AuditError as error:
                self.notes.append(f"{error.message}; files that it opens now may be missed")
            names = directory.names()
            self._index(directory, handle)
        return names

    def _index(self, directory: Directory, handle: Handle) -> None:
        start = handle.read(1_024, 0)
        genesis = index.genesis_of(start)
        claimed = genesis.text("directory") if genesis is not None else ""
        if self.expected is not None and not index.is_id(claimed):
            claimed = self.expected.directory
        if not index.is_id(claimed):
            text = "its first line is not that of an index; no file can be compared with it"
            if not start:
                text = "it is empty: its process was stopped before the first record, or it was cut"
            self.problem(INDEX, "index changed", text, line=1, seq=0)
            return
        keys = index_keys(self.key, directory=claimed)
        before = len(self.problems)
        marks = self._head_marks(directory, INDEX, keys, claimed)
        marks += self._expected_marks(claimed)
        found = scan(
            handle.fd, file=INDEX, find_keys=lambda _: keys, marks=marks, see=self._index_record
        )
        self.directory_id = claimed if found.records else ""
        if not found.records and found.readable:
            # One problem, not one for each thing that this key does not fit.
            del self.problems[before:]
            text = "nothing in it verifies: it was changed, or this is not the key of this log"
            self.problem(INDEX, "index changed", text, line=1, seq=0)
            return
        self._index_problems(found)
        self.index_whole = not found.problems
        self._times(found)
        self.reached.add(claimed)
        self._note_torn(INDEX, found)
        if found.final is not None:
            self.ends[claimed] = (found.final.sequence, found.final.mac)

    def _index_problems(self, found: Scan) -> None:
        for each in found.problems:
            kind = each.kind if each.kind in _OWN_KINDS else "index changed"
            text = each.text if kind == each.kind else f"{each.kind}: {each.text}"
            self.problems.append(Problem(INDEX, each.line, each.sequence, kind, text))

    def _index_record(self, record: Record) -> None:
        # After a gap the numbers do not fit, but then there is a problem already.
        self.index_macs.append(record.mac)
        file = record.text("file")
        if record.type == "open":
            genesis = _mac(record.text("genesis"))
            self.registered[file] = _Registered(record.text("name"), genesis, record.sequence + 1)
        elif record.type == "close" and file in self.registered:
            mac = _mac(record.text("mac"))
            source = f"the index (line {record.sequence + 1})"
            self.registered[file].closed = Mark(
                record.number("count") - 1, mac, "changed file", source
            )

    # --- one file ------------------------------------------------------------------------------

    def _registered(
        self, directory: Directory, file: str, entry: _Registered, names: set[str]
    ) -> None:
        name = entry.name
        if name not in names:
            text = f"the index (line {entry.line}) names this file, and it is not there"
            self.problem(name, "missing file", text)
            return
        keys = file_keys(self.key, directory=self.directory_id, file=file)
        source = f"the index (line {entry.line})"
        marks = [Mark(0, entry.genesis, "swapped file", source)]
        if entry.closed is not None:
            marks.append(entry.closed)
        marks += self._expected_marks(file)
        found = self._scan(directory, name, file=file, keys=keys, marks=marks)
        if found is None:
            return
        self.reached.add(file)
        if found.final is None:
            return
        if entry.closed is None:
            self._note_torn(name, found)
        else:
            self._check_end(name, entry.closed, found)
            self.ends.pop(file, None)
        self._check_genesis(name, found)

    def _note_torn(self, name: str, found: Scan) -> None:
        if found.torn:
            text = "an interrupted write left a torn last line, which says nothing"
            self.notes.append(f"{shown(name)}: {text}")

    def _check_end(self, name: str, closed: Mark, found: Scan) -> None:
        if found.torn or found.end > closed.sequence + 1:
            text = f"the file goes on after the end that {closed.source} registered"
            line = closed.sequence + 2
            self.problem(name, "after close", text, line=line, seq=line - 1)

    def _scan(
        self, directory: Directory, name: str, *, file: str, keys: Keys, marks: list[Mark]
    ) -> Scan | None:
        """Verify one file whose keys are known, and add up what it holds."""
        # The head before the file: a process that is writing only makes the file longer.
        heads = self._head_marks(directory, name, keys, file)
        handle = self._open(directory, name)
        if handle is None:
            return None
        claims: list[Record | None] = []

        def find_keys(genesis: Record | None) -> Keys:
            claims.append(genesis)
            return keys

        with closing(handle):
            found = scan(handle.fd, file=shown(name), find_keys=find_keys, marks=[*marks, *heads])
        self.files += 1
        genesis = claims[0] if claims else None
        claimed = genesis.text("file") if genesis is not None else file
        if not found.records and claimed != file:
            text = f"the file of another log or process ({shown(claimed)}) stands in its place"
            self.problem(name, "swapped file", text, line=1, seq=0)
            return found
        self.problems += found.problems
        self._times(found)
        if found.final is not None:
            # A process may take back what it has not covered by the head yet.
            last = heads[0] if heads else found.final
            self.ends[file] = (last.sequence, last.mac)
        return found

    def _open(self, directory: Directory, name: str) -> Handle | None:
        try:
            handle = directory.open(name)
        except AuditError as error:
            text = f"{error.message}; safeser did not create it so"
            self.problem(name, "unreadable file", text)
            return None
        if handle is None:
            self.problem(name, "missing file", "the file is not there")
        return handle

    def _head_marks(self, directory: Directory, name: str, keys: Keys, file: str) -> list[Mark]:
        head_file = head_name(name)
        try:
            data = directory.read_head(name)
        except AuditError as error:
            self.problem(head_file, "changed head", error.message)
            return []
        if data is None:
            text = "the head was removed; records at the end of its file could be missing, too"
            self.problem(head_file, "missing head", text)
            return []
        if not data:
            # Only the index may have none: its process was killed before it wrote the first. A file
            # is registered when its first head is on the disk.
            begun = name == INDEX and self._is_empty(directory, name)
            return [] if begun else self._changed_head(head_file)
        try:
            head = Head.decode(data, keys.head)
        except AuditError:
            return self._changed_head(head_file)
        if head.file != file or head.count < 1:
            return self._changed_head(head_file)
        return [Mark(head.count - 1, head.mac, "changed head", f"its head ({shown(head_file)})")]

    def _changed_head(self, head_file: str) -> list[Mark]:
        text = "the head was changed; records at the end of its file could be missing, too"
        self.problem(head_file, "changed head", text, line=1)
        return []

    @staticmethod
    def _is_empty(directory: Directory, name: str) -> bool:
        # One record without its head is what a kill between the two writes leaves.
        try:
            handle = directory.open(name)
        except AuditError:
            return False
        if handle is None:
            return True
        with closing(handle):
            data = handle.read(4_096, 0)
        return data.find(b"\n") in (-1, len(data) - 1) and len(data) < 4_096

    def _check_genesis(self, name: str, found: Scan) -> None:
        """Compare the end of the index that a file was begun after with the index as it is."""
        if found.genesis is None or not self.index_whole:
            return
        count, mac = found.genesis.number("index_count"), found.genesis.text("index_mac")
        if not 0 < count <= len(self.index_macs) or self.index_macs[count - 1].hex() != mac:
            text = f"this file was begun when the index had {count} other records before it"
            self.problem(name, "index changed", text, line=1, seq=0)

    def _unregistered(self, directory: Directory, name: str) -> None:
        handle = self._open(directory, name)
        if handle is not None:
            with closing(handle):
                self._unregistered_file(directory, name, handle)

    def _unregistered_file(self, directory: Directory, name: str, handle: Handle) -> None:
        if self._never_begun(directory, name, handle):
            self.notes.append(f"{shown(name)}: its process was killed before its first record")
            return
        used: list[tuple[str, str, Keys]] = []

        def find_keys(genesis: Record | None) -> Keys | None:
            home = genesis.text("directory") if genesis is not None else ""
            file = genesis.text("file") if genesis is not None else ""
            if not (index.is_id(home) and index.is_id(file)):
                return None
            keys = file_keys(self.key, directory=home, file=file)
            used.append((home, file, keys))
            return keys

        found = scan(handle.fd, file=shown(name), find_keys=find_keys)
        self.files += 1
        home, file = used[0][:2] if used else ("", "")
        if used and self._unfinished(directory, name, used[0], found):
            self.notes.append(f"{shown(name)}: its process was killed before it was registered")
            return
        self.problem(name, "unregistered file", self._stranger(home, file, found))
        if found.records:
            self.problems += found.problems
            self._times(found)

    @staticmethod
    def _never_begun(directory: Directory, name: str, handle: Handle) -> bool:
        """Whether the file holds at most a part of a first record, and its head nothing."""
        start = handle.read(MAX_LINE + 1, 0)
        try:
            return begins_like_a_line(start) and not directory.read_head(name)
        except AuditError:
            return False

    def _unfinished(
        self, directory: Directory, name: str, used: tuple[str, str, Keys], found: Scan
    ) -> bool:
        """Whether this is what a process leaves that was killed while it was opening its log."""
        home, file, keys = used
        if home != self.directory_id or file in self.registered or found.problems:
            return False
        if (found.records, found.end) != (1, 1) or not self.index_whole:
            return False
        try:
            data = directory.read_head(name)
            return not data or Head.decode(data, keys.head).count == 1
        except AuditError:
            return False

    def _stranger(self, home: str, file: str, found: Scan) -> str:
        if not found.records:
            return "the index does not name it, and nothing in it verifies with this key"
        if self.directory_id and home != self.directory_id:
            return "it was copied here from another directory"
        if file in self.registered:
            return f"it is a copy or the new name of {shown(self.registered[file].name)}"
        return "the index does not name it: the index was changed, or put back to an older state"

    def one_file(self, directory: Directory, name: str) -> None:
        """Verify the one file *name* by its own chain and head."""
        handle = self._open(directory, name)
        if handle is None:
            return
        with closing(handle):
            genesis = index.genesis_of(handle.read(8_192, 0))
        home = genesis.text("directory") if genesis is not None else ""
        file = genesis.text("file") if genesis is not None else ""
        if not (index.is_id(home) and index.is_id(file)):
            self.files += 1
            text = "its first line is not that of a log file, so nothing else can be verified"
            self.problem(name, "changed record", text, line=1, seq=0)
            return
        self.directory_id = home
        keys = file_keys(self.key, directory=home, file=file)
        found = self._scan(directory, name, file=file, keys=keys, marks=self._expected_marks(file))
        self.reached |= {home, file}
        if found is not None:
            self._note_torn(name, found)

    # --- what was written down elsewhere -------------------------------------------------------

    def _expected_marks(self, chain: str) -> list[Mark]:
        if self.expected is None or chain not in self.expected.ends:
            return []
        sequence, mac = self.expected.ends[chain]
        return [Mark(sequence, mac, "rolled back", "the expected head")]

    def _expectations(self) -> None:
        if self.expected is None:
            return
        if self.directory_id != self.expected.directory:
            text = "this is not the log of the expected head: it was replaced or begun anew"
            self.problem(INDEX, "rolled back", text)
        for chain in sorted(self.expected.ends.keys() - self.reached):
            if chain not in self.registered:
                text = f"the expected head names a file ({chain}) that the index does not have"
                self.problem(INDEX, "rolled back", text)

    # --- the answer ----------------------------------------------------------------------------

    def _times(self, found: Scan) -> None:
        self.records += found.records
        if found.first >= 0:
            self.first = found.first if self.first < 0 else min(self.first, found.first)
            self.last = max(self.last, found.last)

    def report(self) -> Report:
        return Report(
            problems=tuple(_unique(limited(self.problems, MAX_PROBLEMS))),
            notes=tuple(self.notes[:MAX_PROBLEMS]),
            files=self.files,
            records=self.records,
            first=moment(self.first),
            last=moment(self.last),
            head=Expected(self.directory_id, self.ends).encode() if self.directory_id else "",
        )


def _mac(text: str) -> bytes:
    """Return the MAC that *text* spells; of anything else the empty one, which no record has.

    Another process that holds the key may write what it likes: it verifies, and is none the less
    only text.
    """
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


#: Kinds of problems with the index that keep their own name.
_OWN_KINDS = frozenset({"rolled back", "more problems", "unreadable file"})


def _unique(problems: Iterable[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))

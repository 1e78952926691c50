"""Verifies a directory of logs, or one file of it, against the key.

The one rule: nothing is believed before its MAC holds, any bytes give a report, and every problem
names its place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType

from safeser.audit import index
from safeser.audit.compressed import plain
from safeser.audit.files import COMPRESSED, Directory, Handle, head_name, is_log, stored
from safeser.audit.index import INDEX, MAX_MOVES
from safeser.audit.key import AuditKey, KeySource, file_keys, index_keys, key_after, resolve
from safeser.audit.record import MAX_LINE, Record, begins_like_a_line
from safeser.audit.report import Expected, Mark, Problem, Report, head_line, limited, moment, shown
from safeser.audit.verification.file import Job, Verdict, head_marks, opened, verdict, verdicts
from safeser.audit.verification.registry import Registry, id_in
from safeser.audit.verification.removals import Kept, contradiction, removal_note
from safeser.audit.verification.scan import Scan, lines, scan
from safeser.errors import AuditError, ConfigError
from safeser.gate.chain import Head, Keys

__all__ = ["verify"]

MAX_PROBLEMS = 1_000  # of one report

#: Removed files that are named one by one; the others are counted.
_NAMED = 20

#: How often a directory is verified in which files come and go; what was sound is not read again.
_TRIES = 3

# Verification waits this long for processes that are opening or closing; without the lock it goes
# on, so that a process that never releases it does not prevent verification.
_WAIT = 2.0


def verify(
    path: str | os.PathLike[str],
    *,
    key: KeySource,
    expect: str = "",
    heads: Iterable[str] | None = None,
    keep_age: int = 0,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
    clock: Callable[[], int] = time.time_ns,
) -> Report:
    """Return what is wrong with the log in the directory *path*, or with the one file *path*.

    A file alone shows whether its own records are whole; only the directory shows whether files
    are missing. A directory that was put back to an older state as a whole looks like one that has
    just been written: *expect* and *heads* find that.

    :param key: the log's key, its 32 bytes or the path of its file; of a key that moves, the
        initial one.
    :param expect: :attr:`Report.head` of an earlier verification, kept where a user who can change
        the log cannot change it. The log must have grown from there.
    :param heads: lines that hold heads which the log's processes wrote to a second place; text
        without one, and heads of other directories, are left out. Each must be a state of this log.
    :param keep_age: seconds for which the reader of this report knows that the log keeps a file. A
        removal after *expect* or a head is a problem unless the file was so old.
    :param processes: how many verify files of a directory at a time. More than one are started
        anew, so a script that asks for them must begin with ``if __name__ == "__main__"``.
    :param progress: called before each file of a directory with how many are done, and of how many.
    :param clock: nanoseconds since 1970, for *keep_age*: a removal is not of tomorrow.
    :raises ConfigError: if the key cannot be read, *expect* is not such a text, or *heads* holds no
        head. Whatever the log holds gives a report.
    """
    secret = resolve(key)
    expected = [Expected.parse(expect)] if expect else []
    if heads is not None:
        expected += _gathered(heads)
    path = os.fspath(path)
    single = not os.path.isdir(path)
    folder, name = os.path.split(path) if single else (path, "")
    kept = Kept(keep_age, clock() // 1_000)
    verification = _Verification(secret, expected, kept)
    try:
        directory = Directory(folder or ".", create=False)
    except AuditError as error:
        verification.problem(path, "missing directory", f"{error.message}; nothing could be read")
        return verification.report()
    try:
        if single:
            verification.one_file(directory, name)
        else:
            for tries in range(_TRIES, 0, -1):
                before = _shape(directory)
                verification.everything(directory, progress, processes)
                # Its processes may have begun, compressed or removed a file meanwhile.
                if not verification.problems or tries == 1 or _shape(directory) == before:
                    break
                verification = _Verification(secret, expected, kept, verification.sound())
    except AuditError as error:
        text = f"{error.message}; what was not read was not verified"
        verification.problem(path, "unreadable file", text)
    finally:
        directory.close()
    return verification.report()


def _shape(directory: Directory) -> tuple[set[str], int]:
    """Return what differs once a process has begun, ended, compressed or removed a file."""
    found = directory.stat(INDEX)
    return directory.names(), -1 if found is None else found.st_size


def _gathered(heads: Iterable[str]) -> list[Expected]:
    found = Expected.gather(heads)
    if not found:
        raise ConfigError(
            "these lines hold no head of a log",
            rule="config.audit-head",
            fix="Name the file that the heads of this log are written to.",
        )
    return found


class _Verification(Verdict):
    """What was found in a directory so far.

    :param sound: verdicts of a try before this one that hold as long as the index says the same
        about their files, by the ids of these.
    """

    def __init__(
        self,
        key: AuditKey,
        expected: list[Expected],
        kept: Kept,
        sound: Mapping[str, tuple[Job, Verdict]] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._sound = sound
        self._kept = kept
        self._verdicts: dict[str, tuple[Job, Verdict]] = {}
        self.expected = expected
        self.directory_id = ""
        self.registry = Registry()
        self.index_whole = False
        self.ends: dict[str, tuple[int, bytes]] = {}
        self.read: set[str] = set()  # ids of chains
        self._ended: set[str] = set()  # ids of files that end with a rotation or have a problem
        self._cut: set[str] = set()  # ids of files that end before the next one goes on
        self._continued: list[tuple[str, str]] = []  # names of such, and ids of those before them
        self._moved = [key]  # the key after each of its moves

    def _key(self, moves: int) -> AuditKey:
        while len(self._moved) <= moves:
            self._moved.append(key_after(self._moved[-1]))
        return self._moved[moves]

    # --- the directory -------------------------------------------------------------------------

    def everything(
        self, directory: Directory, progress: Callable[[int, int], None], processes: int
    ) -> None:
        # 1. The names and the index, under one lock, so that a process that is just opening is
        #    seen with its file or without it, never half.
        names = self._names_and_index(directory)
        # 2. Each file that the index names.
        jobs = list(self._jobs(names))
        known_sound = {job.file: self._sound[job.file][1] for job in jobs if self._is_sound(job)}
        anew = [job for job in jobs if job.file not in known_sound]
        verified = verdicts(directory, anew, processes)
        for done, job in enumerate(anew):
            progress(done, len(anew))
            self._take(job, next(verified))
        for job in jobs:
            if job.file in known_sound:
                self._take(job, known_sound[job.file])
        self._check_previous()
        # 3. Each file that it does not name.
        known = {entry.name for entry in self.registry.files.values()}
        known |= {name + COMPRESSED for name in known}
        logs = {name for name in names if is_log(name)}
        for name in sorted(logs - known):
            handle = opened(directory, name, self)
            if handle is not None:
                with closing(handle):
                    self._unregistered_file(directory, name, handle)
        self._note_others(names, logs | known)
        # 4. What the operator wrote down.
        self._expectations()

    def _is_sound(self, job: Job) -> bool:
        return job.file in self._sound and self._sound[job.file][0] == job

    def sound(self) -> dict[str, tuple[Job, Verdict]]:
        """Return the verdicts that need no second look."""
        return {
            file: (job, found)
            for file, (job, found) in self._verdicts.items()
            if not found.problems and file not in self._cut
        }

    def _note_others(self, names: set[str], known: set[str]) -> None:
        """Mention each of *names* that is no file of the log, and what interruptions left."""
        own = known | {INDEX, *map(head_name, known), head_name(INDEX)}
        for name in sorted(names - own):
            left = name.removesuffix(index.PART) in known
            what = "is what an interrupted compression left" if left else _FOREIGN
            self.notes.append(f"{shown(name)} {what}")
        for name in sorted(names & known):
            if name.endswith(COMPRESSED) and name.removesuffix(COMPRESSED) in names:
                self.notes.append(f"{shown(name)} was not read: the plain file is there, too")

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
        if self.expected and not index.is_id(claimed):
            claimed = self.expected[0].directory
        if not index.is_id(claimed):
            text = "its first line is not that of an index; no file can be compared with it"
            if not start:
                text = "it is empty: its process was stopped before the first record, or it was cut"
            self.problem(INDEX, "index changed", text, line=1, seq=0)
            return
        before = len(self.problems)
        marks = self._index_head(directory, handle, claimed) + self._expected_marks(claimed)
        registry = self.registry

        def moved(record: Record) -> Keys | None:
            if record.type != "key":
                return None
            return index_keys(self._key(registry.moves + 1), directory=claimed)

        first = index_keys(self._key(0), directory=claimed)
        found = scan(
            plain(handle, INDEX),
            file=INDEX,
            find_keys=lambda _: first,
            marks=marks,
            see=registry.take,
            rekey=moved,
        )
        self.directory_id = claimed if found.records else ""
        if not found.records and found.readable:
            # One problem, not one for each thing that this key does not fit.
            del self.problems[before:]
            text = "nothing in it verifies: it was changed, or this is not the key of this log"
            self.problem(INDEX, "index changed", text, line=1, seq=0)
            return
        for each in found.problems:
            kind = each.kind if each.kind in _OWN_KINDS else "index changed"
            text = each.text if kind == each.kind else f"{each.kind}: {each.text}"
            self.problems.append(Problem(INDEX, each.line, each.sequence, kind, text))
        for line, why in registry.wrong:
            self.problem(INDEX, "index changed", why, line=line, seq=line - 1)
        self.index_whole = not found.problems and not registry.wrong
        self.add_times(found)
        self.read.add(claimed)
        self.note_torn(INDEX, found)
        if found.final is not None:
            self.ends[claimed] = (found.final.sequence, found.final.mac)

    def _index_head(self, directory: Directory, handle: Handle, claimed: str) -> list[Mark]:
        # How often the key moved, the lines of the index say, which did not verify yet: one that
        # lies gives a head that does not verify. A kill leaves the head one move behind.
        moves = min(MAX_MOVES, _key_records(handle))
        keys = [
            index_keys(self._key(each), directory=claimed)
            for each in range(moves, max(moves - 2, -1), -1)
        ]
        # Only the index may have an empty head: its process was killed before it wrote the first. A
        # file is registered when its first head is on the disk.
        begun = _is_empty(directory)
        return head_marks(directory, INDEX, keys, claimed, self, begun=begun)

    # --- files that the index names --------------------------------------------------------------

    def _jobs(self, names: set[str]) -> Iterator[Job]:
        """Yield the files that are to be verified; note those that are not there."""
        removals = 0
        places = sorted({mark.sequence for mark in self._expected_marks(self.directory_id)})
        for file, entry in self.registry.files.items():
            name, removed = stored(entry.name, names), entry.removed
            if removed is not None:
                marks = self._expected_marks(file)
                wrong = contradiction(entry, removed, marks=marks, places=places, kept=self._kept)
                self.problems += [] if wrong is None else [wrong]
            if name is None and removed is not None:
                self.read.add(file)
                removals += 1
                if removals <= _NAMED:
                    self.notes.append(removal_note(entry, removed))
                continue
            if name is None:
                text = f"the index (line {entry.line}) names this file, and it is not there"
                self.problem(entry.name, "missing file", text)
                continue
            if removed is not None:
                text = "retention was interrupted while it removed this file"
                self.notes.append(f"{shown(name)}: {text}")
            keys = file_keys(self._key(entry.moves), directory=self.directory_id, file=file)
            yield Job(name, file, keys, entry, self._expected_marks(file))
        if removals > _NAMED:
            self.notes.append(f"{removals - _NAMED} more files were removed by retention")

    def _take(self, job: Job, found: Verdict) -> None:
        """Add what was found in one file."""
        self._verdicts[job.file] = job, found
        self.problems += found.problems
        self.notes += found.notes
        self.files += found.files
        self.add_times(found)
        if found.reached:
            self.read.add(job.file)
        if found.end is not None:
            self.ends[job.file] = found.end
        if found.goes_on or found.problems:
            self._ended.add(job.file)
        if found.genesis is not None and job.entry is not None:
            self._check_genesis(job.name, found.genesis)
            previous = found.genesis.text("previous")
            if previous and found.records > 1:
                self._continued.append((job.name, previous))

    def _check_genesis(self, name: str, genesis: Record) -> None:
        """Compare what a file says that was before it with the index as it is."""
        if not self.index_whole:
            return
        macs = self.registry.macs
        count, mac = genesis.number("index_count"), genesis.text("index_mac")
        if not 0 < count <= len(macs) or macs[count - 1].hex() != mac:
            text = f"this file was begun when the index had {count} other records before it"
            self.problem(name, "index changed", text, line=1, seq=0)

    def _check_previous(self) -> None:
        """Check that each file that goes on from another one goes on from its end.

        The end of a file is written before a second record of the next.
        """
        for name, previous in self._continued:
            if previous in self._ended:
                continue
            # A file that is not there was removed by retention, or is a problem already; so is an
            # index that does not name it because it was cut.
            known = previous in self.registry.files or not self.index_whole
            if known and previous not in self._verdicts:
                continue
            self._cut.add(previous)
            text = "the file before this one does not end with a rotation: its end was removed"
            self.problem(name, "missing records", text, line=1, seq=0)

    # --- files that it does not name --------------------------------------------------------------

    def _unregistered_file(self, directory: Directory, name: str, handle: Handle) -> None:
        if self._never_begun(directory, name, handle):
            self.notes.append(f"{shown(name)}: its process was killed before its first record")
            return
        used: list[tuple[str, str, Keys]] = []

        def find_keys(genesis: Record | None) -> Keys | None:
            claim = _claims(genesis)
            if claim is None:
                return None
            home, file, moves = claim
            keys = file_keys(self._key(moves), directory=home, file=file)
            used.append((home, file, keys))
            return keys

        found = scan(plain(handle, name), file=shown(name), find_keys=find_keys)
        self.files += 1
        home, file = used[0][:2] if used else ("", "")
        if used and self._unfinished(directory, name, used[0], found):
            self.notes.append(f"{shown(name)}: its process was killed before it was registered")
            return
        self.problem(name, "unregistered file", self._stranger(home, file, found))
        if found.records:
            self.problems += found.problems
            self.add_times(found)

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
        if home != self.directory_id or file in self.registry.files or found.problems:
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
        if file in self.registry.files:
            return f"it is a copy or the new name of {shown(self.registry.files[file].name)}"
        return "the index does not name it: the index was changed, or put back to an older state"

    def one_file(self, directory: Directory, name: str) -> None:
        """Verify the one file *name* by its own chain and head."""
        handle = opened(directory, name, self)
        if handle is None:
            return
        with closing(handle):
            claim = _claims(index.genesis_of(plain(handle, name)(8_192)))
        if claim is None:
            self.files += 1
            text = "its first line is not that of a log file, so nothing else can be verified"
            self.problem(name, "changed record", text, line=1, seq=0)
            return
        self.directory_id, file, moves = claim
        keys = file_keys(self._key(moves), directory=self.directory_id, file=file)
        job = Job(name, file, keys, expected=self._expected_marks(file))
        self.read.add(self.directory_id)
        self._take(job, verdict(directory, job))
        if id_in(name) not in {"", file}:
            text = f"the file of another log or process ({file}) has this name"
            self.problem(name, "swapped file", text, line=1, seq=0)
        for each in self._own_heads(name):
            # The head of a file that was verified alone names no end of the index.
            if file not in each.ends and self.directory_id not in each.ends:
                self.problem(name, "rolled back", f"{each.source} is that of another file")

    # --- what was written down elsewhere -------------------------------------------------------

    def _expected_marks(self, chain: str) -> list[Mark]:
        return [mark for each in self.expected for mark in each.marks(chain)]

    def _own_heads(self, name: str) -> list[Expected]:
        """Return what was written down of this log; note in file *name* that nothing was."""
        own = [each for each in self.expected if each.directory == self.directory_id]
        named = {each.source for each in own}
        # Of each source by itself: a log that was begun anew leaves heads in the second place, too.
        for source in dict.fromkeys(each.source for each in self.expected):
            if source not in named:
                text = f"this is not the log of {source}: it was replaced or begun anew"
                self.problem(name, "rolled back", text)
        others = len({each.directory for each in self.expected} - {self.directory_id})
        if own and others:
            text = "if this folder had another log before, that one was replaced"
            self.notes.append(f"heads of other logs ({others}) were left out; {text}")
        return own

    def _expectations(self) -> None:
        for each in self._own_heads(INDEX):
            for chain in sorted(each.ends.keys() - self.read):
                if chain not in self.registry.files:
                    text = f"{each.source} names a file ({chain}) that the index does not have"
                    self.problem(INDEX, "rolled back", text)

    # --- the answer ----------------------------------------------------------------------------

    def report(self) -> Report:
        return Report(
            problems=tuple(dict.fromkeys(limited(self.problems, MAX_PROBLEMS))),
            notes=tuple(self.notes[:MAX_PROBLEMS]),
            files=self.files,
            records=self.records,
            first=moment(self.first),
            last=moment(self.last),
            head=head_line(self.directory_id, self.ends) if self.directory_id else "",
        )


def _claims(genesis: Record | None) -> tuple[str, str, int] | None:
    """Return the directory, the file and the moves of the key that a first record names."""
    if genesis is None:
        return None
    home, file = genesis.text("directory"), genesis.text("file")
    moves = genesis.number("moves") if "moves" in genesis.fields else 0
    known = index.is_id(home) and index.is_id(file) and 0 <= moves <= MAX_MOVES
    return (home, file, moves) if known else None


def _key_records(handle: Handle) -> int:
    """Return how many lines of the index may say that the key moved."""
    return sum(
        raw is not None and b'"type":"key"' in raw
        for each in lines(plain(handle, INDEX))
        for raw in each.raws
    )


def _is_empty(directory: Directory) -> bool:
    """Whether the index has one record at most, which is what a kill before its head leaves."""
    try:
        handle = directory.open(INDEX)
    except AuditError:
        return False
    if handle is None:
        return True
    with closing(handle):
        data = handle.read(4_096, 0)
    return data.find(b"\n") in (-1, len(data) - 1) and len(data) < 4_096


_FOREIGN = "does not belong to the log and was not read"

#: Kinds of problems with the index that keep their own name.
_OWN_KINDS = frozenset({"rolled back", "more problems", "unreadable file"})

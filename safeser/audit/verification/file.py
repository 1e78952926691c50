"""Verifies one log file that an index registers, or that stands alone: its chain, head and ends.

The one rule: a verdict is a value made from a job that is one, so files are verified in any order
and in any process; bytes of a compressed file are compared with the index before they are unpacked.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from safeser.audit.compressed import plain
from safeser.audit.files import COMPRESSED, Directory, Handle, head_name
from safeser.audit.record import Record
from safeser.audit.report import Mark, Problem, shown
from safeser.audit.verification.registry import Registered
from safeser.audit.verification.scan import Scan, scan
from safeser.errors import AuditError
from safeser.gate.chain import Head, Keys

__all__ = ["Job", "Verdict", "head_marks", "is_as_compressed", "opened", "verdict", "verdicts"]

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """One file to verify.

    :param name: under which it is there, plain or compressed.
    :param file: its id.
    :param entry: what the index says about it; None for a file by itself.
    :param expected: further records that must be there.
    """

    name: str
    file: str
    keys: Keys
    entry: Registered | None = None
    expected: Sequence[Mark] = ()


@dataclass(slots=True)
class Verdict:
    """What was found in one file.

    :param end: number and MAC of the record at which it ends, if its process may still write it.
    :param genesis: its first record, once that verified.
    :param goes_on: whether its last record says that the log goes on in another file.
    :param reached: whether it was the file that the job names, as far as it could be read.
    """

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: int = 0
    records: int = 0
    first: int = -1
    last: int = -1
    end: tuple[int, bytes] | None = None
    genesis: Record | None = None
    goes_on: bool = False
    reached: bool = False

    def problem(self, file: str, kind: str, text: str, *, line: int = 0, seq: int = -1) -> None:
        self.problems.append(Problem(shown(file), line, seq, kind, text))

    def add_times(self, found: Scan | Verdict) -> None:
        """Add the records that *found* has, and their times."""
        self.records += found.records
        if found.first >= 0:
            self.first = found.first if self.first < 0 else min(self.first, found.first)
            self.last = max(self.last, found.last)

    def note_torn(self, name: str, found: Scan) -> None:
        if found.torn:
            text = "an interrupted write left a torn last line, which says nothing"
            self.notes.append(f"{shown(name)}: {text}")


def verdicts(directory: Directory, jobs: Sequence[Job], processes: int) -> Iterator[Verdict]:
    """Yield the verdict of each of *jobs*, in their order, found by so many processes.

    :raises AuditError: if one of them was ended from outside.
    """
    count = min(processes, len(jobs))
    if count < 2:
        for job in jobs:
            yield verdict(directory, job)
        return
    # Started anew: a fork would copy the locks of this process's threads. A job holds the keys of
    # its file, and not the key of the log.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        try:
            yield from pool.map(partial(_verdict_in, directory.path), jobs)
        except BrokenProcessPool:
            raise AuditError(
                "a process that verified was ended", rule="audit.verify", where=directory.path
            ) from None


def _verdict_in(path: str, job: Job) -> Verdict:
    with closing(Directory(path, create=False)) as directory:
        return verdict(directory, job)


def verdict(directory: Directory, job: Job) -> Verdict:
    """Return what is wrong with the file of *job* in *directory*."""
    found = Verdict()
    name, entry = job.name, job.entry
    marks = list(job.expected)
    if entry is not None:
        if name.endswith(COMPRESSED) and not is_as_compressed(directory, name, entry, found):
            return found
        source = f"the index (line {entry.line})"
        marks.append(Mark(0, entry.genesis, "swapped file", source))
        if entry.closed is not None:
            marks.append(entry.closed)
    scanned = _scan(directory, job, marks, found)
    if scanned is None:
        return found
    found.reached = True
    if scanned.final is None:
        return found
    if entry is None or entry.closed is None:
        found.note_torn(name, scanned)
    else:
        if scanned.torn or scanned.end > entry.closed.sequence + 1:
            text = f"the file goes on after the end that {entry.closed.source} registered"
            line = entry.closed.sequence + 2
            found.problem(name, "after close", text, line=line, seq=line - 1)
        found.end = None
    found.genesis = scanned.genesis
    found.goes_on = scanned.goes_on
    return found


def is_as_compressed(directory: Directory, name: str, entry: Registered, found: Verdict) -> bool:
    """Tell whether the compressed file is the one that the index names, before it is unpacked."""
    handle = opened(directory, name, found)
    if handle is None:
        return False
    digest, at = hashlib.sha256(), 0
    with closing(handle):
        while data := handle.read(_CHUNK, at):
            digest.update(data)
            at += len(data)
    if entry.compressed is None:
        text = "the index says nothing of its compression, so it was not unpacked"
    elif digest.digest() != entry.compressed.sha256:
        source = f"the index (line {entry.compressed.line})"
        text = f"these are not the bytes that {source} names, so it was not unpacked"
    else:
        return True
    found.problem(name, "changed file", text)
    return False


def _scan(directory: Directory, job: Job, marks: Sequence[Mark], found: Verdict) -> Scan | None:
    """Verify one file whose keys are known, and add up what it holds."""
    name = job.name
    # The head before the file: a process that is writing only makes the file longer.
    heads = head_marks(directory, name, [job.keys], job.file, found)
    handle = opened(directory, name, found)
    if handle is None:
        return None
    claims: list[Record | None] = []

    def find_keys(genesis: Record | None) -> Keys:
        claims.append(genesis)
        return job.keys

    with closing(handle):
        scanned = scan(
            plain(handle, name), file=shown(name), find_keys=find_keys, marks=[*marks, *heads]
        )
    found.files += 1
    genesis = claims[0] if claims else None
    claimed = genesis.text("file") if genesis is not None else job.file
    if not scanned.records and claimed != job.file:
        text = f"the file of another log or process ({shown(claimed)}) stands in its place"
        found.problem(name, "swapped file", text, line=1, seq=0)
        return scanned
    found.problems += scanned.problems
    found.add_times(scanned)
    if scanned.final is not None:
        # A process may take back what it has not covered by the head yet.
        last = heads[0] if heads else scanned.final
        found.end = (last.sequence, last.mac)
    return scanned


def opened(directory: Directory, name: str, found: Verdict) -> Handle | None:
    """Return the open file *name*; None, and a problem, if it is no file or not there."""
    try:
        handle = directory.open(name)
    except AuditError as error:
        text = f"{error.message}; safeser did not create it so"
        found.problem(name, "unreadable file", text)
        return None
    if handle is None:
        found.problem(name, "missing file", "the file is not there")
    return handle


def head_marks(
    directory: Directory,
    name: str,
    keys: Sequence[Keys],
    file: str,
    found: Verdict,
    *,
    begun: bool = False,
) -> list[Mark]:
    """Return the record that the head of *name* names as the last, or note what is wrong with it.

    :param keys: of which one made the head.
    :param begun: whether the head may be empty, since its process was stopped before the first.
    """
    head_file = head_name(name)
    try:
        data = directory.read_head(name)
    except AuditError as error:
        found.problem(head_file, "changed head", error.message)
        return []
    if data is None:
        text = "the head was removed; records at the end of its file could be missing, too"
        found.problem(head_file, "missing head", text)
        return []
    if not data and begun:
        return []
    for each in keys:
        try:
            head = Head.decode(data, each.head)
        except AuditError:
            continue
        if head.file == file and head.count >= 1:
            source = f"its head ({shown(head_file)})"
            return [Mark(head.count - 1, head.mac, "changed head", source)]
    text = "the head was changed; records at the end of its file could be missing, too"
    found.problem(head_file, "changed head", text, line=1)
    return []

"""Compresses the closed files of a directory of logs, and removes those that are too old.

The one rule: the index says what happens to a file before it happens, and every step can be the
last one of its process: the next pass, of any process, goes on where this one ended.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from safeser.audit import index
from safeser.audit.compressed import GZIP, MAX_PLAIN, plain
from safeser.audit.files import COMPRESSED, Directory, Handle, head_name, stored
from safeser.audit.index import INDEX, PART, Entries
from safeser.audit.key import AuditKey, KeyFile, file_keys
from safeser.audit.record import Record
from safeser.audit.report import moment, shown
from safeser.audit.tally import SECOND
from safeser.audit.upkeep.settings import AuditFiles
from safeser.audit.verification.file import Job, Verdict, is_as_compressed, verdict
from safeser.audit.verification.registry import Registered, Registry
from safeser.errors import AuditError
from safeser.gate.chain import Head

__all__ = ["tidy"]

logger = logging.getLogger("safeser.audit")

_CHUNK = 1 << 20
_LEVEL = 1  # level 6 makes files a tenth smaller in twice the time

#: Smaller files stay as they are: what is saved is not worth another entry of the index.
_LEAST = 64 << 10

#: Files that are removed while the index is locked once, so that processes that open wait for
#: milliseconds.
_AT_ONCE = 32


#: How often a pass begins with retention anew because other processes add to the index meanwhile.
_TRIES = 3


def tidy(directory: Directory, key: AuditKey | KeyFile, files: AuditFiles, *, now: int) -> None:
    """Compress and remove what *files* says, once.

    A file that cannot be compressed or removed stays; an error is logged, and the others go on.

    :param now: microseconds since 1970.
    :raises AuditError: if the index was changed or cannot be written.
    """
    known = _Index(directory, key, now)
    names = directory.names()
    _finish_removals(directory, known.registry, names)
    if files.compress:
        for file, entry in list(known.registry.files.items()):
            if entry.removed is None and entry.is_plain_name and entry.name in names:
                with _one_by_one("compressed", entry.name):
                    _compress(known, file, entry)
    if files.keep_age or files.keep_size:
        _remove(known, files)


class _Index:
    """The index as one pass knows it: what the present key vouches for, and nothing else.

    :ivar registry: what it says.
    """

    def __init__(self, directory: Directory, key: AuditKey | KeyFile, now: int) -> None:
        self.directory = directory
        self.key = key
        self.now = now
        self.id = ""
        self.registry = Registry()
        self._end: Head | None = None
        if directory.stat(INDEX) is None:
            raise AuditError("the index was removed", rule="audit.tampered", where=directory.path)
        index.update(directory, key, now=now, write=self._read)

    def _read(self, entries: Entries) -> None:
        registry = Registry()
        for record in entries.verified():
            if not registry.macs and record.sequence:
                registry.partial = True
                logger.warning(
                    "An older release moved the key of the audit log: what it entered in the index"
                    " is not verified here, and its files are neither compressed nor removed."
                )
            registry.take(record)
        if registry.wrong:
            raise AuditError(
                f"the index was changed: {registry.wrong[0][1]}; no file is compressed or removed",
                rule="audit.tampered",
                where=self.directory.path,
                fix="Verify the log, and keep it for the investigation.",
            )
        self.registry, self.id, self._end = registry, entries.directory_id, entries.chain.end

    def enter(self, *entries: dict[str, object], then: Callable[[], None] | None = None) -> bool:
        """Append entries, and do *then* before another process can add more.

        Return whether that was done. Otherwise the index has more than this pass knew: it was read
        again, and what is due may be something else.
        """

        def write(held: Entries) -> bool:
            if held.chain.end != self._end:
                self._read(held)
                return False
            for fields in entries:
                held.add(fields)
                end = held.chain.end
                record = Record(end.count - 1, self.now, str(fields["type"]), fields, end.mac)
                self.registry.take(record)
                self._end = end
            if then is not None:
                then()
            return True

        return index.update(self.directory, self.key, now=self.now, write=write)


@contextmanager
def _one_by_one(done: str, name: str) -> Iterator[None]:
    """Log what keeps one file from being *done*; the others are not left for it."""
    try:
        yield
    except AuditError as error:
        logger.error("%s is not %s: %s", shown(name), done, error)  # noqa: TRY400 - one line


# --- compression ----------------------------------------------------------------------------------


def _compress(known: _Index, file: str, entry: Registered) -> None:
    """Replace one file by its compressed form, unless its process may still write it."""
    directory = known.directory
    handle = _unused(directory, entry.name)
    if handle is None:
        return
    with closing(handle):
        compressed = entry.name + COMPRESSED
        part = compressed + PART
        if entry.compressed is not None:
            _finish_compression(directory, entry, part)
            return
        if not _LEAST <= handle.stat().st_size <= MAX_PLAIN:
            return
        # 1. A whole compressed file under another name, on the disk.
        digest, size = _write_compressed(directory, handle, entry.name, part)
        fields: dict[str, object] = {
            "file": file,
            "sha256": digest.hex(),
            "size": size,
            "time": known.now,
            "type": "compress",
        }

        def named() -> None:
            directory.rename(part, compressed)
            directory.sync()

        # 2. The index says what its bytes are. 3. It has its name. 4. The plain file goes.
        for _ in range(_TRIES):
            # Retention of another process may have removed the file meanwhile.
            current = known.registry.files.get(file)
            if current != entry or not _is_in_place(directory, handle, entry.name):
                break
            if known.enter(fields, then=named):
                directory.remove(entry.name)
                return
        directory.remove(part)


def _finish_compression(directory: Directory, entry: Registered, part: str) -> None:
    """Go on where a process was killed that had entered a compression in the index."""
    compressed = entry.name + COMPRESSED
    for each in (compressed, part):
        if directory.stat(each) is None:
            continue
        if is_as_compressed(directory, each, entry, Verdict()):
            if each == part:
                directory.rename(part, compressed)
                directory.sync()
            directory.remove(entry.name)
            return
    directory.remove(part)


def _unused(directory: Directory, name: str) -> Handle | None:
    """Return the open and locked file *name*; None if a process writes or compresses it."""
    handle = directory.open_own(name, append=True)
    if handle is None:
        return None
    try:
        if handle.lock_alone() and _is_in_place(directory, handle, name):
            return handle
    except BaseException:
        handle.close()
        raise
    handle.close()
    return None


def _is_in_place(directory: Directory, handle: Handle, name: str) -> bool:
    found, own = directory.stat(name), handle.stat()
    return found is not None and (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def _write_compressed(
    directory: Directory, handle: Handle, name: str, part: str
) -> tuple[bytes, int]:
    """Write the compressed form of an open file to the new file *part*.

    Return the SHA-256 of its bytes, and their number.
    """
    directory.remove(part)  # of a process that was killed: the lock of the plain file is ours
    target = directory.create(part, append=True)
    with closing(target):
        try:
            digest, size = hashlib.sha256(), 0
            for data in _deflated(plain(handle, name)):
                digest.update(data)
                size += len(data)
                target.append(data)
            target.sync()
            directory.sync()  # or a loss of power leaves its entry in the index without it
        except AuditError:
            directory.remove(part)  # a full disk needs the space
            raise
    return digest.digest(), size


def _deflated(read: Callable[[int], bytes]) -> Iterator[bytes]:
    deflate = zlib.compressobj(_LEVEL, wbits=GZIP)
    while data := read(_CHUNK):
        yield deflate.compress(data)
    yield deflate.flush()


# --- retention ------------------------------------------------------------------------------------


class _Old(NamedTuple):
    """A file that can be removed: when it ended, its name as it is there, and how large it is.

    :param total: bytes of all files when it is due, as far as the index states them.
    """

    ended: int
    file: str
    name: str
    entry: Registered
    size: int
    why: str = ""
    total: int = 0


def _remove(known: _Index, files: AuditFiles) -> None:
    for _ in range(_TRIES):
        verifier = _Verifier(known)
        due = _due(known, files, verifier)
        batches = [due[at : at + _AT_ONCE] for at in range(0, len(due), _AT_ONCE)]
        if all(_enter_removals(known, verifier, some) for some in batches):
            return


def _enter_removals(known: _Index, verifier: _Verifier, some: Sequence[_Old]) -> bool:
    """Remove some files; return False where other processes added to the index meanwhile."""
    removals = [_removal(each, verifier, known.now) for each in some]
    if not known.enter(*removals):
        return False
    for each in some:
        with _one_by_one("removed", each.name):
            _unlink(known.directory, each.entry.name)
    return True


class _Verifier:
    """Verifies files before they are removed, since no one can afterwards.

    A key that has moved verifies no earlier file: of those only compressed ones can be compared
    with the index.
    """

    def __init__(self, known: _Index) -> None:
        self._known = known
        self._found: dict[str, Verdict] = {}

    def verdict(self, name: str, file: str, entry: Registered) -> Verdict:
        """Return what is wrong with a file that is there as *name*, and where it ends."""
        directory, key = self._known.directory, self._known.key
        if file not in self._found:
            if isinstance(key, KeyFile):
                found = Verdict()
                if name.endswith(COMPRESSED):
                    is_as_compressed(directory, name, entry, found)
            else:
                keys = file_keys(key, directory=self._known.id, file=file)
                found = verdict(directory, Job(name, file, keys, entry))
            self._found[file] = found
        return self._found[file]

    def is_sound(self, name: str, file: str, entry: Registered) -> bool:
        """Tell whether a file is what the index says; if not, it stays, and an error says so."""
        problems = self.verdict(name, file, entry).problems
        if problems:
            logger.error(
                "%s is not what was written, so it is not removed: %s. Verify the log, and keep it"
                " for the investigation.",
                *(shown(name), problems[0].text),
            )
        return not problems


def _due(known: _Index, files: AuditFiles, verifier: _Verifier) -> list[_Old]:
    """Return the files to remove, the oldest first."""
    directory = known.directory
    names = directory.names()
    total = 0
    old: list[_Old] = []
    for file, entry in known.registry.files.items():
        there = stored(entry.name, names)
        if there is None or entry.removed is not None or not entry.is_plain_name:
            continue
        with _one_by_one("removed", entry.name):
            # Only sizes that the index states count: a user who may write to the folder would push
            # honest files out with one that is large or sparse.
            size = _size(directory, there, entry) if files.keep_size else 0
            total += size
            if _has_ended(directory, there, entry):
                # By what was signed, or not at all: a user who may write to the folder sets the
                # time of a file's last change.
                ended = entry.stated_end
                if ended < 0:
                    ended = verifier.verdict(there, file, entry).last
                if ended >= 0:
                    old.append(_Old(ended, file, there, entry, size))
    due = []
    for each in sorted(old, key=lambda old: (old.ended, old.file)):
        if files.keep_age and known.now - each.ended >= files.keep_age * SECOND:
            why = f"older than {files.keep_age} s"
        elif files.keep_size and each.size and total > files.keep_size:
            why = f"more than {files.keep_size} bytes"
        else:
            continue
        if verifier.is_sound(each.name, each.file, each.entry):
            due.append(each._replace(why=why, total=total))
        total -= each.size  # one that stays because it was changed pushes no other out
    return due


def _size(directory: Directory, name: str, entry: Registered) -> int:
    """Return how many bytes of a file count, as the index states it."""
    compressed = entry.compressed
    if compressed is None or compressed.size >= 0 or not name.endswith(COMPRESSED):
        return entry.stated_size
    # An older release did not enter how many bytes it made of it.
    found = directory.stat(name)
    whole = found is not None and is_as_compressed(directory, name, entry, Verdict())
    return min(found.st_size, entry.stated_size) if found is not None and whole else 0


def _has_ended(directory: Directory, name: str, entry: Registered) -> bool:
    """Tell whether the process of a file has closed it or is dead."""
    if entry.closed is not None or name.endswith(COMPRESSED):
        return True
    handle = _unused(directory, name)
    if handle is not None:
        handle.close()
    return handle is not None


def _removal(old: _Old, verifier: _Verifier, now: int) -> dict[str, object]:
    """Return the entry of the index that says what is removed, and where it ended."""
    closed = old.entry.closed
    count, mac = 0, b""
    if closed is not None:
        count, mac = closed.sequence + 1, closed.mac
    elif (end := verifier.verdict(old.name, old.file, old.entry).end) is not None:
        count, mac = end[0] + 1, end[1]  # its process was killed
    return {
        "count": count,
        "file": old.file,
        "mac": mac.hex(),
        "time": now,
        "total": old.total,
        "type": "remove",
        "until": str(moment(old.ended)),
        "why": old.why,
    }


def _unlink(directory: Directory, name: str) -> None:
    """Remove a file in all of its forms, its head last."""
    for each in (name + COMPRESSED + PART, name + COMPRESSED, name, head_name(name)):
        directory.remove(each)


def _finish_removals(directory: Directory, registry: Registry, names: set[str]) -> None:
    """Remove what an interrupted process had entered in the index as removed."""
    for entry in registry.files.values():
        removed = entry.removed is not None and entry.is_plain_name
        if removed and (stored(entry.name, names) is not None or head_name(entry.name) in names):
            with _one_by_one("removed", entry.name):
                _unlink(directory, entry.name)

"""Compresses the closed files of a directory of logs, and removes those that are too old.

The one rule: the index says what happens to a file before it happens, and every step can be the
last one of its process: the next pass, of any process, goes on where this one ended.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from safeser.audit import index
from safeser.audit.chain import Head, file_keys, index_keys
from safeser.audit.compressed import GZIP, MAX_PLAIN, plain
from safeser.audit.files import COMPRESSED, Directory, Handle, head_name, stored
from safeser.audit.index import INDEX, PART, Entries
from safeser.audit.key import AuditKey, KeyFile
from safeser.audit.record import parse
from safeser.audit.report import moment, shown
from safeser.audit.tally import SECOND
from safeser.audit.upkeep.settings import AuditFiles
from safeser.audit.verification.file import Job, Verdict, is_as_compressed, verdict
from safeser.audit.verification.registry import Registered, Registry
from safeser.audit.verification.scan import lines, scan
from safeser.errors import AuditError

__all__ = ["tidy"]

logger = logging.getLogger("safeser.audit")

_CHUNK = 1 << 20
_LEVEL = 1  # level 6 makes files a tenth smaller in twice the time

#: Smaller files stay as they are: what is saved is not worth another entry of the index.
_LEAST = 64 << 10

#: Files that are removed while the index is locked once, so that processes that open wait for
#: milliseconds.
_AT_ONCE = 32

#: Bytes by which a file that was never closed counts at most beyond the size of a rotation.
_BEYOND = 1 << 20


def tidy(directory: Directory, key: AuditKey | KeyFile, files: AuditFiles, *, now: int) -> None:
    """Compress and remove what *files* says, once.

    A file that cannot be compressed or removed stays; an error is logged, and the others go on.

    :param now: microseconds since 1970.
    :raises AuditError: if the index was changed or cannot be written.
    """
    registry = _registry(directory, key)
    names = directory.names()
    _finish_removals(directory, registry, names)
    if files.compress:
        for file, entry in registry.files.items():
            if entry.removed is None and entry.is_plain_name and entry.name in names:
                with _one_by_one("compressed", entry.name):
                    _compress(directory, key, file, entry, now)
    if files.keep_age or files.keep_size:
        # Read anew where this pass may have added to it: a file is compared with what it says.
        current = _registry(directory, key) if files.compress else registry
        _remove(directory, key, current, files, now)


@contextmanager
def _one_by_one(done: str, name: str) -> Iterator[None]:
    """Log what keeps one file from being *done*; the others are not left for it."""
    try:
        yield
    except AuditError as error:
        logger.error("%s is not %s: %s", shown(name), done, error)  # noqa: TRY400 - one line


def _registry(directory: Directory, key: AuditKey | KeyFile) -> Registry:
    """Return what the index says, verified as far as the key of this machine can."""
    registry = Registry()
    handle = directory.open(INDEX)
    if handle is None:
        raise AuditError("the index was removed", rule="audit.tampered", where=directory.path)
    with closing(handle):
        index.lock(handle, directory, shared=True)
        if isinstance(key, KeyFile):
            # A key that has moved verifies no record before: that is what it moves for. The end of
            # the index is verified when an entry is added.
            for each in lines(plain(handle, INDEX)):
                for raw in each.raws if each.whole else ():
                    registry.take(parse(raw or b""))
            return registry
        genesis = index.genesis_of(handle.read(1_024, 0))
        keys = index_keys(key, directory=genesis.text("directory") if genesis else "")
        found = scan(plain(handle, INDEX), file=INDEX, find_keys=lambda _: keys, see=registry.take)
    if found.problems:
        raise AuditError(
            "the index was changed; no file is compressed or removed",
            rule="audit.tampered",
            where=directory.path,
            fix="Verify the log, and keep it for the investigation.",
        )
    return registry


# --- compression ----------------------------------------------------------------------------------


def _compress(
    directory: Directory, key: AuditKey | KeyFile, file: str, entry: Registered, now: int
) -> None:
    """Replace one file by its compressed form, unless its process may still write it."""
    handle = _unused(directory, entry.name)
    if handle is None:
        return
    with closing(handle):
        size = handle.stat().st_size
        if not _LEAST <= size <= MAX_PLAIN:
            return
        compressed = entry.name + COMPRESSED
        part = compressed + PART
        # 1. A whole compressed file under another name, on the disk.
        digest = _write_compressed(directory, handle, entry.name, part)
        fields: dict[str, object] = {
            "file": file,
            "sha256": digest.hex(),
            "time": now,
            "type": "compress",
        }

        def register(entries: Entries) -> bool:
            # Retention of another process may have removed the file meanwhile.
            if not _is_in_place(directory, handle, entry.name):
                directory.remove(part)
                return False
            # 2. The index says what its bytes are. 3. It has its name.
            entries.add(fields)
            directory.rename(part, compressed)
            directory.sync()
            return True

        # 4. The plain file goes.
        if index.update(directory, key, now=now, write=register):
            directory.remove(entry.name)


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


def _write_compressed(directory: Directory, handle: Handle, name: str, part: str) -> bytes:
    """Write the compressed form of an open file to the new file *part*; return its SHA-256."""
    directory.remove(part)  # of a process that was killed: the lock of the plain file is ours
    target = directory.create(part, append=True)
    with closing(target):
        try:
            digest = hashlib.sha256()
            for data in _deflated(plain(handle, name)):
                digest.update(data)
                target.append(data)
            target.sync()
        except AuditError:
            directory.remove(part)  # a full disk needs the space
            raise
    return digest.digest()


def _deflated(read: Callable[[int], bytes]) -> Iterator[bytes]:
    deflate = zlib.compressobj(_LEVEL, wbits=GZIP)
    while data := read(_CHUNK):
        yield deflate.compress(data)
    yield deflate.flush()


# --- retention ------------------------------------------------------------------------------------


class _Old(NamedTuple):
    """A file that can be removed: when it ended, its name as it is there, and how large it is."""

    ended: int
    file: str
    name: str
    entry: Registered
    size: int
    why: str = ""


def _remove(
    directory: Directory, key: AuditKey | KeyFile, registry: Registry, files: AuditFiles, now: int
) -> None:
    verifier = _Verifier(directory, key)
    due = [
        each for each in _due(directory, registry, files, now, verifier) if verifier.is_sound(each)
    ]
    for at in range(0, len(due), _AT_ONCE):
        some = due[at : at + _AT_ONCE]

        def register(entries: Entries, some: list[_Old] = some) -> None:
            for each in some:
                entries.add(_removal(directory, each, now))

        index.update(directory, key, now=now, write=register)
        for each in some:
            with _one_by_one("removed", each.name):
                _unlink(directory, each.entry.name)


class _Verifier:
    """Verifies files before they are removed, since no one can afterwards.

    A key that has moved verifies no earlier file: of those only compressed ones can be compared
    with the index.
    """

    def __init__(self, directory: Directory, key: AuditKey | KeyFile) -> None:
        self._directory = directory
        self._key = key
        self._id = "" if isinstance(key, KeyFile) else _directory_id(directory)

    @property
    def reads_times(self) -> bool:
        """Whether the key of this machine verifies the records of earlier files."""
        return not isinstance(self._key, KeyFile)

    def verdict(self, name: str, file: str, entry: Registered) -> Verdict:
        """Return what is wrong with a file that is there as *name*, and its last record's time."""
        if isinstance(self._key, KeyFile):
            found = Verdict()
            if name.endswith(COMPRESSED):
                is_as_compressed(self._directory, name, entry, found)
            return found
        keys = file_keys(self._key, directory=self._id, file=file)
        return verdict(self._directory, Job(name, file, keys, entry))

    def is_sound(self, old: _Old) -> bool:
        """Tell whether a file is what the index says; if not, it stays, and an error says so."""
        problems = self.verdict(old.name, old.file, old.entry).problems
        if problems:
            logger.error(
                "%s is not what was written, so it is not removed: %s. Verify the log, and keep it"
                " for the investigation.",
                *(shown(old.name), problems[0].text),
            )
        return not problems


def _directory_id(directory: Directory) -> str:
    handle = directory.open(INDEX)
    if handle is None:
        return ""
    with closing(handle):
        genesis = index.genesis_of(handle.read(1_024, 0))
    return genesis.text("directory") if genesis else ""


def _due(
    directory: Directory, registry: Registry, files: AuditFiles, now: int, verifier: _Verifier
) -> list[_Old]:
    """Return the files to remove, the oldest first."""
    names = directory.names()
    total = 0
    old: list[_Old] = []
    for file, entry in registry.files.items():
        there = stored(entry.name, names)
        if there is None or entry.removed is not None or not entry.is_plain_name:
            continue
        found = directory.stat(there)
        if found is None:
            continue
        # Only what the index registers counts, and no more than such a file can have: a user who
        # may write to the folder would push honest files out with one that is large or sparse.
        most = entry.size if entry.size >= 0 else files.rotate_size + _BEYOND
        size = min(found.st_size, found.st_blocks * 512, most)
        total += size
        if _has_ended(directory, there, entry):
            ended = _ended(verifier, there, file, entry)
            if ended >= 0:
                old.append(_Old(ended, file, there, entry, size))
    due = []
    for each in sorted(old, key=lambda old: (old.ended, old.file)):
        if files.keep_age and now - each.ended >= files.keep_age * SECOND:
            due.append(each._replace(why=f"older than {files.keep_age} s"))
        elif files.keep_size and total > files.keep_size:
            due.append(each._replace(why=f"more than {files.keep_size} bytes"))
        else:
            continue
        total -= each.size
    return due


def _ended(verifier: _Verifier, name: str, file: str, entry: Registered) -> int:
    """Return when a file ended, by what was signed; -1 where nothing that is says so.

    The time of a file's last change says nothing: a user who may write to the folder sets it.
    """
    if entry.ended >= 0:
        return entry.ended
    if entry.compressed is not None:  # of a process that was killed before then
        return entry.compressed.time
    return verifier.verdict(name, file, entry).last if verifier.reads_times else -1


def _has_ended(directory: Directory, name: str, entry: Registered) -> bool:
    """Tell whether the process of a file has closed it or is dead."""
    if entry.closed is not None or name.endswith(COMPRESSED):
        return True
    handle = _unused(directory, name)
    if handle is None:
        return False
    handle.close()
    return True


def _removal(directory: Directory, old: _Old, now: int) -> dict[str, object]:
    """Return the entry of the index that says what is removed, and where it ended."""
    entry = old.entry
    if entry.closed is not None:
        count, mac = entry.closed.sequence + 1, entry.closed.mac
    else:
        # Its process was killed: what its head says, which the key of this machine may not verify.
        claimed = Head.claimed(directory.read_head(entry.name) or b"")
        count, mac = (claimed.count, claimed.mac) if claimed is not None else (0, b"")
    return {
        "count": count,
        "file": old.file,
        "mac": mac.hex(),
        "time": now,
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
        if entry.removed is not None and entry.is_plain_name:
            left = stored(entry.name, names) is not None or head_name(entry.name) in names
            if left:
                with _one_by_one("removed", entry.name):
                    _unlink(directory, entry.name)

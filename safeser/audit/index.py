"""The index of a directory of logs: every file is registered at its start and at its end.

The one rule: the index is appended to under an exclusive lock, and only after its own end has been
verified; whatever a kill can leave is repaired, anything else is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

from safeser.audit.chain import HEAD_SIZE, ZERO, Head, Keys, index_keys, step
from safeser.audit.files import ChainFile, Directory, failed, head_name
from safeser.audit.key import AuditKey
from safeser.audit.record import MAX_LINE, Record, begins_like_a_line, parse, split
from safeser.errors import AuditError

__all__ = ["INDEX", "Entries", "genesis_of", "is_id", "locked", "new_id"]

INDEX = "index"

# How long opening waits for another process that is opening; each holds the lock for milliseconds.
_WAIT = 10.0

# The genesis record of an index has some 200 bytes; reading more would be somebody else's file.
_MAX_GENESIS = 1_024

# A kill leaves at most one record beyond the head; a power loss a page of zeros.
_MAX_BEYOND = 2 * MAX_LINE


def new_id() -> str:
    """Return the random id of a directory or a file."""
    return secrets.token_hex(16)


def is_id(text: str) -> bool:
    """Return whether *text* can be an id."""
    return len(text) == 32 and all(each in "0123456789abcdef" for each in text)


@dataclass(frozen=True, slots=True)
class Entries:
    """An index whose lock is held: its chain, ready to be appended to, and its directory's id."""

    chain: ChainFile
    directory_id: str


@contextlib.contextmanager
def locked(directory: Directory, key: AuditKey, *, now: int) -> Iterator[Entries]:
    """Hold the index of *directory* for appending; make it if the directory is new.

    :param now: microseconds since 1970, for the first record of a new index.
    :raises AuditError: if another process holds it for too long, the key is not the one that it
        was made with, or its end is not as its head says.
    """
    mode = os.O_RDWR | os.O_APPEND | os.O_CREAT
    handle = directory.open(INDEX, mode=mode)
    if handle is None:
        raise AuditError(
            "the directory of the log is gone", rule="audit.directory", where=directory.path
        )
    head_handle = -1
    try:
        lock(handle, directory, shared=False)
        head_handle, data = _open_head(directory)
        if len(data) == 0:
            yield _begin(directory, key, handle, head_handle, now)
        else:
            yield _resume(directory, key, handle, head_handle, data)
    finally:
        # Said aloud, since a child forked meanwhile shares the lock until it is let go.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)
        if head_handle >= 0:
            os.close(head_handle)


def lock(handle: int, directory: Directory, *, shared: bool, wait: float = _WAIT) -> None:
    """Lock the open index, or raise :class:`AuditError` after *wait* seconds."""
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(handle, how)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise AuditError(
                    "another process holds the index of the log",
                    rule="audit.locked",
                    where=directory.place(INDEX),
                ) from None
            time.sleep(0.005)
        except OSError as error:
            raise failed("the index cannot be locked", error, where=directory.path) from None
        else:
            return


def _open_head(directory: Directory) -> tuple[int, bytes]:
    handle = directory.open(head_name(INDEX), mode=os.O_RDWR | os.O_CREAT)
    if handle is None:
        raise AuditError(
            "the directory of the log is gone", rule="audit.directory", where=directory.path
        )
    return handle, os.pread(handle, HEAD_SIZE + 1, 0)


def _begin(directory: Directory, key: AuditKey, handle: int, head_handle: int, now: int) -> Entries:
    # Killed while it made the index, a process leaves no head and at most the first record; no log
    # file can exist yet. With either, somebody removed what was there.
    with os.scandir(directory.handle) as found:
        orphan = any(entry.name.endswith(".log") for entry in found)
    if os.fstat(handle).st_size > _MAX_GENESIS:
        raise _tampered(directory, "the head of its index was removed")
    if orphan:
        raise AuditError(
            "this folder holds .log files, and no index of safeser's that names them",
            rule="audit.tampered",
            where=directory.path,
            fix="If they are audit logs, the index or its head was removed: keep them for the"
            " investigation. In either case, use a folder for audit logs alone.",
        )
    os.ftruncate(handle, 0)
    directory_id = new_id()
    keys = index_keys(key, directory=directory_id)
    head = Head(directory_id, 0, ZERO, 0)
    chain = _chain(directory, handle, head_handle, keys, head)
    chain.append({"directory": directory_id, "time": now, "type": "index", "version": 1})
    directory.sync()
    return Entries(chain, directory_id)


def _resume(
    directory: Directory, key: AuditKey, handle: int, head_handle: int, data: bytes
) -> Entries:
    # 1. The genesis record gives the directory's id, and shows that the key is the right one.
    start = os.pread(handle, _MAX_GENESIS, 0)
    genesis = genesis_of(start)
    directory_id = genesis.text("directory") if genesis is not None else ""
    if not is_id(directory_id):
        raise _tampered(directory, "the start of its index is not one")
    keys = index_keys(key, directory=directory_id)
    if not _extends(start.partition(b"\n")[0], keys, Head(directory_id, 0, ZERO, 0)):
        raise AuditError(
            "the index does not verify with this key",
            rule="audit.key",
            where=directory.place(INDEX),
            fix="Use the key that the log was begun with, or another directory.",
        )
    # 2. The head says where the index ended; beyond it a kill leaves one record, whole or torn.
    try:
        head = Head.decode(data, keys.head)
    except AuditError:
        raise _tampered(directory, "the head of its index was changed") from None
    beyond = os.fstat(handle).st_size - head.size
    if head.file != directory_id or not 0 <= beyond <= _MAX_BEYOND:
        raise _tampered(directory, "the end of its index was removed or grew")
    *whole, torn = os.pread(handle, beyond, head.size).split(b"\n")
    for raw in whole:
        extended = _extends(raw, keys, head)
        if extended is None:
            raise _tampered(directory, "the end of its index was changed")
        head = extended
    if not begins_like_a_line(torn):
        raise _tampered(directory, "the end of its index was changed")
    if torn:
        os.ftruncate(handle, head.size)
    return Entries(_chain(directory, handle, head_handle, keys, head), directory_id)


def _chain(
    directory: Directory, handle: int, head_handle: int, keys: Keys, head: Head
) -> ChainFile:
    # Always synced: an index that a power loss cut would keep every process from starting.
    return ChainFile(
        directory,
        INDEX,
        handle=handle,
        head_handle=head_handle,
        keys=keys,
        head=head,
        fsync=True,
    )


def genesis_of(start: bytes) -> Record | None:
    """Return the record of the first line of *start*, unverified, or None."""
    first, newline, _ = start.partition(b"\n")
    if not newline:
        return None
    try:
        return parse(first)
    except AuditError:
        return None


def _extends(raw: bytes, keys: Keys, head: Head) -> Head | None:
    """Return the head after *raw*, if that is the record that follows *head*."""
    parts = split(raw)
    if parts is None or step(keys.chain, head.mac, head.count, parts[1]) != parts[0]:
        return None
    return Head(head.file, head.count + 1, parts[0], head.size + len(raw) + 1)


def _tampered(directory: Directory, what: str) -> AuditError:
    return AuditError(
        f"the log in this directory was tampered with: {what}",
        rule="audit.tampered",
        where=directory.path,
        fix="Verify it, keep it for the investigation, and use another directory.",
    )

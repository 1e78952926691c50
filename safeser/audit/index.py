"""The index of a directory of logs: every file is registered at its start and at its end.

The one rule: the index is appended to under an exclusive lock, and only after its own start and end
have been verified. What a kill can leave is repaired; any other file of its name is refused and
left as it is.
"""

from __future__ import annotations

import fcntl
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from safeser.audit.chain_file import ChainFile
from safeser.audit.files import Directory, Handle, failed, head_name, is_log
from safeser.audit.key import UNBOUND, AuditKey, KeyFile, index_keys, key_after
from safeser.audit.record import MAX_LINE, Record, begins_like_a_line, extends, parse
from safeser.errors import AuditError, ConfigError
from safeser.gate.chain import HEAD_SIZE, ZERO, Head, Keys, forget_keys

__all__ = [
    "INDEX",
    "MAX_MOVES",
    "PART",
    "RULE_VERSION",
    "WAIT",
    "Entries",
    "genesis_of",
    "is_id",
    "lock",
    "new_id",
    "update",
]

INDEX = "index"

#: Behind the name of a compressed file that is not whole yet.
PART = ".part"

#: Of the rule that each step of a file is registered once, which entries that begin a file state.
#: Processes of a release before it could enter one compression or removal twice.
RULE_VERSION = 2

#: How often a key moves at most, once with each file: 100 files a day for 28 years. Verification
#: computes every move up to the number that a file claims, which takes a second.
MAX_MOVES = 1 << 20

#: Seconds that opening waits for another process that is opening; each holds the lock for
#: milliseconds.
WAIT = 10.0

# The genesis record of an index has some 200 bytes; a longer first line is no index of safeser.
_MAX_GENESIS = 1_024

# A kill leaves at most one record beyond the head; a power loss a page of zeros.
_MAX_BEYOND = 2 * MAX_LINE

T = TypeVar("T")


def new_id() -> str:
    """Return the random id of a directory or a file."""
    return secrets.token_hex(16)


def is_id(text: str) -> bool:
    """Return whether *text* can be an id."""
    return len(text) == 32 and all(each in "0123456789abcdef" for each in text)


class Entries:
    """An index whose lock is held: its chain, ready to be appended to, and its directory's id.

    :param key: the log's key as it is now.
    :param file: the file of the key, if it moves.
    """

    def __init__(
        self, chain: ChainFile[None], directory_id: str, key: AuditKey, file: KeyFile | None
    ) -> None:
        self.chain = chain
        self.directory_id = directory_id
        self.key = key
        self._file = file

    @property
    def moves(self) -> bool:
        """Whether the key moves one way."""
        return self._file is not None

    def check_moves(self) -> None:
        """Raise :class:`AuditError` if the key moves, and cannot move once more."""
        if self._file is not None and self.key.moves >= MAX_MOVES:
            raise AuditError(
                "the key of the log has moved as often as it can",
                rule="audit.key",
                fix="Begin another directory with a new key.",
            )

    def has_grown(self, count: int) -> bool:
        """Tell whether there are more than *count* entries; where that is in doubt, there are."""
        try:
            return self.chain.settled().end.count > count
        except AuditError:
            return True

    def move_key(self, now: int) -> None:
        """Replace a key that moves by the next one, here and in its file.

        :param now: microseconds since 1970.
        """
        if self._file is None:
            return
        # 1. The record, and a head that the next key makes. 2. Both on the disk. 3. The file of the
        # key. A process that is stopped in between leaves a head that the key in the file makes, or
        # the one after it, and the next process finds which.
        from safeser.audit.vouched import vouching  # noqa: PLC0415 - where the key moves

        key = key_after(self.key)
        fields: dict[str, object] = {
            "moves": key.moves,
            "time": now,
            "type": "key",
            **vouching(self.chain, self.key, key, now),
        }
        keys = index_keys(key, directory=self.directory_id)
        self.chain.append_all((fields,), None, keys=keys)
        self.chain.sync()
        _store(self._file, self.directory_id, key)
        self.key = key
        forget_keys()

    def add(self, fields: dict[str, object]) -> None:
        """Append one entry."""
        self.chain.append_all((fields,), None)

    def verified(self) -> Iterator[Record]:
        """Yield the entries that the present key vouches for; see :func:`vouched.verified`."""
        from safeser.audit.vouched import verified  # noqa: PLC0415 - of a log that is kept

        return verified(self)

    def has_end(self, file: str) -> bool:
        """Tell whether an entry registers the end of *file*."""
        return file in [e.text("file") for e in self.verified() if e.type == "close"]


def update(
    directory: Directory,
    key: AuditKey | KeyFile,
    *,
    now: int,
    write: Callable[[Entries], T],
    wait: float = WAIT,
) -> T:
    """Call *write* with the index of *directory* while its lock is held; make a missing index.

    :param now: microseconds since 1970, for the first record of a new index.
    :param wait: seconds to wait for another process that holds it.
    :raises AuditError: if another process holds it for too long, the key is not the one that it
        was made with, its end is not as its head says, or the file is not an index at all.
    """
    opened: list[Handle] = []
    try:
        return _update(directory, key, now, write, opened, wait=wait)
    finally:
        # An exception can come before the lock is let go of, below: closing the file does it, too.
        for each in opened:
            each.close()


def _update(
    directory: Directory,
    key: AuditKey | KeyFile,
    now: int,
    write: Callable[[Entries], T],
    opened: list[Handle],
    *,
    wait: float,
) -> T:
    # Apart from its caller, whose loop runs whatever comes between two steps of this.
    handle = _open_index(directory)
    opened.append(handle)
    lock(handle, directory, shared=False, wait=wait)
    try:
        return write(_entries(directory, key, opened, now))
    finally:
        handle.unlock()


def lock(handle: Handle, directory: Directory, *, shared: bool, wait: float = WAIT) -> None:
    """Lock the open index, or raise :class:`AuditError` after *wait* seconds."""
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(handle.fd, how)
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


def _open_index(directory: Directory) -> Handle:
    """Return the file of the index, new and empty where the directory is."""
    for _ in range(2):
        handle = directory.open_own(INDEX, append=True)
        if handle is not None:
            return handle
        # The index is the first file that a log makes. Whether another process has just made it
        # is asked again after its other files were seen.
        names = directory.names()
        if INDEX not in names and (head_name(INDEX) in names or _logs(names)):
            raise _orphaned(directory)
        handle = directory.create_if_absent(INDEX, append=True)
        if handle is not None:
            return handle
    raise _tampered(directory, "its index was removed while it was opened")


def _logs(names: set[str]) -> bool:
    return any(is_log(name) for name in names)


def _entries(
    directory: Directory, key: AuditKey | KeyFile, opened: list[Handle], now: int
) -> Entries:
    """Return the index that the first of *opened* is, ready to be appended to.

    Its head is opened as well.
    """
    (handle,) = opened
    head = directory.open_own(head_name(INDEX), append=False)
    if head is not None:
        opened.append(head)
    data = head.read(HEAD_SIZE + 1, 0) if head is not None else b""
    # A process that was stopped while it made the index leaves an empty one, or its first record
    # alone, and no log file. With anything else the head was removed.
    if not data and _logs(directory.names()):
        raise _orphaned(directory)
    if data or handle.stat().st_size:
        return _resume(directory, key, handle, head, data)
    if head is None:
        head = directory.create(head_name(INDEX), append=False)
        opened.append(head)
    return _begin(directory, key, handle, head, now)


def _begin(
    directory: Directory, source: AuditKey | KeyFile, handle: Handle, head: Handle, now: int
) -> Entries:
    bound, key, file = _held(source)
    if key.moves:
        raise _tampered(directory, f"its key has moved {key.moves} times, and its index is empty")
    directory_id = new_id()
    if file is not None and bound == UNBOUND:
        # Before the index: a process that is stopped in between leaves a key that is bound to the
        # id which the next process then takes.
        _store(file, directory_id, key)
    elif file is not None:
        directory_id = bound
    keys = index_keys(key, directory=directory_id)
    chain = _chain(directory, handle, head, keys, Head(directory_id, 0, ZERO, 0))
    genesis = {"directory": directory_id, "time": now, "type": "index", "version": 1}
    chain.append_all((genesis,), None)
    # The head as well: a loss of power that emptied it would look like its removal.
    chain.sync()
    directory.sync()
    return Entries(chain, directory_id, key, file)


def _resume(
    directory: Directory,
    source: AuditKey | KeyFile,
    handle: Handle,
    head: Handle | None,
    data: bytes,
) -> Entries:
    # 1. The genesis record gives the directory's id, and shows that the key is the right one. A key
    #    that has moved cannot verify it; the directory's id beside it says that it belongs here.
    start = handle.read(_MAX_GENESIS, 0)
    genesis = genesis_of(start)
    directory_id = genesis.text("directory") if genesis is not None else ""
    if not is_id(directory_id):
        raise _foreign(directory)
    bound, held, file = _held(source)
    if file is not None and bound != directory_id:
        raise _wrong_key(directory)
    begun = None
    if not held.moves:
        keys = index_keys(held, directory=directory_id)
        begun = extends(start.partition(b"\n")[0], keys, Head(directory_id, 0, ZERO, 0))
        if begun is None:
            raise _wrong_key(directory)
    # 2. The head says where the index ended; beyond it a kill leaves one record, whole or torn.
    if data and head is not None:
        # A process that was killed while it moved the key leaves a head that the next key made.
        candidates = [held] if file is None else [held, key_after(held)]
        end, key = _covered(directory, directory_id, candidates, data)
    elif head is not None and begun is not None and handle.stat().st_size == begun.size:
        end, key = begun, held
    else:
        raise _tampered(directory, "the head of its index was removed")
    end, key = _repaired_head(directory, handle, key, end, moves=file is not None)
    keys = index_keys(key, directory=directory_id)
    chain = _chain(directory, handle, head, keys, end)
    if file is not None and key.moves != held.moves:
        chain.renew_head()
        _store(file, directory_id, key)
    return Entries(chain, directory_id, key, file)


def _held(source: AuditKey | KeyFile) -> tuple[str, AuditKey, KeyFile | None]:
    """Return the directory that the key belongs to, the key, and its file if it moves."""
    if isinstance(source, AuditKey):
        return "", source, None
    try:
        return *source.load(), source
    except ConfigError as error:
        raise _no_key(error) from None


def _store(file: KeyFile, directory_id: str, key: AuditKey) -> None:
    try:
        file.store(directory_id, key)
    except ConfigError as error:
        raise _no_key(error) from None


def _no_key(error: ConfigError) -> AuditError:
    # The log is in use: what fails is a record, and the message is refused.
    return AuditError(error.message, rule="audit.key", where=error.where, fix=error.fix)


def _covered(
    directory: Directory, directory_id: str, candidates: Sequence[AuditKey], data: bytes
) -> tuple[Head, AuditKey]:
    """Return the end that the head *data* names, and which of *candidates* made it."""
    for key in candidates:
        try:
            end = Head.decode(data, index_keys(key, directory=directory_id).head)
        except AuditError:
            continue
        if end.file != directory_id:
            raise _tampered(directory, "the head of its index is that of another")
        return end, key
    raise _tampered(directory, "the head of its index was changed")


def _repaired_head(
    directory: Directory, handle: Handle, key: AuditKey, end: Head, *, moves: bool
) -> tuple[Head, AuditKey]:
    """Return the end of the index with what a process that was stopped left beyond *end*.

    :param moves: whether a record there may say that the key has moved; the key after it is
        returned, too.
    """
    beyond = handle.stat().st_size - end.size
    if not 0 <= beyond <= _MAX_BEYOND:
        raise _tampered(directory, "the end of its index was removed or grew")
    *whole, torn = handle.read(beyond, end.size).split(b"\n")
    for raw in whole:
        extended = extends(raw, index_keys(key, directory=end.file), end)
        if extended is None:
            raise _tampered(directory, "the end of its index was changed")
        end = extended
        if moves and parse(raw).type == "key":
            key = key_after(key)
    if not begins_like_a_line(torn):
        raise _tampered(directory, "the end of its index was changed")
    if torn:
        handle.truncate(end.size)
    return end, key


def _chain(
    directory: Directory, handle: Handle, head: Handle, keys: Keys, end: Head
) -> ChainFile[None]:
    # Always synced: an index that a power loss cut would keep every process from starting.
    chain = ChainFile(
        directory, INDEX, log=handle, head=head, keys=keys, end=end, state=None, fsync=True
    )
    chain.look()  # what was locked could have been replaced before
    return chain


def genesis_of(start: bytes) -> Record | None:
    """Return the record of the first line of *start*, unverified, or None."""
    first, newline, _ = start.partition(b"\n")
    if not newline:
        return None
    try:
        return parse(first)
    except AuditError:
        return None


def _tampered(directory: Directory, what: str) -> AuditError:
    return AuditError(
        f"the log in this directory was tampered with: {what}",
        rule="audit.tampered",
        where=directory.path,
        fix="Verify it, keep it for the investigation, and use another directory.",
    )


def _orphaned(directory: Directory) -> AuditError:
    return AuditError(
        "this directory holds .log files or the head of an index, and no index of safeser's that"
        " goes with them",
        rule="audit.tampered",
        where=directory.path,
        fix="If they are audit logs, the index or its head was removed: keep them for the"
        " investigation. In either case, use a directory for audit logs alone.",
    )


def _wrong_key(directory: Directory) -> AuditError:
    return AuditError(
        "the index does not verify with this key",
        rule="audit.key",
        where=directory.place(INDEX),
        fix="Use the key that the log was begun with, or name another folder as the audit log of"
        " this key (DASK_SAFESER__AUDIT).",
    )


def _foreign(directory: Directory) -> AuditError:
    return AuditError(
        "the file is not the index of an audit log; nothing was written to it",
        rule="audit.index",
        where=directory.place(INDEX),
        fix="If this directory holds an audit log, it was tampered with: verify it, and keep it for"
        " the investigation. Otherwise move the file away, or use a directory for audit logs"
        " alone.",
    )

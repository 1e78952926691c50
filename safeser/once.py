"""What was opened already: ids of detached messages on disk, so that each opens once.

The one rule: where the store does not know, the answer is no. A store that is full, lost, or whose
clock went back refuses.

RFC 4303's window needs sequence numbers, and so a sender that keeps count; messages of a queue have
none. So ids are kept, each until its message has expired. What keeps that right:

- *Lost.* A new store refuses what was dated before it was made, and :data:`FUTURE` seconds more: a
  sender's clock may be so far ahead, and so may the message that a lost store had taken last.
- *Forgotten.* An id goes only after its message expired by the latest time that the store has
  seen. Behind that time a clock that goes back refuses everything: ids were forgotten.
- *Full.* Beyond ``most`` ids nothing opens until some expire.
- *Several processes.* One transaction of SQLite takes an id; it ends when the decision is recorded,
  and leaves nothing where the message is refused.
- *Locks.* SQLite's are POSIX locks. A process loses them all when it closes any descriptor of the
  file, a fork has none of them, and what SQLite remembers of them is wrong then. So no lock, and no
  connection, outlasts a transaction; one thread of a process at a time has one; and the process
  forks while there is none. A write-ahead log would need a lock for as long as it is open.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import ceil
from pathlib import Path

from safeser.errors import ConfigError, EnvelopeError
from safeser.gate.detached import FUTURE, Facts
from safeser.identity.access import check_private
from safeser.identity.files import reason, refused, write_new
from safeser.identity.paths import Unfit, open_file

__all__ = ["Once"]

#: Seconds that one process waits for another's transaction.
_PATIENCE = 5.0

_TABLES = """
create table if not exists store (start integer, latest integer, count integer);
create table if not exists opened (id blob primary key, ends integer) without rowid;
create index if not exists opened_ends on opened (ends);
"""


class Once:
    """A file of the ids of messages that were opened, which processes of one machine may share.

    It is made when it is missing, and then refuses all messages that were dated before, or within
    :data:`~safeser.gate.detached.FUTURE` seconds: what was opened of those, only the lost file
    knew. So make it before the first message is sealed. A file that is restored from a backup has
    forgotten what was opened since; remove it instead. A message without an end (``ttl=None``) is
    refused: its id could never be forgotten.

    :param path: of the file, in a folder of this user, where SQLite makes another one while it
        writes.
    :param most: ids that it holds at most; while it is full, all messages are refused.
    :param clock: seconds since 1970.
    :raises ConfigError: if the file cannot be made, is not such a store, or is another user's.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        most: int = 1_000_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path).absolute()
        self.most = most
        self._clock = clock
        try:
            with self._connected():
                pass
        except sqlite3.Error as error:
            raise refused(
                self.path, f"is no store of opened messages: {error}", rule="box.once"
            ) from None

    @contextmanager
    def taking(self, sender: str, facts: Facts) -> Iterator[None]:
        """Take a message as opened, durably, if the block ends without an error.

        :raises EnvelopeError: before the block, if it was opened before, or the store cannot tell;
            after it, if the store cannot be written.
        """
        with ExitStack() as stack:
            with _refusing():
                database = stack.enter_context(self._connected())
                database.execute("begin immediate")
                self._take(database, sender.encode("utf-8") + b"\0" + facts.id, facts)
            yield
            with _refusing():
                if not _TURN.is_here():
                    raise sqlite3.OperationalError("the process was forked amid a message")
                database.execute("commit")

    def _take(self, database: sqlite3.Connection, identity: bytes, facts: Facts) -> None:
        start, latest, count = database.execute("select start, latest, count from store").fetchone()
        now, ends = int(self._clock()), facts.ends
        if now < latest - FUTURE:
            raise EnvelopeError(
                f"the clock went back {latest - now} seconds since a message was opened once",
                rule="box.once-clock",
                fix=f"Set the clock; or remove {self.path}: what was dated before then is refused.",
            )
        now = max(now, latest)
        if ends is None:
            raise EnvelopeError(
                "a message without an end cannot be opened once",
                rule="box.once-endless",
                fix="Seal it with a ttl.",
            )
        if facts.made < start:
            raise EnvelopeError(
                "a message was sealed before the store of opened messages was made",
                rule="box.once-start",
                fix="Seal it again. Make the store before the first message, and keep its file.",
            )
        if ends < now:
            raise EnvelopeError("a message has expired", rule="box.expired", fix="Seal it again.")
        known = database.execute("select 1 from opened where id = ?", (identity,)).fetchone()
        if known is not None:
            raise EnvelopeError("a message was opened before", rule="box.replayed")
        count += 1 - database.execute("delete from opened where ends < ?", (now,)).rowcount
        if count > self.most:
            raise EnvelopeError(
                f"the store of opened messages is full ({self.most})",
                rule="box.once-full",
                fix="Wait until some expire; seal with a shorter ttl, or open with Once(most=...).",
            )
        database.execute("insert into opened values (?, ?)", (identity, ends))
        database.execute("update store set latest = ?, count = ?", (now, count))

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Connect to the file that has the path now; roll back what was not committed."""
        with _TURN:
            try:
                write_new(self.path, b"", mode=0o600)
            except FileExistsError:
                pass
            except OSError as error:
                raise refused(
                    self.path, f"cannot be made: {reason(error)}", rule="box.once"
                ) from None
            _require_own(self.path)
            database = sqlite3.connect(
                self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(database)
                yield database
            finally:
                if _TURN.is_here():
                    with suppress(sqlite3.Error):
                        database.rollback()
                    database.close()
                else:  # to close it here would undo what the parent does
                    _PARENTS.append(database)

    def _prepare(self, database: sqlite3.Connection) -> None:
        (mode,) = database.execute("pragma journal_mode = delete").fetchone()
        if mode != "delete":
            raise sqlite3.OperationalError(f"another process keeps its journal mode at {mode}")
        # One more than "full": the folder is synced, or a journal that is back after a loss of
        # power would undo what was committed.
        database.execute("pragma synchronous = extra")
        database.executescript(f"begin immediate; {_TABLES}")
        if database.execute("select 1 from store").fetchone() is None:
            now = self._clock()
            database.execute("insert into store values (?, ?, 0)", (ceil(now) + FUTURE, int(now)))
        database.execute("commit")

    def __repr__(self) -> str:
        return f"Once({str(self.path)!r})"


class _Turn:
    """Lets one thread of this process use SQLite's files of stores, and no other until it ends.

    A fork waits for it. Where the thread that has it forks, the child never gets it: what SQLite
    holds in memory says there that the child has its parent's locks.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._process = 0  # which has it

    def __enter__(self) -> None:
        self.lock.acquire()
        if self._process:
            self.lock.release()
            raise sqlite3.OperationalError("this thread, or what it was forked from, uses a store")
        self._process = os.getpid()

    def __exit__(self, *_: object) -> None:
        if self.is_here():
            self._process = 0
        self.lock.release()

    def is_here(self) -> bool:
        """Tell whether the process that has it is this one."""
        return self._process == os.getpid()


_TURN = _Turn()
_PARENTS: list[sqlite3.Connection] = []

# The thread that forks has the lock, in both processes.
os.register_at_fork(
    before=_TURN.lock.acquire,
    after_in_parent=_TURN.lock.release,
    after_in_child=_TURN.lock.release,
)


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise :class:`EnvelopeError` where the store fails: it cannot tell what was opened."""
    try:
        yield
    except (sqlite3.Error, ConfigError) as error:
        what = error.message if isinstance(error, ConfigError) else str(error)
        raise EnvelopeError(
            f"the store of opened messages cannot be used: {what}",
            rule="box.once",
            fix="Free space on its disk, or correct the path; until then nothing opens.",
        ) from None


def _require_own(path: Path) -> None:
    """Refuse a file that another user could have made, chosen, read or replaced."""
    try:
        handle = open_file(str(path))
        try:
            check_private(handle, str(path))
        finally:
            os.close(handle)
    except Unfit as error:
        raise refused(path, error.what, rule="box.once", fix=error.fix) from None
    except (OSError, ValueError) as error:
        raise refused(path, f"cannot be read: {reason(error)}", rule="box.once") from None

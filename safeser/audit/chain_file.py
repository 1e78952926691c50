"""One chained file and its head, open for appending.

The one rule: where the file ends, and what its writer keeps in step with it, is one value. One
assignment replaces it once the records are in the file and the head covers them. An exception
between any two instructions therefore leaves the old value and, beside it, the bytes that were on
their way; the next call compares those with the file and finishes them or takes them back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, NoReturn, TypeVar

from safeser.audit.compressed import Read, plain
from safeser.audit.files import Directory, Handle, failed, head_name
from safeser.errors import AuditError
from safeser.gate.chain import ZERO, Head, Keys
from safeser.gate.event import encode

__all__ = ["ChainFile", "new_file"]

# How many records may pass before the file's place is checked again; the look costs 4 us.
_LOOK_EVERY = 64

State = TypeVar("State")


class _Position(NamedTuple, Generic[State]):
    """Where the file ends, and what holds there.

    :param end: the end that the head covers.
    :param keys: of the next record and the head.
    :param state: what the writer keeps in step with the file.
    :param data: records on their way into the file, to stand after *end*.
    :param after: the position once *data* is in the file and covered; None if nothing is on its
        way.
    """

    end: Head
    keys: Keys
    state: State
    data: bytes = b""
    after: _Position[State] | None = None


class ChainFile(Generic[State]):
    """One chained file and its head, open for appending; the caller makes sure it is the only one.

    :param end: where the file ends.
    :param state: what the caller keeps in step with the file.
    """

    def __init__(
        self,
        directory: Directory,
        name: str,
        *,
        log: Handle,
        head: Handle,
        keys: Keys,
        end: Head,
        state: State,
        fsync: bool,
    ) -> None:
        self.directory = directory
        self.name = name
        self._log = log
        self._head = head
        self._fsync = fsync
        self._position = _Position(end, keys, state)
        self._looked = end.count
        self._broken = ""
        self._identity = [_identity(log), _identity(head)]

    @property
    def end(self) -> Head:
        """Where the file ends, as its head says."""
        return self._position.end

    @property
    def state(self) -> State:
        """What the caller keeps in step with the file."""
        return self._position.state

    def keep(self, state: State) -> None:
        """Replace the state without writing anything."""
        self._position = self.settled()._replace(state=state)

    def append_all(
        self,
        records: Sequence[dict[str, object] | bytes],
        state: State,
        *,
        keys: Keys | None = None,
    ) -> None:
        """Write *records* at once and the head that covers them; the state is *state* from then on.

        :param records: the fields of each, or its canonical bytes, which hold its number already.
        :param keys: of that head and of later records, where they change with these records.

        :raises AuditError: if they could not be written. Like any other exception it leaves all of
            them in the file, with their state, or none. All of them are there only where the file
            took them and their head, or the disk, failed afterwards.
        """
        now = self.settled()
        data, end = self._chained(now, records)
        after = _Position(end, keys or now.keys, state)
        if now.end.count - self._looked >= _LOOK_EVERY:
            self.look()
        self._position = _Position(now.end, now.keys, now.state, data, after)
        try:
            self._log.append(data)
            self._cover(after)
            self._position = after
        except BaseException:
            # So that the file is whole while the caller does something else. Where that fails, the
            # next call tries again, and the file has a torn line at its end until then.
            with suppress(AuditError):
                self.settled()
            raise

    @staticmethod
    def _chained(
        now: _Position[State], records: Sequence[dict[str, object] | bytes]
    ) -> tuple[bytes, Head]:
        """Return the lines of *records*, and where the file ends with them."""
        end = now.end
        bodies = []
        for count, record in enumerate(records, end.count):
            if isinstance(record, bytes):
                bodies.append(record)
            else:
                record["seq"] = count
                bodies.append(encode(record))
        return end.append(now.keys.chain, bodies)

    def _cover(self, position: _Position[State]) -> None:
        """Write the head that covers the file up to *position*, and sync what must be synced."""
        if self._fsync:
            self._sync(self._log)
        self._head.replace(position.end.encode(position.keys.head))

    # --- what an interrupted call left -----------------------------------------------------------

    def settled(self) -> _Position[State]:
        """Finish or take back what an earlier call left; return where the file ends.

        :raises AuditError: if that fails, or the file is closed or not as this process left it.
        """
        if self._broken:
            raise AuditError(self._broken, rule="audit.closed", where=self.place)
        position = self._position
        if position.after is None:
            return position
        if self._is_written(position):
            self._cover(position.after)
            self._position = position.after
        else:
            self._position = position._replace(data=b"", after=None)
        return self._position

    def _is_written(self, position: _Position[State]) -> bool:
        """Tell whether the records on their way are in the file; take back a part of them."""
        size, data = position.end.size, position.data
        written = self._log.stat().st_size - size
        if not 0 <= written <= len(data) or self._log.read(written, size) != data[:written]:
            self._fail("has another end than this process left it with")
        if written == len(data):
            return True
        if written:
            self._log.truncate(size)
        return False

    def has_taken(self) -> bool:
        """Tell whether records on their way are in the file, so that :meth:`settled` keeps them.

        Where that cannot be told, they are taken not to be.
        """
        position = self._position
        try:
            return not self._broken and position.after is not None and self._is_written(position)
        except AuditError:
            return False

    def hold(self) -> None:
        """Lock the file, so that other processes can tell that this one still writes it.

        :raises AuditError: if that fails.
        """
        if not self._log.lock_alone():
            self._fail("is held by another process")

    def renew_head(self) -> None:
        """Write the head again, with the keys of the next record, and sync it."""
        self._cover(self.settled())
        self._sync(self._head)

    def sync(self) -> None:
        """Make everything so far survive a loss of power: the file first, then its head."""
        self.settled()
        self._sync(self._log)
        self._sync(self._head)

    def _sync(self, handle: Handle) -> None:
        try:
            os.fdatasync(handle.fd)
        except OSError as error:
            # First, so that no other exception comes before it. After a failed fdatasync the
            # kernel may have dropped the pages: a later success would say nothing about them.
            self._broken = "the disk did not take a record; nothing more is written"
            raise failed("a record cannot be synced", error, where=handle.place) from None

    # --- whether it is still the same file -------------------------------------------------------

    def look(self) -> None:
        """Raise :class:`AuditError` if the file of that name is another one, or has another size.

        A process whose file was removed, replaced or cut writes no further record.
        """
        end = self.settled().end
        for name, identity in zip((self.name, head_name(self.name)), self._identity, strict=True):
            found = self.directory.stat(name)
            if found is None:
                self._fail("was removed")
            if (found.st_dev, found.st_ino) != identity:
                self._fail("was replaced")
            if name == self.name and found.st_size != end.size:
                self._fail("has another size than this process left it with")
        self._looked = end.count

    def _fail(self, what: str) -> NoReturn:
        self._broken = f"the log file {what} while it was in use; nothing more is written"
        raise AuditError(
            self._broken,
            rule="audit.replaced",
            where=self.place,
            fix="Verify the log, then start the process again.",
        )

    def read_from(self, offset: int) -> bytes:
        """Return what stands in the file from *offset* to its end."""
        size = self.settled().end.size
        return self._log.read(max(0, size - offset), offset)

    def reader(self) -> Read:
        """Return what reads the file from its start."""
        return plain(self._log, self.name)

    @property
    def place(self) -> str:
        return self.directory.place(self.name)

    def close(self) -> None:
        """Close the file and its head; nothing is written."""
        self._broken = self._broken or "the log is closed"
        self._log.close()
        self._head.close()


def new_file(
    directory: Directory, name: str, *, file: str, keys: Keys, state: State, fsync: bool
) -> ChainFile[State]:
    """Return the new, empty chained file *name*, whose id is *file*."""
    log = directory.create(name, append=True)
    try:
        head = directory.create(head_name(name), append=False)
    except BaseException:
        log.close()
        directory.remove(name)
        raise
    end = Head(file, 0, ZERO, 0)
    return ChainFile(
        directory, name, log=log, head=head, keys=keys, end=end, state=state, fsync=fsync
    )


def _identity(handle: Handle) -> tuple[int, int]:
    found = handle.stat()
    return found.st_dev, found.st_ino

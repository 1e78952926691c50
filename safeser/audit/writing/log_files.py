"""The files of one log, one after the other, and the thread that keeps them.

The one rule: a new file is made and registered before the present one is ended, and all that waits
for the disk happens outside the lock that records are written under. A rotation that cannot begin
leaves the present file in use.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from safeser.audit import index
from safeser.audit.call_lock import CallLock
from safeser.audit.chain_file import ChainFile, new_file
from safeser.audit.files import Directory, head_name
from safeser.audit.index import Entries
from safeser.audit.key import KeySource, file_keys, source
from safeser.audit.names import VERSION
from safeser.audit.outputs.activity import Activity
from safeser.audit.state import (
    Draft,
    Fields,
    PolicyName,
    State,
    checked_policy,
    initial_state,
    policy_fields,
    process_fields,
)
from safeser.audit.tally import SECOND
from safeser.audit.upkeep.settings import AuditFiles
from safeser.audit.writing.waiting import Waiting
from safeser.errors import AuditError, ConfigError
from safeser.gate.chain import Head
from safeser.gate.values import check_principal

if TYPE_CHECKING:
    from safeser.audit.outputs.feed import Outputs
    from safeser.audit.upkeep.keeper import Keeper

__all__ = ["Durability", "LogFiles"]

Durability: TypeAlias = Literal["kernel", "fsync"]

logger = logging.getLogger("safeser.audit")

_LAST_TIME = 253_402_300_799 * SECOND  # the end of the year 9999

# Seconds that a rotation waits for another process that adds to the index; without it the present
# file goes on, and the rotation is tried again a second later.
_ROTATION_WAIT = 2.0


class _Begun(NamedTuple):
    """A new file, and the fields of its first record."""

    chain: ChainFile[State]
    genesis: Fields


class LogFiles:
    """The present file of one process, and the way to the next.

    The base of :class:`safeser.audit.AuditLog`. Records are written under one lock. A rotation has
    a lock of its own, and takes the first for no longer than a record does.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        key: KeySource,
        principal: str,
        policy: PolicyName,
        clock: Callable[[], int],
        durability: Durability,
        outputs: Outputs | None = None,
        files: AuditFiles,
    ) -> None:
        if durability not in ("kernel", "fsync"):
            raise ConfigError(
                "durability must be 'kernel' or 'fsync'", rule="config.audit-durability"
            )
        self._directory = directory
        self._key = source(key)
        self._principal = check_principal(principal)
        self._clock = clock
        self._fsync = durability == "fsync"
        self._lock = CallLock()
        self._rotation = CallLock()  # taken before the other
        self._closed = False
        self._files = files
        self._keeper: Keeper | None = None
        self._registering: set[str] = set()  # ids of files whose end may be registered
        self._index_end: Head | None = None  # when this process last added to the index
        self._asked = -SECOND  # when a rotation was asked for last
        self._looked = 0
        self._waiting = Waiting()
        #: What was decided so far, for metrics and dashboards.
        self.activity = Activity()
        #: Sinks that get each record once it is in the file.
        self.outputs = outputs
        # The file that a rotation has prepared, and the one that it has ended and not registered as
        # such. An interruption can leave either of them equal to the present file.
        self._next: _Begun | None = None
        self._ended: ChainFile[State] | None = None
        # One value, so that a process is never taken for the one that made its file.
        self._present = self._first_file(initial_state(checked_policy(policy)), parent="")

    def _ready(self) -> ChainFile[State]:
        """Return the file of this process, which goes on where its last record is."""
        if self._closed:
            raise AuditError("the log is closed", rule="audit.closed")
        pid, chain = self._present
        if pid != os.getpid():
            # What a rotation of the parent has at hand is the parent's.
            self._next = self._ended = None
            self._present = self._first_file(
                initial_state(chain.state.policy), parent=chain.end.file
            )
            chain.close()
            _, chain = self._present
            if self._files.is_timed:
                self._keep()
        position = chain.settled()
        state = position.state
        if state.rotated:
            return self._switch(chain)  # that was interrupted
        if state.ended:
            raise AuditError("the log is closed", rule="audit.closed")
        if position.end.size >= self._files.rotate_size:
            self._ask_for_rotation()
        return chain

    def _now(self) -> int:
        now = self._clock() // 1_000
        if not 0 <= now <= _LAST_TIME:
            raise AuditError("the clock is not between 1970 and 9999", rule="audit.clock")
        return now

    def _draft(self, chain: ChainFile[State], *, everything: bool) -> Draft:
        """Return the records that are due before others, or all counts that there are."""
        now = self._now()
        if not 0 <= now - self._looked < SECOND:
            chain.look()
            self._looked = now
        draft = Draft(chain.state, now, first=chain.end.count)
        draft.add_waiting(self._waiting)
        draft.add_counts(everything=everything)
        return draft

    def _write_all(self, chain: ChainFile[State]) -> None:
        """Write what is counted and all that waits."""
        self._write(chain, self._draft(chain, everything=True))
        while not self._waiting.is_told(chain.state.told):
            self._write(chain, self._draft(chain, everything=True))

    def _write(self, chain: ChainFile[State], draft: Draft) -> None:
        if draft.records:
            chain.append_all(draft.records, draft.state)
            self._put(chain, [each for each in draft.records if not isinstance(each, bytes)])
            self._waiting.forget(chain.state.told)
        else:
            chain.keep(draft.state)

    def _put(self, chain: ChainFile[State], fields: list[Fields]) -> None:
        """Let the outputs beside the file have records that are in it."""
        if self.outputs is not None:
            self.outputs.put(self._principal, chain.end.file, fields)

    # --- files ---------------------------------------------------------------------------------

    def _first_file(self, state: State, *, parent: str) -> tuple[int, ChainFile[State]]:
        """Make and register the first file of this process; return it with the process's id."""
        chain, genesis = self._begun(state, {"parent": parent})
        self._put(chain, [genesis])
        return os.getpid(), chain

    def _begun(self, state: State, before: Fields, *, wait: float = index.WAIT) -> _Begun:
        """Make and register a new file.

        :param before: fields that say what was before it.
        :param wait: seconds for another process that adds to the index.
        """
        now = self._now()

        def begin(entries: Entries) -> _Begun:
            entries.check_moves()
            count = entries.chain.end.count
            chain = self._created(entries, state._replace(begun=now), now)
            try:
                return _Begun(chain, self._begin(entries, chain, before, now))
            except BaseException:
                chain.close()
                if not entries.has_grown(count):  # so that it is not registered
                    for each in (chain.name, head_name(chain.name)):
                        with contextlib.suppress(AuditError):
                            self._directory.remove(each)
                raise

        return index.update(self._directory, self._key, now=now, write=begin, wait=wait)

    def _register(self, chain: ChainFile[State], *, wait: float = index.WAIT) -> None:
        """Register the end of a file that is on the disk.

        :param wait: seconds for another process that adds to the index.
        """
        index.update(
            self._directory,
            self._key,
            now=self._now(),
            write=lambda entries: self._register_end(entries, chain.end),
            wait=wait,
        )

    def _register_end(self, entries: Entries, end: Head) -> None:
        self._index_end = entries.chain.end
        if end.file in self._registering and entries.has_end(end.file):
            return  # the call before was interrupted after it had written the entry
        self._registering.add(end.file)
        entries.add(
            {
                "count": end.count,
                "file": end.file,
                "mac": end.mac.hex(),
                "size": end.size,
                "time": self._now(),
                "type": "close",
            }
        )
        self._index_end = entries.chain.end

    def rotate_if_due(self) -> bool:
        """Go on in a new file if this one is large or old enough; return whether that happened.

        It waits for the disk, and meanwhile records go into the present file.

        :raises AuditError: if the new file could not be begun, or the end of the one before it not
            be registered, which the next call does.
        """
        return not self._closed and self._rotation.call(self._rotate_if_due)

    def _rotate_if_due(self) -> bool:
        chain = self._lock.call(self._due)
        self._register_ended()  # of a rotation before this one
        if chain is None:
            return False
        if self._next is None or self._next.chain is self._present[1]:
            state = initial_state(chain.state.policy)
            before: Fields = {"previous": chain.end.file}
            self._next = self._begun(state, before, wait=_ROTATION_WAIT)
        if not self._lock.call(self._go_on, chain):
            return False
        self._register_ended()
        return True

    def _ask_for_rotation(self) -> None:
        """Have the thread that keeps the files begin the next one; ask once a second."""
        now = self._now()
        if not 0 <= now - self._asked < SECOND:
            self._asked = now
            self._keep()
            if self._keeper is not None:
                self._keeper.look()

    def _due(self) -> ChainFile[State] | None:
        """Return the present file if it is time for another one."""
        if self._closed:
            return None
        chain = self._ready()
        end, age = chain.end, self._files.rotate_age * SECOND
        old = age and end.count > 1 and not 0 <= self._now() - chain.state.begun < age
        return chain if old or end.size >= self._files.rotate_size else None

    def _go_on(self, chain: ChainFile[State]) -> bool:
        """End the present file and go on in the prepared one; tell whether that happened."""
        prepared = self._next
        if prepared is None or self._closed or chain is not self._present[1]:
            return False
        if prepared.chain.state.policy != chain.state.policy:  # its first record names another
            self._next = None
            prepared.chain.close()
            return False
        try:
            prepared.chain.look()
        except AuditError:
            self._next = None
            prepared.chain.close()
            raise
        if not chain.settled().state.ended:
            draft = self._draft(chain, everything=False)
            draft.add_end(rotated=True)
            self._write(chain, draft)
        self._switch(chain)
        return True

    def _switch(self, chain: ChainFile[State]) -> ChainFile[State]:
        """Go on in the prepared file after *chain*, which is ended; return it."""
        prepared = self._next
        if prepared is None:
            raise AuditError("the log is closed", rule="audit.closed")
        fresh = prepared.chain
        fresh.keep(chain.state.in_new_file(self._now()))
        self._ended = chain
        self._present = (os.getpid(), fresh)
        self._next = None
        self._put(fresh, [prepared.genesis])
        return fresh

    def _register_ended(self) -> None:
        """Register the end of the file before the present one, if it is not registered yet."""
        ended = self._ended
        if ended is None or ended is self._present[1]:
            return
        failure = None
        try:
            ended.sync()  # what the index says about it, a loss of power must not take back
        except AuditError as error:
            # No later flush can tell whether the disk took its end after all. The index has it all
            # the same: what the disk lost is then missing, and not unknown.
            failure = error
        self._register(ended, wait=_ROTATION_WAIT)
        self._ended = None
        ended.close()
        if failure is not None:
            raise failure

    def _created(self, entries: Entries, state: State, now: int) -> ChainFile[State]:
        """Return a new file without a record."""
        file = index.new_id()
        stamp = datetime.fromtimestamp(now // SECOND, UTC).strftime("%Y%m%dT%H%M%SZ")
        name = f"{self._principal}-{stamp}-{file}.log"
        keys = file_keys(entries.key, directory=entries.directory_id, file=file)
        return new_file(self._directory, name, file=file, keys=keys, state=state, fsync=self._fsync)

    def _begin(self, entries: Entries, chain: ChainFile[State], before: Fields, now: int) -> Fields:
        """Write the first record of a new file, and register the file; return the record's fields.

        :param before: fields that say what was before it.
        """
        # The lock of the file first: what is registered and not locked counts as a dead process's.
        chain.hold()
        draft = Draft(chain.state, now, first=chain.end.count)
        genesis = self._genesis(entries, chain, before)
        draft.add("genesis", genesis)
        chain.append_all(draft.records, draft.state)
        chain.sync()
        self._directory.sync()
        entries.add(
            {
                "file": chain.end.file,
                "genesis": chain.end.mac.hex(),
                "name": chain.name,
                "principal": self._principal,
                "time": now,
                "type": "open",
                "version": index.RULE_VERSION,
            }
        )
        entries.move_key(now)
        self._index_end = entries.chain.end
        return genesis

    def _genesis(self, entries: Entries, chain: ChainFile[State], before: Fields) -> Fields:
        # The genesis names the end of the index, and the index then names the genesis: neither can
        # go back to an older state alone.
        return {
            "directory": entries.directory_id,
            "file": chain.end.file,
            "index_count": entries.chain.end.count,
            "index_mac": entries.chain.end.mac.hex(),
            "parent": "",
            "principal": self._principal,
            **process_fields(),
            "version": VERSION,
            **({"moves": entries.key.moves} if entries.moves else {}),
            **before,
            **policy_fields(chain.state.policy),
        }

    def _keep(self) -> None:
        """Have a thread keep the files, if none does."""
        if self._keeper is not None and self._keeper.lives:
            return
        from safeser.audit.upkeep.keeper import Keeper  # noqa: PLC0415 - of a log that is kept

        try:
            self._keeper = Keeper(
                self, path=self._directory.path, key=self._key, files=self._files, clock=self._clock
            )
        except RuntimeError as error:
            # No thread at the end of a process, or too many: the log goes on, its files stay.
            logger.warning("The audit log's files are not kept: %s", error)

    def head(self) -> str:
        """Return one line with the ends of this process's files and of the index, as of now.

        A file before the present one is among them until the index has its end.

        Kept where a user who can change the log cannot change it, it shows later that what was
        written until now is still there: see :func:`safeser.audit.verify`.
        """
        from safeser.audit.report import head_line  # noqa: PLC0415 - of a log whose heads are kept

        # In this order: what was ended after the first line is the present file there, and what is
        # registered after the second one is still among the ended.
        end = self._present[1].end
        ended = self._ended
        index_end = self._index_end
        if index_end is None:
            return ""
        named = [index_end, end] if ended is None else [index_end, ended.end, end]
        ends = {each.file: (each.count - 1, each.mac) for each in named if each.count}
        return head_line(index_end.file, ends)

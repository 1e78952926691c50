"""The files of one log, one after the other, and the thread that keeps them.

The one rule: a new file is made before the present one is ended, and each names the end of the one
before it. A rotation that cannot begin leaves the present file in use.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from safeser.audit import index
from safeser.audit.call_lock import CallLock
from safeser.audit.chain import Head, file_keys
from safeser.audit.chain_file import ChainFile, new_file
from safeser.audit.files import Directory, head_name
from safeser.audit.index import Entries
from safeser.audit.key import KeySource, source
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
from safeser.audit.writing.templates import Ready
from safeser.audit.writing.waiting import Waiting
from safeser.errors import AuditError, ConfigError
from safeser.values import check_principal

if TYPE_CHECKING:
    from safeser.audit.outputs.feed import Outputs
    from safeser.audit.upkeep.keeper import Keeper

__all__ = ["Durability", "LogFiles"]

Durability: TypeAlias = Literal["kernel", "fsync"]

logger = logging.getLogger("safeser.audit")

_LAST_TIME = 253_402_300_799 * SECOND  # the end of the year 9999

# How long a rotation waits for another process that adds to the index; without the lock the present
# file goes on, and the rotation is tried again a second later.
_ROTATION_WAIT = 0.05


class LogFiles:
    """The present file of one process, and the way to the next.

    The base of :class:`safeser.audit.AuditLog`, which calls it in one thread at a time.
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
        self._closed = False
        self._files = files
        self._keeper: Keeper | None = None
        # The file whose end is being registered, and the size of the index before it first was.
        self._registering = ("", 0)
        self._index_end: Head | None = None  # when this process last added to the index
        self._tried = -SECOND  # when a rotation failed last
        self._looked = 0
        self._waiting = Waiting()
        #: What was decided so far, for metrics and dashboards.
        self.activity = Activity()
        #: Sinks that get each record once it is in the file.
        self.outputs = outputs
        # One value, so that a process is never taken for the one that made its file.
        self._present = self._begun(initial_state(checked_policy(policy)), parent="")

    def _ready(self) -> ChainFile[State]:
        """Return the file of this process, which goes on where its last record is."""
        if self._closed:
            raise AuditError("the log is closed", rule="audit.closed")
        pid, chain = self._present
        if pid != os.getpid():
            self._present = self._begun(initial_state(chain.state.policy), parent=chain.end.file)
            chain.close()
            _, chain = self._present
            if self._files.is_timed:
                self._keep()
        position = chain.settled()
        state, files = position.state, self._files
        if state.rotated or (
            (files.rotate_age or position.end.size >= files.rotate_size) and self._is_due(chain)
        ):
            return self._rotated(chain)
        if state.ended:
            raise AuditError("the log is closed", rule="audit.closed")
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
        draft = Draft(chain.state, now)
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
            if self.outputs is not None:
                fields = [each for each in draft.records if not isinstance(each, Ready)]
                self.outputs.put(self._principal, chain.end.file, fields)
            self._waiting.forget(chain.state.told)
        else:
            chain.keep(draft.state)

    # --- files ---------------------------------------------------------------------------------

    def _begun(self, state: State, *, parent: str) -> tuple[int, ChainFile[State]]:
        """Make and register the file of this process; return it with the process's id."""
        now = self._now()
        state = state._replace(begun=now)

        def begin(entries: Entries) -> ChainFile[State]:
            chain = self._created(entries, state, now)
            try:
                self._begin(entries, chain, state, {"parent": parent}, now)
            except BaseException:
                chain.close()
                raise
            return chain

        return os.getpid(), index.update(self._directory, self._key, now=now, write=begin)

    def _register_end(self, entries: Entries) -> None:
        end = self._present[1].end
        self._index_end = entries.chain.end
        file, size = self._registering
        if file != end.file:
            self._registering = (end.file, entries.chain.end.size)
        elif entries.has_end(end.file, since=size):
            return  # the call before was interrupted after it had written the entry
        entries.add(
            {
                "count": end.count,
                "file": end.file,
                "mac": end.mac.hex(),
                "time": self._now(),
                "type": "close",
            }
        )
        self._index_end = entries.chain.end

    def rotate_if_due(self) -> bool:
        """Go on in a new file if this one is large or old enough; return whether that happened.

        Every record does that before it is written. This is for a log that is idle.

        :raises AuditError: if the new file could not be begun.
        """
        return not self._closed and self._lock.call(self._rotate_if_due)

    def _rotate_if_due(self) -> bool:
        before = self._present
        return not self._closed and self._ready() is not before[1]

    def _is_due(self, chain: ChainFile[State]) -> bool:
        """Tell whether it is time for another file."""
        end, age = chain.end, self._files.rotate_age * SECOND
        now, begun = self._now(), chain.state.begun
        if 0 <= now - self._tried < SECOND or chain.state.ended:
            return False
        old = age and end.count > 1 and not 0 <= now - begun < age
        return bool(old) or end.size >= self._files.rotate_size

    def _rotated(self, chain: ChainFile[State]) -> ChainFile[State]:
        """Return the file that the log goes on in: a new one, or *chain* if none can be begun."""
        now = self._now()
        if 0 <= now - self._tried < SECOND:
            raise AuditError(
                "the log has ended a file and cannot begin the next",
                rule="audit.rotation",
                where=self._directory.path,
                fix="See the error before this one; it is tried again every second.",
            )
        try:
            return self._rotate(chain)
        except AuditError:
            self._tried = now
            if chain.settled().state.ended:
                raise
            return chain

    def _rotate(self, chain: ChainFile[State]) -> ChainFile[State]:
        """End the file, and go on in a new one that names its end; return that."""
        now = self._now()

        def go_on(entries: Entries) -> ChainFile[State]:
            # The new file first: where it cannot be made, the present one goes on.
            fresh = self._created(entries, chain.state, now)
            try:
                if not chain.settled().state.ended:
                    draft = self._draft(chain, everything=False)
                    draft.add_end(rotated=True)
                    self._write(chain, draft)
                self._register_end(entries)
                end = chain.end
                before: Fields = {
                    "previous": end.file,
                    "previous_count": end.count,
                    "previous_mac": end.mac.hex(),
                }
                self._begin(entries, fresh, chain.state.in_new_file(now), before, now)
            except BaseException:
                fresh.close()
                if not fresh.end.count:
                    self._discard(fresh.name)
                raise
            return fresh

        fresh = index.update(self._directory, self._key, now=now, write=go_on, wait=_ROTATION_WAIT)
        self._present = (os.getpid(), fresh)
        chain.close()
        if self._files.compress or self._files.is_timed:
            self._keep()
        return fresh

    def _created(self, entries: Entries, state: State, now: int) -> ChainFile[State]:
        """Return a new file without a record."""
        file = index.new_id()
        stamp = datetime.fromtimestamp(now // SECOND, UTC).strftime("%Y%m%dT%H%M%SZ")
        name = f"{self._principal}-{stamp}-{file}.log"
        keys = file_keys(entries.key, directory=entries.directory_id, file=file)
        return new_file(self._directory, name, file=file, keys=keys, state=state, fsync=self._fsync)

    def _begin(
        self, entries: Entries, chain: ChainFile[State], state: State, before: Fields, now: int
    ) -> None:
        """Write the first record of a new file, and register the file.

        :param before: fields that say what was before it.
        """
        # The lock of the file first: what is registered and not locked counts as a dead process's.
        chain.hold()
        draft = Draft(state, now)
        draft.add("genesis", self._genesis(entries, chain, state, before))
        self._write(chain, draft)
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
            }
        )
        entries.move_key(now)
        self._index_end = entries.chain.end

    def _discard(self, name: str) -> None:
        """Remove a file that never had a record."""
        for each in (name, head_name(name)):
            with contextlib.suppress(AuditError):
                self._directory.remove(each)

    def _genesis(
        self, entries: Entries, chain: ChainFile[State], state: State, before: Fields
    ) -> Fields:
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
            **policy_fields(state.policy),
        }

    def _keep(self) -> None:
        """Have a thread keep the files; have it look at them now if there is one."""
        if self._keeper is not None:
            self._keeper.wake()
            return
        from safeser.audit.upkeep.keeper import Keeper  # noqa: PLC0415 - of a log that is kept

        try:
            self._keeper = Keeper(
                self,
                path=self._directory.path,
                key=self._key,
                files=self._files,
                clock=self._clock,
            )
        except RuntimeError as error:
            # No thread at the end of a process, or too many: the log goes on, its files stay.
            logger.warning("The audit log's files are not kept: %s", error)

    def head(self) -> str:
        """Return one line with the ends of this process's file and of the index, as of now.

        Kept where a user who can change the log cannot change it, it shows later that what was
        written until now is still there: see :func:`safeser.audit.verify`.
        """
        from safeser.audit.report import head_line  # noqa: PLC0415 - of a log whose heads are kept

        end, index_end = self._present[1].end, self._index_end
        if index_end is None:
            return ""
        ends = {each.file: (each.count - 1, each.mac) for each in (index_end, end) if each.count}
        return head_line(index_end.file, ends)

"""The audit log of one process: decisions in, chained records on disk out.

The one rule: :meth:`AuditLog.record` returns only when the record is in the file and covered by its
head; otherwise it raises, and the caller refuses the message.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import socket
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from safeser.audit import index
from safeser.audit.call_lock import CallLock
from safeser.audit.chain import file_keys
from safeser.audit.chain_file import ChainFile, new_file
from safeser.audit.files import Directory
from safeser.audit.index import Entries
from safeser.audit.key import KeySource, resolve
from safeser.audit.names import VERSION
from safeser.audit.outputs.activity import Activity
from safeser.audit.record import MAX_INT, Field, clean, printable
from safeser.audit.state import Draft, Fields, PolicyName, State, initial_state, policy_fields
from safeser.audit.tally import SECOND, note_refusal
from safeser.errors import AuditError, ConfigError, SafeserError
from safeser.values import check_principal

if TYPE_CHECKING:
    from safeser.audit.outputs.feed import Outputs

__all__ = ["AuditLog", "Durability", "PolicyName"]

Durability: TypeAlias = Literal["kernel", "fsync"]

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_NO_POLICY: PolicyName = ("none", 0, "0" * 64)

_LAST_TIME = 253_402_300_799 * SECOND  # the end of the year 9999


class AuditLog:
    """Tamper-evident record of one process's decisions, safe for many threads.

    Made by :meth:`open`. A forked child that uses it gets a file of its own.
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
    ) -> None:
        if durability not in ("kernel", "fsync"):
            raise ConfigError(
                "durability must be 'kernel' or 'fsync'", rule="config.audit-durability"
            )
        self._directory = directory
        self._key = resolve(key)
        self._principal = check_principal(principal)
        self._clock = clock
        self._fsync = durability == "fsync"
        self._lock = CallLock()
        self._closed = False
        self._index_size = -1  # of the index, before this log's end was first registered there
        self._looked = 0
        #: What was decided so far, for metrics and dashboards.
        self.activity = Activity()
        #: Sinks that get each record once it is in the file.
        self.outputs = outputs
        # One value, so that a process is never taken for the one that made its file.
        self._present = self._begun(initial_state(_check_policy(policy)), parent="")

    @property
    def refusals(self) -> dict[str, int]:
        """What this process refused since it opened the log: how often, by rule."""
        pid, chain = self._present
        return dict(chain.state.refusals) if pid == os.getpid() else {}

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        key: KeySource,
        principal: str,
        policy: PolicyName = _NO_POLICY,
        clock: Callable[[], int] = time.time_ns,
        durability: Durability = "kernel",
        outputs: Outputs | None = None,
    ) -> AuditLog:
        """Begin a new file in *directory* for this process, and register it in the index.

        :param directory: made with mode 0700 if missing; refused if others can write to it.
        :param key: an :class:`AuditKey`, its 32 bytes, or the path of its file. Every process that
            writes into one directory uses the same key.
        :param principal: the principal of this process.
        :param policy: name, revision and SHA-256 of the policy that it enforces.
        :param clock: nanoseconds since 1970.
        :param durability: ``"kernel"``: a record survives the death of the process, not a loss of
            power. ``"fsync"``: it survives that too, and costs a disk flush.
        :param outputs: sinks beside the file, which the log closes.
        :raises AuditError: if the log cannot be written or was tampered with.
        :raises ConfigError: if the key or another argument is not right.
        """
        place = Directory(directory, create=True)
        try:
            place.check_private()
            log = cls(
                place,
                key=key,
                principal=principal,
                policy=policy,
                clock=clock,
                durability=durability,
                outputs=outputs,
            )
        except BaseException:
            place.close()
            raise
        _live.add(log)
        return log

    # --- writing -------------------------------------------------------------------------------

    def record(self, event: Mapping[str, Field]) -> None:
        """Append one record of *event*; return when it is as durable as configured.

        A refusal (``permitted`` is False) beyond its sender's burst is counted instead; see
        ``docs/how-to/audit.md``. A permitted event is always written.

        :raises AuditError: if it could not be written. The caller refuses the message.
        """
        self.record_all((event,))

    def record_all(self, events: Sequence[Mapping[str, Field]]) -> None:
        """Append a record of each of *events*, in their order, in one write; see :meth:`record`.

        :raises AuditError: if they could not be written; then none of them is in the file.
        """
        try:
            self._lock.call(self._record, [clean(event) for event in events])
        except AuditError:
            self.activity.failures += 1
            raise

    def _record(self, events: list[Fields]) -> None:
        chain = self._ready()
        seen = self.activity.seen(events)  # before the draft takes fields out of them
        draft = self._draft(chain, everything=False)
        for fields in events:
            draft.add_event(fields)
        self._write(chain, draft)
        self.activity.add(seen, draft.now)

    def count(
        self,
        sender: str,
        recipient: str,
        operation: str,
        rule: str,
        permitted: bool,
        *,
        times: int = 1,
        kind: str = "admin",
    ) -> None:
        """Count a decision; the counts become one record after a second or 1,000 decisions.

        :param times: how often it was taken.
        :param kind: of its message, for metrics; the record does not say it.
        :raises AuditError: if that record was due and could not be written.
        """
        try:
            decision = (sender, recipient, operation, rule, permitted)
            self._lock.call(self._count, decision, times, kind)
        except AuditError:
            self.activity.failures += 1
            raise

    def _count(self, decision: tuple[str, str, str, str, bool], times: int, kind: str) -> None:
        chain = self._ready()
        state = chain.state
        now = self._now()
        due = state.tally.add(decision, now, times)
        if not decision[4]:
            note_refusal(state.refusals, decision[3], times)
        self.activity.count(*decision[2:], kind=kind, times=times, now=now)
        if due:
            self._write(chain, self._draft(chain, everything=True))

    def flush(self) -> None:
        """Write what is only counted so far, and check that the file is still in its place."""
        self._lock.call(self._flush)

    def _flush(self) -> None:
        chain = self._ready()
        self._write(chain, self._draft(chain, everything=True))
        chain.look()
        if self._fsync:
            chain.sync()

    def use_policy(self, policy: PolicyName) -> None:
        """Record that from here on decisions follow *policy*."""
        self._lock.call(self._use_policy, _check_policy(policy))

    def _use_policy(self, policy: PolicyName) -> None:
        chain = self._ready()
        draft = self._draft(chain, everything=True)
        draft.add_policy(policy)
        self._write(chain, draft)

    def close(self) -> None:
        """Write the counts and a closing record, and register the file's end in the index.

        Closing twice does nothing. A process that does not come to close leaves a log that
        verifies, too. Where another exception than AuditError interrupts it, such as
        KeyboardInterrupt, closing again goes on with it.

        :raises AuditError: if the end could not be written; the file is closed all the same.
        """
        # From a signal handler in the middle of a call it would wait for its own thread.
        if not self._lock.is_mine():
            self._lock.call(self._close)

    def _close(self) -> None:
        if self._closed:
            return
        pid, chain = self._present
        try:
            if pid == os.getpid():
                self._finish(chain)
        except AuditError:
            self._shut(chain)
            raise
        self._shut(chain)

    def _finish(self, chain: ChainFile[State]) -> None:
        chain.settled()
        if not chain.state.ended:
            draft = self._draft(chain, everything=True)
            draft.add_end()
            self._write(chain, draft)
        chain.look()
        chain.sync()
        index.update(self._directory, self._key, now=self._now(), write=self._register_end)

    def _register_end(self, entries: Entries) -> None:
        end = self._present[1].end
        if self._index_size < 0:
            self._index_size = entries.chain.end.size
        elif entries.has_end(end.file, since=self._index_size):
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

    def _shut(self, chain: ChainFile[State]) -> None:
        self._closed = True
        chain.close()
        self._directory.close()
        if self.outputs is not None:
            self.outputs.close()
        _live.discard(self)

    def _ready(self) -> ChainFile[State]:
        """Return the file of this process, which goes on where its last record is."""
        if self._closed:
            raise AuditError("the log is closed", rule="audit.closed")
        pid, chain = self._present
        if pid != os.getpid():
            self._present = self._begun(initial_state(chain.state.policy), parent=chain.end.file)
            chain.close()
            _, chain = self._present
        if chain.settled().state.ended:
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
        draft.add_counts(everything=everything)
        return draft

    def _write(self, chain: ChainFile[State], draft: Draft) -> None:
        if draft.records:
            chain.append_all(draft.records, draft.state)
            if self.outputs is not None:
                self.outputs.put(self._principal, chain.end.file, draft.records)
        else:
            chain.keep(draft.state)

    # --- files ---------------------------------------------------------------------------------

    def _begun(self, state: State, *, parent: str) -> tuple[int, ChainFile[State]]:
        """Make and register the file of this process; return it with the process's id."""
        now = self._now()

        def begin(entries: Entries) -> ChainFile[State]:
            return self._new_file(entries, state, parent, now)

        return os.getpid(), index.update(self._directory, self._key, now=now, write=begin)

    def _new_file(self, entries: Entries, state: State, parent: str, now: int) -> ChainFile[State]:
        file = index.new_id()
        stamp = datetime.fromtimestamp(now // SECOND, UTC).strftime("%Y%m%dT%H%M%SZ")
        name = f"{self._principal}-{stamp}-{file}.log"
        keys = file_keys(self._key, directory=entries.directory_id, file=file)
        chain = new_file(
            self._directory, name, file=file, keys=keys, state=state, fsync=self._fsync
        )
        try:
            draft = Draft(state, now)
            draft.add("genesis", self._genesis(entries, chain, parent))
            self._write(chain, draft)
            chain.sync()
            self._directory.sync()
            entries.add(
                {
                    "file": file,
                    "genesis": chain.end.mac.hex(),
                    "name": name,
                    "principal": self._principal,
                    "time": now,
                    "type": "open",
                }
            )
        except BaseException:
            chain.close()
            raise
        return chain

    def _genesis(self, entries: Entries, chain: ChainFile[State], parent: str) -> Fields:
        # The genesis names the end of the index, and the index then names the genesis: neither can
        # go back to an older state alone.
        return {
            "directory": entries.directory_id,
            "file": chain.end.file,
            "host": printable(socket.gethostname(), 64),
            "index_count": entries.chain.end.count,
            "index_mac": entries.chain.end.mac.hex(),
            "parent": parent,
            "pid": os.getpid(),
            "principal": self._principal,
            "program": printable(os.path.basename(sys.argv[0] if sys.argv else ""), 64),
            "version": VERSION,
            **policy_fields(chain.state.policy),
        }

    def _after_fork(self) -> None:
        # The lock may be held by a thread that does not exist here. The file is closed at once:
        # two writers would break its chain.
        self._lock, self.activity = CallLock(), Activity()
        if self.outputs is not None:
            self.outputs.after_fork()
        self._present[1].close()

    # --- the rest ------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Path of this process's file."""
        return self._present[1].place

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"AuditLog({self.path!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an audit log is not pickled; each process opens its own")


def _check_policy(policy: PolicyName) -> PolicyName:
    name, revision, digest = policy
    if not isinstance(name, str) or not isinstance(revision, int) or isinstance(revision, bool):
        raise ConfigError("a policy has a name and a revision", rule="config.audit-policy")
    if not 0 <= revision <= MAX_INT or not _SHA256.match(digest):
        raise ConfigError(
            "a policy has a revision from 0 and the SHA-256 of its text in 64 lower-case"
            " hexadecimal digits",
            rule="config.audit-policy",
        )
    return (printable(name, 64), revision, digest)


#: Logs that are open in this process, for the end of the process and for forks.
_live: weakref.WeakSet[AuditLog] = weakref.WeakSet()


def _close_all() -> None:
    for log in list(_live):
        # At exit no message is left to refuse; the file verifies without its closing record.
        with contextlib.suppress(SafeserError, OSError):
            log.close()


def _forked() -> None:
    for log in list(_live):
        log._after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forked)

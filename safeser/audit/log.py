"""The audit log of one process: decisions in, chained records on disk out.

The one rule: :meth:`AuditLog.record` returns only when the record is in the file and covered by its
head; otherwise it raises, and the caller refuses the message.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from safeser.audit.call_lock import CallLock
from safeser.audit.chain_file import ChainFile
from safeser.audit.files import Directory
from safeser.audit.key import KeySource
from safeser.audit.outputs.activity import Activity, Seen, see
from safeser.audit.state import PolicyName, State, checked_policy
from safeser.audit.tally import note_refusal
from safeser.audit.upkeep.settings import AuditFiles
from safeser.audit.writing.log_files import Durability, LogFiles
from safeser.audit.writing.open_logs import OPEN
from safeser.audit.writing.waiting import Waiting, is_of_disk
from safeser.errors import AuditError
from safeser.gate.event import Field
from safeser.gate.values import AuditFailure

if TYPE_CHECKING:
    from safeser.audit.outputs.feed import Outputs
    from safeser.gate.chain import Head

__all__ = ["AuditLog", "Durability", "PolicyName"]

#: Sender, recipient, operation, rule and outcome of a decision that is counted.
Decision: TypeAlias = tuple[str, str, str, str, bool]

_NO_POLICY: PolicyName = ("none", 0, "0" * 64)

_FILES = AuditFiles()
_CLOSING_WAIT = 5.0  # seconds for the last heads


class AuditLog(LogFiles):
    """Tamper-evident record of one process's decisions, safe for many threads.

    Made by :meth:`open`. A forked child that uses it gets a file of its own.
    """

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
        files: AuditFiles = _FILES,
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
        :param files: when its files are rotated, compressed and removed, and where heads go.
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
                files=files,
            )
        except BaseException:
            place.close()
            raise
        OPEN.add(log)
        if files.is_timed:
            log._keep()
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
            self._lock.call(self._record, events)
        except AuditError:
            self.activity.failures += 1
            raise

    def _record(self, events: Sequence[Mapping[str, Field]]) -> None:
        self._append(self._ready(), events)

    def _append(self, chain: ChainFile[State], events: Sequence[Mapping[str, Field]]) -> None:
        draft = self._draft(chain, everything=False)
        draft.add_events(events, plain=self.outputs is not None)
        self._write(chain, draft)
        self.activity.add(draft.seen)

    def record_or_keep(
        self, events: Sequence[Mapping[str, Field]], answers: Sequence[AuditFailure]
    ) -> None:
        """Append a record of each of *events*; where the disk does not take them, keep them.

        What waits is written before the next record, with a record ``gap`` that says how many
        waited and how many are lost.

        :param answers: what the contexts of the events say, one for each; none of them is refuse.
        :raises AuditError: if they could not be written, and no more may wait.
        """
        self._lock.call(self._record_or_keep, events, answers)

    def _record_or_keep(
        self, events: Sequence[Mapping[str, Field]], answers: Sequence[AuditFailure]
    ) -> None:
        before = None
        try:
            chain = self._ready()  # once: it may end the file, whose records these are not
            before = chain.end
            self._append(chain, events)
        except AuditError as failure:
            self.activity.failures += 1
            if not is_of_disk(failure) or not self._kept(events, answers, before, failure):
                raise

    def _kept(
        self,
        events: Sequence[Mapping[str, Field]],
        answers: Sequence[AuditFailure],
        before: Head | None,
        failure: AuditError,
    ) -> bool:
        now, first = self._now(), not self._waiting.reason
        # The file may have taken them, where its head or the disk failed afterwards.
        if not self._is_beyond(before) and not self._waiting.take(events, answers, now, failure):
            return False
        seen: Seen = ({}, [])
        for event in events:
            see(seen, event)
        self.activity.add(seen)
        if first and self._keeper is not None:
            self._keeper.wake()  # it removes files, where it may
        return True

    def _is_beyond(self, before: Head | None) -> bool:
        """Tell whether the present file has more records than *before*."""
        if before is None:
            return False
        chain = self._present[1]
        try:
            end = chain.settled().end
        except AuditError:
            return chain.has_taken()  # its head covers them as soon as it can be written
        return end.file == before.file and end.count > before.count

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

    def count_anyway(
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
        """Count a decision as :meth:`count` does, where a disk that fails refuses no message.

        The counts become a later record. Where even the end of the file is in doubt, the decision
        is counted as lost.
        """
        decision = (sender, recipient, operation, rule, permitted)
        self._lock.call(self._count_anyway, decision, times, kind)

    def _count_anyway(self, decision: Decision, times: int, kind: str) -> None:
        chain = None
        try:
            chain = self._ready()
            self._count(decision, times, kind, chain)
        except AuditError as failure:
            self.activity.failures += 1
            if not is_of_disk(failure):
                raise
            if chain is None:
                self._waiting.lose(times, self._now(), failure)
                self.activity.count(*decision[2:], kind=kind, times=times)

    def _count(
        self, decision: Decision, times: int, kind: str, chain: ChainFile[State] | None = None
    ) -> None:
        chain = chain or self._ready()
        state, now = chain.state, self._now()
        due = state.tally.add(decision, now, times)
        _, _, operation, rule, permitted = decision
        if not permitted:
            note_refusal(state.refusals, rule, times)
        self.activity.count(operation, rule, permitted, kind=kind, times=times)
        if due:
            self._write(chain, self._draft(chain, everything=True))

    def write_counts(self) -> None:
        """Write what is counted and due: in an idle process no further decision does it."""
        self._lock.call(self._write_counts)

    def _write_counts(self) -> None:
        chain = self._ready()
        if chain.state.tally.due(self._now()):
            self._write(chain, self._draft(chain, everything=True))

    def flush(self) -> None:
        """Write what is only counted so far, and check that the file is still in its place."""
        self._lock.call(self._flush)

    def _flush(self) -> None:
        chain = self._ready()
        self._write_all(chain)
        chain.look()
        if self._fsync:
            chain.sync()

    def use_policy(self, policy: PolicyName) -> None:
        """Record that from here on decisions follow *policy*."""
        self._lock.call(self._use_policy, checked_policy(policy))

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
        if self._lock.is_mine() or self._rotation.is_mine():
            return
        try:
            self._rotation.call(self._lock.call, self._close)
        finally:
            keeper, self._keeper = self._keeper, None
            if keeper is not None:
                keeper.stop(_CLOSING_WAIT)

    def _close(self) -> None:
        if self._closed:
            return
        try:
            if self._present[0] == os.getpid():
                self._finish()
        except AuditError:
            self._shut()
            raise
        self._shut()

    def _finish(self) -> None:
        chain = self._present[1]
        if chain.settled().state.rotated:
            chain = self._switch(chain)  # that was interrupted
        if not chain.state.ended:
            self._write_all(chain)
            draft = self._draft(chain, everything=True)
            draft.add_end()
            self._write(chain, draft)
        chain.look()
        chain.sync()
        self._register(chain)
        self._register_ended()

    def _shut(self) -> None:
        self._closed = True
        self._close_files()
        self._directory.close()
        if self.outputs is not None:
            self.outputs.close()
        OPEN.discard(self)

    def _close_files(self) -> None:
        prepared = self._next.chain if self._next is not None else None
        for chain in (self._present[1], prepared, self._ended):
            if chain is not None:
                chain.close()

    def _after_fork(self) -> None:
        # The locks may be held by threads that do not exist here. The files are closed at once: two
        # writers would break a chain. The thread that keeps the files is the parent's.
        self._lock, self._rotation = CallLock(), CallLock()
        self.activity, self._waiting = Activity(), Waiting()
        self._keeper = None
        if self.outputs is not None:
            self.outputs.after_fork()
        self._close_files()

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

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
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, NoReturn, TypeAlias

from safeser.audit import index
from safeser.audit.chain import file_keys
from safeser.audit.files import ChainFile, Directory
from safeser.audit.key import KeySource, resolve
from safeser.audit.record import MAX_INT, Field, clean, label, printable
from safeser.audit.tally import SECOND, Tally, Throttle
from safeser.errors import AuditError, ConfigError, SafeserError
from safeser.values import check_principal

__all__ = ["AuditLog", "Durability", "PolicyName"]

#: Name, revision and SHA-256 (64 hexadecimal digits) of a policy.
PolicyName: TypeAlias = tuple[str, int, str]

Durability: TypeAlias = Literal["kernel", "fsync"]

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_NO_POLICY: PolicyName = ("none", 0, "0" * 64)

_RULES_MAX = 256  # there are fewer

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
        self._policy = _check_policy(policy)
        self._policy_text = _policy_text(policy)
        self._lock = threading.RLock()
        self._busy = False
        self._closed = False
        self._chain: ChainFile | None = None
        self._file = ""
        self._pid = -1
        self._reset()

    def _reset(self) -> None:
        self._tally = Tally()
        self._throttle = Throttle()
        self._looked = 0
        self._refusals: Counter[str] = Counter()

    @property
    def refusals(self) -> dict[str, int]:
        """What this process refused since it opened the log: how often, by rule."""
        with self._lock:
            return dict(self._refusals)

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
    ) -> AuditLog:
        """Begin a new file in *directory* for this process, and register it in the index.

        :param directory: made with mode 0700 if missing; refused if others can write to it.
        :param key: an :class:`AuditKey`, its 32 bytes, or the path of its file. Every process that
            writes into one directory uses the same key.
        :param principal: who this process is.
        :param policy: name, revision and SHA-256 of the policy that it enforces.
        :param clock: nanoseconds since 1970.
        :param durability: ``"kernel"``: a record survives the death of the process, not a loss of
            power. ``"fsync"``: it survives that too, and costs a disk flush.
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
            )
            log._begin(parent="")
        except SafeserError:
            place.close()
            raise
        _live.add(log)
        return log

    # --- writing -------------------------------------------------------------------------------

    def record(self, event: Mapping[str, Field]) -> None:
        """Append one record of *event*; return when it is as durable as configured.

        A refusal (``permitted`` is False) beyond its sender's burst is counted instead; see
        ``docs/audit.md``. A permitted event is always written.

        :raises AuditError: if it could not be written. The caller refuses the message.
        """
        self.record_all((event,))

    def record_all(self, events: Sequence[Mapping[str, Field]]) -> None:
        """Append a record of each of *events*, in their order, in one write; see :meth:`record`.

        :raises AuditError: if they could not be written; then none of them is in the file.
        """
        cleaned = [clean(event) for event in events]
        with self._using() as chain:
            now = self._write_due(chain)
            written = [fields for fields in cleaned if self._is_written(fields, now)]
            if written:
                chain.append_all([self._finished("event", fields, now) for fields in written])

    def _note_refusal(self, rule: object) -> None:
        name = label(rule)
        # A rule may be a peer's word, where its error is what was refused.
        known = name in self._refusals or len(self._refusals) < _RULES_MAX
        self._refusals[name if known else "other"] += 1

    def _is_written(self, fields: dict[str, object], now: int) -> bool:
        """Tell whether an event is written, rather than counted."""
        if fields.get("permitted") is not False:
            return True
        self._note_refusal(fields.get("rule"))
        write, last = self._throttle.admit(fields.get("sender"), fields.get("rule"), now)
        if last:
            fields["then"] = "counted"
        return write

    def count(
        self, sender: str, recipient: str, operation: str, rule: str, permitted: bool
    ) -> None:
        """Count one decision; the counts become one record after a second or 1,000 decisions.

        :raises AuditError: if that record was due and could not be written.
        """
        with self._lock:
            if self._busy or self._closed:
                self._refuse_call()
            if not permitted:
                self._note_refusal(rule)
            if self._tally.add((sender, recipient, operation, rule, permitted), self._now()):
                with self._using() as chain:
                    self._write_due(chain, everything=True)

    def flush(self) -> None:
        """Write what is only counted so far, and check that the file is still in its place."""
        with self._using() as chain:
            self._write_due(chain, everything=True)
            chain.look()
            if self._fsync:
                chain.sync()

    def use_policy(self, policy: PolicyName) -> None:
        """Record that from here on decisions follow *policy*."""
        checked = _check_policy(policy)
        with self._using() as chain:
            self._write_due(chain, everything=True)
            self._policy, self._policy_text = checked, _policy_text(checked)
            self._append(chain, "policy", _policy_fields(checked), self._now())

    def close(self) -> None:
        """Write the counts and a closing record, and register the file's end in the index.

        Closing twice does nothing. A process that does not come to close leaves a log that
        verifies, too.

        :raises AuditError: if the end could not be written; the file is closed all the same.
        """
        with self._lock:
            if self._closed or self._busy:
                return
            chain = self._chain
            try:
                if chain is not None and self._pid == os.getpid():
                    self._finish(chain)
            finally:
                self._closed = True
                if chain is not None:
                    chain.close()
                self._directory.close()
                _live.discard(self)

    def _finish(self, chain: ChainFile) -> None:
        self._write_due(chain, everything=True)
        self._append(chain, "close", {}, self._now())
        chain.look()
        chain.sync()
        now = self._now()
        with index.locked(self._directory, self._key, now=now) as entries:
            entries.chain.append(
                {
                    "count": chain.count,
                    "file": self._file,
                    "mac": chain.mac.hex(),
                    "time": now,
                    "type": "close",
                }
            )

    def _using(self) -> _Use:
        return _Use(self)

    def _refuse_call(self) -> NoReturn:
        if self._closed:
            raise AuditError("the log is closed", rule="audit.closed")
        # A signal handler interrupted us in the middle of a record, on this very thread.
        raise AuditError("the log was called from inside itself", rule="audit.reentered")

    def _now(self) -> int:
        now = self._clock() // 1_000
        if not 0 <= now <= _LAST_TIME:
            raise AuditError("the clock is not between 1970 and 9999", rule="audit.clock")
        return now

    def _append(self, chain: ChainFile, kind: str, fields: dict[str, object], now: int) -> None:
        chain.append(self._finished(kind, fields, now))

    def _finished(self, kind: str, fields: dict[str, object], now: int) -> dict[str, object]:
        fields["policy"] = self._policy_text
        fields["time"] = now
        fields["type"] = kind
        return fields

    def _write_due(self, chain: ChainFile, *, everything: bool = False) -> int:
        """Write the counts and summaries whose time has come; return the time."""
        now = self._now()
        if not 0 <= now - self._looked < SECOND:
            self._looked = now
            chain.look()
        tally, throttle = self._tally, self._throttle
        if tally.total and (everything or tally.due(now)):
            fields: dict[str, object] = {"counts": tally.peek(), "since": tally.since}
            self._append(chain, "counts", fields, now)
            tally.clear()
        while throttle.pending and (everything or throttle.due(now)):
            entries = throttle.peek()
            self._append(chain, "suppressed", {"suppressed": entries}, now)
            throttle.clear(entries)
        return now

    # --- files ---------------------------------------------------------------------------------

    def _begin(self, *, parent: str) -> None:
        """Make and register the file of this process."""
        now = self._now()
        file = index.new_id()
        stamp = datetime.fromtimestamp(now // SECOND, UTC).strftime("%Y%m%dT%H%M%SZ")
        name = f"{self._principal}-{stamp}-{file}.log"
        with index.locked(self._directory, self._key, now=now) as entries:
            keys = file_keys(self._key, directory=entries.directory_id, file=file)
            chain = ChainFile.create(self._directory, name, file=file, keys=keys, fsync=self._fsync)
            try:
                # The genesis names the end of the index, and the index then names the genesis:
                # neither can go back to an older state alone.
                genesis: dict[str, object] = {
                    "directory": entries.directory_id,
                    "file": file,
                    "host": printable(socket.gethostname(), 64),
                    "index_count": entries.chain.count,
                    "index_mac": entries.chain.mac.hex(),
                    "parent": parent,
                    "pid": os.getpid(),
                    "principal": self._principal,
                    "program": printable(os.path.basename(sys.argv[0] if sys.argv else ""), 64),
                    "version": 1,
                    **_policy_fields(self._policy),
                }
                self._append(chain, "genesis", genesis, now)
                chain.sync()
                self._directory.sync()
                entries.chain.append(
                    {
                        "file": file,
                        "genesis": chain.mac.hex(),
                        "name": name,
                        "principal": self._principal,
                        "time": now,
                        "type": "open",
                    }
                )
            except AuditError:
                chain.close()
                raise
        self._chain, self._file, self._pid = chain, file, os.getpid()
        self._looked = now

    def _after_fork(self) -> None:
        # The lock may be held by a thread that does not exist here, and the counts are the
        # parent's to write. The file is closed at once: two writers would break its chain.
        self._lock = threading.RLock()
        self._busy = False
        self._pid = -1
        self._reset()
        if self._chain is not None:
            self._chain.close()

    # --- the rest ------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Path of this process's file."""
        return self._chain.place if self._chain is not None else ""

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


class _Use:
    """Holds a log for one thread while it writes; a class, since it runs for each record."""

    __slots__ = ("_lock", "_log")

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._lock = log._lock

    def __enter__(self) -> ChainFile:
        log = self._log
        self._lock.acquire()
        try:
            if log._busy or log._closed:
                log._refuse_call()
            if log._pid != os.getpid() or log._chain is None:
                log._begin(parent=log._file)
            assert log._chain is not None
            log._busy = True
        except BaseException:
            self._lock.release()
            raise
        else:
            return log._chain

    def __exit__(self, *_: object) -> None:
        self._log._busy = False
        self._lock.release()


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


def _policy_text(policy: PolicyName) -> str:
    # Short in each record; the genesis or policy record before it has the whole digest.
    name, revision, digest = policy
    return f"{printable(name, 64)}/{revision}/{digest[:16]}"


def _policy_fields(policy: PolicyName) -> dict[str, object]:
    name, revision, digest = policy
    return {"policy_name": name, "policy_revision": revision, "policy_sha256": digest}


#: Logs that are open in this process, for the end of the process and for forks.
_live: weakref.WeakSet[AuditLog] = weakref.WeakSet()


def _close_all() -> None:
    for log in list(_live):
        # Nobody is left to refuse anything; the file verifies without its closing record.
        with contextlib.suppress(SafeserError, OSError):
            log.close()


def _forked() -> None:
    for log in list(_live):
        log._after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forked)

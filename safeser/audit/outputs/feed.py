"""Hand the records of a log to sinks beside its file, each in a thread of its own.

The one rule: a sink costs the log nothing. A sink that fails or is slow loses records, which are
counted; the file has them all, and no message waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from safeser.audit.names import Resolver
from safeser.audit.record import Record
from safeser.errors import AuditError

__all__ = ["Feed", "Outputs", "Sink"]

logger = logging.getLogger("safeser.audit")

#: Records that wait for one sink: some 10 MB, and a second of a busy scheduler.
MOST: Final = 10_000

#: Records that a sink gets in one call.
_BATCH = 256

#: Seconds after which a sink that failed is tried again, at first and at most.
_DELAY, _LONGEST = 0.5, 30.0

#: Seconds that closing the log waits for a sink that still has records.
PATIENCE = 3.0


class Sink(Protocol):
    """Where records go beside the file."""

    @property
    def name(self) -> str:
        """The name by which metrics and warnings call it."""

    def send(self, records: Sequence[Record]) -> None:
        """Write *records*, each of which has all of its fields.

        :raises OSError: if it could not; the same records come again later.
        """

    def close(self) -> None:
        """Write what it still holds, and free what it has open."""


class Feed:
    """The records that wait for one sink, and the thread that sends them.

    :ivar lost: records that it did not get, because too many waited or the process ended.
    """

    def __init__(self, sink: Sink, *, most: int = MOST, delay: float = _DELAY) -> None:
        self._sink = sink
        self._most = most
        self._delay = delay
        self.lost = 0
        self.after_fork()

    def after_fork(self) -> None:
        """Begin without a thread, as in a child process, which has none of its parent's."""
        # Its put() takes no lock that a fork or a signal handler could find held.
        self._queue: SimpleQueue[Record | None] = SimpleQueue()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        return self._sink.name

    def put(self, record: Record) -> None:
        """Let the sink have *record*; called by one thread at a time, and never waits."""
        if self._queue.qsize() >= self._most:
            self.lost += 1
            return
        self._queue.put(record)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"safeser audit {self.name}", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        told = 0  # of those lost
        while True:
            batch = [self._queue.get()]
            with suppress(Empty):
                while len(batch) < _BATCH and batch[-1] is not None:
                    batch.append(self._queue.get_nowait())
            records = [each for each in batch if each is not None]
            lost = self.lost
            if lost > told and records:
                # So many records before it are in the file alone.
                times: dict[str, object] = {"times": lost - told}
                told, last = lost, records[-1]
                records.append(Record(last.sequence, last.time, "lost", times, b""))
            if records and not self._deliver(records):
                self.lost += len(records) + self._queue.qsize()
                return
            if batch[-1] is None:
                return

    def _deliver(self, records: Sequence[Record]) -> bool:
        """Send *records*, again and again where that fails; return False where the log ends."""
        delay, failed = self._delay, False
        while True:
            try:
                self._sink.send(records)
            except Exception as error:  # a sink can be another library's: its thread goes on
                if not failed:
                    reason = getattr(error, "strerror", None) or type(error).__name__
                    logger.warning("The audit output %s does not write: %s", self.name, reason)
                failed = True
            else:
                if failed:
                    logger.warning("The audit output %s writes again", self.name)
                return True
            if self._ended.wait(delay):
                return False
            delay = min(2 * delay, _LONGEST)

    def close(self, patience: float = PATIENCE) -> None:
        """Send what waits, for at most *patience* seconds, and close the sink."""
        thread = self._thread
        if thread is not None:
            self._queue.put(None)
            thread.join(patience)
            self._ended.set()
            if thread.is_alive():
                # It may hang in a write; a sink is not closed under its thread.
                logger.warning("The audit output %s did not take its last records", self.name)
                return
        with suppress(Exception):  # as above
            self._sink.close()


class Outputs:
    """The sinks of one log.

    Files state once what many records say alike; sinks get each record with all of its fields, so
    that one that is lost takes nothing from the others.
    """

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self.feeds = [Feed(sink) for sink in sinks]
        self._resolver = Resolver()

    def put(self, log: str, file: str, records: Sequence[Mapping[str, object]]) -> None:
        """Let the sinks have *records*, which are in the file by now.

        :param log: the principal whose log it is, and *file* the id of its file.
        """
        if not self.feeds:
            return
        for fields in records:
            record = self._resolved({"log": log, "file": file, **fields})
            for feed in self.feeds:
                feed.put(record)

    def _resolved(self, own: dict[str, object]) -> Record:
        sequence, time = own.pop("seq"), own.pop("time")
        kind = own.pop("type", "event")
        assert isinstance(sequence, int)
        assert isinstance(time, int)
        assert isinstance(kind, str)
        if kind == "genesis":
            self._resolver = Resolver()  # numbers count within one file
        record = Record(sequence, time, kind, own, b"")
        with suppress(AuditError):  # after an interruption, which the file alone recovers from
            record = self._resolver.resolve(record)
        return record

    def close(self) -> None:
        """Send what waits, and close the sinks."""
        for feed in self.feeds:
            feed.close()

    def after_fork(self) -> None:
        """Begin anew in a child process."""
        self._resolver = Resolver()
        for feed in self.feeds:
            feed.after_fork()

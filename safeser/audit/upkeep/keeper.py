"""The thread that keeps a log's files: rotates them, compresses, removes, writes heads.

The one rule: no thread that reads messages waits for the disk because of it; what fails here is
logged and tried again, and never lets a record be lost.
"""

from __future__ import annotations

import errno
import logging
import logging.handlers
import os
import shlex
import stat
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final, Protocol, TypeAlias, TypeVar

from safeser.audit.files import Directory
from safeser.audit.key import AuditKey, KeyFile
from safeser.audit.outputs.lines import RaisingSysLogHandler
from safeser.audit.upkeep.closed_files import tidy
from safeser.audit.upkeep.settings import AuditFiles
from safeser.errors import SafeserError

__all__ = ["Keeper", "Kept"]

logger = logging.getLogger("safeser.audit")

#: Seconds between two looks at the clock.
_TICK = 1.0
#: Seconds between two looks at the directory where nothing was rotated meanwhile.
_PASS = 600.0
#: Seconds between two tries of a rotation that fails, at most; the first is a tick after it failed.
_LONGEST = 60.0

T = TypeVar("T")


class Kept(Protocol):
    """What the thread needs of a log."""

    def rotate_if_due(self) -> bool: ...

    def head(self) -> str: ...


class Keeper:
    """Keeps the files of one log until it is stopped.

    :param log: is not kept alive by this.
    :param clock: nanoseconds since 1970.
    """

    def __init__(
        self,
        log: Kept,
        *,
        path: str,
        key: AuditKey | KeyFile,
        files: AuditFiles,
        clock: Callable[[], int],
    ) -> None:
        self._log = weakref.ref(log)
        self._path = path
        self._key = key
        self._files = files
        self._clock = clock
        self._places = open_places(files.heads)
        self._sent = [""] * len(self._places)
        self._wake = threading.Event()
        self._stopped = False
        self._pass_at = 0.0
        self._heads_at = 0.0
        self._rotation_at = 0.0
        self._pause = 0.0  # after rotations that failed
        self._thread = threading.Thread(target=self._run, name="safeser-audit-files", daemon=True)
        self._thread.start()

    @property
    def lives(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def look(self) -> None:
        """Have it look now whether a rotation is due."""
        self._wake.set()

    def wake(self) -> None:
        """Have it look at the directory now: space is needed."""
        self._pass_at = self._heads_at = 0.0
        self._wake.set()

    def stop(self, timeout: float) -> None:
        """Have it write the last heads and end; wait so many seconds for it."""
        self._stopped = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopped:
            self._tick()
            self._wake.wait(_TICK)
            self._wake.clear()
        self._attempt("The heads of the audit log were not written", self._write_heads)

    def _tick(self) -> None:
        """Do what is due."""
        log = self._log()
        if log is None:
            self._stopped = True
            return
        now = time.monotonic()
        if now >= self._rotation_at:
            rotated = self._attempt("A rotation of the audit log did not end", log.rotate_if_due)
            # A try may leave a file: those of an hour are some sixty.
            self._pause = 0.0 if rotated is not None else min(max(_TICK, 2 * self._pause), _LONGEST)
            self._rotation_at = now + self._pause
            if rotated:
                self._pass_at = self._heads_at = 0.0
        del log
        if now >= self._heads_at:
            self._heads_at = now + self._files.heads_every
            self._attempt("The heads of the audit log were not written", self._write_heads)
        if now >= self._pass_at:
            self._pass_at = now + _PASS
            if self._files.tidies:
                self._attempt("Closed files of the audit log stay as they are", self._tidy)

    @staticmethod
    def _attempt(failed: str, work: Callable[[], T]) -> T | None:
        """Return what *work* returns; None where it fails, which is logged as *failed*."""
        try:
            return work()
        except SafeserError as error:
            logger.error("%s: %s", failed, error)  # noqa: TRY400 - one line
        except Exception as error:  # the next rotation needs the thread
            logger.error("%s: %s", failed, type(error).__name__)  # noqa: TRY400 - one line
        return None

    def _tidy(self) -> None:
        with closing(Directory(self._path, create=False)) as directory:
            tidy(directory, self._key, self._files, now=self._clock() // 1_000)

    def _write_heads(self) -> None:
        log = self._log()
        head = log.head() if log is not None else ""
        for at, place in enumerate(self._places):
            if head and head != self._sent[at] and self._wrote(place, at, head):
                self._sent[at] = head

    def _wrote(self, place: Place, at: int, head: str) -> bool:
        try:
            place(head)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # The text of an error may hold the command; its kind says enough.
            where = self._files.heads[at].partition(":")[0]
            logger.error(  # noqa: TRY400 - one line
                "The head of the audit log was not written to %s: %s", where, type(error).__name__
            )
            return False
        return True


# --- where heads are written ----------------------------------------------------------------------
# The one rule: a place that does not take a head never stops the log; it is logged, and the next
# head is tried again. A head says where a chain ended; it is no secret.

#: Takes one head; raises what the system raises.
Place: TypeAlias = Callable[[str], None]

_TIMEOUT = 10.0  # seconds that a command may take

_LOCAL: Final = "/dev/log"


def open_places(texts: Sequence[str]) -> list[Place]:
    """Return what writes heads to the places that settings name."""
    return [_opened(text) for text in texts]


def _opened(text: str) -> Place:
    kind, _, rest = text.partition(":")
    if kind == "file":
        return lambda head: _to_file(os.path.expanduser(rest), head)
    if kind == "syslog":
        return lambda head: _to_syslog(rest, head)
    return lambda head: _to_command(rest, head)


def _to_file(path: str, head: str) -> None:
    """Append one line, which is on the disk when this returns."""
    # A pipe of that name, which no one reads, would hold the thread for ever.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    handle = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "heads go to a regular file")
        # A line that an earlier write left without its end would swallow this one.
        data = f"{head}\n".encode("ascii")
        count = os.write(handle, data)
        if count != len(data):
            os.write(handle, b"\n")
            raise OSError(errno.ENOSPC, "the head was cut short")
        os.fsync(handle)
    finally:
        os.close(handle)


def _to_syslog(address: str, head: str) -> None:
    host, _, port = address.rpartition(":")
    where = (host, int(port)) if host else _LOCAL
    handler = RaisingSysLogHandler(where, facility=logging.handlers.SysLogHandler.LOG_AUTH)
    try:
        handler.ident = "safeser: "
        handler.emit(
            logging.makeLogRecord({"msg": head, "levelno": logging.INFO, "levelname": "INFO"})
        )
    finally:
        handler.close()


def _to_command(command: str, head: str) -> None:
    subprocess.run(  # noqa: S603 - the command that the configuration of this process names
        shlex.split(command),
        input=f"{head}\n".encode("ascii"),
        check=True,
        timeout=_TIMEOUT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

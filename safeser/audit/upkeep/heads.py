"""Writes heads of a log to a second place: a file, the system log, a command.

The one rule: a place that does not take a head never stops the log; it is logged, and the next head
is tried again. A head says where a chain ended; it is no secret.
"""

from __future__ import annotations

import errno
import logging
import logging.handlers
import os
import shlex
import stat
import subprocess
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from safeser.audit.outputs.lines import RaisingSysLogHandler

__all__ = ["Place", "open_places"]

logger = logging.getLogger("safeser.audit")

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

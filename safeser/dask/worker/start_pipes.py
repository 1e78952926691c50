"""Pipes between a nanny and the worker process that it starts: typed, bounded, one-way.

The one rule: a nanny waits for nothing that its worker's process holds, and reads from it one
message of msgpack. distributed uses queues of multiprocessing there: the nanny unpickles what the
worker's process puts into them, and shares semaphores and locks with it.

Each end belongs to one process, where processes are spawned: the worker's has no end from which the
nanny reads, so that it cannot make a read of the nanny block.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.context import assert_spawning
from queue import Empty
from typing import Any, NoReturn

from safeser.dask.contents.failures import failure_of
from safeser.errors import PayloadError, SafeserError
from safeser.families import plain
from safeser.families.errors.wire import ExceptionData, decode, encode, from_data
from safeser.gate.values import ELEMENT, Limits

__all__ = ["MOST", "START_RULE", "Pipes", "StartPipe", "StopPipe"]

START_RULE = "nanny.start-message"

#: The longest message: a failure with its causes, whose tracebacks are cut to fit.
MOST = 64 * 1024

_LIMITS = Limits(max_depth=20, max_memory=5_000 * ELEMENT, max_string=MOST)
_SIZE = 4
_MOST_UID, _MOST_ADDRESS, _MOST_PATH = 64, 300, 4096

#: Seconds that a message may take from its first byte to its last. A worker writes it at once.
PATIENCE = 10.0

#: As much of the reason to stop as a worker logs; a pipe takes so few bytes at once or not at all.
_MOST_REASON = 300


class Pipes:
    """What distributed's nanny asks for queues, in place of a context of multiprocessing."""

    def __init__(self, get_context: Callable[[], Any]) -> None:
        self._context = get_context()
        self._next = iter((StartPipe, StopPipe))

    def Queue(self) -> StartPipe | StopPipe:
        """Return the pipe for a worker's start, and then the one that tells it to stop."""
        made: StartPipe | StopPipe = next(self._next)(self._context)
        return made


class StartPipe:
    """Says once how the start of a worker ended: where it listens, or its exception.

    :ivar refused: the error that :meth:`get_nowait` raised about the message itself.
    """

    def __init__(self, context: Any) -> None:
        self._reader: Connection | None
        self._writer: Connection
        self._reader, self._writer = context.Pipe(duplex=False)
        os.set_blocking(self._reader.fileno(), False)
        self._read = bytearray()
        self._since = 0.0
        self._taken = False
        self.refused: PayloadError | None = None

    def __getstate__(self) -> dict[str, Any]:
        assert_spawning(self)
        return {"_writer": self._writer, "_reader": None}

    # -- in the worker's process

    def put(self, message: Mapping[str, Any]) -> None:
        error = message.get("exception")
        if error is None:
            said = [message["uid"], str(message["address"]), str(message["dir"])]
        else:
            said = [message["uid"], _described(error)]
        _write(self._writer, plain.encode(said, limits=_LIMITS))

    def close(self) -> None:
        self._writer.close()

    def join_thread(self) -> None:
        """Do nothing: what was put is written."""

    # -- in the nanny's

    def get_nowait(self) -> dict[str, Any]:
        """Return the message.

        :raises Empty: if it is not there, or not whole.
        :raises PayloadError: if it is not what a worker says.
        """
        if self._taken:  # asked again by distributed, whose name for this start it did not have
            self._refuse("it answers another start")
        self._fill()
        if not self._read:
            raise Empty
        body = self._whole()
        self._taken = True
        try:
            return _parsed(body)
        except SafeserError as error:
            self._refuse("it is not what a worker says", error)

    def _fill(self) -> None:
        assert self._reader is not None
        with contextlib.suppress(BlockingIOError):
            while len(self._read) <= _SIZE + MOST:
                found = os.read(self._reader.fileno(), MOST)
                if not found:
                    return
                self._since = self._since if self._read else time.monotonic()
                self._read += found

    def _whole(self) -> bytes:
        size = int.from_bytes(self._read[:_SIZE], "little")
        if len(self._read) >= _SIZE and size > MOST:
            self._refuse(f"it is longer than {MOST} bytes")
        if len(self._read) > _SIZE + size:
            self._refuse("more follows the message")
        if len(self._read) < _SIZE + size or len(self._read) < _SIZE:
            if time.monotonic() - self._since > PATIENCE:
                self._refuse(f"it does not end within {PATIENCE:.0f} seconds")
            raise Empty
        return bytes(self._read[_SIZE:])

    def _refuse(self, why: str, cause: SafeserError | None = None) -> NoReturn:
        self._taken = True
        self.refused = PayloadError(
            f"the message by which a worker process tells its nanny of its start is refused: {why}",
            rule=START_RULE,
            where=cause.where if cause is not None else "",
            fix="Check which code ran in this worker's process: a worker of Dask writes no such"
            " message.",
        )
        raise self.refused from cause


class StopPipe:
    """Tells a worker's process to stop; nothing comes back."""

    def __init__(self, context: Any) -> None:
        self._reader: Connection
        self._writer: Connection
        self._reader, self._writer = context.Pipe(duplex=False)
        os.set_blocking(self._writer.fileno(), False)
        self._woken: Connection | None = None

    def __getstate__(self) -> dict[str, Any]:
        assert_spawning(self)
        return {"_reader": self._reader}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._reader = state["_reader"]
        # What the worker's process puts wakes its own thread alone.
        self._woken, self._writer = Pipe(duplex=False)

    def put(self, message: Mapping[str, Any] | None) -> None:
        """Write *message* without waiting; where it cannot be written, the worker is killed later.

        :raises ValueError: once it is closed, as a queue does.
        """
        if self._writer.closed:
            raise ValueError("this pipe is closed")
        said = None
        if message is not None:
            said = {k: v[:_MOST_REASON] if type(v) is str else v for k, v in message.items()}
        with contextlib.suppress(OSError):
            _write(self._writer, plain.encode(said, limits=_LIMITS))

    def get(self) -> Any:
        """Wait for a message and return it.

        :raises EOFError: if the nanny is gone.
        """
        ready = wait([each for each in (self._reader, self._woken) if each is not None])
        assert isinstance(ready[0], Connection)
        size = int.from_bytes(_read_exactly(ready[0], _SIZE), "little")
        return plain.decode(_read_exactly(ready[0], size), limits=_LIMITS)

    def close(self) -> None:
        # The reader stays: a thread may wait for it.
        self._writer.close()

    def join_thread(self) -> None:
        """Do nothing: what was put is written."""


def _write(writer: Connection, body: bytes) -> None:
    data = len(body).to_bytes(_SIZE, "little") + body
    while data:
        data = data[os.write(writer.fileno(), data) :]


def _read_exactly(reader: Connection, size: int) -> bytes:
    data = b""
    while len(data) < size:
        found = os.read(reader.fileno(), size - len(data))
        if not found:
            raise EOFError
        data += found
    return data


# -- the one message ----------------------------------------------------------------------------


def _described(error: BaseException) -> bytes:
    data = failure_of(error).data
    described = encode(data)
    if len(described) <= MOST - 200:
        return described
    return encode(ExceptionData(data.type, data.message, None, ""))


def _parsed(body: bytes) -> dict[str, Any]:
    said = plain.decode(body, limits=_LIMITS)
    match said:
        case [str(uid), str(address), str(path)] if type(said) is list:
            fits = len(address) <= _MOST_ADDRESS and len(path) <= _MOST_PATH
            if fits and len(uid) <= _MOST_UID:
                return {"uid": uid, "address": address, "dir": path}
        case [str(uid), bytes(failure)] if type(said) is list and len(uid) <= _MOST_UID:
            error = from_data(decode(failure, limits=_LIMITS))
            if isinstance(error, Exception):  # any other would end the nanny
                return {"uid": uid, "exception": error}
    raise PayloadError("it is neither an address nor a failure", rule=START_RULE)

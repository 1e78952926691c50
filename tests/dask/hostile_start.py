"""Classes in the place of a worker's: each tells its nanny what the test says, as code there could.

A module of its own, since the worker's process imports it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import sys
import time
from typing import Any

from distributed.nanny import WorkerProcess
from tornado.ioloop import IOLoop


def _in_frames(name: str) -> Any:
    """Return the variable *name* of distributed's ``WorkerProcess._run``."""
    frame = sys._getframe()
    while frame is not None:
        if name in frame.f_locals:
            return frame.f_locals[name]
        frame = frame.f_back
    raise LookupError(name)


class Writes:
    """Writes *data* into the pipe behind the queue, and stays."""

    def __init__(self, data: bytes, *, queued: bool = False) -> None:
        queue = _in_frames("init_result_q")
        writer = queue._writer
        if queued:  # as a queue of multiprocessing does
            queue._sem.acquire()
            writer.send_bytes(data)
        else:
            os.write(writer.fileno(), data)
        time.sleep(60)


class Says:
    """Tells what it is told in the form that a worker has, about a socket on which it listens."""

    def __init__(self, times: int = 1, **said: str) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        own = {
            "uid": _in_frames("uid"),
            "address": f"safeser://127.0.0.1:{listener.getsockname()[1]}",
            "dir": "",
        }
        for _ in range(times):
            _in_frames("init_result_q").put({**own, **said})
        self._stopped = _in_frames("child_stop_q").get()
        os._exit(7 if self._stopped["op"] == "stop" else 8)


class Fails:
    """Cannot start."""

    def __init__(self, text: str, *, cause: str = "") -> None:
        raise ValueError(text) from (OSError(cause) if cause else None)


async def start_stock(data: bytes) -> None:
    """Start a worker's process as a stock nanny does, which writes *data* into its queue."""
    IOLoop.current()
    from tests.dask.hostile_start import Writes as Named  # as the process imports it

    made = WorkerProcess(
        worker_kwargs={}, silence_logs=False, on_exit=None,
        worker=functools.partial(Named, data, queued=True), env={}, pre_spawn_env={}, config={},
    )  # fmt: skip
    try:
        await made.start()
    finally:
        await made.kill()


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(start_stock(bytes.fromhex(sys.argv[1])), 40))

"""A preload for schedulers that says how long their loop was held, and what they wrote to workers.

The one rule: it only looks. Asked over a socket in the cluster's folder, it answers with one line.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

#: In the folder in which the scheduler was started.
SOCKET = "loop-watch.sock"

_EVERY = 0.002  # seconds between two looks at the loop's clock


class LoopWatch:
    """The longest time between two turns of one server's loop since it was asked last."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._longest = 0.0

    async def tick(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(_EVERY)
            self._longest = max(self._longest, time.perf_counter() - begun - _EVERY)

    def answer(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                told = {"held": self._longest, "sent": _sent(self._server)}
                self._longest = 0.0
                connection.sendall(json.dumps(told).encode() + b"\n")


def _sent(server: Any) -> int:
    streams = (stream.comm.stream for stream in server.stream_comms.values())
    return sum(stream._total_write_index for stream in streams if stream is not None)


def ask(folder: Path) -> dict[str, float]:
    """Return what the scheduler that was started in *folder* says, since it was asked last."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / SOCKET))
        with connection.makefile() as answer:
            told: dict[str, float] = json.loads(answer.readline())
            return told


async def dask_setup(server: Any) -> None:
    watch = LoopWatch(server)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen()
    threading.Thread(target=watch.answer, args=(listener,), daemon=True).start()
    server._loop_watch = asyncio.create_task(watch.tick())

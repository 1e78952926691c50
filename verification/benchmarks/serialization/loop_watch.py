"""How long an event loop was held: of a client, and of a scheduler that has this as a preload.

The one rule: it only looks. A scheduler is asked over a socket in the cluster's folder, and answers
with one line, which also says what it wrote to workers.
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
_PATIENCE = 60  # seconds until the loop must have had a turn


class LoopWatch:
    """The longest time between two turns of one loop since it was asked last.

    :param every: seconds between two looks.
    """

    def __init__(self, every: float = _EVERY) -> None:
        self._every = every
        self._longest = 0.0
        self._looked = threading.Event()

    async def tick(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(self._every)
            self._longest = max(self._longest, time.perf_counter() - begun - self._every)
            self._looked.set()

    def take(self) -> float:
        """Return the longest time, in seconds, and forget it."""
        longest, self._longest = self._longest, 0.0
        return longest

    def take_all(self) -> float:
        """Return it once the loop has had a turn; for callers in another thread."""
        self._looked.clear()
        self._looked.wait(_PATIENCE)
        return self.take()


def answer(watch: LoopWatch, server: Any, listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # the listener was closed
            return
        with connection:
            told = {"held": watch.take(), "sent": _sent(server)}
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
    watch = LoopWatch()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen()
    threading.Thread(target=answer, args=(watch, server, listener), daemon=True).start()
    server._loop_watch = asyncio.create_task(watch.tick())

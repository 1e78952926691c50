"""A stock scheduler that blocks a handler, as its documentation advises, and its own worker."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from distributed import Scheduler, Worker


async def main(folder: str) -> None:
    quiet = {"host": "127.0.0.1", "dashboard": False}
    options = {"blocked_handlers": ["run_function"], "port": 0, **quiet}
    async with (
        Scheduler(**options) as scheduler,
        Worker(scheduler.address, nthreads=1, local_directory=folder, **quiet) as worker,
    ):
        told = {"scheduler": scheduler.address, "worker": worker.address, "pid": os.getpid()}
        print(json.dumps(told), flush=True)
        await scheduler.finished()


asyncio.run(main(sys.argv[1]))

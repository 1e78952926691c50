"""Workers and nannies that register where they are told: ``recruit.py stock|safeser FOLDER``.

For each line ``{"kind", "address", "policy"}`` a new one starts, and is closed as soon as it works,
or by its scheduler; what came of it is one line.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any

from distributed import Nanny, Worker

FOLDER = sys.argv[2]
SERVERS = {"worker": Worker, "told": Worker, "nanny": Nanny}


def security(policy: str | None) -> Any:
    if policy is None:
        return None
    import safeser

    return safeser.Security(policy=policy)


async def recruit(kind: str, address: str, policy: str | None) -> str:
    options = {"host": "127.0.0.1", "nthreads": 1, "local_directory": FOLDER}
    server = SERVERS[kind](address, security=security(policy), **options)
    try:
        await asyncio.wait_for(server, 60)
        if kind == "told":  # its scheduler says when it is over
            await asyncio.wait_for(server.finished(), 60)
    except Exception as error:  # so does a refused registration end
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        await server.close(timeout=5)
    return "worked"


def main() -> None:
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        said = asyncio.run(recruit(**json.loads(line)))
        print(json.dumps({"pid": os.getpid(), "said": said}), flush=True)
    os._exit(0)


if __name__ == "__main__":  # a nanny's child imports this
    main()

"""Print, as JSON, every operation that the servers and the client of the installed Dask handle.

Run as a program of its own: servers leave threads, warnings and event loops behind that no test
should inherit. It also asks live servers what the table says of operations that no handler is
registered for.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import inspect
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import dask
import distributed
from distributed import Client, Nanny, Scheduler, Worker
from distributed.core import connect
from distributed.worker_state_machine import (
    Instruction,
    StateMachineEvent,
    TaskErredMsg,
    TaskFinishedMsg,
)

_VARIABLE = inspect.Parameter.VAR_KEYWORD


def fields(handler: Callable[..., Any]) -> dict[str, Any]:
    """Return the names that *handler* takes, and whether it takes any other."""
    event = _event(handler)
    if event is not None:
        return {"names": [field.name for field in dataclasses.fields(event)], "any": False}
    parameters = inspect.signature(handler).parameters
    return {
        "names": sorted(parameters),
        "any": any(parameter.kind is _VARIABLE for parameter in parameters.values()),
    }


def _event(handler: Callable[..., Any]) -> type[StateMachineEvent] | None:
    """Return the event that a worker makes of a stream element, whose wrapper takes anything."""
    for cell in getattr(handler, "__closure__", None) or ():
        value = cell.cell_contents
        if isinstance(value, type) and issubclass(value, StateMachineEvent):
            return value
    return None


def handlers(table: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    return {name: fields(handler) for name, handler in table.items()}


async def answer_to_close(address: str) -> Any:
    comm = await connect(address)
    await comm.write({"op": "close"})
    answer = await comm.read()
    await comm.close()
    return answer


async def first_element(address: str) -> Any:
    comm = await connect(address)
    await comm.write({"op": "register-client", "client": "test", "reply": False, "versions": {}})
    first = await comm.read()
    await comm.write([{"op": "close-stream"}])
    await comm.close()
    return first


def sent(message: type[Instruction]) -> list[str]:
    """Return the fields of what a worker sends, which the scheduler's handler takes as they come.

    ``status`` is added when it is sent; ``worker`` is whose stream it came on.
    """
    return [*(field.name for field in dataclasses.fields(message)), "status", "worker"]


async def registered() -> dict[str, Any]:
    options: dict[str, Any] = {
        "dashboard": importlib.util.find_spec("bokeh") is not None,  # it registers nothing more
        "dashboard_address": "127.0.0.1:0",  # else health and metrics take port 8787 everywhere
        "host": "127.0.0.1",
    }
    async with (
        Scheduler(protocol="tcp", port=0, **options) as scheduler,
        Worker(scheduler.address, nthreads=1, **options) as worker,
        Nanny(scheduler.address, nthreads=1, **options) as nanny,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        servers = {"scheduler": scheduler, "worker": worker, "nanny": nanny}
        found = {
            name: {"rpc": handlers(s.handlers), "stream": handlers(s.stream_handlers)}
            for name, s in servers.items()
        }
        found["client"] = {"rpc": {}, "stream": handlers(client._stream_handlers)}
        return {
            "version": distributed.__version__,
            "handlers": found,
            "close": {name: await answer_to_close(s.address) for name, s in servers.items()},
            "first": await first_element(scheduler.address),
            "sent": {"task-finished": sent(TaskFinishedMsg), "task-erred": sent(TaskErredMsg)},
        }


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory() as directory,
        dask.config.set({"temporary-directory": directory}),
    ):
        json.dump(asyncio.run(registered()), sys.stdout)

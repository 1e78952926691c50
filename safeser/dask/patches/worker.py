"""What Dask's workers do otherwise where they listen on ``safeser://``.

The one rule: as for the scheduler (:mod:`safeser.dask.patches.scheduler`). A worker's state does
not know its worker; what differs there are events whose values safeser has refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from distributed import Client
from distributed.comm import Comm

from safeser.dask.authors import Authors
from safeser.dask.fetched import gather_apart, handle_partly_gathered, is_partly_gathered
from safeser.dask.patches.patch import Patch, without_comm
from safeser.dask.servers import part_of, served
from safeser.dask.stimuli import Stimuli
from safeser.dask.task_client import TaskClient

__all__ = ["ROWS"]

_GATHER_DEP = "distributed.worker:Worker.gather_dep"
_HANDLE_EVENT = "distributed.worker_state_machine:WorkerState._handle_event"
_GATHERED = "distributed.worker_state_machine:WorkerState._handle_gather_dep_success"


def _handle_stimulus(stock: Callable[..., None]) -> Callable[..., None]:
    def handle_stimulus(self: Any, *stims: Any) -> None:
        stimuli = part_of(self, Stimuli)
        if stimuli is None:
            stock(self, *stims)
            return
        for event in stims:
            stimuli.handle(partial(stock, self), event)

    return handle_stimulus


def _gather_dep(stock: Callable[..., Any]) -> Callable[..., Any]:
    async def gather_dep(self: Any, *args: Any, **kwargs: Any) -> Any:
        if served(self) is None:
            return await stock(self, *args, **kwargs)
        return await gather_apart(partial(stock, self), *args, **kwargs)

    return gather_dep


def _handle_event(stock: Any) -> Callable[..., Any]:
    def handle_event(self: Any, ev: Any) -> Any:
        if is_partly_gathered(ev):
            return handle_partly_gathered(self, ev)
        return stock.__get__(self, type(self))(ev)

    return handle_event


def _get_client(stock: Callable[..., Any]) -> Callable[..., Any]:
    def get_client(self: Any, *args: Any, **kwargs: Any) -> Any:
        client = stock(self, *args, **kwargs)
        if type(client) is Client and served(self) is not None:
            TaskClient.begin_to_keep(client)
            client.__class__ = TaskClient
            client._stream_handlers["task-erred"] = client._handle_task_erred
            client.loop.add_callback(client._look_for_due)
        return client

    return get_client


def _gather(stock: Callable[..., Any]) -> Callable[..., Any]:
    async def gather(
        self: Any, comm: Any = None, /, *args: Any, authors: Any = None, **request: Any
    ) -> Any:
        said = await stock(self, *without_comm(comm, args), **request)
        known = served(self)
        if known is not None and authors and known.is_scheduler(comm.link.peer):
            known.part(self, Authors).note(authors)
        return said

    return gather


def _update_data(stock: Callable[..., Any]) -> Callable[..., Any]:
    def update_data(
        self: Any, comm: Any = None, /, *args: Any, author: Any = None, **request: Any
    ) -> Any:
        said = stock(self, *without_comm(comm, args), **request)
        known = served(self)
        if known is not None and isinstance(comm, Comm):
            peer = comm.link.peer
            author = author if known.is_scheduler(peer) else peer
            if author is not None:
                known.part(self, Authors).note(dict.fromkeys(request["data"], author))
        return said

    return update_data


ROWS = (
    Patch(
        target="distributed.worker:Worker.gather",
        reason="A worker does not know whose the values are that it is told to fetch.",
        process=("worker",),
        needed=True,
        replace=_gather,
    ),
    Patch(
        target="distributed.worker:Worker.update_data",
        reason="A worker does not know whose the values are that it is brought.",
        process=("worker",),
        needed=True,
        replace=_update_data,
    ),
    Patch(
        target="distributed.worker:Worker.handle_stimulus",
        reason="A value of a cancelled task, or on its way, stands in for the task that has its key"
        " by then; what waits for a value that cannot come waits for ever (distributed issue 6705);"
        " nobody notes whose a value is.",
        process=("worker",),
        needed=True,
        replace=_handle_stimulus,
        source=(
            "distributed.worker:Worker.handle_stimulus",
            "distributed.worker_state_machine:BaseWorker.handle_stimulus",
            "distributed.worker_state_machine:WorkerState._gather_dep_done_common",
        ),
    ),
    # Both or neither: what the first returns is understood by the second alone.
    Patch(
        target=_GATHER_DEP,
        reason="One value that may not come fails all that were fetched with it.",
        process=("worker",),
        needed=False,
        replace=_gather_dep,
        source=(_GATHER_DEP, _HANDLE_EVENT, _GATHERED),
    ),
    Patch(
        target=_HANDLE_EVENT,
        reason="A worker's state handles no event by which some values arrive and others fail.",
        process=("worker",),
        needed=False,
        replace=_handle_event,
        source=(_GATHER_DEP, _HANDLE_EVENT, _GATHERED),
    ),
    Patch(
        target="distributed.worker:Worker._get_client",
        reason="The client that a worker makes for its tasks answers a submission with the result"
        " of another definition, where it holds a future of that key.",
        process=("worker",),
        needed=False,
        replace=_get_client,
    ),
)

"""Rows of the list of patches for workers that listen on ``safeser://``.

The one rule: as for the scheduler (:mod:`safeser.dask.patches.scheduler`). A worker's state does
not know its worker; what differs there are events whose values safeser has refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from distributed import Client
from distributed.comm import Comm

from safeser.dask.clients.joblib_calls import register_backend
from safeser.dask.contents.failures import told
from safeser.dask.messages.fetched import gather_apart, handle_partly_gathered, is_partly_gathered
from safeser.dask.patches.patch import Patch, without_comm
from safeser.dask.servers import part_of, served
from safeser.dask.worker.stimuli import Stimuli
from safeser.dask.worker.value_authors import Authors, gathering

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


def _batched_send(stock: Callable[..., None]) -> Callable[..., None]:
    def batched_send(self: Any, msg: dict[str, Any]) -> None:
        authors = part_of(self, Authors) if msg.get("op") == "add-keys" else None
        stock(self, msg if authors is None else {**msg, **authors.fields(msg["keys"])})

    return batched_send


def _gather_dep(stock: Callable[..., Any]) -> Callable[..., Any]:
    async def gather_dep(self: Any, worker: str, to_gather: Any, *args: Any, **kwargs: Any) -> Any:
        authors = part_of(self, Authors)
        if authors is None:
            return await stock(self, worker, to_gather, *args, **kwargs)
        with authors.wanted(to_gather):
            return await gather_apart(partial(stock, self), worker, to_gather, *args, **kwargs)

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
        # joblib in a task asks for its client here.
        register_backend()
        if type(client) is Client and served(self) is not None:
            # What signs and compares graphs is imported for the first client of a task.
            from safeser.dask.clients.sealing import TaskClient  # noqa: PLC0415 - as above

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
        known, args = served(self), without_comm(comm, args)
        if known is None or not isinstance(comm, Comm):
            return await stock(self, *args, **request)
        said = authors if authors and known.is_scheduler(comm.link.peer) else {}
        kept = known.part(self, Authors)
        known.part(self, Stimuli).release_former(said)
        kept.note(said)
        with gathering(said), kept.wanted(said):
            reply = await stock(self, *args, **request)
        # Meanwhile a key may have come to be another author's.
        late = kept.of_others(said)
        kept.note({key: author for key, author in said.items() if key not in late})
        if not late:
            return reply
        return {"status": "partial-fail", "keys": list({*late, *reply.get("keys", ())})}

    return gather


def _update_data(stock: Callable[..., Any]) -> Callable[..., Any]:
    def update_data(
        self: Any, comm: Any = None, /, *args: Any, author: Any = None, **request: Any
    ) -> Any:
        known, args = served(self), without_comm(comm, args)
        if known is None:
            return stock(self, *args, **request)
        authors = known.part(self, Authors)
        if not isinstance(comm, Comm):  # what this worker has gathered, or a task of it scatters
            data = authors.gathered(args[0] if args else request.pop("data"))
            return stock(self, data, *args[1:], **request)
        link, keys = comm.link, request["data"]
        if known.is_scheduler(link.peer):
            brought = {} if author is None else dict.fromkeys(keys, author)
            known.part(self, Stimuli).release_former(brought)
        else:
            brought = dict.fromkeys(authors.require_free(link, keys), link.peer)
        said = stock(self, *args, **request)
        authors.note(brought)
        return said

    return update_data


_patch = partial(Patch, process=("worker",))

ROWS = (
    *(
        Patch(
            target=f"distributed.{module}:error_message",
            reason="The pickle that Dask makes of what a task raised lacks file names, members and"
            " attributes, and is its text alone where it cannot be pickled.",
            process=("worker", "nanny", "scheduler"),
            needed=False,
            replace=told,
            source=("distributed.core:error_message",),
        )
        for module in ("worker", "worker_state_machine", "nanny")
    ),
    _patch(
        target="distributed.worker:Worker.gather",
        reason="A worker does not know the authors of the values that it is told to fetch, and"
        " keeps a former value of the key instead.",
        replace=_gather,
    ),
    _patch(
        target="distributed.worker:Worker.update_data",
        reason="A worker does not know the authors of the values that it is brought, and keeps a"
        " former value of the key instead.",
        replace=_update_data,
    ),
    _patch(
        target="distributed.worker:Worker.handle_stimulus",
        reason="A value of a cancelled or former task of a key is taken for that of the present"
        " one; a task waits for ever for a value that cannot come (distributed issue 6705); authors"
        " of values are not recorded.",
        replace=_handle_stimulus,
        source=(
            "distributed.worker:Worker.handle_stimulus",
            "distributed.worker_state_machine:BaseWorker.handle_stimulus",
            "distributed.worker_state_machine:WorkerState._gather_dep_done_common",
        ),
    ),
    _patch(
        target="distributed.worker:Worker.batched_send",
        reason="A worker reports a copy of a key, without the author of the value.",
        replace=_batched_send,
    ),
    _patch(
        target=_GATHER_DEP,
        reason="One value that may not come fails all that were fetched with it; a value that"
        " another author's task had under the key is fetched in place of the one meant.",
        replace=_gather_dep,
        source=(_GATHER_DEP, _HANDLE_EVENT, _GATHERED),
    ),
    # Understands what the row before returns.
    _patch(
        target=_HANDLE_EVENT,
        reason="A worker's state handles no event by which some values arrive and others fail.",
        needed=False,
        replace=_handle_event,
        source=(_GATHER_DEP, _HANDLE_EVENT, _GATHERED),
    ),
    _patch(
        target="distributed.worker:Worker._get_client",
        reason="The client that a worker makes for its tasks answers a submission with the result"
        " of another definition, where it holds a future of that key.",
        needed=False,
        replace=_get_client,
    ),
)

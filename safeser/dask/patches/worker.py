"""Rows of the list of patches for workers and nannies, and for what every server of Dask's opens.

The one rule: each row names the function or the part of a server that decides. A worker's state
does not know its worker; what differs there are events whose values safeser has refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed import Client

from safeser.dask.clients.joblib_calls import register_backend
from safeser.dask.contents.failures import told
from safeser.dask.patches.patch import Patch
from safeser.dask.servers import served
from safeser.dask.transport.connection_roles import with_role
from safeser.dask.transport.other_schemes import sealed
from safeser.dask.worker.direct_requests import write_own
from safeser.dask.worker.endings import worker_exited
from safeser.dask.worker.process_surface import start_http_server
from safeser.dask.worker.stimuli import Stimuli, handle_event
from safeser.dask.worker.value_authors import Authors

__all__ = ["ROWS"]

_GATHER_DEP = "distributed.worker:Worker.gather_dep"
_HANDLE_EVENT = "distributed.worker_state_machine:WorkerState._handle_event"
_GATHERED = "distributed.worker_state_machine:WorkerState._handle_gather_dep_success"


def _client_of_task(stock: Callable[..., Any], worker: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the client that *stock* makes or finds for a task on *worker*, as safeser's own."""
    client = stock(*args, **kwargs)
    # joblib in a task asks for its client here.
    register_backend()
    if type(client) is Client and served(worker) is not None:
        # What signs and compares graphs is imported for the first client of a task.
        from safeser.dask.clients.sealing import TaskClient  # noqa: PLC0415 - as above

        TaskClient.begin_to_keep(client)
        client.__class__ = TaskClient
        client._stream_handlers["task-erred"] = client._handle_task_erred
    return client


ROWS = (
    # every server
    Patch(
        target="distributed.comm.registry:backends",
        reason="An address in a message chooses the transport: a worker whose own links were signed"
        " was told to gather from tcp:// and ran the pickle that came back.",
        replace=sealed,
        source=("distributed.comm.registry:get_backend",),
    ),
    Patch(
        target="distributed.security:Security.get_connection_args",
        reason="A connection's arguments do not say for which role it is opened, so that in a"
        " process of several roles one would speak as another.",
        by=with_role,
    ),
    Patch(
        target="distributed.node:ServerNode.start_http_server",
        reason="A worker's dashboard, which authenticates no request, listens on all interfaces.",
        by=start_http_server,
    ),
    # workers
    *(
        Patch(
            target=f"distributed.{module}:error_message",
            reason="The pickle that Dask makes of what a task raised lacks file names, members and"
            " attributes, and is its text alone where it cannot be pickled.",
            needed=False,
            by=told,
            source=("distributed.core:error_message",),
        )
        for module in ("worker", "worker_state_machine", "nanny")
    ),
    Patch(
        target="distributed.worker:Worker.gather",
        reason="A worker does not know the authors of the values that it is told to fetch, and"
        " keeps a former value of the key instead.",
        by=(Stimuli, Stimuli.gather),
    ),
    Patch(
        target="distributed.worker:Worker.update_data",
        reason="A worker does not know the authors of the values that it is brought, and keeps a"
        " former value of the key instead.",
        by=(Stimuli, Stimuli.update_data),
    ),
    Patch(
        target="distributed.worker:Worker.handle_stimulus",
        reason="A value of a cancelled or former task of a key is taken for that of the present"
        " one; a task waits for ever for a value that cannot come (distributed issue 6705); authors"
        " of values are not recorded.",
        by=(Stimuli, Stimuli.handle),
        source=(
            "distributed.worker:Worker.handle_stimulus",
            "distributed.worker_state_machine:BaseWorker.handle_stimulus",
            "distributed.worker_state_machine:WorkerState._gather_dep_done_common",
        ),
    ),
    Patch(
        target="distributed.worker:Worker.batched_send",
        reason="A worker reports a copy of a key, without the author of the value.",
        by=(Authors, Authors.batched_send),
    ),
    Patch(
        target=_GATHER_DEP,
        reason="One value that may not come fails all that were fetched with it; a value that"
        " another author's task had under the key is fetched in place of the one meant.",
        by=(Authors, Authors.gather_dep),
        source=(_GATHER_DEP, _HANDLE_EVENT, _GATHERED),
    ),
    # Understands what the row before returns.
    Patch(
        target=_HANDLE_EVENT,
        reason="A worker's state handles no event by which some values arrive and others fail.",
        needed=False,
        by=handle_event,
        source=(_GATHER_DEP, _HANDLE_EVENT, _GATHERED),
    ),
    Patch(
        target="distributed.worker:Worker._get_client",
        reason="The client that a worker makes for its tasks answers a submission with the result"
        " of another definition, where it holds a future of that key.",
        needed=False,
        by=_client_of_task,
    ),
    Patch(
        target="distributed.shuffle._core:ShuffleRun._write_to_disk",
        reason="A shard names the file that a worker appends it to, outside the shuffle's folder.",
        by=write_own,
    ),
    # nannies
    Patch(
        target="distributed.nanny:Nanny._on_worker_exit_sync",
        reason="A nanny whose worker cannot run prints tracebacks in place of one line.",
        needed=False,
        by=worker_exited,
    ),
)

"""Rows of the list of patches for the scheduler's extensions.

These are work stealing and published datasets.

The one rule: as for the scheduler (:mod:`safeser.dask.patches.scheduler`); an extension belongs to
its scheduler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from distributed.comm import Comm

from safeser.dask.patches.patch import Patch, without_comm
from safeser.dask.scheduler.readers import Readers
from safeser.dask.scheduler.worker_authority import Workers
from safeser.dask.servers import part_of, served

__all__ = ["ROWS"]


def _move_task_confirm(stock: Callable[..., None]) -> Callable[..., None]:
    def move_task_confirm(
        self: Any, *, key: Any, state: Any, stimulus_id: str, worker: str | None = None
    ) -> None:
        workers = part_of(self.scheduler, Workers)
        if workers is None or workers.gives_up_its_own(self.in_flight, key, worker):
            stock(self, key=key, state=state, stimulus_id=stimulus_id, worker=worker)

    return move_task_confirm


def _put(stock: Callable[..., Any]) -> Callable[..., Any]:
    async def put(self: Any, comm: Any = None, /, *args: Any, **dataset: Any) -> Any:
        if served(self.scheduler) is None or not isinstance(comm, Comm):
            said = stock(self, *without_comm(comm, args), **dataset)
            return await said if inspect.isawaitable(said) else said
        with Readers.publishing(comm.link):
            said = stock(self, **dataset)
            return await said if inspect.isawaitable(said) else said

    return put


ROWS = (
    Patch(
        target="distributed.publish:PublishExtension.put",
        reason="Keys are published by principals that may not read their values.",
        process=("scheduler",),
        replace=_put,
    ),
    Patch(
        target="distributed.stealing:WorkStealing.move_task_confirm",
        reason="Any worker can answer for the one that was asked to give up a task.",
        process=("scheduler",),
        replace=_move_task_confirm,
    ),
)

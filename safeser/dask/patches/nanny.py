"""Rows of the list of patches for nannies that listen on ``safeser://``.

The one rule: a nanny does not trust its worker's process. What the process writes is read as data,
is believed only about that process, and never makes the nanny wait.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from distributed.core import error_message

from safeser.dask.patches.patch import Patch
from safeser.dask.roles import exits_with_worker
from safeser.dask.servers import part_of, served
from safeser.dask.worker.nannies import refused_plugin, refusing_start, require_own_start
from safeser.dask.worker.start_pipes import Pipes
from safeser.dask.worker.worker_folders import WorkerFolder

__all__ = ["ROWS"]

_START = "distributed.nanny:WorkerProcess.start"
_WAIT = "distributed.nanny:WorkerProcess._wait_until_connected"


def _instantiate(stock: Callable[..., Any]) -> Callable[..., Any]:
    async def instantiate(self: Any) -> Any:
        folder = part_of(self, WorkerFolder)
        if folder is not None:
            folder.make()
        return await stock(self)

    return instantiate


def _wait_until_connected(stock: Callable[..., Any]) -> Callable[..., Any]:
    async def wait_until_connected(self: Any, *args: Any) -> Any:
        nanny = getattr(self.on_exit, "__self__", None)
        known = None if nanny is None else served(nanny)
        if known is None:
            return await stock(self, *args)
        pipe = self.init_result_q
        with refusing_start(known, lambda: pipe.refused):
            said = await stock(self, *args)
            if said is not None:
                folder = known.part(nanny, WorkerFolder)
                require_own_start(nanny, folder, said, pid=self.pid)
                said["dir"] = folder.path  # which Dask deletes by this name
        return said

    return wait_until_connected


def _plugin_add(stock: Callable[..., Any]) -> Callable[..., Any]:
    async def plugin_add(self: Any, plugin: Any, name: str | None = None) -> Any:
        known = served(self)
        error = None if known is None else refused_plugin(known, name)
        if error is not None:
            return error_message(error)
        return await stock(self, plugin=plugin, name=name)

    return plugin_add


def _on_worker_exit_sync(stock: Callable[..., None]) -> Callable[..., None]:
    def on_worker_exit_sync(self: Any, exitcode: int | None) -> None:
        known = served(self)
        if known is not None:
            known.part(self, WorkerFolder).delete()
            exits_with_worker(self, known, exitcode)
        stock(self, exitcode)

    return on_worker_exit_sync


_patch = partial(Patch, process=("nanny",))

ROWS = (
    _patch(
        target="distributed.nanny:get_mp_context",
        reason="A nanny unpickles what its worker's process puts into a queue, and waits for locks"
        " and semaphores that this process shares.",
        replace=lambda stock: lambda: Pipes(stock()),
        source=(
            _START,
            _WAIT,
            "distributed.nanny:WorkerProcess._run",
            "distributed.nanny:WorkerProcess.kill",
            "distributed.nanny:WorkerProcess.mark_stopped",
        ),
    ),
    _patch(
        target="distributed.nanny:Nanny.instantiate",
        reason="Workers of all nannies have folders beside each other, and a nanny deletes the one"
        " that its worker's process names.",
        replace=_instantiate,
        source=(
            "distributed.nanny:Nanny.instantiate",
            "distributed.core:Server.__init__",
            "distributed.nanny:WorkerProcess.mark_stopped",
            "distributed.diskutils:WorkSpace.__init__",
        ),
    ),
    _patch(
        target=_WAIT,
        reason="A nanny deletes the folder and unregisters the address that its worker's process"
        " names, whatever these are.",
        replace=_wait_until_connected,
        source=(_START, _WAIT, "distributed.nanny:Nanny._unregister"),
    ),
    _patch(
        target="distributed.nanny:Nanny.plugin_add",
        reason="The nanny of a confined worker runs plugins, outside of the sandbox.",
        replace=_plugin_add,
        source=("distributed.nanny:Nanny.plugin_add", "distributed.nanny:Nanny.start_unsafe"),
    ),
    _patch(
        target="distributed.nanny:Nanny._on_worker_exit_sync",
        reason="A nanny whose worker cannot run prints tracebacks in place of one line, and"
        " nothing deletes the folder that it made for the worker.",
        needed=False,
        replace=_on_worker_exit_sync,
    ),
)

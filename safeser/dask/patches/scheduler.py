"""Rows of the list of patches for schedulers that listen on ``safeser://``, and their extensions.

The one rule: each function here calls Dask's own for a scheduler that is not registered
(:mod:`safeser.dask.servers`), and passes all others to the module that decides. The parameter
``comm``, where a function has it, is filled in by Dask's loop, which looks for a first parameter of
that name: it is None where the scheduler calls itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from distributed.comm import Comm

from safeser.dask.messages.author_statements import take_stated
from safeser.dask.patches.patch import Patch, taken_over, without_comm
from safeser.dask.scheduler.call_profiles import cut_profile
from safeser.dask.scheduler.key_conflicts import Guard
from safeser.dask.scheduler.named_addresses import Names
from safeser.dask.scheduler.readers import Readers
from safeser.dask.scheduler.worker_authority import Workers
from safeser.dask.servers import part_of, served

__all__ = ["ROWS"]

_Function = Callable[..., Any]


# --- graphs and data -----------------------------------------------------------------------------


def _update_graph(stock: _Function) -> _Function:
    # Without Dask's decorator, which prints a page for each refusal that passes.
    plain = inspect.unwrap(stock)

    async def update_graph(self: Any, client: str, keys: Any, **graph: Any) -> None:
        guard = part_of(self, Guard)
        if guard is None:
            await stock(self, client=client, keys=keys, **graph)
        else:
            await guard.update_graph(partial(plain, self), client=client, keys=keys, **graph)

    return update_graph


def _new_task(stock: _Function) -> _Function:
    def new_task(self: Any, key: Any, spec: Any, state: Any, computation: Any = None) -> Any:
        task = stock(self, key, spec, state, computation)
        guard = part_of(self, Guard)
        if guard is not None:
            guard.note_owner(task)
        return task

    return new_task


def _update_data(stock: _Function) -> _Function:
    def update_data(
        self: Any, comm: Any = None, /, *, who_has: Any, nbytes: Any, client: str | None = None
    ) -> Any:
        guard = part_of(self, Guard)
        if guard is None:
            return stock(self, who_has=who_has, nbytes=nbytes, client=client)
        data = {"who_has": who_has, "nbytes": nbytes, "client": client}
        return guard.update_data(partial(stock, self), comm, **data)

    return update_data


def _scatter(stock: _Function) -> _Function:
    async def scatter(self: Any, comm: Any = None, /, *args: Any, **request: Any) -> Any:
        guard = part_of(self, Guard)
        if guard is None or not isinstance(comm, Comm):
            return await stock(self, *without_comm(comm, args), **request)
        return await guard.scatter(partial(stock, self), comm, **request)

    return scatter


_SCHEDULER = "distributed.scheduler:Scheduler"
_patch = partial(Patch, process=("scheduler",))

_GRAPHS = (
    _patch(
        target=f"{_SCHEDULER}.update_graph",
        reason="A graph's tasks belong to no principal: the client that first submits under a key"
        " chooses what all others get under it.",
        replace=_update_graph,
    ),
    _patch(
        target=f"{_SCHEDULER}._create_taskstate_from_graph",
        reason="A key that exists is not compared with what arrives.",
        replace=taken_over(Guard, Guard.create),
        source=(f"{_SCHEDULER}._create_taskstate_from_graph", f"{_SCHEDULER}._generate_taskstates"),
    ),
    _patch(
        target="distributed.scheduler:SchedulerState.new_task",
        reason="A task does not record the principal on whose behalf it was created.",
        replace=_new_task,
    ),
    _patch(
        target=f"{_SCHEDULER}.update_data",
        reason="Data is taken in under the key of another's task.",
        replace=_update_data,
    ),
    _patch(
        target=f"{_SCHEDULER}.scatter",
        reason="Data is brought to workers under the key of another's task.",
        replace=_scatter,
    ),
    _patch(
        target=f"{_SCHEDULER}.report",
        reason="The failure of one client's graph fails the futures of all clients of its keys.",
        replace=taken_over(Guard, Guard.report),
    ),
    _patch(
        target=f"{_SCHEDULER}.stimulus_cancel",
        reason="A client without submission can cancel the work of all others.",
        replace=taken_over(Guard, Guard.cancel),
    ),
)


# --- existing tasks ------------------------------------------------------------------------------


def _stimulus_retry(stock: _Function) -> _Function:
    def stimulus_retry(self: Any, keys: Any, client: str | None = None) -> Any:
        if served(self) is not None:
            keys = [key for key in keys if key in self.tasks and self.tasks[key].state == "erred"]
        return stock(self, keys, client)

    return stimulus_retry


def _client_desires_keys(stock: _Function) -> _Function:
    def client_desires_keys(self: Any, keys: Any, client: str) -> None:
        readers = part_of(self, Readers)
        if readers is not None:
            readers.require_publishable(keys, client)
        stock(self, keys, client)

    return client_desires_keys


def _get_profile(stock: _Function) -> _Function:
    async def get_profile(self: Any, comm: Any = None, /, *args: Any, **asked: Any) -> Any:
        known = served(self)
        if known is None or not isinstance(comm, Comm):
            return await stock(self, *without_comm(comm, args), **asked)
        return await cut_profile(known.channel.policy.limits, partial(stock, self), asked)

    return get_profile


_NAMED = (
    _patch(
        target=f"{_SCHEDULER}.stimulus_retry",
        reason="It releases keys that have not failed: data that another principal scattered is"
        " lost.",
        replace=_stimulus_retry,
    ),
    _patch(
        target=f"{_SCHEDULER}.client_desires_keys",
        reason="Keys are published that their publisher may not read.",
        replace=_client_desires_keys,
    ),
    _patch(
        target=f"{_SCHEDULER}.coerce_address",
        reason="Host names in requests are looked up in the event loop: one list of them blocks the"
        " cluster, and their name server learns of it.",
        replace=taken_over(Names, Names.coerce_address),
    ),
    *(
        Patch(
            target=f"{owner}.get_profile",
            reason="A profile that is nested deeper than a message may be is refused whole.",
            process=process,
            needed=False,
            replace=_get_profile,
        )
        for owner, process in (
            (_SCHEDULER, ("scheduler",)),
            ("distributed.worker:Worker", ("worker",)),
        )
    ),
)


# --- workers and nannies -------------------------------------------------------------------------


def _add_worker(stock: _Function) -> _Function:
    async def add_worker(self: Any, comm: Any, **request: Any) -> Any:
        workers = part_of(self, Workers)
        if workers is None:
            return await stock(self, comm, **request)
        return await workers.register(partial(stock, self), comm, **request)

    return add_worker


def _add_keys(stock: _Function) -> _Function:
    def add_keys(
        self: Any, worker: str, keys: Any = (), stimulus_id: str | None = None, **said: Any
    ) -> Any:
        workers = part_of(self, Workers)
        if workers is not None:
            keys = workers.may_have("add-keys", worker, keys, take_stated(said, keys))
        return stock(self, worker=worker, keys=keys, stimulus_id=stimulus_id)

    return add_keys


def _end_of_task(operation: str, stock: _Function) -> _Function:
    def handle(self: Any, key: Any, worker: str, **report: Any) -> Any:
        workers = part_of(self, Workers)
        run_id = report.get("run_id")
        if workers is None or workers.is_its_own(operation, key, worker, run_id):
            return stock(self, key=key, worker=worker, **report)
        return None

    return handle


def _task_to_msg(stock: _Function) -> _Function:
    def task_to_msg(self: Any, ts: Any) -> Any:
        workers = part_of(self, Workers)
        if workers is not None:
            workers.note_computing(ts)
        guard = part_of(self, Guard)
        message = stock(self, ts)
        return message if guard is None else guard.state_authors(message, ts)

    return task_to_msg


_WORKERS = (
    _patch(
        target=f"{_SCHEDULER}.add_worker",
        reason="A worker that registers under the id of another replaces it, and one whose"
        " registration ends half way gets tasks that wait for ever.",
        replace=_add_worker,
    ),
    _patch(
        target=f"{_SCHEDULER}.add_keys",
        reason="A worker can report the value of a task that it was never given, and all others are"
        " told to drop theirs.",
        replace=_add_keys,
    ),
    _patch(
        target=f"{_SCHEDULER}.handle_task_finished",
        reason="A worker reports the result of a task that another worker computes.",
        replace=partial(_end_of_task, "task-finished"),
    ),
    _patch(
        target=f"{_SCHEDULER}.handle_task_erred",
        reason="A worker reports the failure of a task that another worker computes.",
        replace=partial(_end_of_task, "task-erred"),
    ),
    _patch(
        target="distributed.scheduler:SchedulerState._task_to_msg",
        reason="The scheduler does not record which worker it told to compute a task, nor does it"
        " state the authors of the task and its inputs.",
        replace=_task_to_msg,
    ),
    _patch(
        target=f"{_SCHEDULER}.request_acquire_replicas",
        reason="The scheduler does not record which worker it told to keep a copy of a value, nor"
        " does it state the author of the value.",
        replace=taken_over(Workers, Workers.acquire),
    ),
    _patch(
        target=f"{_SCHEDULER}.gather_on_worker",
        reason="The scheduler does not record which worker it told to copy a value, nor does it"
        " state the author of the value.",
        replace=taken_over(Workers, Workers.gathered_on),
    ),
    _patch(
        target=f"{_SCHEDULER}.gather",
        reason="If a key is released and another client submits it while its value is fetched, the"
        " client that asked for the first value gets the second.",
        replace=taken_over(Readers, Readers.gathered),
    ),
)

# --- extensions: published datasets and work stealing ---------------------------------------------


def _put(stock: _Function) -> _Function:
    async def put(self: Any, comm: Any = None, /, *args: Any, **dataset: Any) -> Any:
        if served(self.scheduler) is None or not isinstance(comm, Comm):
            said = stock(self, *without_comm(comm, args), **dataset)
            return await said if inspect.isawaitable(said) else said
        with Readers.publishing(comm.link):
            said = stock(self, **dataset)
            return await said if inspect.isawaitable(said) else said

    return put


def _move_task_confirm(stock: _Function) -> _Function:
    def move_task_confirm(
        self: Any, *, key: Any, state: Any, stimulus_id: str, worker: str | None = None
    ) -> None:
        workers = part_of(self.scheduler, Workers)
        if workers is None or workers.gives_up_its_own(self.in_flight, key, worker):
            stock(self, key=key, state=state, stimulus_id=stimulus_id, worker=worker)

    return move_task_confirm


_EXTENSIONS = (
    _patch(
        target="distributed.publish:PublishExtension.put",
        reason="Keys are published by principals that may not read their values.",
        replace=_put,
    ),
    _patch(
        target="distributed.stealing:WorkStealing.move_task_confirm",
        reason="Any worker can answer for the one that was asked to give up a task.",
        replace=_move_task_confirm,
    ),
)

ROWS = (*_GRAPHS, *_NAMED, *_WORKERS, *_EXTENSIONS)

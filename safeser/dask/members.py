"""The workers of one scheduler: whose word is taken for which of them, and of which tasks.

The one rule: a worker speaks for itself, of what it was given to compute. Whoever registered it, by
that very key, speaks for it and nobody else does; what is said of a task that another worker is
computing is refused, and that it has the result of one that it was never told of.

Dask's scheduler takes each message's own word for which worker it is about, and tells workers apart
by an id that they choose, and that whoever asks hears: one that registered under the id of another
was that one in all comparisons, gave results in its place, and when it left, the other was given
nothing any more (distributed 2026.8.0, ``WorkerState.__eq__``).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

from distributed.batched import BatchedSend
from distributed.comm.addressing import normalize_address
from distributed.scheduler import Scheduler
from distributed.shuffle._core import barrier_key

from safeser.dask import addresses
from safeser.dask.key_succession import successors
from safeser.dask.noted import NotedTasks
from safeser.dask.replies import error_reply
from safeser.errors import PolicyDenied, SafeserError
from safeser.values import Kind

__all__ = ["know_workers"]

logger = logging.getLogger("safeser.dask")

#: In which field these requests name the worker that they are about.
_ABOUT = {
    "heartbeat_worker": "address",
    "unregister": "address",
    "add_keys": "worker",
    "shuffle_get": "worker",
    "shuffle_get_or_create": "worker",
}

#: What somebody else than a worker says of it, too: its nanny, or whom policy lets remove it.
_OTHERS_SAY = frozenset({"unregister"})

#: So long after a worker left is its nanny known as its own: by then it was started again.
HELD_SECONDS = 120.0
_MOST_HELD = 10_000

#: As much of a key as the log shows: whoever submitted it chose it.
_SHOWN = 60


def know_workers(scheduler: Any) -> None:
    """Have *scheduler* know its workers apart; to be called before it listens, once or more."""
    if not isinstance(scheduler, Scheduler):
        return
    if not isinstance(getattr(scheduler.handlers["register-worker"], "__self__", None), _Members):
        _Members(scheduler)


def _key_of(link: Any) -> str:
    # A worker that was given another key is known by the one that it registered by.
    return successors.first(link.session.peer_key)


def _only_works(link: Any) -> bool:
    """Tell whether the peer on *link* may register workers and, as a client, submit nothing."""
    if not link.policy.permits_operation(link.inbound(Kind.ADMIN, "register-worker")).permitted:
        return False
    return _submission(link) == "none"


def _submission(link: Any) -> str | None:
    """Return what the peer on *link* may submit."""
    grant = link.policy.grant(link.inbound(Kind.TASK, "update-graph"))
    return None if grant.submission is None else str(grant.submission)


def _runs_code(link: Any) -> bool:
    return link is not None and _submission(link) == "code"


class _Members:
    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._keys: dict[str, str] = {}  # by which key each worker registered, by its address
        #: Of workers that have just left: by which key they had registered, and until when that
        #: counts, by the place of their nanny.
        self._left: dict[Any, tuple[str, float]] = {}
        handlers, streams = scheduler.handlers, scheduler.stream_handlers
        #: What the scheduler had each worker compute, or have for that, or keep a copy of.
        self._told: defaultdict[str, NotedTasks] = defaultdict(NotedTasks)
        self._tell()
        self._add = handlers["register-worker"]
        handlers["register-worker"] = self.register
        handlers["add_keys"] = self._copies("add_keys", handlers["add_keys"])
        for name in _ABOUT.keys() & handlers.keys():
            handlers[name] = self._for_itself(name, handlers[name])
        if "shuffle" in scheduler.extensions:
            self._barrier = handlers["shuffle_barrier"]
            self._restrict = handlers["shuffle_restrict_task"]
            handlers["shuffle_barrier"] = self.shuffle_barrier
            handlers["shuffle_restrict_task"] = self.shuffle_restrict_task
        for name in ("replicate", "rebalance"):
            handlers[name] = self._for_clients(name, handlers[name])
        for name in ("task-finished", "task-erred"):
            streams[name] = self._of_its_own(name, streams[name])
        if "stealing" in scheduler.extensions:
            streams["steal-response"] = self._of_whom_it_is_taken(streams["steal-response"])
        streams["add-keys"] = self._copies("add-keys", streams["add-keys"])

    # --- who there is ----------------------------------------------------------------------------

    async def register(self, comm: Any, **request: Any) -> Any:
        """Add a worker as Dask does, and leave nothing of it behind."""
        link, told = getattr(comm, "link", None), request["address"]
        resolve = request.get("resolve_address", True)
        if resolve:
            await addresses.look_up(self._scheduler, told)
        if link is not None and request.get("nanny"):
            # The place itself: a name may lead elsewhere later, and one place has many spellings.
            request["nanny"] = await addresses.resolved(request["nanny"])
        # From here on until it is there, or refused, nobody else is served.
        try:
            if link is not None:
                self._require_new(link, request)
        except PolicyDenied as error:
            await comm.write(error_reply(error))
            await comm.close()
            return None
        try:
            return await self._register(comm, link, resolve, request)
        finally:
            addresses.forget(self._scheduler, told)

    async def _register(self, comm: Any, link: Any, resolve: bool, request: dict[str, Any]) -> Any:
        scheduler = self._scheduler
        address = normalize_address(scheduler.coerce_address(request["address"], resolve))
        if address in scheduler.workers:
            return await self._add(comm, **request)  # which refuses
        if link is not None:
            self._keys[address] = _key_of(link)
        came = request.get("name") not in scheduler.aliases  # or it is refused
        try:
            return await self._add(comm, **request)
        finally:
            state = scheduler.workers.get(address)
            if state is not None and state.server_id == request.get("server_id"):
                await self._remove(address)
            if address not in scheduler.workers:
                key = self._keys.pop(address, None)
                if came and key is not None and request.get("nanny"):
                    self._hold(addresses.place(request["nanny"]), key)
                self._told.pop(address, None)

    def _hold(self, place: Any, key: str) -> None:
        """Keep the nanny at *place* for the next worker of *key*, which it starts now.

        Whoever named that nanny in between would keep the worker out.
        """
        now = monotonic()
        self._left = {at: held for at, held in self._left.items() if held[1] > now}
        if place in self._left or len(self._left) < _MOST_HELD:
            self._left[place] = key, now + HELD_SECONDS

    def _held_by_another(self, place: Any, key: str) -> bool:
        owner, until = self._left.get(place, (key, 0.0))
        return owner != key and until > monotonic()

    async def _remove(self, address: str) -> None:
        """Remove a worker whose registration ended half way, as Dask does by itself for no other.

        Nobody listens to it, so that nobody would notice that it is gone: tasks that are given to
        it wait for ever.
        """
        scheduler = self._scheduler
        logger.warning("Removing %s, whose registration ended half way", address)
        scheduler.stream_comms.setdefault(address, BatchedSend("5ms", loop=scheduler.loop))
        await scheduler.remove_worker(address, stimulus_id="safeser-registration")

    def _require_new(self, link: Any, request: dict[str, Any]) -> None:
        """Refuse a worker that could be taken for another one that is there."""
        workers = self._scheduler.workers.values()
        if any(state.server_id == request.get("server_id") for state in workers):
            self._refuse(link, "register-worker", "worker.id", "its id is that of another worker")
        nanny, key = request.get("nanny"), _key_of(link)
        if not nanny:
            return
        others = [state for state in workers if self._keys.get(state.address) != key]
        place = addresses.place(nanny)
        if self._held_by_another(place, key) or any(
            state.nanny and addresses.place(state.nanny) == place for state in others
        ):
            # What Dask has a nanny do to the worker that it names would be done to the other one.
            reason = "its nanny is that of another worker, which registered by another key"
            self._refuse(link, "register-worker", "worker.nanny", reason)

    def _refuse(self, link: Any, operation: str, rule: str, reason: str) -> None:
        link.refuse(link.inbound(Kind.ADMIN, operation), rule, reason)

    # --- what is said of them --------------------------------------------------------------------

    def _for_itself(self, name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
        field = _ABOUT[name]

        def handler(comm: Any, **request: Any) -> Any:
            link = getattr(comm, "link", None)
            try:
                if link is not None:
                    self._require_own(link, name, request.get(field), request)
            except PolicyDenied as error:
                return error_reply(error)
            return stock(**request)

        return handler

    def _require_own(self, link: Any, name: str, named: Any, request: dict[str, Any]) -> None:
        # Where Dask's handler looks a name up unless it is told not to.
        resolve = request.get("resolve_address", True) if name == "heartbeat_worker" else None
        for address in self._meant(named, resolve):
            owner = self._keys.get(address)
            if owner in (None, _key_of(link)) or address not in self._scheduler.workers:
                continue
            if name in _OTHERS_SAY and self._principal_of(address) != link.peer:
                continue
            reason = "that worker registered by another key"
            self._refuse(link, name, "worker.another", reason)

    def _meant(self, named: Any, resolve: bool | None) -> Iterable[str]:
        """Yield which addresses Dask's handlers take *named* for."""
        if isinstance(named, str):
            yield named
        try:
            yield normalize_address(self._scheduler.coerce_address(named, resolve))
        except (SafeserError, TypeError, ValueError):
            return  # no worker's; the handler says so

    def _link_of(self, address: str) -> Any:
        stream = self._scheduler.stream_comms.get(address)
        return getattr(getattr(stream, "comm", None), "link", None)

    def _principal_of(self, address: str) -> str | None:
        link = self._link_of(address)
        return None if link is None else str(link.peer)

    # --- what they say of tasks ------------------------------------------------------------------

    def _of_its_own(self, name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
        tasks = self._scheduler.tasks

        def handler(key: Any, worker: str, **report: Any) -> Any:
            task = tasks.get(key)
            # Of an earlier run of the task, Dask knows that it is over.
            if task is not None and task.run_id == report.get("run_id"):
                at = task.processing_on
                if at is not None and at.address != worker:
                    return self._not_its_own(name, key, worker)
                if task.state == "memory" and not self._may_hold(worker, task):
                    return self._not_its_own(name, key, worker)
            return stock(key=key, worker=worker, **report)

        return handler

    def _of_whom_it_is_taken(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        """Have *stock* hear of that worker alone that is asked to give up a task.

        Requests are numbered, so that others can tell what they would have to name.
        """
        tasks, asked = self._scheduler.tasks, self._scheduler.extensions["stealing"].in_flight

        def handler(key: Any, worker: str, **answer: Any) -> Any:
            task = tasks.get(key)
            request = asked.get(task) if task is not None else None
            if request is not None and request["victim"].address != worker:
                return self._not_its_own("steal-response", key, worker)
            return stock(key=key, worker=worker, **answer)

        return handler

    def _not_its_own(self, name: str, key: Any, worker: str) -> None:
        link = self._link_of(worker)
        logger.warning("%s reports %s, which is not its own", worker, str(key)[:_SHOWN])
        if link is not None:
            error = PolicyDenied("that task is another worker's", rule="worker.task")
            link.note_refusal(link.inbound(Kind.DATA, name), error)

    # --- copies ----------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Take note of what the scheduler has workers compute, fetch and keep."""
        scheduler, told = self._scheduler, self._told
        task_to_msg = scheduler._task_to_msg
        acquire, gather = scheduler.request_acquire_replicas, scheduler.gather_on_worker

        def _task_to_msg(task: Any) -> Any:
            if task.processing_on is not None:
                known = told[task.processing_on.address]
                known.add(task)
                known.update(task.dependencies)
            return task_to_msg(task)

        def request_acquire_replicas(addr: str, keys: Iterable[Any], *, stimulus_id: str) -> Any:
            keys = list(keys)
            self._note_told(addr, keys)
            return acquire(addr, keys, stimulus_id=stimulus_id)

        def gather_on_worker(worker_address: str, who_has: dict[Any, list[str]]) -> Any:
            self._note_told(worker_address, who_has)
            return gather(worker_address, who_has)

        scheduler._task_to_msg = _task_to_msg
        scheduler.request_acquire_replicas = request_acquire_replicas
        scheduler.gather_on_worker = gather_on_worker

    def _note_told(self, address: str, keys: Iterable[Any]) -> None:
        tasks = self._scheduler.tasks
        self._told[address].update(tasks[key] for key in keys if key in tasks)

    def _may_hold(self, address: str, task: Any) -> bool:
        state = self._scheduler.workers.get(address)
        return task in self._told.get(address, ()) or state in (task.who_has or ())

    def _copies(self, name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
        """Have *stock* hear of those copies alone that a worker may have.

        Whoever is asked for a value may be any of those who say that they have it, and all others
        are told to drop theirs. Not of who may run code here: that changes any result anyway.
        """
        tasks = self._scheduler.tasks

        def handler(worker: str, keys: Iterable[Any] = (), **rest: Any) -> Any:
            kept = []
            for key in keys:
                task = tasks.get(key)
                if (
                    task is None
                    or task.state != "memory"
                    or self._may_hold(worker, task)
                    or _runs_code(self._link_of(worker))
                ):
                    kept.append(key)
                else:
                    self._not_its_own(name, key, worker)
            return stock(worker=worker, keys=kept, **rest)

        return handler

    def _for_clients(self, name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
        """Let no worker ask for copies, of which it could be told to keep one, for itself."""

        def handler(comm: Any, **request: Any) -> Any:
            link = getattr(comm, "link", None)
            if link is not None and _only_works(link):
                try:
                    reason = "who may register workers and submit nothing moves no values"
                    self._refuse(link, name, "worker.copies", reason)
                except PolicyDenied as error:
                    return error_reply(error)
            return stock(**request)

        return handler

    # --- shuffles --------------------------------------------------------------------------------

    def _barrier_of(self, shuffle: Any, run_id: int) -> Any:
        """Return the task between the halves of a shuffle, if that very run is under way.

        Of another one Dask says that it is over.
        """
        active = self._scheduler.extensions["shuffle"].active_shuffles.get(shuffle)
        if active is None or active.run_id != run_id:
            return None
        return self._scheduler.tasks.get(barrier_key(shuffle))

    async def shuffle_barrier(self, comm: Any, id: Any, run_id: int, consistent: bool) -> Any:
        """End the first half of a shuffle on the word of who computes the task that does.

        On anybody's word before, what arrives afterwards fails the shuffle.
        """
        link = getattr(comm, "link", None)
        barrier = self._barrier_of(id, run_id)
        if link is not None and barrier is not None:
            at = barrier.processing_on
            if at is None or self._keys.get(at.address) != _key_of(link):
                return self._refused(link, "shuffle_barrier", "it computes no barrier of it")
        return await self._barrier(id=id, run_id=run_id, consistent=consistent)

    def shuffle_restrict_task(self, comm: Any, id: Any, run_id: int, key: Any, worker: str) -> Any:
        """Say where a task of a shuffle is to run; of no other task, and nowhere else."""
        link = getattr(comm, "link", None)
        barrier, task = self._barrier_of(id, run_id), self._scheduler.tasks.get(key)
        if link is not None and barrier is not None and task is not None:
            active = self._scheduler.extensions["shuffle"].active_shuffles[id]
            places = active.run_spec.worker_for.values()
            if task not in barrier.dependents or worker not in places:
                return self._refused(link, "shuffle_restrict_task", "that is no part of it")
        return self._restrict(id=id, run_id=run_id, key=key, worker=worker)

    def _refused(self, link: Any, operation: str, reason: str) -> Any:
        try:
            self._refuse(link, operation, "worker.shuffle", reason)
        except PolicyDenied as error:
            return error_reply(error)

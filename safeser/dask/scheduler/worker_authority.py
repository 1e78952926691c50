"""Decide which peer may report about which worker of a scheduler, and about which tasks.

The one rule: a worker reports about itself, and about tasks that it was given. Only the key that
registered a worker speaks for it. Two others end it: the nanny that it registered with, and a
principal that may retire workers (docs/decisions/0060-authority-is-a-positive-relation.md). A
report about a task that another worker computes is refused, and so is the result of a task that
this worker was never given. A worker that is told to fetch a value is told whose value it is.

Dask's scheduler believes each message which worker it is about, and compares workers by an id that
they choose and that any client can read: a worker that registered under the id of another was equal
to it in all comparisons, reported results in its place, and when it left, the other got no task any
more (distributed 2026.8.0, ``WorkerState.__eq__``).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partialmethod
from time import monotonic
from typing import Any

from distributed.batched import BatchedSend
from distributed.comm import connect
from distributed.comm.addressing import normalize_address
from distributed.shuffle._core import barrier_key

from safeser.dask.messages.author_statements import stating, take_stated
from safeser.dask.messages.refused import error_reply
from safeser.dask.scheduler import named_addresses
from safeser.dask.scheduler.conflicts import Owners
from safeser.dask.scheduler.weak_task_dict import WeakTaskSet
from safeser.dask.servers import Part, link_of
from safeser.dask.transport.session_control import successors
from safeser.dask.wire.task_key import shown_key
from safeser.dask.worker.confinement import require_report
from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.values import SEALED, Kind

__all__ = ["ABOUT", "Workers"]

logger = logging.getLogger("safeser.dask")

#: In which field these requests name the worker that they are about.
ABOUT = {
    "heartbeat_worker": "address",
    "unregister": "address",
    "add_keys": "worker",
    "shuffle_get": "worker",
    "shuffle_get_or_create": "worker",
}

#: Seconds within which a nanny has to prove its key: it waits ten for what it asked.
_NANNY_SECONDS = 5.0

#: Seconds for which the nanny of a worker that left stays known: it starts the worker again.
HELD_SECONDS = 120.0
_MOST_HELD = 10_000

#: The stimulus by which a worker is told to drop a copy.
_FORMER = "safeser-former"

#: What principals submit that have work on the cluster.
_SUBMITTING = frozenset({"code", SEALED})

#: Characters of a key that the log shows: the client that submitted it chose it.
_SHOWN = 60


def _key_of(link: Any) -> str:
    # A worker that was given another key is known by the one that it registered by.
    return successors.first(link.session.peer_key)


def _may(link: Any, kind: Kind, operation: str) -> bool:
    return bool(link.policy.permits_operation(link.inbound(kind, operation)).permitted)


def _submission(link: Any) -> str | None:
    """Return what the peer on *link* may submit."""
    grant = link.policy.grant(link.inbound(Kind.TASK, "update-graph"))
    return None if grant.submission is None else str(grant.submission)


class Workers(Part):
    """The workers of one scheduler."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._owners = self._known.part(self._server, Owners)
        self._keys: dict[str, str] = {}  # by which key each worker registered, by its address
        #: Of workers that have just left: by which key they had registered, and until when that
        #: counts, by the place of their nanny.
        self._left: dict[Any, tuple[str, float]] = {}
        #: What the scheduler had each worker compute, or have for that, or keep a copy of.
        self._told: defaultdict[str, WeakTaskSet] = defaultdict(WeakTaskSet)

    # --- who there is ----------------------------------------------------------------------------

    async def register(
        self, stock: Callable[..., Awaitable[Any]], comm: Any, **request: Any
    ) -> Any:
        """Add a worker as *stock* does, and leave nothing of it behind."""
        link, told = getattr(comm, "link", None), request["address"]
        names = self._known.part(self._server, named_addresses.Names)
        resolve = request.get("resolve_address", True)
        if resolve:
            await names.look_up(told)
        if link is not None and request.get("nanny"):
            # The address itself: a name may resolve to another one later, and has many spellings.
            request["nanny"] = await named_addresses.resolved(request["nanny"])
        # From here on until it is registered, or refused, the loop serves no other request.
        try:
            if link is not None:
                self._require_new(link, request)
        except PolicyDenied as error:
            await comm.write(error_reply(error))
            await comm.close()
            return None
        try:
            return await self._register(stock, comm, link, resolve, request)
        finally:
            names.forget(told)

    async def _register(
        self,
        stock: Callable[..., Awaitable[Any]],
        comm: Any,
        link: Any,
        resolve: bool,
        request: dict[str, Any],
    ) -> Any:
        scheduler = self._server
        address = normalize_address(scheduler.coerce_address(request["address"], resolve))
        if address in scheduler.workers:
            return await stock(comm, **request)  # which refuses
        if link is not None:
            self._keys[address] = _key_of(link)
        came = request.get("name") not in scheduler.aliases  # or it is refused
        try:
            return await stock(comm, **request)
        finally:
            state = scheduler.workers.get(address)
            if state is not None and state.server_id == request.get("server_id"):
                await self._remove(address)
            if address not in scheduler.workers:
                key = self._keys.pop(address, None)
                if came and key is not None and request.get("nanny"):
                    self._hold(named_addresses.place(request["nanny"]), key)
                self._told.pop(address, None)

    def _hold(self, place: Any, key: str) -> None:
        """Keep the nanny at *place* for the next worker of *key*, which it starts now.

        A worker that named that nanny in between would keep the new one out.
        """
        now = monotonic()
        self._left = {at: held for at, held in self._left.items() if held[1] > now}
        if place in self._left or len(self._left) < _MOST_HELD:
            self._left[place] = key, now + HELD_SECONDS

    async def _remove(self, address: str) -> None:
        """Remove a worker whose registration ended half way, as Dask does by itself for no other.

        The scheduler reads no stream from it and would not notice that it is gone: tasks that are
        given to it would wait for ever.
        """
        scheduler = self._server
        logger.warning("Removing %s, whose registration ended half way", address)
        scheduler.stream_comms.setdefault(address, BatchedSend("5ms", loop=scheduler.loop))
        await scheduler.remove_worker(address, stimulus_id="safeser-registration")

    def _require_new(self, link: Any, request: dict[str, Any]) -> None:
        """Refuse a worker that could be taken for another one, or that proves no confinement."""
        try:
            require_report(link.policy, link.peer, request.get("extra"))
        except PolicyDenied as error:
            self._refuse(link, "register-worker", error.rule, error.message)
        workers = self._server.workers.values()
        if any(state.server_id == request.get("server_id") for state in workers):
            self._refuse(link, "register-worker", "worker.id", "its id is that of another worker")
        nanny, key = request.get("nanny"), _key_of(link)
        if not nanny:
            return
        others = [state for state in workers if self._keys.get(state.address) != key]
        place = named_addresses.place(nanny)
        owner, until = self._left.get(place, (key, 0.0))
        if (owner != key and until > monotonic()) or any(
            state.nanny and named_addresses.place(state.nanny) == place for state in others
        ):
            # What Dask has a nanny do to the worker that it names would be done to the other one.
            reason = "its nanny is that of another worker, which registered by another key"
            self._refuse(link, "register-worker", "worker.nanny", reason)

    def _refuse(self, link: Any, operation: str, rule: str, reason: str) -> None:
        link.refuse(link.inbound(Kind.ADMIN, operation), rule, reason)

    # --- what is said of them --------------------------------------------------------------------

    def require_own(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse a *request* about a worker that registered by another key than the peer's.

        :raises PolicyDenied: which was recorded.
        """
        link, reason = comm.link, "that worker registered by another key"
        for state in self._states(request):
            if not self._is_own(link, state):
                self._refuse(link, request["op"], "worker.another", reason)

    async def require_ending(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse a *request* that ends a worker, as :meth:`require_own` does.

        An operator that may retire the worker ends it as well, and its nanny: the principal may be
        one, and its key is the one that answers where the worker registered its nanny.

        :raises PolicyDenied: which was recorded.
        """
        link = comm.link
        if not _may(link, Kind.CONTROL, "retire_workers"):
            proven = await self._proven(link, self._states(request))
            # From here on until the handler has ended the worker, no other request is served.
            for state in self._states(request):
                if not self._is_own(link, state) and proven.get(state.nanny) != _key_of(link):
                    reason = "that worker registered by another key, and with another nanny"
                    self._refuse(link, request["op"], "worker.another", reason)

    async def _proven(self, link: Any, states: Iterable[Any]) -> dict[str, str | None]:
        """Return whose keys answer at the nannies of *states*, if the peer may be one of them.

        A nanny's own word for its address proves nothing, and its key may have been replaced since
        it registered: the handshake at that address proves who is there now.
        """
        if not _may(link, Kind.ADMIN, "register_nanny"):
            return {}
        nannies = {state.nanny for state in states if state.nanny and not self._is_own(link, state)}
        return {nanny: await self._key_at(nanny) for nanny in nannies}

    async def _key_at(self, address: str) -> str | None:
        arguments = self._server.connection_args
        try:
            comm = await connect(address, timeout=_NANNY_SECONDS, **arguments)
        except (OSError, SafeserError) as error:
            logger.warning("The nanny at %s does not prove its key: %s", address, error)
            return None
        try:
            return _key_of(comm.link)
        finally:
            comm.abort()

    def _is_own(self, link: Any, state: Any) -> bool:
        return self._keys.get(state.address) == _key_of(link)

    def _states(self, request: Mapping[str, Any]) -> list[Any]:
        """Return the workers that Dask's handler of *request* may act upon."""
        name, workers = request["op"], self._server.workers
        named = request.get(ABOUT[name])
        # Where the handler looks a name up unless it is told not to.
        resolve = request.get("resolve_address", True) if name == "heartbeat_worker" else None
        return [workers[each] for each in self._named_addresses(named, resolve) if each in workers]

    def _named_addresses(self, named: Any, resolve: bool | None) -> Iterable[str]:
        """Yield which addresses Dask's handlers take *named* for."""
        if isinstance(named, str):
            yield named
        try:
            yield normalize_address(self._server.coerce_address(named, resolve))
        except (SafeserError, TypeError, ValueError):
            return  # of no worker; the handler answers so

    # --- what they say of tasks ------------------------------------------------------------------

    def _ended(
        self, name: str, stock: Callable[..., Any], key: Any, worker: str, **report: Any
    ) -> Any:
        """Take a report as *stock* does that a task ended on *worker*, if it is of its own."""
        own = self._is_its_own(name, key, worker, report.get("run_id"))
        return stock(key=key, worker=worker, **report) if own else None

    finished = partialmethod(_ended, "task-finished")
    erred = partialmethod(_ended, "task-erred")

    def _is_its_own(self, name: str, key: Any, worker: str, run_id: Any) -> bool:
        task = self._server.tasks.get(key)
        # Of an earlier run of the task, Dask knows that it is over.
        if task is None or task.run_id != run_id:
            return True
        at = task.processing_on
        own = self._may_hold(worker, task) if at is None else at.address == worker
        return own or self._not_its_own(name, key, worker)

    def gave_up(self, stock: Any, *, key: Any, worker: str | None = None, **answer: Any) -> None:
        """Take an answer as *stock* does, if *worker* was asked to give up the task *key*.

        Requests are numbered, so that others can tell what they would have to name.
        """
        task = self._server.tasks.get(key)
        # The requests that are not answered yet, by their tasks.
        request = stock.__self__.in_flight.get(task) if task is not None else None
        if request is not None and request["victim"].address != worker:
            self._not_its_own("steal-response", key, str(worker))
        else:
            stock(key=key, worker=worker, **answer)

    def _not_its_own(self, name: str, key: Any, worker: str) -> bool:
        link = link_of(self._server.stream_comms.get(worker))
        logger.warning("%s reports %s, which is not its own", worker, shown_key(key, _SHOWN))
        if link is not None:
            error = PolicyDenied("that task is another worker's", rule="worker.task")
            link.note_refusal(link.inbound(Kind.DATA, name), error)
        return False

    # --- copies ----------------------------------------------------------------------------------

    def hand_out(self, stock: Callable[[Any], dict[str, Any]], task: Any) -> dict[str, Any]:
        """Return the message of *stock* by which a worker gets *task*, with the authors in it.

        The worker has the task from then on, and what it needs for that.
        """
        if task.processing_on is not None:
            known = self._told[task.processing_on.address]
            known.add(task)
            if task.dependencies:
                known.update(task.dependencies)
        message = stock(task)
        author = message["author"] = self._owners.of(task)
        if task.dependencies:
            owners = self._owners.of_tasks(task.dependencies)
            others = {key: owner for key, owner in owners.items() if owner != author}
            if others:
                message["authors"] = others
        return message

    def note_told(self, address: str, keys: Iterable[Any]) -> list[Any]:
        """Record which tasks' values the worker at *address* is told to fetch; return the tasks."""
        tasks = [self._server.tasks[key] for key in keys if key in self._server.tasks]
        self._told[address].update(tasks)
        return tasks

    def acquire(
        self, _: Callable[..., None], addr: str, keys: Iterable[Any], *, stimulus_id: str
    ) -> None:
        """Do what ``Scheduler.request_acquire_replicas`` does, and state whose the values are."""
        keys = list(keys)
        self.note_told(addr, keys)
        tasks = [self._server.tasks[key] for key in keys]
        self._server.stream_comms[addr].send(
            {
                "op": "acquire-replicas",
                "who_has": {each.key: [state.address for state in each.who_has] for each in tasks},
                "nbytes": {each.key: each.nbytes for each in tasks},
                "authors": self._owners.of_tasks(tasks),
                "stimulus_id": stimulus_id,
            }
        )

    async def gathered_on(
        self, stock: Callable[..., Awaitable[Any]], worker_address: str, who_has: Any
    ) -> Any:
        """Do what ``Scheduler.gather_on_worker``, *stock*, does, and state whose the values are.

        A key that is another author's by the time of the answer names no value that was copied.
        """
        authors = self._owners.of_tasks(self.note_told(worker_address, who_has))
        with stating("gather", authors=authors):
            failed = await stock(worker_address, who_has)
        now = self._owners.of_tasks(filter(None, map(self._server.tasks.get, authors)))
        former = [
            key for key, author in now.items() if author != authors[key] and key not in failed
        ]
        for key in former:
            self._server.release_worker_data(key, worker_address, _FORMER)
        if former:
            self._drop(worker_address, former)
        return failed

    def _drop(self, address: str, keys: list[Any]) -> None:
        dropped = {"op": "remove-replicas", "keys": keys, "stimulus_id": _FORMER}
        self._server.worker_send(address, dropped)

    def _may_hold(self, address: str, task: Any) -> bool:
        state = self._server.workers.get(address)
        return task in self._told.get(address, ()) or state in (task.who_has or ())

    def add_keys(
        self, stock: Callable[..., Any], worker: str, keys: Iterable[Any] = (), **more: Any
    ) -> Any:
        """Take as *stock* does of which *keys* the *worker* says that it has a copy, if it may.

        Dask may fetch a value from any worker that reports a copy, and tells the others to drop
        theirs. A worker that may run code here is believed: it can change any result anyway. But a
        copy by another author is of a task that had the key before.
        """
        kept, others = [], []
        authors, owner_of = take_stated(more, keys), self._owners.of
        link = link_of(self._server.stream_comms.get(worker))
        for key in keys:
            task = self._server.tasks.get(key)
            if task is None or task.state != "memory":
                kept.append(key)  # Dask has it dropped
            elif authors.get(key, owner_of(task)) != owner_of(task):
                others.append(key)
            elif self._may_hold(worker, task) or (link and _submission(link) == "code"):
                kept.append(key)
            else:
                self._not_its_own("add-keys", key, worker)
        if others and worker in self._server.stream_comms:
            self._drop(worker, others)
        return stock(worker=worker, keys=kept, **more)

    def require_client(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse to move values for a peer that submits nothing: a worker could be told to keep it.

        :raises PolicyDenied: which was recorded.
        """
        if _submission(comm.link) not in _SUBMITTING:
            reason = "a principal that submits nothing moves no values"
            self._refuse(comm.link, request["op"], "worker.copies", reason)

    # --- shuffles --------------------------------------------------------------------------------

    def _is_active(self, shuffle: Any, run_id: Any) -> bool:
        """Tell whether that very run of a shuffle is under way; of another Dask says it is over."""
        extension = self._server.extensions.get("shuffle")
        active = None if extension is None else extension.active_shuffles.get(shuffle)
        return active is not None and active.run_id == run_id

    def require_barrier(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse a peer that ends the first half of a shuffle and computes no task that does.

        If another peer ended it earlier, shards that arrive afterwards would fail the shuffle.

        :raises PolicyDenied: which was recorded.
        """
        shuffle = request.get("id")
        if self._is_active(shuffle, request.get("run_id")):
            barrier = self._server.tasks.get(barrier_key(shuffle))
            at = None if barrier is None else barrier.processing_on
            if at is None or not self._is_own(comm.link, at):
                reason = "it computes no barrier of it"
                self._refuse(comm.link, request["op"], "worker.shuffle", reason)

    def require_part(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse to say where a task is to run that is none of a shuffle's, or anywhere else.

        :raises PolicyDenied: which was recorded.
        """
        tasks, shuffle, key = self._server.tasks, request.get("id"), request.get("key")
        if self._is_active(shuffle, request.get("run_id")) and key in tasks:
            active = self._server.extensions["shuffle"].active_shuffles[shuffle]
            places, barrier = active.run_spec.worker_for.values(), tasks.get(barrier_key(shuffle))
            parts = () if barrier is None else barrier.dependents
            if tasks[key] not in parts or request.get("worker") not in places:
                reason = "that is no part of it"
                self._refuse(comm.link, request["op"], "worker.shuffle", reason)

"""Which workers a scheduler registers, and whose values it tells them to hold.

The one rule: a worker that is told to compute or fetch a value is told whose value it is, and a
copy by another author than the task's is dropped: a key outlives no task.

What a worker or a nanny of the cluster reports about itself, other workers and tasks is believed,
as Dask believes it: those that policy lets report are one trust group
(docs/decisions/0078-what-the-rest-of-dask-gives-up.md).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from distributed.batched import BatchedSend
from distributed.comm.addressing import parse_address, parse_host_port

from safeser.dask.messages.author_statements import stating, take_stated
from safeser.dask.messages.refused import error_reply
from safeser.dask.scheduler.conflicts import Owners
from safeser.dask.servers import Part
from safeser.dask.worker.confinement import require_report
from safeser.errors import PolicyDenied
from safeser.gate.values import SEALED, Kind

__all__ = ["Workers"]

logger = logging.getLogger("safeser.dask")

#: The stimulus by which a worker is told to drop a copy.
_FORMER = "safeser-former"

#: What principals submit that have work on the cluster.
_SUBMITTING = frozenset({"code", SEALED})

#: Operations of which one is granted to each principal that may end a worker.
_ENDING = (
    (Kind.ADMIN, "register-worker"),
    (Kind.ADMIN, "register_nanny"),
    (Kind.CONTROL, "retire_workers"),
)


class Workers(Part):
    """The workers of one scheduler."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._owners = self._known.part(self._server, Owners)
        self._registering: list[Any] = []  # addresses as their workers spell them
        self._named: dict[str, str] = {}  # addresses of workers that registered by others

    # --- who there is ----------------------------------------------------------------------------

    async def register(
        self, stock: Callable[..., Awaitable[Any]], comm: Any, **request: Any
    ) -> Any:
        """Add a worker as *stock* does, if it reports the confinement that policy demands of it.

        Nothing is left of a worker whose registration ended half way. Dask removes no such worker:
        it reads no stream from it, and tasks that are given to it would wait for ever.
        """
        link = getattr(comm, "link", None)
        try:
            if link is not None:
                self._require_report(link, request)
        except PolicyDenied as error:
            await comm.write(error_reply(error))
            await comm.close()
            return None
        scheduler, own = self._server, request.get("server_id")
        before = frozenset(scheduler.workers)
        self._registering.append(request.get("address"))
        try:
            return await stock(comm, **request)
        finally:
            self._registering.remove(request.get("address"))
            named = self._named.items()
            self._named = {name: at for name, at in named if at in scheduler.workers}
            states = list(scheduler.workers.values())
            for address in [each.address for each in states if each.server_id == own]:
                if address not in before:
                    logger.warning("Removing %s, whose registration ended half way", address)
                    comms = scheduler.stream_comms
                    comms.setdefault(address, BatchedSend("5ms", loop=scheduler.loop))
                    await scheduler.remove_worker(address, stimulus_id="safeser-registration")

    def _require_report(self, link: Any, request: Mapping[str, Any]) -> None:
        try:
            require_report(link.policy, link.peer, request.get("extra"))
        except PolicyDenied as error:
            link.refuse(link.inbound(Kind.ADMIN, "register-worker"), error.rule, error.message)

    def coerce_address(
        self, stock: Callable[..., str], addr: Any, resolve: bool | None = None
    ) -> str:
        """Return what *stock* does, and look up no host that a request or an annotation names.

        Dask says whether to resolve for workers that register or send a heartbeat alone. Those that
        registered are known by the name of their host from then on.

        :raises ValueError: if *addr* names no worker and no port: Dask takes it for a host.
        """
        if resolve is not None:
            found = stock(addr, resolve)
            if addr != found and addr in self._registering:
                self._named[addr] = found
            return found
        if type(addr) is str and addr in self._named:
            return self._named[addr]
        if type(addr) is str and addr not in self._server.aliases:
            # Without a scheme it is one of safeser://, as of every process here.
            addr = addr if "://" in addr else f"safeser://{addr}"
            parse_host_port(parse_address(addr)[1])
        return stock(addr, False)

    # --- whose values they hold ------------------------------------------------------------------

    def hand_out(self, stock: Callable[[Any], dict[str, Any]], task: Any) -> dict[str, Any]:
        """Return the message of *stock* by which a worker gets *task*, with the authors in it."""
        message = stock(task)
        author = message["author"] = self._owners.of(task)
        if task.dependencies:
            owners = self._owners.of_tasks(task.dependencies)
            others = {key: owner for key, owner in owners.items() if owner != author}
            if others:
                message["authors"] = others
        return message

    def acquire(
        self, _: Callable[..., None], addr: str, keys: Iterable[Any], *, stimulus_id: str
    ) -> None:
        """Do what ``Scheduler.request_acquire_replicas`` does, and state whose the values are."""
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
        tasks = self._server.tasks
        authors = self._owners.of_tasks(filter(None, map(tasks.get, who_has)))
        with stating("gather", authors=authors):
            failed = await stock(worker_address, who_has)
        now = self._owners.of_tasks(filter(None, map(tasks.get, authors)))
        former = [
            key for key, author in now.items() if author != authors[key] and key not in failed
        ]
        for key in former:
            self._server.release_worker_data(key, worker_address, _FORMER)
        self._drop(worker_address, former)
        return failed

    def _drop(self, address: str, keys: list[Any]) -> None:
        if keys and address in self._server.workers:
            dropped = {"op": "remove-replicas", "keys": keys, "stimulus_id": _FORMER}
            self._server.worker_send(address, dropped)

    def add_keys(
        self, stock: Callable[..., Any], worker: str, keys: Iterable[Any] = (), **more: Any
    ) -> Any:
        """Take as *stock* does of which *keys* the *worker* says that it has a copy.

        A copy by another author is of a task that had the key before, and is dropped.
        """
        kept: list[Any] = []
        others: list[Any] = []
        authors, owner_of = take_stated(more, keys), self._owners.of
        for key in keys:
            task = self._server.tasks.get(key)
            in_memory = task is not None and task.state == "memory"  # else Dask has it dropped
            former = in_memory and authors.get(key, owner_of(task)) != owner_of(task)
            (others if former else kept).append(key)
        self._drop(worker, others)
        return stock(worker=worker, keys=kept, **more)

    # --- what needs more than a grant ------------------------------------------------------------

    def require_ending(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse to end a worker for a peer that is no worker or nanny and may not retire workers.

        :raises PolicyDenied: which was recorded.
        """
        link = comm.link
        contexts = [link.inbound(*each) for each in _ENDING]
        if not any(link.policy.permits_operation(each).permitted for each in contexts):
            reason = "it may register no worker or nanny here, and may not retire workers"
            link.refuse(link.inbound(Kind.CONTROL, request["op"]), "worker.ending", reason)

    def require_client(self, comm: Any, request: Mapping[str, Any]) -> None:
        """Refuse to move values for a peer that submits nothing.

        :raises PolicyDenied: which was recorded.
        """
        link = comm.link
        grant = link.policy.grant(link.inbound(Kind.TASK, "update-graph"))
        if grant.submission not in _SUBMITTING:
            reason = "a principal that submits nothing moves no values"
            link.refuse(link.inbound(Kind.ADMIN, request["op"]), "worker.copies", reason)

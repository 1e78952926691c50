"""Cancel tasks with ``force``, where other clients want them, and those of retired principals.

The one rule: a client cancels what no other client wants, with ``force`` as without. Dask lets
every client cancel every key by it, with all that depends on that key, so that a client without
submission could end all work. A principal that may restart the cluster could do so anyway.

Dask's scheduler also reports cancelled keys to all clients. A client whose graph is on its way
holds a future that the scheduler does not know yet: another client that submitted and cancelled
under the same key meanwhile ended that future. So a client is told of keys that it wants. Dask also
asserts that some client wants each task that depends on a cancelled key: where a task of another
client did, which no client wants by itself, that closed the connection of the canceller, with all
its futures.

A scheduler computes nothing for a principal whose keys are all retired. Tasks of a connected client
are released when its session ends; those of ``fire_and_forget`` are wanted by the scheduler itself
until they are done, and are released here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any

from distributed.scheduler import TaskState

from safeser.channel import Link
from safeser.dask.scheduler.conflicts import Owners
from safeser.dask.servers import Part, link_of
from safeser.errors import PolicyDenied
from safeser.gate.values import Kind

__all__ = ["Cancellation"]

logger = logging.getLogger("safeser.dask")
#: Which Client.get_scheduler_logs shows.
_schedulers_log = logging.getLogger("distributed.scheduler")

RULE = "key.cancel"

#: The client under which Dask's scheduler keeps tasks of ``fire_and_forget``.
_UNATTENDED = "fire-and-forget"


class Cancellation(Part):
    """Ends and repeats tasks of one scheduler."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._owners = self._known.part(self._server, Owners)
        self._known.channel.when_silenced(self._silenced)

    def retry(self, stock: Callable[..., Any], keys: Iterable[Any], *args: Any, **more: Any) -> Any:
        """Retry as *stock* does, but no task that has not failed."""
        tasks = self._server.tasks
        failed = [key for key in keys if key in tasks and tasks[key].state == "erred"]
        return stock(failed, *args, **more)

    def cancel(
        self,
        _: Callable[..., None],
        keys: Collection[Any],
        client: str,
        force: bool = False,
        reason: str | None = None,
        msg: str | None = None,
    ) -> None:
        """Do what Dask's ``stimulus_cancel`` does, for the keys that *client* may cancel.

        In its place: Dask's would end the tasks of others.
        """
        scheduler = self._server
        stream = scheduler.client_comms.get(client)
        link = link_of(stream)
        scheduler.log_event(client, {"action": "cancel", "count": len(keys), "force": force})
        if client not in scheduler.clients:
            return
        if force and link is not None:
            restart = link.inbound(Kind.CONTROL, "restart")
            force = bool(link.policy.permits_operation(restart).permitted)
            if not force:
                self._note_left(link, scheduler.clients[client], keys)
        cancelled = self._cancelled(keys, scheduler.clients[client], force=force)
        wanting = {client}
        if force:
            wanting.update(each.client_key for task in cancelled for each in task.who_wants or ())
        names = [task.key for task in cancelled]
        for each in wanting:
            scheduler.client_releases_keys(names, each, "safeser-cancel")
        told = {"op": "cancelled-keys", "keys": names, "reason": reason, "msg": msg}
        if link is None:
            scheduler.report(told)
            return
        # Keys that other clients want by now, or are about to, are not cancelled.
        own = [each for each in scheduler.client_comms if self._owners.of_client(each) == link.peer]
        for each in wanting.union(own):
            scheduler.report(told, client=each)

    def _cancelled(self, keys: Iterable[Any], client: Any, *, force: bool) -> list[TaskState]:
        """Return the tasks of *keys* that *client* cancels, and with each what depends on it."""
        tasks = self._server.tasks
        found: dict[TaskState, None] = {}
        ahead = [tasks[key] for key in keys if key in tasks]
        while ahead:
            each = ahead.pop()
            if each not in found and (force or each.who_wants == {client}):
                _schedulers_log.info("Scheduler cancels key %s.  Force=%s", each.key, force)
                found[each] = None
                ahead += each.dependents
        return list(found)

    def _note_left(self, link: Link, client: Any, keys: Collection[Any]) -> None:
        """Record that other clients want some of *keys*, which *client* may not cancel for them."""
        tasks = self._server.tasks
        there = [tasks[key] for key in keys if key in tasks]
        left = sum(not {client}.issuperset(task.who_wants or ()) for task in there)
        if left:
            # One record for all: a message can name a million keys.
            error = PolicyDenied(
                f"{left} of {len(there)} keys to cancel are wanted by others",
                rule=RULE,
                fix="Cancel without force=True, or as a principal that may restart the cluster.",
            )
            logger.warning("Refused from %s: %s", link.peer, error)
            link.note_refusal(link.inbound(Kind.ADMIN, "cancel-keys"), error, where="keys")

    # --- principals that were retired ------------------------------------------------------------

    def _silenced(self, names: frozenset[str]) -> None:
        with contextlib.suppress(ReferenceError, RuntimeError):  # it is gone, or its loop is closed
            self._server.loop.add_callback(self._release_unattended, names)

    def _release_unattended(self, names: frozenset[str]) -> None:
        """Release what the silenced principals *names* left to the scheduler."""
        scheduler: Any = self._server_ref()
        state = None if scheduler is None else scheduler.clients.get(_UNATTENDED)
        wanted = () if state is None else state.wants_what
        keys = [task.key for task in wanted if self._owners.of(task) in names]
        if keys:
            logger.warning("Releasing %d tasks of principals without an active key", len(keys))
            stimulus = "safeser-retired"
            scheduler.client_releases_keys(keys=keys, client=_UNATTENDED, stimulus_id=stimulus)

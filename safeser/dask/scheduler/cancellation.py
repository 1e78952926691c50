"""Cancel tasks with ``force``, where other clients want them, and those of retired principals.

The one rule: ``force`` cancels tasks that clients of the canceller's own principal want, and no
other client. Dask lets every client cancel every key by it, with all that depends on that key, so
that a client without submission could end all work. A principal that may restart the cluster could
do so anyway.

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
from weakref import ref

from distributed.scheduler import TaskState

from safeser.channel import Channel, Link
from safeser.dask.servers import Part, link_of
from safeser.errors import PolicyDenied
from safeser.gate.values import Kind

__all__ = ["Cancellation", "release_unattended"]

logger = logging.getLogger("safeser.dask")
#: Which Client.get_scheduler_logs shows.
_schedulers_log = logging.getLogger("distributed.scheduler")

RULE = "key.cancel"

#: The client under which Dask's scheduler keeps tasks of ``fire_and_forget``.
_UNATTENDED = "fire-and-forget"


class Cancellation(Part):
    """Handles ``cancel-keys`` on one scheduler.

    :param owner_of: returns the principal that first submitted a task.
    :param principal_of: returns the principal of a client, or None.
    """

    def __init__(
        self,
        *args: Any,
        owner_of: Callable[[TaskState], str],
        principal_of: Callable[[str], str | None],
    ) -> None:
        super().__init__(*args)
        self._owner_of = owner_of
        self._principal_of = principal_of

    def cancel(
        self,
        keys: Collection[Any],
        client: str,
        force: bool = False,
        reason: str | None = None,
        msg: str | None = None,
    ) -> None:
        """Do what Dask's ``stimulus_cancel`` does, for the keys that *client* may cancel."""
        scheduler = self._server
        stream = scheduler.client_comms.get(client)
        link = link_of(stream)
        scheduler.log_event(client, {"action": "cancel", "count": len(keys), "force": force})
        if client not in scheduler.clients:
            return
        if force and link is not None:
            restart = link.policy.permits_operation(link.inbound(Kind.CONTROL, "restart"))
            keys = keys if restart.permitted else self._own(link, keys)
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
        own = [each for each in scheduler.client_comms if self._principal_of(each) == link.peer]
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

    def _own(self, link: Link, keys: Collection[Any]) -> list[Any]:
        """Return those of *keys* that are wanted by the principal behind *link* alone."""
        tasks = self._server.tasks
        there = [tasks[key] for key in keys if key in tasks]
        verdicts: dict[TaskState, bool] = {}
        own = [task for task in there if self._is_own(task, link.peer, verdicts)]
        if len(own) < len(there):
            # One record for all: a message can name a million keys.
            error = PolicyDenied(
                f"{len(there) - len(own)} of {len(there)} keys to cancel are wanted by others",
                rule=RULE,
                fix="Cancel without force=True, or as a principal that may restart the cluster.",
            )
            logger.warning("Refused from %s: %s", link.peer, error)
            link.note_refusal(link.inbound(Kind.ADMIN, "cancel-keys"), error, where="keys")
        return [task.key for task in own]

    def _is_own(self, task: TaskState, principal: str, verdicts: dict[TaskState, bool]) -> bool:
        """Tell whether no other principal wants *task* or a task that is cancelled with it.

        :param verdicts: of this message, so that no task is checked for each key that it needs.
        """
        ahead = [task]
        begun: set[TaskState] = set()
        while ahead:
            each = ahead[-1]
            if each in verdicts:
                ahead.pop()
            elif each in begun:
                verdicts[each] = all(verdicts.get(one, True) for one in each.dependents or ())
                ahead.pop()
            elif self._is_anothers(each, principal):
                verdicts[each] = False
            else:
                begun.add(each)
                ahead += [one for one in each.dependents or () if one not in begun]
        return verdicts[task]

    def _is_anothers(self, task: TaskState, principal: str) -> bool:
        for wanting in task.who_wants or ():
            # What queues, variables and datasets hold, is its submitter's.
            whose = self._principal_of(wanting.client_key) or self._owner_of(task)
            if whose != principal:
                return True
        return False


def release_unattended(scheduler: Any, channel: Channel, owner_of: Callable[[Any], str]) -> None:
    """Have *scheduler* release what silenced principals left to it, now and from now on.

    :param owner_of: returns the principal that submitted a task.
    """
    known = ref(scheduler)

    def release(names: frozenset[str]) -> None:
        found = known()
        state = None if found is None else found.clients.get(_UNATTENDED)
        if found is None or state is None:
            return
        keys = [task.key for task in state.wants_what if owner_of(task) in names]
        if keys:
            logger.warning("Releasing %d tasks of principals without an active key", len(keys))
            found.client_releases_keys(keys=keys, client=_UNATTENDED, stimulus_id="safeser-retired")

    def silenced(names: frozenset[str]) -> None:
        found = known()
        if found is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                found.loop.add_callback(release, names)

    channel.when_silenced(silenced)

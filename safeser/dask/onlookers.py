"""What a scheduler does for those who watch it, at each step of every task: little, for few.

The one rule: whoever asks to be told adds one that is nobody else's, and at most eight.

Dask's scheduler asks all of its plugins at each step of a task. ``start_task_metadata`` adds one
under a name of its sender's choice, which may be that of the plugin by which shuffles notice that a
worker is lost; it keeps what it sees until somebody stops it, and any number of them may be added:
five thousand small requests made everybody's tasks seven times as slow. ``subscribe_worker_status``
always adds its one under the same name, in place of the cluster manager's (distributed 2026.8.0).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection
from typing import Any

from distributed.scheduler import CollectTaskMetaDataPlugin, Scheduler, WorkerStatusPlugin

from safeser.dask.replies import error_reply
from safeser.errors import PolicyDenied
from safeser.values import Kind

__all__ = ["know_onlookers"]

logger = logging.getLogger("safeser.dask")

#: As many one principal has at a time of each kind; when another one comes, its oldest ends.
_MAX_OF_ONE = 8

#: How the names begin that Dask's client gives to collectors, and no other plugin has.
_OF_COLLECTORS = "task-metadata-"

#: Finished tasks that one collector tells of; far more than one answer may hold.
_MAX_TASKS = 100_000


def know_onlookers(scheduler: Any) -> None:
    """Have *scheduler* know who watches it; to be called before it listens, once or more."""
    if isinstance(scheduler, Scheduler) and not isinstance(
        getattr(scheduler.handlers["start_task_metadata"], "__self__", None), _Onlookers
    ):
        _Onlookers(scheduler)


class _Collector(CollectTaskMetaDataPlugin):  # type: ignore[misc]  # Dask's is not typed
    """Keeps of tasks that are there, and of the latest ones that ended, what Dask's own does."""

    def transition(self, key: Any, start: Any, finish: Any, *args: Any, **kwargs: Any) -> None:
        super().transition(key, start, finish, *args, **kwargs)
        if finish == "forgotten":
            self.keys.discard(key)
        if len(self.state) > _MAX_TASKS:
            oldest = next(iter(self.state))
            del self.state[oldest], self.metadata[oldest]

    def update_graph(self, scheduler: Any, *, keys: Collection[Any], **kwargs: Any) -> None:
        super().update_graph(scheduler, keys=scheduler.tasks.keys() & keys, **kwargs)


class _Onlookers:
    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._numbers = itertools.count()
        #: Those that were added here, the oldest first, and for whom.
        self._added: dict[Any, str | None] = {}
        handlers = scheduler.handlers
        self._stop = handlers["stop_task_metadata"]
        self._subscribe = handlers["subscribe_worker_status"]
        handlers["start_task_metadata"] = self.start
        handlers["stop_task_metadata"] = self.stop
        handlers["subscribe_worker_status"] = self.subscribe

    def start(self, comm: Any, name: str) -> Any:
        link = getattr(comm, "link", None)
        taken = name in self._scheduler.plugins
        if link is not None and (taken or not name.startswith(_OF_COLLECTORS)):
            try:
                link.refuse(
                    link.inbound(Kind.ADMIN, "start_task_metadata"),
                    "plugin.name",
                    "that name is, or may come to be, the one of another plugin",
                    fix="Use 'with get_task_metadata()', which makes a name of its own.",
                )
            except PolicyDenied as error:
                return error_reply(error)
        plugin = _Collector(self._scheduler, name)
        self._scheduler.add_plugin(plugin)
        self._note(plugin, link)
        return None

    def stop(self, comm: Any, name: str | None = None) -> Any:
        link = getattr(comm, "link", None)
        plugin = self._scheduler.plugins.get(name)
        if link is not None and self._added.get(plugin, link.peer) != link.peer:
            raise ValueError(f"Found no collector of metadata of yours with name {name!r}")
        told = self._stop(name=name)
        self._added.pop(plugin, None)
        return told

    def subscribe(self, comm: Any) -> Any:
        plugins, name = self._scheduler.plugins, WorkerStatusPlugin.name
        before = plugins.pop(name, None)  # what somebody else added, in the process itself
        told = self._subscribe(comm)
        plugin = plugins.pop(name)
        if before is not None:
            plugins[name] = before
        # By which it removes itself when its connection ends.
        plugin.name = f"{name}-{next(self._numbers)}"
        plugins[plugin.name] = plugin
        self._note(plugin, getattr(comm, "link", None))
        return told

    def _note(self, plugin: Any, link: Any) -> None:
        """Note for whom *plugin* was added, and remove the oldest of too many."""
        plugins = self._scheduler.plugins
        self._added = {
            each: whose for each, whose in self._added.items() if plugins.get(each.name) is each
        }
        whose = None if link is None else str(link.peer)
        self._added[plugin] = whose
        kind = type(plugin)
        same = [each for each, by in self._added.items() if by == whose and type(each) is kind]
        for each in same[:-_MAX_OF_ONE]:
            logger.warning(
                "%s has too many plugins here: the oldest, %.60r, ends", whose, each.name
            )
            self._scheduler.remove_plugin(name=each.name)
            del self._added[each]

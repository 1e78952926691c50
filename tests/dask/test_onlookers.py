"""Who watches a scheduler adds nothing in place of another's, and little in all.

Each attack is made on a scheduler as it comes, too: where it does nothing there any more, its mend
here can go.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from distributed.scheduler import CollectTaskMetaDataPlugin

from safeser.dask import onlookers
from safeser.dask.onlookers import know_onlookers
from safeser.errors import PolicyDenied
from tests.dask.visitors import Visited, on

POLICY = """
safeser: 1
name: watch
revision: 1
principals: {scheduler: {}, worker: {}, carol: {}}
contexts:
  - name: all
    sender: [worker, carol]
    recipient: scheduler
    operations: {grant: [basic, cluster, diagnose]}
  - name: down
    sender: scheduler
    recipient: [worker, carol]
"""


@pytest.fixture(params=[False, True], ids=["stock", "guarded"])
def guarded(request: Any) -> bool:
    return bool(request.param)


class Watched(Visited):
    """A scheduler that *worker* and *carol* may watch."""

    def __init__(self, doors: Any, *, guarded: bool) -> None:
        super().__init__(guarded=False)
        self.scheduler._address = "tcp://127.0.0.1:1"  # by which it tells who it is
        self.comms: dict[str, Any] = {"nobody": None}
        for who in ("worker", "carol"):
            link = doors.links(who, "scheduler", POLICY)[1]
            self.comms[who] = SimpleNamespace(link=link, closed=lambda: False, name=who)
        self._guarded = guarded
        if guarded:
            know_onlookers(self.scheduler)
            know_onlookers(self.scheduler)

    async def by(self, who: str, op: str, **fields: Any) -> Any:
        comm = {"comm": self.comms[who]} if self._guarded or op.startswith("sub") else {}
        return await self.ask(op, **comm, **fields)

    async def start(self, who: str, name: str) -> Any:
        return await self.by(who, "start_task_metadata", name=f"task-metadata-{name}")

    async def stop(self, who: str, name: str) -> Any:
        return await self.by(who, "stop_task_metadata", name=f"task-metadata-{name}")

    def collectors(self) -> list[str]:
        return [
            plugin.name.rpartition("-")[2]
            for plugin in self.scheduler.plugins.values()
            if str(getattr(plugin, "name", "")).startswith("task-metadata-")
        ]

    def finish(self, *keys: str) -> None:
        tasks = [self.scheduler.tasks.get(key) or self.task(key) for key in keys]
        for plugin in self.scheduler.plugins.values():
            if isinstance(plugin, CollectTaskMetaDataPlugin):
                plugin.update_graph(self.scheduler, keys={*keys, "gone"})
                for task in tasks:
                    plugin.transition(task.key, "processing", "memory")


@pytest.mark.parametrize("name", ["shuffle", "task-stream", "task-metadata-hers"])
def test_bypass_a_collector_takes_the_place_of_no_other_plugin(doors, guarded, name):
    async def takes(_: Any) -> bool:
        watched = Watched(doors, guarded=guarded)
        await watched.start("carol", "hers")
        before = watched.scheduler.plugins.get(name)
        answer = await watched.by("worker", "start_task_metadata", name=name)
        if guarded:
            error = answer["exception"]
            assert isinstance(error, PolicyDenied)
            assert error.rule == "plugin.name"
            assert watched.comms["worker"].link.audit.rules == ["plugin.name"]
        return watched.scheduler.plugins.get(name) is before

    assert on(False, takes) is guarded


def test_bypass_collectors_of_one_principal_are_few(doors, guarded):
    async def starts(_: Any) -> list[str]:
        watched = Watched(doors, guarded=guarded)
        await watched.start("carol", "hers")
        for number in range(12):
            await watched.start("worker", str(number))
        return watched.collectors()

    all_of_them = ["hers", *map(str, range(12))]
    assert on(False, starts) == (["hers", *map(str, range(4, 12))] if guarded else all_of_them)


def test_what_was_collected_is_told_to_who_began_it(doors, guarded):
    async def collects(_: Any) -> Any:
        watched = Watched(doors, guarded=guarded)
        await watched.start("carol", "hers")
        watched.finish("a", "b")
        if guarded:
            with pytest.raises(ValueError, match="of yours"):
                await watched.stop("worker", "hers")
        told = await watched.stop("carol", "hers")
        with pytest.raises(ValueError, match="exactly one"):
            await watched.stop("carol", "hers")
        assert not watched.collectors()
        return told

    assert on(False, collects)["state"] == {"a": "memory", "b": "memory"}


def test_of_many_tasks_the_latest_are_told(doors, guarded, monkeypatch):
    monkeypatch.setattr(onlookers, "_MAX_TASKS", 2)

    async def collects(_: Any) -> Any:
        watched = Watched(doors, guarded=guarded)
        await watched.start("carol", "hers")
        for key in "abc":
            watched.finish(key)
        plugin = watched.scheduler.plugins["task-metadata-hers"]
        # One that was never finished.
        watched.task("d")
        plugin.update_graph(watched.scheduler, keys={"d"})
        plugin.transition("d", "released", "forgotten")
        return [list(plugin.state), list(plugin.metadata), sorted(plugin.keys)]

    kept = [["b", "c"], ["b", "c"], []] if guarded else [[*"abc"], [*"abc"], ["d", "gone"]]
    assert on(False, collects) == kept


def test_the_process_itself_watches_as_it_likes(doors):
    async def starts(_: Any) -> list[str]:
        watched = Watched(doors, guarded=True)
        await watched.by("nobody", "start_task_metadata", name="own")
        await watched.by("nobody", "stop_task_metadata", name="own")
        return list(watched.scheduler.plugins)

    assert "own" not in on(False, starts)


def test_bypass_a_cluster_manager_goes_on_hearing_of_workers(doors, guarded):
    async def subscribes(_: Any) -> list[str]:
        watched = Watched(doors, guarded=guarded)
        plugins = watched.scheduler.plugins
        for who in ("carol", *("worker",) * 10):
            assert "workers" in await watched.by(who, "subscribe_worker_status")
        heard = [p.bcomm.comm.name for name, p in plugins.items() if name.startswith("worker-stat")]
        for name in [name for name in plugins if name.startswith("worker-stat")]:
            assert plugins[name].name == name
        return heard

    heard = on(False, subscribes)
    assert heard == (["carol", *("worker",) * 8] if guarded else ["worker"])


def test_one_that_the_process_added_itself_stays(doors):
    async def subscribes(_: Any) -> bool:
        watched = Watched(doors, guarded=True)
        own = watched.scheduler.plugins["worker-status"] = SimpleNamespace(name="worker-status")
        await watched.by("worker", "subscribe_worker_status")
        return watched.scheduler.plugins["worker-status"] is own

    assert on(False, subscribes)


def test_what_is_no_scheduler_is_left_alone():
    know_onlookers(SimpleNamespace(handlers={}))

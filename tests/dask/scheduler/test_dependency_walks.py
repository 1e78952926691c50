"""Retrying what has not failed, and tasks that many paths of dependencies lead to.

Each attack is made on a scheduler as it comes, too: where it does nothing there any more, its mend
here can go.
"""

from __future__ import annotations

import asyncio
import operator
from types import SimpleNamespace
from typing import Any

import pytest
from dask._task_spec import Task, TaskRef

from tests.dask.scheduler.test_whole_graphs import scheduler_of, submit


def failing(doors: Any, *, guarded: bool, levels: int = 1) -> Any:
    """Return a scheduler with levels of two tasks of which each needs both of the level before."""
    scheduler = scheduler_of(doors, guarded=guarded)
    graph = {(0, 0): Task((0, 0), operator.truediv, 1, 0), (0, 1): Task((0, 1), int)}
    for level in range(1, levels + 1):
        before = [TaskRef((level - 1, at)) for at in range(2)]
        graph |= {(level, at): Task((level, at), operator.add, *before) for at in range(2)}
    submit(scheduler, graph, (levels, 0), (levels, 1), client="alice")
    for task in scheduler.tasks.values():
        if task.key not in ("data", (0, 1)):
            task.state, task.exception_blame, task.waiting_on = "erred", task, set()
            task.waiters = set()
    return scheduler


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_bypass_retried_data_is_lost(doors, guarded):
    async def main() -> None:
        scheduler = failing(doors, guarded=guarded)
        scheduler.handlers["retry"](keys=("data",), client="bob")
        assert ("data" in scheduler.tasks) is guarded

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_bypass_one_failure_is_looked_at_for_each_way_to_it(doors, guarded):
    async def main() -> None:
        levels = 200 if guarded else 6
        scheduler = failing(doors, guarded=guarded, levels=levels)
        asked = [0]

        class Counted(set):  # type: ignore[type-arg]
            def __iter__(self) -> Any:
                asked[0] += 1
                return super().__iter__()

        for task in scheduler.tasks.values():
            task.dependencies = Counted(task.dependencies)
        scheduler.handlers["retry"](keys=[(levels, 0)])
        assert scheduler.tasks[0, 0].state != "erred"
        # Twice to look, and a few times to have it run.
        assert (asked[0] <= 8 * levels) is guarded

    asyncio.run(asyncio.wait_for(main(), 30))


def test_what_failed_is_retried_with_what_it_needs(doors):
    async def main() -> None:
        scheduler = failing(doors, guarded=True, levels=2)
        retry = scheduler.handlers["retry"]
        assert retry == scheduler.stimulus_retry
        assert retry(keys=["data", "nothing", (0, 1)]) == ()
        # The client has futures of those that it named, and no others.
        assert set(retry(keys=[(2, 0), (2, 1), "data"], client="alice")) == {(2, 0), (2, 1)}
        assert {scheduler.tasks[key].state for key in ((0, 0), (1, 0), (2, 1))} <= {
            "waiting",
            "no-worker",
            "queued",
        }

    asyncio.run(asyncio.wait_for(main(), 30))


class Waiting:
    """A task in some state, which counts how often its dependencies are looked at."""

    def __init__(self, key: Any, state: str, *dependencies: Any) -> None:
        self.key, self.state = key, state
        self.processing_on = SimpleNamespace(address="w")
        self.looked = 0
        self._dependencies = dependencies

    @property
    def dependencies(self) -> Any:
        self.looked += 1
        return self._dependencies


def stacks(doors: Any, *, guarded: bool, levels: int) -> tuple[Any, list[Any]]:
    """Return a scheduler with levels of two tasks that wait for both of the level before."""
    scheduler = scheduler_of(doors, guarded=guarded)
    asked: list[Any] = []

    def rpc(address: str) -> Any:
        async def call_stack(keys: Any) -> dict[Any, Any]:
            asked.append((address, None if keys is None else sorted(keys)))
            return dict.fromkeys(keys or (), ("a call",))

        return SimpleNamespace(call_stack=call_stack)

    scheduler.rpc = rpc
    row = [Waiting("one", "processing"), Waiting("two", "memory")]
    scheduler.tasks.update({each.key: each for each in row})
    for level in range(levels):
        row = [Waiting((level, side), "waiting", *row) for side in range(2)]
        scheduler.tasks.update({each.key: each for each in row})
    return scheduler, asked


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_bypass_one_task_is_looked_at_for_each_way_that_waits_for_it(doors, guarded):
    async def main() -> None:
        levels = 40 if guarded else 6
        scheduler, asked = stacks(doors, guarded=guarded, levels=levels)
        handler = scheduler.handlers["call_stack"]
        told = await handler(keys=[(levels - 1, 0), (levels - 1, 1)])
        assert told == {"w": {"one": ("a call",)}}
        assert asked == [("w", ["one"])]
        assert (scheduler.tasks[0, 0].looked == 1) is guarded

    asyncio.run(asyncio.wait_for(main(), 30))


def test_call_stacks_are_told_as_by_dask(doors):
    async def main() -> None:
        scheduler, asked = stacks(doors, guarded=True, levels=1)
        handler = scheduler.handlers["call_stack"]
        assert handler == scheduler.get_call_stack
        assert await handler(keys=["one", "one"]) == {"w": {"one": ("a call",)}}
        assert await handler(keys=["two"]) == {}
        with pytest.raises(KeyError):
            await handler(keys=["gone"])
        asked.clear()
        scheduler.workers = {"v": None}
        assert await handler() == {}
        assert asked == [("v", None)]

    asyncio.run(asyncio.wait_for(main(), 30))

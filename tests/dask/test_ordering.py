"""The order of approved graphs: Dask's own, unless that would take more than the graph is worth."""

from __future__ import annotations

import pickle
from typing import Any

import dask.order
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from distributed.protocol.serialize import deserialize

from safeser import pickles
from safeser.dask import approved, ordering
from safeser.dask.ordering import orderly
from safeser.policy.rules import APPROVED

Graph = dict[Any, Any]


def added(steps: int) -> Graph:
    """Return steps of which each adds something of its own to the one before."""
    made: Graph = {"a0": Task("a0", int)}
    for at in range(steps):
        made[f"x{at}"] = Task(f"x{at}", int)
        made[f"a{at + 1}"] = Task(f"a{at + 1}", max, TaskRef(f"a{at}"), TaskRef(f"x{at}"))
    return made


def parted(steps: int) -> Graph:
    """Return a chain of which something of its own is made at each step."""
    made: Graph = {"a0": Task("a0", int)}
    for at in range(steps):
        made[f"a{at + 1}"] = Task(f"a{at + 1}", abs, TaskRef(f"a{at}"))
        made[f"x{at}"] = Task(f"x{at}", abs, TaskRef(f"a{at}"))
    return made


def crossed(levels: int) -> Graph:
    """Return levels of two tasks that need both of the level before: ways that double."""
    made: Graph = {side: Task(side, int) for side in ("l0", "r0")}
    for at in range(levels):
        both = TaskRef(f"l{at}"), TaskRef(f"r{at}")
        made |= {f"{s}{at + 1}": Task(f"{s}{at + 1}", max, *both) for s in "lr"}
    return made


def reduced(leaves: int) -> Graph:
    """Return what sums leaves up by eight."""
    made: Graph = {(0, at): Task((0, at), int) for at in range(leaves)}
    level, count = 0, leaves
    while count > 1:
        parts = [
            [TaskRef((level, p)) for p in range(at, min(at + 8, count))]
            for at in range(0, count, 8)
        ]
        level, count = level + 1, len(parts)
        made |= {(level, at): Task((level, at), max, 0, *refs) for at, refs in enumerate(parts)}
    return made


def in_order(tasks: Graph, found: dict[Any, int]) -> bool:
    return found.keys() == tasks.keys() and all(
        found[each] < at
        for key, at in found.items()
        for each in tasks[key].dependencies & found.keys()
    )


@pytest.mark.parametrize("made", [added(900), crossed(1500), reduced(3000), {}])
def test_dask_orders_what_is_cheap_to_order(made):
    assert orderly(made) is None


@pytest.mark.parametrize("made", [added(3000), parted(3000)])
def test_what_grows_by_the_square_is_ordered_here(made):
    found = orderly(made)
    assert found is not None
    assert in_order(made, found)


def test_so_are_ways_that_double(monkeypatch):
    monkeypatch.setattr(ordering, "_MEMBERS", 0)
    monkeypatch.setattr(ordering, "_FOR_EACH", 0)
    made = crossed(1100)
    found = orderly(made)
    assert found is not None
    assert in_order(made, found)


def test_circles_and_tasks_of_other_graphs_end_it_no_later():
    made = added(3000) | {
        "one": Task("one", abs, TaskRef("two")),
        "two": Task("two", abs, TaskRef("one")),
        "more": Task("more", max, TaskRef("elsewhere"), TaskRef("a3000")),
    }
    found = orderly(made)
    assert found is not None
    assert found.keys() == made.keys()
    assert found["more"] > found["a3000"]
    small = {key: made[key] for key in ("one", "two")} | reduced(2500)
    assert orderly(small) is None  # Dask says what is wrong with it


def test_steps_come_one_after_the_other():
    found = orderly(added(3000))
    assert found is not None
    assert all(abs(found[f"x{at}"] - found[f"a{at}"]) <= 2 for at in range(3000))


def opened(tasks: Graph) -> Any:
    data = pickle.dumps({"tasks": tasks, "annotations": {}})
    return approved.opened(pickles.loads(data, profile=APPROVED))


def test_the_scheduler_is_told_once_it_has_the_tasks():
    made = opened({**added(3000), "data": DataNode("data", 1)})
    told = approved.priorities_of(made)
    assert told == {}
    graph = deserialize(made.header, made.frames)
    tasks = graph.__dask_graph__()
    assert in_order(tasks, told)
    assert approved.priorities_of(made) == {}  # it is opened once
    few = opened(added(3))
    told = approved.priorities_of(few)
    assert deserialize(few.header, few.frames).__dask_graph__().keys() == added(3).keys()
    assert told == {}
    assert in_order(added(3), dask.order.order(added(3)))

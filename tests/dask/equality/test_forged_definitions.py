"""Definitions made to be taken for another one: each computes, waits or fails differently."""

from __future__ import annotations

import inspect
import operator
import threading
import types
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import toolz
from dask._task_spec import Alias, DataNode, List, Task, TaskRef, _execute_subgraph
from dask.base import collections_to_expr
from distributed.scheduler import _materialize_graph

from safeser.dask.equality import digests
from safeser.dask.equality.comparison import Comparison

HONEST = Task("x", operator.add, 1, TaskRef("y"))


def fused(inner: Any, names: Any = ("y",), *inputs: Any, **kwargs: Any) -> Task:
    given = inputs or tuple(TaskRef(name) for name in names)
    return Task("x", _execute_subgraph, inner, "z", names, *given, **kwargs)


def lying(task: Task, **fields: Any) -> Task:
    for name, value in fields.items():
        setattr(task, name, value)
    return task


def z(*args: Any) -> Task:
    return Task("z", operator.add, *(args or (1, TaskRef("y"))))


#: What each would give to whoever submits HONEST afterwards, under the key of it.
FORGED = {
    "an-input-in-place-of-what-is-inside": fused({"z": z()}, ("y", "z"), TaskRef("y"), 666),
    "an-input-that-is-named-twice": fused({"z": z()}, ("y", "y"), TaskRef("y"), 666),
    "a-task-inside-that-fails": fused({"z": z(), "w": Task("w", operator.add, 1, "a")}),
    "an-input-that-never-comes": fused({"z": z()}, ("y", "late")),
    "an-option-that-fails": fused({"z": z()}, ("y",), extra=1),
    "a-task-inside-that-lies": fused({"z": lying(z(), _dependencies=frozenset())}),
    "the-task-itself": DataNode("x", Task("x", operator.add, 1, TaskRef("y"))),
    "a-reference-as-data": Task("x", operator.add, 1, DataNode(None, TaskRef("y"))),
    "a-reference-in-a-list": Task("x", operator.add, 1, [TaskRef("y")]),
    "waits-for-more": lying(
        Task("x", operator.add, 1, TaskRef("y")), _dependencies=frozenset(("y", "late"))
    ),
    "knows-of-less": lying(Task("x", operator.add, 1, TaskRef("y")), _dependencies=frozenset()),
    "is-awaited": lying(Task("x", operator.add, 1, TaskRef("y")), _is_coro=True),
    "lacks-a-field": lying(Task("x", operator.add, 1, TaskRef("y")), args=1),
}


def calling(function: Any) -> Task:
    return Task("x", function, 2)


def curried(function: Any, *args: Any, **known: Any) -> Task:
    made = toolz.curry(function, *args)
    vars(made).update(known)
    return calling(made)


def under(builtins: Any = None) -> Any:
    namespace = {"__name__": "__main__"} | ({"__builtins__": builtins} if builtins else {})
    return calling(types.FunctionType((lambda value: len(value)).__code__, namespace))


def barrier(parts: int = 3, **fields: Any) -> Any:
    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(8)}), npartitions=2)
    frame = frame.shuffle("a", npartitions=parts, shuffle_method="p2p")
    graph = _materialize_graph(collections_to_expr([frame]).optimize(), False)[0]
    made = next(node for node in graph.values() if "spec" in type(node).get_all_slots())
    return lying(made, **fields)


NEG = Task.fuse(Task("a", operator.neg, TaskRef("x")), Task("k", abs, TaskRef("a")))


def made_up(*args: Any) -> Task:
    return Task("k", NEG.func, *args)


LATE = frozenset(("late",))
ADD = curried(operator.add, 1)

#: Two definitions of one key that look alike, and are not.
PAIRS = [
    *((each, HONEST) for each in FORGED.values()),
    (lying(Alias("x", "y"), _dependencies=LATE), Alias("x", "y")),
    (lying(DataNode("x", 1), _dependencies=LATE), DataNode("x", 1)),
    (DataNode("x", [TaskRef("y")]), DataNode("x", [TaskRef("z")])),
    (curried(operator.sub, 1), ADD),
    (curried(operator.add, 2), ADD),
    (curried(operator.add, 1, _should_curry=abs), ADD),
    (under({"len": abs}), under()),
    (barrier(spec=barrier(5).spec), barrier()),
    (made_up({}, "k", ()), NEG),
    (made_up({"k": Alias("k", "k")}, "k", ()), NEG),
    (made_up({"k": Task("k", abs, TaskRef("gone"))}, "k", ()), NEG),
    (made_up({"k": Task("k", abs, 1)}, "k", ("x", "y"), 1), NEG),
    (made_up(), NEG),
    (made_up(1, 2, 3), NEG),
]
#: What Dask itself makes of one definition.
ALIKE = [
    (Task.fuse(Task("a", operator.add, 1, TaskRef("y")), Alias("x", "a")), HONEST),
    (fused({"z": z()}), HONEST),
    (Task("x", operator.add, DataNode(None, 1), TaskRef("y")), HONEST),
    *(
        (DataNode("x", value), DataNode("x", value))
        for value in (TaskRef("y"), [TaskRef("y")], Task("t", abs, 1), Alias("t", "y"))
    ),
    # What it works out when it is called.
    (curried(operator.add, 1, _sigspec=inspect.signature(lambda a, b: 0)), ADD),
    (under(), under()),
    (barrier(), barrier()),
]


@pytest.mark.parametrize(("bad", "good"), PAIRS)
def test_what_is_made_to_look_the_same_is_not(bad, good):
    assert Comparison().compare(bad, good) is not None
    assert Comparison().compare(good, bad) is not None


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_dask_itself_makes_of_it_is_the_same(one, other):
    assert Comparison().compare(one, other) is None
    other.is_coro  # noqa: B018 - works it out
    assert Comparison().compare(one, other) is None


# -- what it may cost -----------------------------------------------------------------------------


def ring(size: int) -> Task:
    inner = {("r", at): List(TaskRef(("r", (at + 1) % size))) for at in range(size)}
    return Task("x", _execute_subgraph, inner, ("r", 0), ())


def many(count: int, *values: Any) -> list[Task]:
    return [Task("x", max, *values, at) for at in range(count)]


def nested(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def looped(size: int) -> list[Any]:
    parts: list[Any] = [[at] for at in range(size)]
    for part, following in zip(parts, parts[1:] + parts[:1], strict=True):
        part.append(following)
    return parts[0]


TEXT = "a" * 100_000
NUMBERS = list(range(10_000))
LISTS = [[at, []] for at in range(1000)]
LISTS = [[at, []] for at in range(1000)]
FIELDS = {"names": [str(at) for at in range(500)], "formats": ["i4"] * 500, "offsets": [0] * 500}
#: Two graphs whose definitions are compared, whether they are the same, and the most that is spent.
COSTS: dict[str, tuple[list[Any], list[Any], bool, int]] = {
    "a list that many share": (many(500, NUMBERS), many(500, [*NUMBERS]), True, 20_000),
    "and that differs": (many(500, NUMBERS), many(500, [*NUMBERS[:-1], 1]), False, 20_000),
    "a text that many lists share": (
        many(500, [TEXT] * 100),
        many(500, ["".join([*TEXT])] * 100),
        True,
        20_000,
    ),
    "an array that many share": (many(500, np.zeros(9**5)), many(500, np.zeros(9**5)), True, 9000),
    "fields over one memory": (
        many(1, np.zeros(9000, np.dtype(FIELDS))),
        many(1, np.zeros(9000, np.dtype(FIELDS))),
        True,
        3000,
    ),
    "what has no digest beside what is large": (
        many(500, LISTS, threading.Lock()),
        many(500, LISTS, threading.Lock()),
        False,
        8000,
    ),
    "circles of two sizes": ([ring(1451)], [ring(1399)], False, 130_000),
    "something small beside something large": (
        [DataNode("x", [[at, []] for at in range(60_000)])],
        [DataNode("x", [])],
        False,
        51_000,
    ),
    "many small ones beside large ones": (
        [DataNode("x", [[at, []] for at in range(1000)]) for _ in range(300)],
        [DataNode("x", [at]) for at in range(300)],
        False,
        90_000,
    ),
    "too deep": (
        [DataNode("x", nested(30_000, 1))],
        [DataNode("x", nested(30_000, 1))],
        False,
        30_000,
    ),
    "a long circle": ([DataNode("x", looped(500))], [DataNode("x", looped(500))], True, 600_000),
}


@pytest.mark.parametrize("name", COSTS)
def test_what_a_comparison_costs(name):
    there, here, expected, most = COSTS[name]
    comparison = Comparison()
    found = [comparison.find(a, b) is None for a, b in zip(there, here, strict=True)]
    assert set(found) == {expected}
    assert sum(comparison._digests._spent.values()) <= most


def test_what_costs_more_than_there_is_differs_and_the_rest_is_compared(monkeypatch):
    monkeypatch.setattr(digests, "_FREE", 100)
    large = [[at, []] for at in range(1000)]
    comparison = Comparison()
    assert comparison.find(DataNode("x", large), DataNode("x", [])) is not None
    assert comparison.find(*many(1, [1, [2]]), *many(1, [1, [2]])) is None


def test_what_is_known_is_forgotten_when_it_is_much(monkeypatch):
    monkeypatch.setattr(digests, "_MOST_KEPT", 10)
    comparison = Comparison()
    for _ in range(3):
        assert comparison.find([[n] for n in range(20)], [[n] for n in range(20)]) is None

"""Definitions made to be taken for another one: each computes, waits or fails differently."""

from __future__ import annotations

import inspect
import operator
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
from hypothesis import given
from hypothesis import strategies as st

from safeser.dask.equality import agreement
from safeser.dask.equality.agreement import Agreement
from safeser.dask.equality.definitions import Comparison

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


@pytest.mark.parametrize("name", FORGED)
def test_what_is_made_to_look_the_same_is_not(name):
    assert not Comparison().same(FORGED[name], HONEST)
    assert not Comparison().same(HONEST, FORGED[name])


def test_what_dask_itself_makes_of_it_is_the_same():
    made = Task.fuse(Task("a", operator.add, 1, TaskRef("y")), Alias("x", "a"))
    assert Comparison().same(made, HONEST)
    assert Comparison().same(fused({"z": z()}), HONEST)
    HONEST.is_coro  # noqa: B018 - works it out
    assert Comparison().same(Task("x", operator.add, 1, TaskRef("y")), HONEST)
    said = Task("x", operator.add, DataNode(None, 1), TaskRef("y"))
    assert Comparison().same(said, HONEST)


def test_an_alias_and_data_that_wait_for_something_else():
    for bad, good in (
        (lying(Alias("x", "y"), _dependencies=frozenset(("late",))), Alias("x", "y")),
        (lying(DataNode("x", 1), _dependencies=frozenset(("late",))), DataNode("x", 1)),
    ):
        assert not Comparison().same(bad, good)
        assert Comparison().same(good, type(good)(*good.__reduce__()[1]))


def test_references_and_tasks_as_data_are_compared_as_such():
    for value in (TaskRef("y"), [TaskRef("y")], Task("t", abs, 1), Alias("t", "y")):
        first, second = (DataNode("x", value) for _ in range(2))
        assert Comparison().same(first, second)
    assert not Comparison().same(DataNode("x", [TaskRef("y")]), DataNode("x", [TaskRef("z")]))


def test_a_curried_function_is_what_it_calls_and_what_it_is_told():
    made = toolz.curry(operator.add, 1)
    known = toolz.curry(operator.add, 1)
    known._sigspec = inspect.signature(lambda a, b: 0)  # what it works out when it is called
    assert Comparison().same(Task("x", made, 2), Task("x", known, 2))
    deaf = toolz.curry(operator.add, 1)
    deaf.__dict__["_should_curry"] = abs
    for other in (toolz.curry(operator.sub, 1), toolz.curry(operator.add, 2), deaf):
        assert not Comparison().same(Task("x", made, 2), Task("x", other, 2))


def test_builtins_of_its_own_change_a_function():
    code = (lambda value: len(value)).__code__
    plain = types.FunctionType(code, {"__name__": "__main__"})
    other = types.FunctionType(code, {"__name__": "__main__", "__builtins__": {"len": abs}})
    assert Comparison().same(plain, types.FunctionType(code, {"__name__": "__main__"}))
    assert not Comparison().same(plain, other)


def shuffled(rows: int, parts: int = 3) -> dict[Any, Any]:
    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(rows)}), npartitions=2)
    frame = frame.shuffle("a", npartitions=parts, shuffle_method="p2p")
    return _materialize_graph(collections_to_expr([frame]).optimize(), False)[0]


def barrier(graph: dict[Any, Any]) -> Any:
    return next(node for node in graph.values() if "spec" in type(node).get_all_slots())


def test_what_a_derived_task_adds_is_compared():
    first, again, other = (barrier(shuffled(*size)) for size in ((8,), (8,), (8, 5)))
    assert Comparison().same(first, again)
    lying(again, spec=other.spec)
    assert not Comparison().same(first, again)


# -- what it may cost -----------------------------------------------------------------------------


def ring(size: int) -> Task:
    inner = {("r", at): List(TaskRef(("r", (at + 1) % size))) for at in range(size)}
    return Task("x", _execute_subgraph, inner, ("r", 0), ())


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    joined: list[int] = []
    stock = Agreement.join

    def join(*args: Any) -> bool:
        joined.append(1)
        return stock(*args)

    monkeypatch.setattr(Agreement, "join", join)
    return joined


def test_two_circles_cost_what_they_hold_and_not_its_product(monkeypatch):
    joined = counted(monkeypatch)
    Comparison().same(ring(211), ring(199))
    assert len(joined) < 2000


def test_definitions_that_differ_in_the_end_cost_so_much_in_all(monkeypatch):
    monkeypatch.setattr(agreement, "_FREE", 1000)
    joined = counted(monkeypatch)
    shared = [[n] for n in range(300)]
    comparison = Comparison()
    for _ in range(50):
        assert not comparison.same(Task("x", max, 1, shared), Task("x", max, 2, list(shared)))
    assert len(joined) < 2000


def test_something_small_costs_little_beside_something_large(monkeypatch):
    monkeypatch.setattr(agreement, "_FREE", 100)
    inner: list[Any] = []
    inner.append(inner)
    large: list[Any] = inner
    for _ in range(1000):
        large = [large]
    joined = counted(monkeypatch)
    assert not Comparison().same(DataNode("x", large), DataNode("x", inner))
    assert len(joined) < 200


def test_a_large_text_is_looked_at_once(monkeypatch):
    texts = ["".join(["a"] * 5000) for _ in range(2)]
    joined = counted(monkeypatch)
    pairs = [[text] * 1000 for text in texts]
    comparison = Comparison(most=3000)
    assert comparison.same(*pairs)
    assert comparison.same(*({text: 1} for text in texts))
    assert not Comparison(most=50).same(*(["a" * 300_000 + text] for text in texts))
    assert joined


def test_what_is_known_is_forgotten_when_it_is_much(monkeypatch):
    monkeypatch.setattr(agreement, "_MAX_KEPT", 10)
    comparison = Comparison()
    for _ in range(3):
        assert comparison.same([[n] for n in range(20)], [[n] for n in range(20)])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_what_is_taken_back_leaves_nothing(pairs):
    there, here = ([object() for _ in range(6)] for _ in range(2))
    kept = Agreement()
    kept.begin()
    known = {(a, b): kept.join(there[a], here[b], 0, 0, 0) for a, b in pairs[::2]}
    kept.begin()
    for a, b in pairs[1::2]:
        kept.join(there[a], here[b], 0, 0, 0)
    kept.take_back()
    fresh = Agreement()
    fresh.begin()
    for a, b in known:
        fresh.join(there[a], here[b], 0, 0, 0)
    for a in range(6):
        for b in range(6):
            kept.begin()
            fresh.begin()
            assert kept.join(there[a], here[b], 0, 0, 0) == fresh.join(there[a], here[b], 0, 0, 0)
            kept.take_back()
            fresh.take_back()

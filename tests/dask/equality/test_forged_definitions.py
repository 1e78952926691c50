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
    assert not Comparison().same(bad, good)
    assert not Comparison().same(good, bad)


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_what_dask_itself_makes_of_it_is_the_same(one, other):
    assert Comparison().same(one, other)
    other.is_coro  # noqa: B018 - works it out
    assert Comparison().same(one, other)


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

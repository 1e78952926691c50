"""Two definitions of one key: what counts as the same, and what never does."""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

from safeser.dask.equality import definitions
from safeser.dask.equality.definitions import Comparison


class Renamed:
    """One of a kind, which is pickled by the name that some module has for it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> str:
        return self.name


def carried(value: Any) -> Any:
    """Return *value* as it arrives from another process."""
    return cloudpickle.loads(cloudpickle.dumps(value))


def by_value(source: str, name: str = "f", **seen: Any) -> Any:
    """Return a function whose module nobody can import, as those of notebooks are."""
    namespace: dict[str, Any] = {"__name__": "__main__", **seen}
    exec(source, namespace)
    return carried(namespace[name])


def same(first: Any, second: Any, **options: Any) -> bool:
    return Comparison(**options).same(first, second)


class Own:
    def __init__(self, *held: Any) -> None:
        self.held = held


class Hostile:
    """Would run code of its own wherever it is compared, hashed, shown or tokenized."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __hash__(self) -> int:
        raise AssertionError("hashed")

    def __repr__(self) -> str:
        raise AssertionError("shown")

    def __dask_tokenize__(self) -> Any:
        raise AssertionError("tokenized")


class Unsaid:
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("no")


def endless() -> Any:
    class Endless:
        def __reduce_ex__(self, protocol: Any) -> Any:
            return list, (), None, iter(int, 1), None

    return Endless()


def own(**fields: Any) -> Any:
    made = Own.__new__(Own)
    vars(made).update(fields)
    return made


def loop() -> Any:
    made: list[Any] = []
    made.append(made)
    return made


VALUES = [
    None,
    3,
    -0.0,
    float("nan"),
    2 + 1j,
    "text",
    b"bytes",
    bytearray(b"x"),
    range(3),
    slice(1, None, 2),
    (1, [2, {"a": {3, "b"}}]),
    frozenset({(1, "x")}),
    OrderedDict(a=1),
    np.arange(6.0).reshape(2, 3),
    np.array([1, "a", None], dtype=object),
    np.float64(2.5),
    pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
    pd.Timestamp("2020-01-01", tz="UTC"),
    functools.partial(operator.add, 3),
    operator.itemgetter("a"),
    "text".upper,
    len,
    Own(1, [2]),
    Hostile(),
    TaskRef("k"),
    Alias("k", "other"),
    DataNode("k", [1, 2]),
    Task("k", operator.add, TaskRef("x"), 1),
    Task("k", sum, List(TaskRef("x"), 1), Dict({"a": TaskRef("y")})),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_arrives_twice_is_the_same(value):
    assert same(carried(value), carried(value))
    assert same(Task("k", len, carried(value)), Task("k", len, carried(value)))


@pytest.mark.parametrize(
    "values",
    [
        pd.DataFrame({"t": pd.date_range("2020-01-01", periods=3, tz="UTC"), "k": list("abc")}),
        pd.DataFrame({"d": pd.to_timedelta([1, 2], "s"), "p": pd.period_range("2020", periods=2)}),
        pd.Index(["a", "b"]).array,
        scipy.sparse.csr_array(np.eye(3)),
    ],
    ids=["frame", "spans", "texts", "sparse"],
)
def test_whether_a_value_was_looked_at_makes_no_difference(values):
    first, second = carried(values), carried(values)
    assert repr(first)
    assert getattr(first, "has_canonical_format", True)
    assert same(first, second)
    assert same(carried(first), second)
    assert not same(first, carried(values[:1]))


@pytest.mark.parametrize(
    ("first", "second"),
    [(loop(), loop()), (own(held=(1,), more=2), own(more=2, held=(1,)))],
)
def test_neither_circles_nor_the_order_of_attributes_make_a_difference(first, second):
    assert same(first, second)


@pytest.mark.parametrize("first", range(len(VALUES)))
def test_no_two_of_them_are_the_same(first):
    others = [value for place, value in enumerate(VALUES) if place != first]
    assert not any(same(Task("k", len, VALUES[first]), Task("k", len, one)) for one in others)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ({"a": 1}, {"a": True}),
        ({1: "x"}, {True: "x"}),
        ({(1, "x")}, {(True, "x")}),
        ({(1, "x"): 2}, {(True, "x"): 2}),
        # By such an order go the columns of a frame.
        ({1.5: 1, "b": 2}, {"b": 2, 1.5: 1}),
        (functools.partial(dict, a=1, b=2), functools.partial(dict, b=2, a=1)),
        (Task("k", dict, a=1, b=2), Task("k", dict, b=2, a=1)),
        # Equal, and no two of them look the same.
        (range(0, 3, 2), range(0, 4, 2)),
        (range(0), range(5, 5)),
        ((1, 2), [1, 2]),
        ([1], [1, 1]),
        ({"a": 1}, {"a": 1, "b": 2}),
        (np.zeros(2), np.zeros(2, dtype="f4")),
        (Own(1), Own(2)),
        (functools.partial(len), functools.partial(len, "x")),
        (Unsaid(), Unsaid()),
        ([endless()], [endless()]),
        (own(held=(1,), more=2), own(more=3, held=(1,))),
        (len, max),
        # Both are pickled by a name that says nothing of the module.
        (np.diagonal, np.linalg.diagonal),
        (Renamed("one"), Renamed("one")),
        ("a".upper, "b".upper),
        (TaskRef("a"), TaskRef("b")),
        (Task("k", max, 1, 2), Task("k", max, 1, 2, 3)),
        (Task("k", sorted, [1]), Task("k", sorted, [1], reverse=True)),
        (Task("k", max, 1, 2), DataNode("k", 2)),
    ],
)
def test_what_differs(first, second):
    assert not same(Task("k", len, first), Task("k", len, second))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("f = lambda x: x + 1", "\n\nf = lambda x: x + 1", True),
        ("f = lambda x: x + 1", "f = lambda x: x + 2", False),
        ("f = lambda x: x + 1", "f = lambda x: x + True", False),
        ("def f(x, y=1): return x", "def f(x, y=2): return x", False),
        ("def f(x, *, y=1): return x", "def f(x, *, y=2): return x", False),
        ("K = 2\ndef f(x): return K", "K = 3\ndef f(x): return K", False),
        ("def f(x): return [g() for g in (lambda: K,)]",) * 2 + (True,),
        ("def m(k): return lambda: k\nf = m(1)", "def m(k): return lambda: k\nf = m(2)", False),
        ("def m(k): return lambda: k\nf = m(1)", "def m(k): return lambda: k\nf = m(1)", True),
        ("def f(n): return n and f(n - 1)",) * 2 + (True,),
        ("class f:\n  def go(self): return 1", "class f:\n  def go(self): return 2", False),
        ("class f:\n  a = property(lambda s: 1)", "class f:\n  a = property(lambda s: 2)", False),
        ("class f:\n  @staticmethod\n  def a(): return 1",) * 2 + (True,),
        ("class f:\n  @classmethod\n  def a(cls): return 1",) * 2 + (True,),
        ("class f(int): pass", "class f(str): pass", False),
        ("def f(): return K", "del K\ndef f(): return K", False),
    ],
)
def test_functions_and_classes_are_what_they_do(first, second, expected):
    one, other = (by_value(source, K=1) for source in (first, second))
    assert one is not other
    assert same(Task("k", one, 1), Task("k", other, 1)) is expected


def test_sharing_costs_nothing_and_size_is_bounded():
    def grown() -> Any:
        value: Any = [1]
        for _ in range(200):
            value = [value, value]
        return value

    assert same(grown(), grown())
    assert not same([[n] for n in range(50)], [[n] for n in range(50)], most=20)


def test_what_was_fused_with_something_else_differs():
    fused = Task.fuse(Task("a", operator.neg, TaskRef("x")), Task("k", abs, TaskRef("a")))
    plain = Task("k", abs, TaskRef("a"))
    there: dict[Any, Any] = {"k": fused, "x": DataNode("x", 1)}
    for inner, expected in [
        (Task("a", operator.neg, TaskRef("x")), True),
        (Task("a", operator.pos, TaskRef("x")), False),
        (Task("a", operator.neg, TaskRef("z")), False),
        (None, False),
        (Alias("a"), False),
    ]:
        here: dict[Any, Any] = {"k": plain, "a": inner}
        assert Comparison(there.get, here.get).same(fused, plain) is expected
        assert Comparison(here.get, there.get).same(plain, fused) is expected


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


@given(PLAIN, PLAIN)
def test_sameness_goes_both_ways_and_follows_the_text(first, second):
    assert same(carried(first), carried(first))
    assert same(first, second) == same(second, first)
    if repr(first) == repr(second):
        assert same([first], [second])


def test_a_node_is_checked_once_however_often_it_is_referred_to(monkeypatch):
    checked = []
    stock = definitions._check_sound
    monkeypatch.setattr(
        definitions, "_check_sound", lambda node: (checked.append(id(node)), stock(node))
    )
    large = Task("b", max, *[1] * 100)
    here = {"b": large, "z": Task("z", max, *[TaskRef("b")] * 100)}
    there = Task("z", max, *[Task("b", max, *[1] * 100)] * 100)
    assert same(there, here["z"], here=here.get)
    assert checked.count(id(large)) == 1

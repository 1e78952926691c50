"""Tasks written out, signed, handed over and opened: each is the task that its author had."""

from __future__ import annotations

import math
import operator
import threading
from collections import OrderedDict, namedtuple
from functools import partial

import numpy as np
import pytest
from dask._task_spec import (
    Alias,
    DataNode,
    Dict,
    GraphNode,
    List,
    Set,
    Task,
    TaskRef,
    Tuple,
)
from dask.tokenize import tokenize
from hypothesis import given
from hypothesis import strategies as st

from safeser.dask.sealed.node import VerifiedTask, nodes
from safeser.dask.sealed.writing import _is_spelled
from safeser.errors import ConfigError, PayloadError
from safeser.gate.key_pairs import PrivateKey
from safeser.gate.values import Limits
from safeser.identity import Identity
from tests.dask.sealed.graphs import written
from tests.refusal import refusal

Point = namedtuple("Point", "x y")


class Box:
    """A mutable object whose equal instances have equal pickles."""

    def __init__(self, value):
        self.value = value

    def same(self):
        return self


def both(*args, **kwargs):
    return args, kwargs


def nested(levels, kind=list):
    value = kind((1,))
    for _ in range(levels):
        value = kind((value,))
    return value


ARGUMENTS = {
    "nothing": (),
    "scalars": (None, True, False, 0, -1, 1.5, -0.0, math.inf, "text", "ä", b"bytes", ""),
    "integers at the edge": (2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    "integers over 64 bits": (2**64, -(2**63) - 1, 10**200),
    "half a pair": ("\ud800", ["\udfff"], {"\ud800": 1}),
    "numpy scalars": (np.int64(3), np.float32(1.5), np.bool_(True), np.datetime64("2026-01-01")),
    "complex": (1j, slice(None), slice(1, None, 2), slice("a", 2**70), Ellipsis, range(3)),
    "containers": ([1, [2, (3, {4})]], {"a": [1], 2: None}, frozenset({1}), set(), (), [], {}),
    "a named tuple": (Point(1, [2]),),
    "subclasses": (OrderedDict(a=1), type("Words", (str,), {})("a").upper()),
    "keys that are no text": ({1: 2, None: 3, (1, 2): 4, 1.5: 5, b"b": 6},),
    "a long list": (list(range(1000)), {i: i for i in range(1000)}, set(range(100))),
    "64 and 65": (list(range(64)), list(range(65))),
    "25 levels": (nested(25),),
    "100 levels": (nested(100),),
    "tuples in tuples": (nested(30, tuple),),
    "large": ("x" * 100_000, b"y" * 100_000),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_the_same_on_the_worker(reopened, name):
    args = ARGUMENTS[name]
    task = Task("x", both, *args, named=args)
    opened = reopened({"x": task})["x"]
    assert type(opened) is Task
    found, kwargs = opened()
    assert found == args
    assert [type(each) for each in found] == [type(each) for each in args]
    assert kwargs == {"named": args}


def test_what_dask_gathers_is_gathered(reopened):
    values = {"a": 1, "b": 2}
    tasks = {
        "list": Task("list", both, List(TaskRef("a"), [5], List(TaskRef("b")))),
        "tuple": Task("tuple", both, Tuple(TaskRef("a"), 3)),
        "set": Task("set", both, Set(TaskRef("a"), TaskRef("b"))),
        "dict": Task("dict", both, Dict({"k": TaskRef("a"), "l": List(TaskRef("b"))})),
        "empty": Task("empty", both, List(), Tuple(), Set(), Dict()),
        "alone": Task("alone", both, List([1, 2])),
        "inner": Task("inner", both, Task(None, operator.add, TaskRef("a"), TaskRef("b"))),
    }
    opened = reopened(tasks)
    for key, task in tasks.items():
        assert opened[key](values) == task(values)
        assert opened[key].dependencies == task.dependencies
        assert tokenize(opened[key]) == tokenize(task)


def test_a_gatherer_of_one_container_stays_that(reopened):
    """Its own constructor takes a single list for the items."""
    node = List(List(1, 2), [3])
    inner = List(TaskRef("a"))
    outer = object.__new__(List)
    Task.__init__(outer, None, List.to_container, [TaskRef("a")], constructor=list)
    opened = reopened({"x": Task("x", both, node, inner, outer)})["x"]
    assert opened.args[0]({}) == [[1, 2], [3]]
    assert opened.args[1]({"a": 1}) == [1]
    assert opened.args[2]({}) == [[TaskRef("a")]]


def test_aliases_and_data(reopened):
    opened = reopened({"x": Alias("x", "y"), "y": DataNode("y", [1, {"a": 2}]), ("z", 1): 5})
    assert type(opened["x"]) is Alias
    assert opened["x"].target == "y"
    assert opened["y"]() == [1, {"a": 2}]
    assert opened["z", 1]() == 5


def test_an_alias_that_its_graph_has_under_another_name(reopened):
    opened = reopened({"x": Alias("other", "y"), "y": Task("that", sum, [1])})
    assert (opened["x"].key, opened["x"].target) == ("x", "y")
    assert opened["y"].key == "y"


def test_fused_tasks_that_have_a_list_in_common(reopened):
    common = [1, 2]
    one = Task("a", both, common, TaskRef("in"))
    two = Task("b", lambda found, again: found[0][0] is again, TaskRef("a"), common)
    fused = GraphNode.fuse(one, two)
    assert fused({"in": 1}) is True
    assert reopened({"b": fused})["b"]({"in": 1}) is True


# -- identity -------------------------------------------------------------------------------------


def add_in_place(a, b):
    a += 1
    return a - b


def test_two_equal_arguments_are_two_objects(reopened):
    """Their pickles are equal, and a change of the one must not be one of the other."""
    task = Task("x", add_in_place, np.zeros(3), np.zeros(3))
    assert reopened({"x": task})["x"]().tolist() == [1, 1, 1]


@pytest.mark.parametrize("make", [lambda: np.zeros(2), lambda: Box(1), list, lambda: [1], dict])
def test_one_argument_in_two_places_is_one_object(reopened, make):
    value = make()
    task = Task("x", lambda a, b: a is b, value, value)
    assert reopened({"x": task})["x"]() is True


@pytest.mark.parametrize("make", [lambda: np.zeros(2), lambda: Box(1), list, lambda: Box([1])])
@pytest.mark.parametrize("inside", ["partial", "attribute", "closure", "long list", "method"])
def test_one_object_inside_of_another_too_is_one_object(reopened, make, inside):
    value = make()
    held = {
        "partial": partial(both, value),
        "attribute": Box(value),
        "closure": lambda: value,
        "long list": [value, *range(100)],
        "method": Box(value).same,
    }[inside]
    found = {
        "partial": lambda held: held.args[0],
        "attribute": lambda held: held.value,
        "closure": lambda held: held(),
        "long list": lambda held: held[0],
        "method": lambda held: held.__self__.value,
    }[inside]
    task = Task("x", lambda a, b: found(b) is a, value, held)
    assert reopened({"x": task})["x"]() is True


def test_objects_that_hold_one_class_or_scalar_are_written_one_by_one(sealed):
    word, kind = "word" * 1000, type("Mine", (Box,), {"__module__": "__main__"})
    graph = sealed({"x": Task("x", both, kind(word), kind(word), partial(both, word))})
    assert len(graph.heads[0].digests) == 4


def test_equal_definitions_travel_once(sealed):
    value = np.arange(100)
    tasks = {i: Task(i, operator.add, value, np.arange(100)) for i in range(50)}
    assert len(sealed(tasks).definitions) == 2


@pytest.mark.parametrize("kind", [tuple, list])
def test_containers_inside_each_other_twice_take_little(sealed, reopened, kind):
    value = kind((1,))
    for _ in range(20):
        value = kind((value, value))
    tasks = {"x": Task("x", len, value)}
    graph = sealed(tasks)
    assert len(graph.leaves[0].tree) < 100
    assert sum(map(len, graph.definitions.values())) < 10_000
    assert reopened(tasks)["x"]() == 2


def test_a_list_that_holds_itself(reopened):
    value = []
    value.append(value)
    [found], _ = reopened({"x": Task("x", both, value)})["x"]()
    assert found[0] is found


@pytest.mark.slow
@pytest.mark.unmeasured
def test_one_task_of_many_inputs(reopened):
    keys = [("in", i) for i in range(130_000)]
    opened = reopened({"x": Task("x", sum, List(*map(TaskRef, keys)))})["x"]
    assert opened(dict.fromkeys(keys, 1)) == 130_000


# -- what cannot be written -----------------------------------------------------------------------


BAD_KEYS = {
    "too large": 1 << 64,
    "too small": -(1 << 63) - 1,
    "half a pair": "\ud800",
    "in a tuple": ("x", 1 << 70),
    "no number in a tuple": ("x", math.nan),
    "deep": nested(17, tuple),
    "nothing": None,
    "an object": ("x", Point),
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_a_key_that_no_message_holds_is_one_clear_error(sealed, name):
    key = BAD_KEYS[name]
    for tasks in ({key: Task(key, sum, [1])}, {"x": Task("x", both, TaskRef(key))}):
        with refusal(PayloadError, "payload.unsendable") as caught:
            sealed(tasks)
        assert "cannot be sealed" in caught.value.message
        assert caught.value.fix


def test_what_cannot_be_pickled_is_named_by_its_task(sealed):
    with pytest.raises(PayloadError, match="task 'the-lock' cannot be sealed"):
        sealed({"a": 1, "the-lock": Task("the-lock", both, threading.Lock())})


def test_an_identity_without_a_signing_key_hears_what_to_do(audience):
    bare = Identity("alice", PrivateKey.generate())
    with pytest.raises(ConfigError, match="no signing key") as caught:
        written({"x": 1}, bare, audience)
    assert "safeser keys rotate" in caught.value.fix


# -- random tasks ---------------------------------------------------------------------------------

numbers = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.booleans()
scalars = numbers | st.text(st.characters(), max_size=5) | st.binary(max_size=5) | st.none()
hashable = scalars | st.tuples(scalars, scalars) | st.frozensets(scalars, max_size=3)
values = st.recursive(
    scalars | st.builds(slice, scalars, scalars, scalars) | st.builds(Point, scalars, scalars),
    lambda each: (
        st.lists(each, max_size=4)
        | st.tuples(each, each)
        | st.dictionaries(hashable, each, max_size=3)
    ),
    max_leaves=10,
)
keys = st.one_of(
    st.text("abcä", min_size=1, max_size=4),
    st.integers(-(2**63), 2**64 - 1),
    st.tuples(st.text("xyz", max_size=2), st.integers(0, 9)),
)
references = keys.map(TaskRef)


def of_nodes(each):
    many = st.lists(each, max_size=4)
    return st.one_of(
        many.map(lambda items: List(*items)),
        many.map(lambda items: Tuple(*items)),
        st.dictionaries(st.text("ab", max_size=3), each, max_size=3).map(Dict),
        st.builds(
            lambda args, kwargs: Task(None, both, *args, **kwargs),
            many,
            st.dictionaries(st.text("pq", min_size=1, max_size=3), each, max_size=2),
        ),
    )


arguments = st.recursive(values | references, of_nodes, max_leaves=12)
tasks = st.builds(
    lambda args, kwargs, producer: Task("task", both, *args, _data_producer=producer, **kwargs),
    st.lists(arguments, max_size=5),
    st.dictionaries(st.text("kl", min_size=1, max_size=3), arguments, max_size=3),
    st.booleans(),
)


@pytest.mark.slow
@given(task=tasks)
def test_any_task_is_the_same_on_the_worker(reopened, task):
    opened = reopened({"task": task})["task"]
    assert opened.dependencies == task.dependencies
    given_values = {key: ("value of", key) for key in task.dependencies}
    assert opened(given_values) == task(given_values)


# -- collections ----------------------------------------------------------------------------------


class Odd(type):
    """A class of classes without a hash."""

    def __eq__(cls, other):
        return True

    __hash__ = None


@pytest.mark.parametrize("kind", [list, tuple, set, dict])
def test_a_long_container_is_spelled_where_a_task_is_in_it_of_whatever_classes(kind):
    items = [*range(100), *({} if kind is set else {Odd("Evil", (), {})()})]
    for more, expected in (([], False), ([TaskRef("x")], True), ([Task("x", both)], True)):
        held = [*items, *more]
        made = dict(enumerate(held)) if kind is dict else kind(held)
        assert _is_spelled(made, kind, 64) is expected


def test_a_member_of_a_set_that_is_an_argument_too_is_one_object(reopened):
    member = Point(1, 2)
    opened = reopened({"x": Task("x", both, {member, 5}, frozenset({member}), member)})["x"]
    (members, frozen, alone), _ = opened()
    assert alone in members - {5}
    assert next(iter(members - {5})) is next(iter(frozen)) is alone


def test_a_worker_that_opens_a_task_again_has_other_objects(sealed):
    [node] = nodes(sealed({"x": Task("x", lambda a: a, np.zeros(2))})).values()
    task = VerifiedTask(node.call, Limits(), lambda: None)
    assert task.open()() is not task.open()()


def test_what_is_nested_too_deep_to_be_pickled_is_one_clear_error(sealed):
    with pytest.raises(PayloadError, match="task 'x' cannot be sealed"):
        sealed({"x": Task("x", both, nested(5000))})

"""Trees as a liar spells them: each is one clear error, and no definition is loaded for it."""

from __future__ import annotations

import msgpack
import pytest
from dask._task_spec import GraphNode
from hypothesis import given
from hypothesis import strategies as st

from safeser.dask.sealed import form
from safeser.dask.sealed.opening import open_task
from safeser.dask.wire.reader import Reader
from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits
from tests.refusal import refusal

FUNCTION = (form.DEFINITION, 0)
CALL = (form.TASK, "x", False, FUNCTION, (), ())


def task(*args, named=(), key="x", producer=False, function=FUNCTION):
    return (form.TASK, key, producer, function, args, named)


def opened(tree, key="x", dependencies=("a", "b"), definitions=(b"f",)):
    return open_task(key, dependencies, tree, definitions, lambda _: len)


BAD = {
    "nothing": None,
    "a number": 5,
    "no tag": (),
    "an unknown tag": (9, "x"),
    "a negative tag": (-1, "x"),
    "a bool for a tag": (True, 0),
    "a float for a tag": (2.0, "x", False, FUNCTION, (), ()),
    "no task": (form.PLAIN, 0, CALL),
    "a reference alone": (form.REFERENCE, "x"),
    "a dependency alone": (form.DEPENDENCY, 0),
    "a function alone": FUNCTION,
    "a slice alone": (form.SLICE, None, None, None),
    "more parts": (*CALL, 1),
    "a definition that is not there": task(function=(form.DEFINITION, 1)),
    "a negative definition": task(function=(form.DEFINITION, -1)),
    "a bool for a definition": task(function=(form.DEFINITION, False)),
    "a dependency that is not there": task((form.DEPENDENCY, 2)),
    "a negative dependency": task((form.DEPENDENCY, -1), (form.DEPENDENCY, -2)),
    "a bool for a dependency": task((form.DEPENDENCY, False), (form.DEPENDENCY, True)),
    "a dictionary for a key": task(key={}),
    "a list in a key": task((form.ALIAS, ("y", {}), "a")),
    "no number for a key": task(key=float("nan")),
    "a reference to no key": task((form.REFERENCE, {})),
    "a number for a producer": task(producer=1),
    "text for arguments": (form.TASK, "x", False, FUNCTION, "ab", ()),
    "names without a value": task(named=("a",)),
    "a name twice": task(named=("a", 1, "a", 2)),
    "a number for a name": task(named=(1, 2)),
    "text for names": task(named="ab"),
    "a name of Dask's own": task(named=("_data_producer", True)),
    "a task for a function": task(function=CALL),
    "an input for a function": task(function=(form.DEPENDENCY, 0)),
    "a dictionary as it is": task({"a": 1}),
    "a negative container": task((form.PLAIN, -1)),
    "a set of lists": task((form.PLAIN, 2, (form.PLAIN, 0))),
    "half a dictionary": task((form.PLAIN, 4, 1)),
    "a dictionary by lists": task((form.PLAIN, 4, (form.PLAIN, 0), 1)),
    "an unknown gatherer": task((form.GATHERED, 4)),
    "a gatherer without a kind": task((form.GATHERED,)),
    "a slice of two": task((form.SLICE, 1, 2)),
    "half a dictionary of tasks": task((form.GATHERED, 3, (form.DEPENDENCY, 0))),
    "data without a value": (form.DATA, "x"),
    "data without a key": (form.DATA, None, 1),
    "an alias of nothing": (form.ALIAS, "x", None),
    "an alias of a list": (form.ALIAS, "x", ((),)),
    # What it depends on is said twice: what the scheduler reads must be what runs.
    "fewer dependencies": task((form.DEPENDENCY, 0)),
    "other dependencies": task((form.DEPENDENCY, 0), (form.REFERENCE, "c")),
    "more dependencies": task((form.DEPENDENCY, 0), (form.DEPENDENCY, 1), (form.REFERENCE, "c")),
    "an alias of another": (form.ALIAS, "x", "c"),
    "none": CALL,
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_tree_is_one_clear_error(name):
    with refusal(PayloadError, "sealed.task") as caught:
        opened(BAD[name])
    assert "malformed" in caught.value.message


def test_references_among_parts_of_a_fused_task_count_as_dependencies():
    assert opened(task((form.REFERENCE, "a"), (form.REFERENCE, "b"))).dependencies == {"a", "b"}


@pytest.mark.parametrize("levels", [500, 100_000])
def test_a_tree_of_many_levels_is_one_clear_error(levels):
    tree = None
    for _ in range(levels):
        tree = (form.PLAIN, 0, tree)
    with pytest.raises(PayloadError):
        opened(task(tree), dependencies=())


def test_no_key_of_the_tree_is_the_task_s():
    assert opened(task(key="y"), key="x", dependencies=()).key == "x"
    alias = opened((form.ALIAS, "y", "a"), dependencies=("a",))
    assert (alias.key, alias.target) == ("x", "a")


def test_a_definition_is_loaded_once_for_each_task():
    loaded = []
    tree = task((form.DEFINITION, 1), (form.DEFINITION, 1))
    open_task("x", (), tree, (b"f", b"v"), lambda data: loaded.append(data) or len)
    assert loaded == [b"f", b"v"]


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.sampled_from(["", "x", "a", "_data_producer"]),
    st.binary(max_size=2),
)
trees = st.recursive(
    leaves,
    lambda each: (
        st.lists(each, max_size=6)
        | st.builds(lambda tag, rest: [tag, *rest], st.integers(0, 8), st.lists(each, max_size=5))
        | st.dictionaries(st.text(max_size=2), each, max_size=2)
    ),
    max_leaves=25,
)


@given(tree=trees)
def test_any_tree_is_a_task_or_one_clear_error(tree):
    read = Reader(Limits()).read(msgpack.packb(tree))
    try:
        node = opened(read)
    except SafeserError:
        return
    assert isinstance(node, GraphNode)
    assert node.dependencies == {"a", "b"}

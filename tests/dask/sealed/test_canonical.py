"""One author's definitions, written out by two processes: the same ones are, and no others."""

from __future__ import annotations

import base64
import functools
import gc
import operator
import os
import pickle
import subprocess
import sys
import threading
import types
from pathlib import Path

import cloudpickle
import msgpack
import numpy as np
import pandas as pd
import pytest
from dask._task_spec import Alias, DataNode, List, Set, Task, TaskRef, _execute_subgraph
from xarray.backends.file_manager import CachingFileManager

from safeser import pickles
from safeser.dask.equality.calls import Sameness, SealedComparison
from safeser.dask.equality.outline import Allowance, outline
from safeser.dask.sealed import definitions, form
from safeser.dask.sealed.definitions import canonical_digest, digest
from safeser.dask.sealed.graph import parse
from safeser.dask.sealed.node import nodes
from safeser.errors import PayloadError
from safeser.gate.values import Limits
from tests.dask.sealed import same_work
from tests.dask.sealed.graphs import COLLIDING, forged, head

SAME, DIFFERENT, UNKNOWN = Sameness.SAME, Sameness.DIFFERENT, Sameness.UNKNOWN
ROOT = Path(__file__).parents[3]
PROGRAM = str(Path(same_work.__file__))


def ran(seed):
    """Return the graphs that the program writes out under a hash seed, as they are read."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(paths)}
    lines = subprocess.run(
        [sys.executable, PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.split()
    graphs = {}
    for line in lines:
        name, header, frames = msgpack.unpackb(base64.b64decode(line))
        graphs[name] = nodes(parse({**header, "sizes": tuple(header["sizes"])}, frames, Limits()))
    return graphs


@pytest.fixture(scope="module")
def processes():
    return ran("1"), ran("2")


def compared(there, here, key):
    comparison = SealedComparison(there.get, lambda each: here.get(each, there.get(each)), Limits())
    return comparison.compare(there[key], here[key])


@pytest.mark.slow
@pytest.mark.parametrize("name", same_work.definitions())
def test_a_definition_that_another_process_wrote_is_the_same(processes, name):
    first, second = (each["definitions"] for each in processes)
    assert compared(first, second, name) is SAME


@pytest.mark.slow
@pytest.mark.parametrize("name", same_work.collections())
def test_a_collection_that_another_process_wrote_is_the_same(processes, name):
    first, second = (each[name] for each in processes)
    assert first.keys() == second.keys()
    found = {key: compared(first, second, key) for key in first}
    assert set(found.values()) == {SAME}


# -- within one process ---------------------------------------------------------------------------


def check(sealed, first, second, key="x", **options):
    return compared(nodes(sealed(first)), nodes(sealed(second, **options)), key)


def adder(by):
    def add(*values):
        return (*values, by)

    return add


def task(function, *args, **kwargs):
    return {"x": Task("x", function, *args, **kwargs)}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (task(operator.add, 1, 2), task(operator.mul, 1, 2)),
        (task(operator.add, 1, 2), task(operator.add, 1, 2.0)),
        (task(operator.add, 1, 2), task(operator.add, 1, True)),
        (task(len, TaskRef(("k", 1))), task(len, TaskRef(("k", True)))),
        (task(adder(1), 1), task(adder(True), 1)),
        (task(adder(1), {"a": 1, "b": 2}), task(adder(1), {"b": 2, "a": 1})),
        (
            task(adder(1), dict.fromkeys(map(str, range(99)))),
            task(adder(1), dict.fromkeys(map(str, range(98, -1, -1)))),
        ),
        (task(adder(1), a=1, b=2), task(adder(1), b=2, a=1)),
        (task(adder(1), TaskRef("y")), task(adder(1), "y")),
        (task(adder(1), {1, 2}), task(adder(1), frozenset({1, 2}))),
        (task(adder(1), {1, 2}), task(adder(1), {1, 3})),
        ({"x": DataNode("x", [1])}, {"x": Task("x", list, [1])}),
        ({"x": Alias("x", "y")}, {"x": Alias("x", "z")}),
        ({"x": Alias("x", "y")}, task(adder(1), TaskRef("y"))),
    ],
)
def test_other_calls_differ(sealed, first, second):
    assert check(sealed, first, second) is DIFFERENT
    assert check(sealed, second, first) is DIFFERENT


FRAME = pd.DataFrame({"a": [1]})
NUMBERS = np.arange(6).reshape(2, 3)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (NUMBERS, NUMBERS.astype(NUMBERS.dtype.newbyteorder())),
        (NUMBERS, np.asfortranarray(NUMBERS)),
        (NUMBERS.astype(object), np.asfortranarray(NUMBERS.astype(object))),
        ([NUMBERS, {1: NUMBERS}], [NUMBERS, {1: np.asfortranarray(NUMBERS)}]),
        (CachingFileManager(open, "one"), CachingFileManager(open, "other")),
        (FRAME, FRAME.set_flags(allows_duplicate_labels=False)),
        (FRAME["a"], FRAME["a"].set_flags(allows_duplicate_labels=False)),
        (
            pd.date_range("2026-01-31", periods=1, freq="D"),
            pd.date_range("2026-01-31", periods=1, freq="ME"),
        ),
        (
            pd.MultiIndex.from_arrays([pd.date_range("2026-01-31", periods=1, freq="D"), [1]]),
            pd.MultiIndex.from_arrays([pd.date_range("2026-01-31", periods=1, freq="ME"), [1]]),
        ),
        (
            pd.MultiIndex.from_tuples([("a", "b")]),
            pd.MultiIndex(levels=[["a", "z"], ["b"]], codes=[[0], [0]]),
        ),
    ],
)
def test_arguments_differ_where_a_task_can_tell(sealed, first, second):
    """``tobytes``, ``ravel(order="K")``, ``shift``: equal values, and other results."""
    shown = [task(adder(1), each) for each in (first, second)]
    assert check(sealed, *shown) is DIFFERENT
    copied = pickle.loads(pickle.dumps(second, protocol=5))
    assert check(sealed, shown[1], task(adder(1), copied)) is SAME


def chain(function=None):
    inner = Task("y", function or adder(1), TaskRef("in"), {"k": [1]})
    return inner, Task("x", adder(2), TaskRef("y"), TaskRef("other"))


def test_a_task_is_the_same_whether_its_inputs_are_fused_into_it_or_not(sealed):
    apart = {node.key: node for node in chain()}
    fused = {"x": Task.fuse(*chain(), key="x")}
    aliased = {"y-x": Task.fuse(*chain(), key="y-x"), "x": Alias("x", "y-x")}
    for first in (apart, fused, aliased):
        for second in (apart, fused, aliased):
            assert check(sealed, first, second) is SAME
    for other in (
        {"x": Task.fuse(*chain(adder(3)), key="x")},
        {node.key: node for node in chain(adder(3))},
    ):
        assert check(sealed, fused, other) is DIFFERENT
    assert check(sealed, apart, {"x": Task.fuse(*chain(adder(3)), key="x")}) is DIFFERENT


def whole(*args):
    """Return a task that is pickled whole, since two of its arguments are one list."""
    shared = [1]
    return task(adder(1), shared, shared, *args)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Set(TaskRef("a"), TaskRef("b")), Set(TaskRef("b"), TaskRef("a")), SAME),
        (List(TaskRef("a"), TaskRef("b")), List(TaskRef("b"), TaskRef("a")), DIFFERENT),
        (Alias("one", "a"), Alias("other", "a"), SAME),
        (DataNode("one", 5), DataNode("other", 5), SAME),
        (Task("one", len, {"a": 1, "b": 2}), Task("other", len, {"a": 1, "b": 2}), SAME),
        (Task("one", len, {"a": 1, "b": 2}), Task("one", len, {"b": 2, "a": 1}), DIFFERENT),
    ],
)
def test_what_is_pickled_whole_is_compared_by_its_parts(sealed, first, second, expected):
    graphs = sealed(whole(first)), sealed(whole(second))
    assert [len(graph.leaves[0].tree) for graph in graphs] == [3, 3]
    assert check(sealed, whole(first), whole(second)) is expected


def test_what_has_no_canonical_form_is_the_same_by_its_bytes_alone(sealed):
    def iterated(*members):
        return task(adder(1), iter(set(members)), 5)

    assert canonical_digest(iter({1})) == b""
    assert check(sealed, iterated(1), iterated(1)) is SAME
    assert check(sealed, iterated(1), iterated(2)) is UNKNOWN
    assert check(sealed, iterated(1), task(adder(1), [1], 5)) is DIFFERENT
    assert check(sealed, iterated(1), task(adder(2), iter({2}), 5)) is DIFFERENT
    assert check(sealed, iterated(1), task(adder(1), iter({2}), 6)) is DIFFERENT
    assert check(sealed, task(threading.Event), task(threading.Event)) is SAME


def test_what_is_large_is_the_same_by_its_bytes_alone(sealed):
    large = [0.5] * 200_000
    assert check(sealed, task(adder(1), large), task(adder(1), [*large])) is SAME
    assert check(sealed, task(adder(1), large), task(adder(1), [*large[:-1], 1.5])) is UNKNOWN


def test_a_class_of_that_name_is_not_the_library_s():
    class SerializableLock:
        def __init__(self, token):
            self.token = token

    SerializableLock.__module__ = "dask.utils"
    assert canonical_digest(SerializableLock(1)) != canonical_digest(SerializableLock(2))


# -- whose word it is -----------------------------------------------------------------------------


def test_another_author_s_word_counts_for_nothing(sealed, doors):
    bob = doors.identity("bob")
    first, second = adder(1), adder(1)
    second.__code__ = second.__code__.replace(co_firstlineno=500)
    assert check(sealed, task(first, 1), task(second, 1)) is SAME
    assert check(sealed, task(first, 1), task(second, 1), author=bob) is DIFFERENT
    assert check(sealed, task(first, 1), task(first, 1), author=bob) is SAME


def test_an_input_of_another_author_is_not_taken_for_one_s_own(sealed, doors):
    """Alice used what bob submitted as ``y``; then her own task of that kind is in its place."""
    first, second = chain()
    there = nodes(sealed({"y": first}, author=doors.identity("bob"))) | nodes(sealed({"x": second}))
    fused = nodes(sealed({"x": Task.fuse(first, second, key="x")}))
    assert compared(there, fused, "x") is DIFFERENT


@pytest.fixture
def lies(alice, audience):
    """Return what reads one task of alice's whose canonical digests she invents."""

    def made(tree, definitions, canonical, flags=0):
        digests = b"".join(map(digest, definitions))
        leaf = head("x", (), flags, digests), tree
        made = forged(alice, audience, [leaf], definitions, canonical=canonical)
        return nodes(parse(*made, Limits()))

    return made


CALL = [form.TASK, "x", False, [form.DEFINITION, 0], [], []]


def test_a_lie_deceives_its_author_alone(lies, sealed, doors):
    honest = nodes(sealed(task(adder(1))))
    [said] = honest["x"].graph.canonical.values()
    lying = lies(CALL, [b"another definition"], [said])
    assert compared(honest, lying, "x") is SAME
    for_bob = nodes(sealed(task(adder(1)), author=doors.identity("bob")))
    assert compared(for_bob, lying, "x") is DIFFERENT


@pytest.mark.parametrize(
    "canonical",
    [
        [],
        [b"", b""],
        [bytes(31)],
        [bytes(33)],
        [""],
        {},
    ],
)
def test_digests_that_are_none_are_refused(lies, canonical):
    with pytest.raises(PayloadError):
        lies(CALL, [b"one"], canonical)


FUSED = pickles.dumps(_execute_subgraph, code=True)
TUPLES = [[form.PLAIN, 1, *key] for key in COLLIDING]
TREES = {
    "no list": 5,
    "another tag": [99],
    "no definition": [form.TASK, "x", False, [form.DEFINITION, 1], [], []],
    "a definition of none": [form.DEFINITION, 7],
    "another dependency": [form.TASK, "x", False, [form.DEFINITION, 0], [[form.REFERENCE, 1]], []],
    "members that collide": [*CALL[:4], [[form.PLAIN, 2, *TUPLES]], []],
    "keys that collide": [
        *CALL[:4],
        [[form.PLAIN, 4, *(each for key in TUPLES for each in (key, 1))]],
        [],
    ],
    "references in a first argument that collide": [
        *CALL[:4],
        [[*CALL[:4], [[form.REFERENCE, each] for each in COLLIDING], []]],
        [],
    ],
    "names of inputs that collide": [
        *CALL[:4],
        [
            [
                *(form.TASK, None, False, [form.DEFINITION, 1]),
                [[form.PLAIN, 4], "x", [form.PLAIN, 1, *TUPLES]],
                [],
            ]
        ],
        [],
    ],
    "many levels": [*CALL[:4], [b"\x91" * 5000], []],
}


@pytest.mark.parametrize("name", TREES)
def test_a_tree_that_is_none_is_like_no_other(lies, name):
    first = lies(TREES[name], [b"one"], [bytes(32)])
    second = lies(TREES[name], [b"two"], [b"\x01" * 32])
    third = lies([*CALL[:4], [1], []], [b"one"], [bytes(32)])
    assert compared(first, third, "x") in (DIFFERENT, UNKNOWN)
    assert compared(third, first, "x") in (DIFFERENT, UNKNOWN)
    assert compared(first, second, "x") is DIFFERENT


def test_trees_are_read_up_to_a_bound(sealed, monkeypatch):
    apart, fused = {node.key: node for node in chain()}, {"x": Task.fuse(*chain(), key="x")}
    monkeypatch.setattr("safeser.dask.equality.outline._MOST_SPENT", 10)
    assert check(sealed, apart, fused) is UNKNOWN, "an honest graph may be large"


def deep(argument, keys, levels=45):
    """Return a tree in which each of many tasks inside of each other needs all of *keys*."""
    tree = [*CALL[:4], [*([form.REFERENCE, key] for key in range(keys)), argument], []]
    for _ in range(levels):
        tree = [*CALL[:4], [tree], []]
    return tree


def test_trees_cost_what_it_takes_to_open_them(lies, monkeypatch):
    tasks = [lies(deep(last, 100_000), [b"one"], [bytes(32)]) for last in (1, 2)]
    opened = []

    def note(*args):
        opened.append(args)
        raise PayloadError("not here", rule="sealed.task")

    monkeypatch.setattr("safeser.dask.equality.outline.open_task", note)
    assert compared(*tasks, "x") is UNKNOWN
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("tree", "cost"),
    [
        ([*CALL[:4], [1] * 1000, []], 1100),
        ([*CALL[:4], [[form.GATHERED, 0]] * 1000, []], 19_100),
        ([*CALL[:4], [[form.REFERENCE, 1]] * 1000, []], 21_100),
    ],
)
def test_lists_and_references_cost_more_than_bytes(lies, monkeypatch, tree, cost):
    task = lies(tree, [b"one"], [bytes(32)])["x"]
    monkeypatch.setattr("safeser.dask.equality.outline.open_task", lambda *_: "opened")
    monkeypatch.setattr("safeser.dask.equality.outline._MOST_SPENT", cost * 1.1)
    assert outline(task, Limits(), Allowance()) == "opened"
    monkeypatch.setattr("safeser.dask.equality.outline._MOST_SPENT", cost * 0.9)
    with pytest.raises(PayloadError, match="too long to read"):
        outline(task, Limits(), Allowance())


def test_an_actor_is_no_task(lies):
    tasks = [lies(CALL, [b"one"], [bytes(32)], flags) for flags in (0, 4)]
    assert compared(*tasks, "x") is DIFFERENT


@pytest.mark.parametrize("name", [name for name in TREES if name.endswith("collide")])
def test_no_table_is_made_of_what_was_made_to_collide(lies, name):
    with pytest.raises(PayloadError) as caught:
        outline(lies(TREES[name], [b"one", FUSED], [b"", b""])["x"], Limits(), Allowance())
    assert caught.value.rule.endswith("hash-flood")


def test_what_was_pickled_whole_may_be_fused_and_is_not_called_another(sealed):
    shared = [1]
    parts = [
        Task("y", adder(1), TaskRef("in"), shared),
        Task("x", adder(2), TaskRef("y"), shared),
    ]
    fused = {"x": Task.fuse(*parts, key="x")}
    assert check(sealed, fused, fused) is SAME
    assert check(sealed, {each.key: each for each in parts}, fused) is UNKNOWN
    other = {"x": Task.fuse(parts[0], Task("x", adder(3), TaskRef("y"), shared), key="x")}
    assert check(sealed, fused, other) is DIFFERENT


# -- functions that workers import: made once for the code that they have --------------------------


SOURCE = """
FACTOR = 2
HELD = []

def scale(x):
    return x * FACTOR

def even(n):
    return n == 0 or odd(n - 1)

def odd(n):
    return n != 0 and even(n - 1)

def with_held(x):
    return HELD, x
"""


@pytest.fixture
def module(monkeypatch):
    """A module of the user's own, as workers import it."""
    made = types.ModuleType("safeser_own_module")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(SOURCE, vars(made))
    return made


def reloaded(module, _):
    exec(SOURCE.replace("x * FACTOR", "x + FACTOR"), vars(module))  # as importlib.reload does
    return module.scale


def another_module(module, monkeypatch):
    other = types.ModuleType(module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, other)
    exec(SOURCE.replace("FACTOR = 2", "FACTOR = 3"), vars(other))
    return other.scale


def code_replaced(module, _):
    module.scale.__code__ = (lambda x: x).__code__
    return module.scale


def not_held(module, _):
    scale, module.scale, module.FACTOR = module.scale, None, 3
    return scale


@pytest.mark.parametrize("change", [reloaded, another_module, code_replaced, not_held])
def test_another_one_of_its_name_is_described_anew(module, monkeypatch, change):
    first = canonical_digest(module.scale)
    assert canonical_digest(change(module, monkeypatch)) != first


def test_one_that_is_sent_by_value_is_described_each_time(module):
    cloudpickle.register_pickle_by_value(module)
    try:
        first = canonical_digest(module.scale)
        module.FACTOR = 3
        assert canonical_digest(module.scale) != first
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_it_is_the_same_whatever_refers_to_it_and_whichever_comes_first(module):
    module.HELD.append(functools.partial(module.with_held, 1))
    from_inside = canonical_digest(module.HELD[0])
    definitions._functions.clear()
    assert canonical_digest(functools.partial(module.with_held, 1)) == from_inside
    pair = [canonical_digest(module.even), canonical_digest(module.odd)]
    definitions._functions.clear()
    assert [canonical_digest(module.odd), canonical_digest(module.even)] == pair[::-1]
    assert len(set(pair)) == 2


def test_what_is_known_ends_with_the_function(module):
    gc.collect()
    definitions._functions.clear()
    canonical_digest(module.scale)
    assert len(definitions._functions) == 1
    del module.scale
    gc.collect()
    assert not definitions._functions


def test_two_that_have_no_canonical_form_are_not_taken_for_one(module):
    nested: list = []
    for _ in range(25_000):
        nested = [nested]
    module.HELD = nested
    try:
        exec("def other(x):\n    return HELD, x, 2\n", vars(module))
        for _ in range(2):
            assert canonical_digest(module.with_held) == definitions.NO_DIGEST
            assert canonical_digest(functools.partial(module.other, 1)) == definitions.NO_DIGEST
        assert canonical_digest(module.scale) != definitions.NO_DIGEST
    finally:
        while nested:  # one by one: the interpreter would recurse
            nested = nested.pop()

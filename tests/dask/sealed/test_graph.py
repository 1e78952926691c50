"""Sealed graphs as a hostile author writes them: one clear error each, before anything is taken.

All of them are signed by a listed author: a scheduler runs nothing of what it admits, and what an
author can do to it is make it fail or take memory.
"""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace

import dask
import dask.dataframe as dd
import msgpack
import pandas as pd
import pytest
from dask._task_spec import Task, TaskRef
from distributed.shuffle._core import P2PBarrierTask, barrier_key
from distributed.shuffle._rechunk import ArrayRechunkSpec
from hypothesis import given
from hypothesis import strategies as st

from safeser.dask.contents.shuffle_plans import write_plan
from safeser.dask.sealed.definitions import digest
from safeser.dask.sealed.graph import parse, write_out
from safeser.dask.sealed.node import nodes
from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits
from tests.dask.sealed.graphs import COLLIDING, Graph, forged, head, in_bytes, written
from tests.refusal import refusal

LIMITS = Limits(max_bytes=1 << 26)


@pytest.fixture(scope="module")
def lies(alice, audience):
    """Return what reads leaves, definitions and annotations that alice signed as they are."""

    def made(leaves, definitions=(), annotations=(), **changed):
        header, frames = forged(alice, audience, leaves, definitions, annotations, **changed)
        return parse(header, [memoryview(frame) for frame in frames], LIMITS)

    return made


@pytest.fixture(scope="module")
def honest(alice, audience):
    tasks = {
        "a": Task("a", sum, [1]),
        ("b", 1): Task(("b", 1), max, TaskRef("a"), {"k": [1]}),
        **{("c", i): Task(("c", i), min, TaskRef("a"), i, "x" * 20) for i in range(300)},
    }
    graph = Graph(tasks, {"priority": dict.fromkeys(tasks, 3)})
    return write_out(graph, alice, audience, LIMITS)


HEADS = {
    "nothing": None,
    "a dictionary": {"key": "x"},
    "three parts": ["x", [], 0],
    "no plan said twice": head("x", (), 0, b"", None),
    "a key of nothing": head(None),
    "a dictionary for a key": head({}),
    "a list with a dictionary for a key": head(["x", [{}]]),
    "no number for a key": head(float("nan")),
    "no number in a key": head(["x", float("nan")]),
    "text for dependencies": ["x", "ab", 0, b""],
    "a dependency of nothing": head("x", [None]),
    "a dictionary for a dependency": head("x", [{}]),
    "a bool for flags": head("x", (), True),
    "negative flags": head("x", (), -1),
    "unknown flags": head("x", (), 8),
    "text for digests": head("x", (), 0, "d" * 32),
    "half a digest": head("x", (), 0, b"d" * 31),
    "a set for a key": msgpack.packb([msgpack.ExtType(3, b"\x91\x01"), [], 0, b""]),
    "no msgpack": b"\xc1",
    "a marker of Dask's": head({"__Pickled__": b""}),
}


MISSING = head("x", (), 0, b"d" * 32)
GROUPS = [
    None,
    [None],
    ["abc"],
    [["priority", 1]],
    [["priority", 1, [0], 0]],
    [[1, 1, [0]]],
    [[b"priority", 1, [0]]],
    *([["priority", 1, places]] for places in (0, "0", {0: 1})),
    *([["priority", 1, [at]]] for at in (1, -1, True, False, 0.0, "x", 1 << 63, None)),
]
#: What an author signs as it is: (leaves, definitions, annotations, rule).
LIES = [
    *(([(each, [])], (), (), None) for each in HEADS.values()),
    *(([(head("before"), []), (each, [])], (), (), None) for each in HEADS.values()),
    *(
        ([(head(one), []), (head(other), [])], (), (), "sealed.graph")
        for one, other in (("x", "x"), (1, 1.0), (1, True), (0, False), (["x", 1], ["x", True]))
    ),
    ([(head(key), []) for key in COLLIDING], (), (), "payload.hash-flood"),
    ([(head("x", COLLIDING), [])], (), (), "families.hash-flood"),
    (
        [(head(str(at), [key]), []) for at, key in enumerate(COLLIDING)],
        (),
        (),
        "families.hash-flood",
    ),
    ([(MISSING, [])], (), (), "sealed.graph"),
    ([(MISSING, [])], [b"another"], (), "sealed.graph"),
    ([(head(), [])], [b"unused"], (), "sealed.graph"),
    *(([(head(), [])], (), groups, None) for groups in GROUPS),
]


@pytest.mark.parametrize(("leaves", "definitions", "annotations", "rule"), LIES)
def test_a_lie_that_was_signed_is_one_clear_error(lies, leaves, definitions, annotations, rule):
    with pytest.raises(PayloadError) as caught:
        lies(leaves, definitions, annotations)
    assert rule in (None, caught.value.rule)


@pytest.mark.parametrize(
    ("honest_count", "refused_count", "leaves"),
    [
        # Compressed, eight megabytes of heads would name sixty million definitions.
        (1000, 1100, lambda count: [(head("x", (), 0, digest(b"one") * count), [])]),
        (
            480,
            520,
            lambda count: [
                (head(["chunk", at, 0], [["chunk", at + 1, 0]], 0, digest(b"one") * (not at)), [])
                for at in range(count)
            ],
        ),
    ],
)
def test_keys_and_definitions_count_as_elements_do(
    alice, audience, honest_count, refused_count, leaves
):
    limits = Limits(max_memory=1000 << 7)
    assert parse(*forged(alice, audience, leaves(honest_count), [b"one"], []), limits).heads
    with refusal(PayloadError, "limit.max_memory"):
        parse(*forged(alice, audience, leaves(refused_count), [b"one"], []), limits)


LISTS = {
    "nothing": None,
    "a dictionary": {1: 2},
    "a list of text": ["x"],
    "half": b"\x92\xc4",
    "two values": b"\x90\x90",
}


SIZES = {
    "none": None,
    "four": (0, 0, 0, 0),
    "negative": (-1, 0, 0, 0, 0),
    "bools": (False, False, False, False, False),
    "huge": (1 << 70, 0, 0, 0, 0),
    "huge together": (1 << 25, 1 << 25, 1 << 25, 1, 0),
    "not compressed": (10, 0, 0, 0, 0),
}


def with_list(honest, place, value):
    header, frames = honest
    changed = [*frames]
    changed[place] = in_bytes(value)
    sizes = tuple(0 if at == place - 1 else size for at, size in enumerate(header["sizes"]))
    return {**header, "sizes": sizes}, changed


def resized(honest, by):
    header, frames = honest
    place = next(at for at, size in enumerate(header["sizes"]) if size)
    sizes = tuple(each + by * (at == place) for at, each in enumerate(header["sizes"]))
    return {**header, "sizes": sizes}, frames


#: Frames and headers that are no graph of an author's.
MALFORMED = [
    *(
        lambda honest, place=place, value=value: with_list(honest, place, value)
        for place in (1, 2, 3, 4, 5)
        for value in LISTS.values()
    ),
    *(lambda honest, by=by: resized(honest, by) for by in (-1, 1, 1 << 20)),
    *(lambda honest, count=count: (honest[0], [*honest[1], b""][:count]) for count in (0, 1, 5, 7)),
]


@pytest.mark.parametrize("made", MALFORMED)
def test_a_malformed_graph_is_one_clear_error(honest, made):
    with pytest.raises(PayloadError):
        parse(*made(honest), LIMITS)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_are_none_are_refused(alice, audience, name):
    header, frames = forged(alice, audience, [(head(), [])])
    with pytest.raises(PayloadError):
        parse({**header, "sizes": SIZES[name]}, frames, LIMITS)
    with pytest.raises(PayloadError):
        parse({"serializer": "sealed"}, frames, LIMITS)


#: Lists in place of those that were signed of the tasks ``x`` and ``y``: by their frames.
UNSIGNED = [
    {1: [head("x")]},
    {1: [head("x"), head("y"), head("z")]},
    {1: [head("x")], 2: [[]]},
    {1: [head("x"), head("y"), head("z")], 2: [[], [], []]},
    {1: [head("y"), head("x")]},
    {1: [head("x"), head("y", ["x"])]},
    {2: [[], [1]]},
]


@pytest.mark.parametrize("lists", UNSIGNED)
def test_tasks_that_were_not_signed_are_refused(alice, audience, lists):
    header, frames = forged(alice, audience, [(head("x"), []), (head("y"), [])])
    for place, each in lists.items():
        frames[place] = in_bytes([in_bytes(leaf) for leaf in each])
    with pytest.raises(PayloadError) as caught:
        parse(header, frames, LIMITS)
    same_number = len(next(iter(lists.values()))) == 2
    assert caught.value.rule == ("sealed.inclusion" if same_number else "sealed.graph")


@pytest.mark.parametrize("value", [bytes(1 << 20), "x" * (1 << 20), b"y" * 1025])
def test_a_long_text_is_a_value_and_no_structure(alice, audience, value):
    tasks = {"x": Task("x", len, value), "y": Task("y", max, TaskRef("x"), key=value)}
    header, frames = written(tasks, alice, audience)
    # Dask's client warns of a large graph by the bytes of its frames: values go as they are.
    assert sum(map(len, frames)) > len(value)
    graph = parse(header, frames, LIMITS)
    assert all(len(leaf.tree) < 64 for leaf in graph.leaves)
    assert sum(map(len, graph.definitions.values())) > len(value)


def test_annotations_are_of_tasks_by_their_place(lies):
    groups = [["priority", 5, [1]], ["workers", ["w"], [0, 1]]]
    graph = lies([(head("x"), []), (head("y"), [])], (), groups)
    assert graph.annotations == {"priority": {"y": 5}, "workers": {"x": ["w"], "y": ["w"]}}


# -- plans of shuffles ----------------------------------------------------------------------------


def plan_of(spec):
    """Return *spec* as msgpack has the plan of a barrier."""
    packed = msgpack.packb(write_plan(spec, LIMITS))
    return msgpack.unpackb(packed, use_list=True, strict_map_key=False)


@pytest.fixture(scope="module")
def plan():
    """Return the plan of a shuffle of frames, as msgpack has it."""
    data = pd.DataFrame({"a": range(9), "b": list("abc") * 3})
    made = dd.from_pandas(data, npartitions=3)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        graph = made.shuffle("b").optimize().__dask_graph__()
    [barrier] = [each for each in graph.values() if isinstance(each, P2PBarrierTask)]
    return plan_of(replace(barrier.spec, id="a" * 32))


def rechunk(old=((4, 4), (2, 2)), new=((4, 4), (2, 2)), shuffle="a" * 32):
    return ArrayRechunkSpec(id=shuffle, new=new, old=old, disk=False)


BARRIER = barrier_key("a" * 32)


def test_a_plan_of_sizes_that_are_not_known_is_read(lies):
    old = ((math.nan, math.nan), (2, 2))
    new = ((math.nan, math.nan), (1, 1, 1, 1))
    plan = plan_of(rechunk(old, new))
    graph = lies([(head(BARRIER, (), 0, b"", plan), [])])
    [found] = graph.plans.values()
    assert repr((found.old, found.new)) == repr((old, new))
    assert len(list(found.output_partitions)) == 8


SIZES_OF_CHUNKS = [0.5, 2.0, math.inf, -math.inf, -1, True, "4", None, (4,)]
NO_PLANS = [
    0,
    "plan",
    [],
    {},
    [{}],
    [{}, []],
    [{}, {}],
    *(
        [{"serializer": name}, [pickle.dumps(1)]]
        for name in ("pickle", "cloudpickle", "dask", "msgpack")
    ),
    [{"serializer": "msgpack"}, [msgpack.packb(1)]],
    [{"serializer": "msgpack"}, ["text"]],
    *([{"serializer": name}, []] for name in ("msgpack", "dask", "sealed", 5, ["dask"])),
    [{"serializer": "error"}, [b"\x80"]],
    *(plan_of(rechunk(((4, size), (2, 2)))) for size in SIZES_OF_CHUNKS),
]


@pytest.mark.parametrize("bad", NO_PLANS)
def test_what_is_no_plan_is_one_clear_error(lies, bad):
    with pytest.raises(SafeserError) as caught:
        lies([(head(BARRIER, (), 0, b"", bad), [])])
    assert bad in NO_PLANS[: -len(SIZES_OF_CHUNKS)] or caught.value.rule == "shuffle.plan"


hostile = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.just([]),
    st.just({}),
    st.lists(st.integers(-1, 3), max_size=2),
)


def _places(value, path=()):
    yield path
    if isinstance(value, list):
        for at, each in enumerate(value):
            yield from _places(each, (*path, at))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _places(each, (*path, key))


def _changed(value, path, by):
    if not path:
        return by
    made = copy.deepcopy(value)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = by
    return made


@given(data=st.data(), by=hostile)
def test_a_changed_plan_is_a_plan_or_one_clear_error(lies, plan, data, by):
    path = data.draw(st.sampled_from(list(_places(plan))))
    try:
        graph = lies([(head(BARRIER, (), 0, b"", _changed(plan, path, by)), [])])
    except SafeserError:
        return
    for spec in graph.plans.values():
        assert len(list(spec.output_partitions)) <= LIMITS.elements


# -- luck -----------------------------------------------------------------------------------------


@given(data=st.data(), by=hostile)
def test_a_changed_leaf_is_a_leaf_or_one_clear_error(lies, data, by):
    leaf = [["x", 1], ["a", ["b", 2]], 1, b""]
    path = data.draw(st.sampled_from(list(_places(leaf))))
    try:
        graph = lies([(_changed(leaf, path, by), [])])
    except SafeserError:
        return
    made = nodes(graph)
    assert len(made) == 1
    assert all(hash(each) is not None for each in made.values())


@given(at=st.integers(0, 1 << 20), bit=st.integers(0, 7), place=st.integers(0, 4))
def test_a_flipped_bit_is_one_clear_error(honest, at, bit, place):
    header, frames = honest
    changed = [bytearray(frame) for frame in frames]
    changed[place][at % len(changed[place])] ^= 1 << bit
    try:
        graph = parse(header, changed, LIMITS)
    except SafeserError:
        return
    # Nothing vouches for annotations; a signature is verified elsewhere.
    assert place == 4 or not graph.signed.verify()


@given(frames=st.lists(st.binary(max_size=200), max_size=6), sizes=st.lists(hostile, max_size=5))
def test_any_frames_are_one_clear_error(honest, frames, sizes):
    header = {"serializer": "sealed", "sizes": tuple(sizes)}
    for given_frames in (frames, [honest[1][0], *frames]):
        with pytest.raises(SafeserError):
            parse(header, given_frames, LIMITS)


# -- tasks on a scheduler -------------------------------------------------------------------------


def test_a_sealed_task_runs_nowhere_on_a_scheduler_and_is_never_pickled(sealed):
    graph = sealed({"x": Task("x", sum, [1]), "y": Task("y", later, 1, _data_producer=True)})
    x, y = nodes(graph).values()
    assert (x.key, x.data_producer, y.data_producer, x.author) == ("x", False, True, "alice")
    for attempt in (lambda: x(), lambda: x({}), lambda: pickle.dumps(x), lambda: copy.copy(x)):
        with pytest.raises(TypeError, match="workers alone"):
            attempt()
    assert x == nodes(sealed({"x": Task("x", sum, [1])}))["x"]
    assert x != nodes(sealed({"x": Task("x", sum, [2])}))["x"]
    assert x != y
    assert x != 5
    assert len({x, y, x}) == 2
    assert "alice" in repr(x)
    assert x.__sizeof__() > 0
    assert x.__dask_tokenize__() != y.__dask_tokenize__()


async def later(value):
    return value

"""Sealed graphs as a hostile author writes them: one clear error each, before anything is taken.

All of them are signed by a listed author: a scheduler runs nothing of what it admits, and what an
author can do to it is make it fail or take memory.
"""

from __future__ import annotations

import copy
import math
import pickle
import time
import tracemalloc
import zlib
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
from safeser.values import Limits
from tests.dask.sealed.graphs import Graph, forged, in_bytes

LIMITS = Limits(max_bytes=1 << 26)
NO_DIGESTS = b""


@pytest.fixture(scope="module")
def audience(doors):
    return doors.identity("scheduler").public


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
    header, frames = write_out(
        Graph(tasks, {"priority": dict.fromkeys(tasks, 3)}), alice, audience, LIMITS
    )
    return {**header, "sizes": tuple(header["sizes"])}, frames


def head(key="x", dependencies=(), flags=0, digests=NO_DIGESTS, *plan):
    return [key, list(dependencies), flags, digests, *plan]


def test_definitions_of_a_task_count_as_its_other_elements_do(alice, audience):
    """Compressed, eight megabytes of heads would name sixty million of them."""
    few, many = (
        forged(alice, audience, [(head("x", (), 0, digest(b"one") * count), [])], [b"one"], [])
        for count in (1000, 1100)
    )
    limits = Limits(max_refs=1000)
    assert len(parse(*few, limits).heads[0].digests) == 1000
    with pytest.raises(PayloadError) as caught:
        parse(*many, limits)
    assert refused(caught) == "limit.max_refs"


def test_a_graph_has_half_as_many_tasks_as_a_message_has_elements(alice, audience):
    limits = Limits(max_refs=1000)
    some, more = (
        forged(
            alice,
            audience,
            [
                (head(["chunk", number, 0], [["chunk", number + 1, 0]]), [])
                for number in range(count)
            ],
            [],
            [],
        )
        for count in (480, 520)
    )
    assert len(parse(*some, limits).heads) == 480
    with pytest.raises(PayloadError) as caught:
        parse(*more, limits)
    assert refused(caught) == "limit.max_refs"


def refused(caught):
    return caught.value.rule


def test_an_honest_graph_is_read(honest):
    graph = parse(*honest, LIMITS)
    assert len(graph.heads) == 302
    assert graph.signed.verify()
    assert graph.annotations["priority"]["a"] == 3
    assert any(honest[0]["sizes"])
    assert not all(honest[0]["sizes"])


def test_the_least_graph_is_read(lies):
    assert lies([(head(), [])]).heads[0].key == "x"


HEADS = {
    "no list": 5,
    "empty": [],
    "nothing": None,
    "a dictionary": {"key": "x"},
    "three parts": ["x", [], 0],
    "six parts": head("x", (), 0, b"", [{}, []], 1),
    "no plan said twice": head("x", (), 0, b"", None),
    "a key of nothing": head(None),
    "a dictionary for a key": head({}),
    "a list with nothing for a key": head(["x", None]),
    "a list with a dictionary for a key": head(["x", [{}]]),
    "no number for a key": head(float("nan")),
    "no number in a key": head(["x", float("nan")]),
    "text for dependencies": ["x", "ab", 0, b""],
    "a dictionary for dependencies": ["x", {"a": 1}, 0, b""],
    "nothing for dependencies": ["x", None, 0, b""],
    "a dependency of nothing": head("x", [None]),
    "a dictionary for a dependency": head("x", [{}]),
    "no number for a dependency": head("x", [float("nan")]),
    "a bool for flags": head("x", (), True),
    "a float for flags": head("x", (), 1.0),
    "negative flags": head("x", (), -1),
    "unknown flags": head("x", (), 8),
    "huge flags": head("x", (), 1 << 63),
    "text for digests": head("x", (), 0, "d" * 32),
    "half a digest": head("x", (), 0, b"d" * 31),
    "a digest and a half": head("x", (), 0, b"d" * 48),
    "nothing for digests": head("x", (), 0, None),
    "a reference to a payload": msgpack.packb(["x", [msgpack.ExtType(1, bytes(4))], 0, b""]),
    "a set for a key": msgpack.packb([msgpack.ExtType(3, b"\x91\x01"), [], 0, b""]),
    "a time for a key": msgpack.packb([msgpack.Timestamp(1), [], 0, b""]),
    "an extension": msgpack.packb([msgpack.ExtType(9, b""), [], 0, b""]),
    "more bytes": msgpack.packb(head()) + b"\x00",
    "no bytes": b"",
    "no msgpack": b"\xc1",
    "a list that is longer than its bytes": b"\xdd\xff\xff\xff\xff",
    "half a list": b"\x94\xa1x",
    "many levels": b"\x91" * 5_000 + b"\x01",
    "a key of many levels": b"\x94" + b"\x91" * 300 + b"\x01" + b"\x90\x00\xc4\x00",
    "a marker of Dask's": head({"__Pickled__": b""}),
    "text that is none": b"\x94\xa1\xff\x90\x00\xc4\x00",
}


@pytest.mark.parametrize("name", HEADS)
def test_a_malformed_head_is_one_clear_error(lies, name):
    with pytest.raises(PayloadError):
        lies([(HEADS[name], [])])
    with pytest.raises(PayloadError):
        lies([(head("before"), []), (HEADS[name], [])])


@pytest.mark.parametrize(
    ("one", "other"), [("x", "x"), (1, 1.0), (1, True), (0, False), (["x", 1], ["x", True])]
)
def test_two_tasks_of_one_key_are_refused(lies, one, other):
    with pytest.raises(PayloadError, match="one key"):
        lies([(head(one), []), (head(other), [])])


def test_keys_that_are_made_to_collide_are_refused(lies):
    colliding = [["k", i * ((1 << 61) - 1), j] for i in range(8) for j in range(9)]
    hashes = {hash(tuple(key)) for key in colliding}
    assert len(hashes) < len(colliding)
    many = [[i, j * ((1 << 61) - 1)] for i in range(1) for j in range(8)]
    assert len({hash(tuple(key)) for key in many}) == 1
    same = [[a, b, c] for a, b, c in _multiples()]
    with pytest.raises(PayloadError) as caught:
        lies([(head(key), []) for key in same])
    assert refused(caught) == "payload.hash-flood"


def _multiples():
    prime = (1 << 61) - 1
    return [(a * prime, b * prime, c * prime) for a in range(8) for b in range(8) for c in range(8)]


def test_dependencies_that_are_made_to_collide_are_refused(lies):
    for heads in (
        [head("x", _multiples())],
        [head(str(place), [each]) for place, each in enumerate(_multiples())],
    ):
        with pytest.raises(PayloadError) as caught:
            lies([(each, []) for each in heads])
        assert refused(caught) == "families.hash-flood"


def test_one_dependency_of_many_tasks_is_honest(lies):
    graph = lies([(head(i, [("of another graph", 1)]), []) for i in range(200)])
    assert len(graph.heads) == 200


def test_a_definition_that_is_missing_or_that_no_task_has_is_refused(lies):
    missing = head("x", (), 0, b"d" * 32)
    for leaves, definitions in (
        ([(missing, [])], []),
        ([(missing, [])], [b"another"]),
        ([(head(), [])], [b"unused"]),
    ):
        with pytest.raises(PayloadError, match="definition"):
            lies(leaves, definitions)


LISTS = {
    "nothing": None,
    "a number": 1,
    "text": "x",
    "bytes": msgpack.packb(b"x"),
    "a dictionary": {1: 2},
    "a list of text": ["x"],
    "a list of nothing": [None],
    "a list of lists": [[]],
    "no msgpack": b"\xc1",
    "no bytes": b"",
    "half": b"\x92\xc4",
    "longer than its bytes": b"\xdd\xff\xff\xff\xff",
    "two values": b"\x90\x90",
}


@pytest.mark.parametrize("place", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", LISTS)
def test_a_malformed_list_is_one_clear_error(honest, place, name):
    header, frames = honest
    changed = [*frames]
    changed[place] = in_bytes(LISTS[name])
    sizes = tuple(0 if at == place - 1 else size for at, size in enumerate(header["sizes"]))
    with pytest.raises(PayloadError):
        parse({**header, "sizes": sizes}, changed, LIMITS)


SIZES = {
    "none": None,
    "text": "00000",
    "a list": [0, 0, 0, 0, 0],
    "four": (0, 0, 0, 0),
    "six": (0, 0, 0, 0, 0, 0),
    "negative": (-1, 0, 0, 0, 0),
    "bools": (False, False, False, False, False),
    "floats": (0.0, 0, 0, 0, 0),
    "text inside": ("0", 0, 0, 0, 0),
    "huge": (1 << 70, 0, 0, 0, 0),
    "huge together": (1 << 25, 1 << 25, 1 << 25, 1, 0),
    "not compressed": (10, 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_are_none_are_refused(alice, audience, name):
    header, frames = forged(alice, audience, [(head(), [])])
    with pytest.raises(PayloadError):
        parse({**header, "sizes": SIZES[name]}, frames, LIMITS)
    with pytest.raises(PayloadError):
        parse({"serializer": "sealed"}, frames, LIMITS)


@pytest.mark.parametrize("count", [0, 1, 5, 7])
def test_fewer_or_more_frames_are_refused(honest, count):
    header, frames = honest
    with pytest.raises(PayloadError):
        parse(header, [*frames, b""][:count], LIMITS)


def test_a_frame_that_becomes_more_or_less_than_it_says_is_refused(honest):
    header, frames = honest
    place = next(at for at, size in enumerate(header["sizes"]) if size)
    for by in (-1, 1, 1 << 20):
        sizes = tuple(each + by * (at == place) for at, each in enumerate(header["sizes"]))
        with pytest.raises(PayloadError):
            parse({**header, "sizes": sizes}, frames, LIMITS)


def test_a_bomb_is_refused_by_what_it_says_of_itself(alice, audience):
    header, frames = forged(alice, audience, [(head(), [])])
    size = 1 << 28
    frames[1] = zlib.compress(bytes(size), 9)
    started = time.perf_counter()
    for said in (size, 1 << 25, 1000):
        with pytest.raises(PayloadError):
            parse({**header, "sizes": (said, 0, 0, 0, 0)}, frames, LIMITS)
    assert time.perf_counter() - started < 5


def _memory_of(call):
    tracemalloc.start()
    try:
        with pytest.raises(SafeserError):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_little_that_becomes_much_takes_as_much_as_elements_may(alice, audience):
    """What becomes 256 times as much at most is still held to the number of elements."""
    header, frames = forged(alice, audience, [(head(), [])])
    count = 1 << 20
    frames[1] = zlib.compress(b"\xdd" + count.to_bytes(4, "big") + b"\xc4\x00" * count, 0)
    sizes = (5 + 2 * count, 0, 0, 0, 0)
    taken = _memory_of(lambda: parse({**header, "sizes": sizes}, frames, LIMITS))
    assert taken < 64 * len(frames[1])


def test_no_megabyte_becomes_a_gigabyte(alice, audience):
    header, frames = forged(alice, audience, [(head(), bytes(1 << 25))])
    size = len(frames[2])
    frames[2] = zlib.compress(frames[2], 9)
    taken = _memory_of(lambda: parse({**header, "sizes": (0, size, 0, 0, 0)}, frames, LIMITS))
    assert taken < 1 << 20


def test_values_are_sent_as_they_are(alice, audience):
    """Dask's client warns of a large graph by the bytes of its frames."""
    text = b"".join(b"record %d\n" % number for number in range(100_000))
    task = Task("x", len, memoryview(text))
    _, frames = write_out(Graph({"x": task}), alice, audience, LIMITS)
    assert sum(map(len, frames)) > len(text)


@pytest.mark.parametrize("value", [bytes(1 << 20), "x" * (1 << 20), b"y" * 1025])
def test_a_long_text_is_a_value_and_no_structure(alice, audience, value):
    tasks = {"x": Task("x", len, value), "y": Task("y", max, TaskRef("x"), key=value)}
    graph = parse(*write_out(Graph(tasks), alice, audience, LIMITS), LIMITS)
    assert all(len(leaf.tree) < 64 for leaf in graph.leaves)
    assert sum(map(len, graph.definitions.values())) > len(value)


@pytest.mark.parametrize(
    "groups",
    [
        None,
        [None],
        ["abc"],
        [["priority", 1]],
        [["priority", 1, [0], 0]],
        [[1, 1, [0]]],
        [[b"priority", 1, [0]]],
        [["priority", 1, 0]],
        [["priority", 1, "0"]],
        [["priority", 1, {0: 1}]],
        [["priority", 1, [1]]],
        [["priority", 1, [-1]]],
        [["priority", 1, [True]]],
        [["priority", 1, [False]]],
        [["priority", 1, [0.0]]],
        [["priority", 1, ["x"]]],
        [["priority", 1, [1 << 63]]],
        [["priority", 1, [None]]],
    ],
)
def test_annotations_that_are_none_are_refused(lies, groups):
    with pytest.raises(PayloadError):
        lies([(head(), [])], (), groups)


def test_annotations_are_of_tasks_by_their_place(lies):
    groups = [["priority", 5, [1]], ["workers", ["w"], [0, 1]]]
    graph = lies([(head("x"), []), (head("y"), [])], (), groups)
    assert graph.annotations == {"priority": {"y": 5}, "workers": {"x": ["w"], "y": ["w"]}}


def test_more_or_fewer_tasks_than_were_signed_are_refused(honest, alice, audience):
    header, frames = forged(alice, audience, [(head("x"), []), (head("y"), [])])
    for heads in ([head("x")], [head("x"), head("y"), head("z")]):
        changed = [*frames]
        changed[1] = in_bytes([in_bytes(each) for each in heads])
        with pytest.raises(PayloadError, match="its leaves"):
            parse(header, changed, LIMITS)
        changed[2] = in_bytes([in_bytes([]) for _ in heads])
        with pytest.raises(PayloadError, match="number of tasks"):
            parse(header, changed, LIMITS)


def test_tasks_that_were_not_signed_are_refused(alice, audience):
    header, frames = forged(alice, audience, [(head("x"), []), (head("y"), [])])
    for place, lists in (
        (1, [head("y"), head("x")]),
        (1, [head("x"), head("y", ["x"])]),
        (2, [[], [1]]),
    ):
        changed = [*frames]
        changed[place] = in_bytes([in_bytes(each) for each in lists])
        with pytest.raises(PayloadError) as caught:
            parse(header, changed, LIMITS)
        assert refused(caught) == "sealed.inclusion"


# -- plans of shuffles ----------------------------------------------------------------------------


def written(spec):
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
    return written(replace(barrier.spec, id="a" * 32))


def rechunk(old=((4, 4), (2, 2)), new=((4, 4), (2, 2)), shuffle="a" * 32):
    return ArrayRechunkSpec(id=shuffle, new=new, old=old, disk=False)


BARRIER = barrier_key("a" * 32)


def test_a_plan_of_sizes_that_are_not_known_is_read(lies):
    old = ((math.nan, math.nan), (2, 2))
    new = ((math.nan, math.nan), (1, 1, 1, 1))
    plan = written(rechunk(old, new))
    graph = lies([(head(BARRIER, (), 0, b"", plan), [])])
    [found] = graph.plans.values()
    assert repr((found.old, found.new)) == repr((old, new))
    assert len(list(found.output_partitions)) == 8


@pytest.mark.parametrize("size", [0.5, 2.0, math.inf, -math.inf, -1, True, "4", None, (4,)])
def test_what_is_no_size_of_a_chunk_is_no_plan(lies, size):
    plan = written(rechunk(((4, size), (2, 2))))
    with pytest.raises(SafeserError) as raised:
        lies([(head(BARRIER, (), 0, b"", plan), [])])
    assert raised.value.rule == "shuffle.plan"


def test_a_plan_is_read(lies, plan):
    graph = lies([(head(BARRIER, (), 0, b"", plan), [])])
    assert graph.plans[0].npartitions == 3


@pytest.mark.parametrize(
    "bad",
    [
        0,
        "plan",
        [],
        {},
        [{}],
        [{}, []],
        [{}, {}],
        [{"serializer": "pickle"}, [pickle.dumps(1)]],
        [{"serializer": "cloudpickle"}, [pickle.dumps(1)]],
        [{"serializer": "msgpack"}, [msgpack.packb(1)]],
        [{"serializer": "msgpack"}, ["text"]],
        [{"serializer": "msgpack"}, []],
        [{"serializer": "dask"}, []],
        [{"serializer": "sealed"}, []],
        [{"serializer": "error"}, [b"\x80"]],
        [{"serializer": 5}, []],
        [{"serializer": ["dask"]}, []],
    ],
)
def test_what_is_no_plan_is_one_clear_error(lies, bad):
    with pytest.raises(SafeserError):
        lies([(head(BARRIER, (), 0, b"", bad), [])])


def test_a_pickle_in_the_place_of_a_plan_is_not_opened(lies, marker):
    for name in ("pickle", "cloudpickle", "dask", "msgpack"):
        with pytest.raises(SafeserError):
            lies([(head(BARRIER, (), 0, b"", [{"serializer": name}, [marker.pickle]]), [])])


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
        assert len(list(spec.output_partitions)) <= LIMITS.max_refs


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

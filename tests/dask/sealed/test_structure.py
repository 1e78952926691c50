"""What a graph may make a scheduler take before it is refused, and which keys are one key.

All graphs here are signed by a listed author. Memory is what Python allocates beyond the frames
that arrived; time is nothing that these tests measure, but what is done where.
"""

from __future__ import annotations

import math
import tracemalloc
import zlib
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import msgpack
import numpy as np
import pytest
from dask._task_spec import Alias, List, Task, TaskRef
from distributed.protocol.serialize import Serialized, ToPickle
from distributed.shuffle._core import P2PBarrierTask, ShuffleRunSpec, barrier_key
from distributed.shuffle._rechunk import ArrayRechunkSpec
from hypothesis import example, given
from hypothesis import strategies as st

from safeser.dask.contents.shuffle_plans import write_plan
from safeser.dask.sealed.call import Kept, Sent
from safeser.dask.sealed.definitions import digest
from safeser.dask.sealed.form import same_key, spelling
from safeser.dask.sealed.graph import parse
from safeser.dask.sealed.merkle import MerkleTree, leaf_hash
from safeser.dask.sealed.node import nodes
from safeser.dask.sealed.opening import open_task
from safeser.dask.sealed.statement import SignedStatement
from safeser.dask.sealed.writing import Leaf, leaf_parts
from safeser.dask.transport.comm import SafeserComm
from safeser.dask.wire.codec import expanded
from safeser.dask.wire.structure import MOST_STRUCTURE, byte_strings, most_structure
from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import POLICY
from tests.dask.sealed.graphs import GRAPH, forged, head, statement_of, written
from tests.dask.sealed.test_verification import Stream, row_of, run, submission
from tests.refusal import refusal

LIMITS = Limits()
MIB = 1 << 20


def packed_smaller(graph, *places):
    """Return *graph* with the lists at *places* compressed as well as they can be."""
    header, frames = graph
    sizes, frames = list(header["sizes"]), list(frames)
    for place in places:
        sizes[place] = len(frames[place + 1])
        frames[place + 1] = zlib.compress(frames[place + 1], 9)
    return {**header, "sizes": tuple(sizes)}, frames


def refusals(call):
    """Return the rule by which *call* is refused, in a list, which is empty if it is not."""
    try:
        call()
    except SafeserError as error:
        return [error.rule]
    return []


def taken_by(call):
    """Return the rule by which *call* is refused, and how much memory it took for that."""
    tracemalloc.start()
    try:
        with pytest.raises(SafeserError) as caught:
            call()
        return caught.value.rule, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# -- what is refused ------------------------------------------------------------------------------


def with_another_root(graph):
    """Return *graph* with one byte of a head changed."""
    header, [statement, heads, *frames] = graph
    return header, [statement, heads[:-1] + bytes((heads[-1] ^ 1,)), *frames]


def large_plan():
    """Return a plan that would become much; its frames are within a head, charged as it stands."""
    spec = ArrayRechunkSpec(id="a", new=((4,),), old=((4,),), disk=False)
    header, frames = write_plan(spec, LIMITS)
    large = bytes(32 * MIB)
    header["lengths"] = [len(large), *map(len, frames[1:])]
    header["compression"] = [["zlib", len(large)], *[None] * (len(frames) - 1)]
    return [header, [zlib.compress(large, 9), *frames[1:]]]


KEY = ["k", *[1] * 900_000]
SIZES = [4 * MIB] * 16 + [0] * 5000
LARGE = bytes(20 * MIB)

#: What an author writes: leaves, definitions, annotations and digests.
WRITTEN = {
    "large trees of many": lambda: ([(head(i), bytes(size)) for i, size in enumerate(SIZES)],),
    "large heads": lambda: ([(head(["k", *[[]] * (20 * MIB)]), [])],),
    "large annotations": lambda: ([(head(), [])], (), [["priority", LARGE, [0]]]),
    "large digests": lambda: ([(head(), [])], (), (), [LARGE]),
    "large definitions": lambda: ([(head("x", (), 0, digest(LARGE)), [])], [LARGE]),
    "a definition without a head": lambda: ([(head("x", (), 0, b"d" * 32), [])], [LARGE]),
    "a large plan": lambda: ([(head(barrier_key("a"), (), 0, b"", large_plan()), [])],),
    "trees within the ceiling": lambda: ([(head(), bytes(15 * MIB))],),
    "heads of tiny lists": lambda: ([(head(["k", *[[0]] * (7 * MIB)]), [])],),
    "one long key": lambda: ([(head(KEY), [])], (), [["priority", 1, [0] * 900_000]]),
}
#: By which rule each ends, in how many MiB, and which lists are compressed.
REFUSED = {
    "large trees of many": ("limit.operation", 1, 1),
    "large heads": ("limit.operation", 1, 0),
    "large annotations": ("limit.operation", 1, 4),
    "large digests": ("limit.operation", 1, 3),
    "large definitions": ("sealed.graph", 1, 2),
    "a definition without a head": ("sealed.graph", 1),
    "a large plan": ("shuffle.plan", 1),
    # 15 MiB, which zlib collects in pieces and joins.
    "trees within the ceiling": ("sealed.inclusion", 31, 1),
    # A million elements are some 60 bytes each; twenty million there would be.
    "heads of tiny lists": ("limit.max_memory", 110, 0),
    # A kilobyte and a half; two hours to hash the key for each place.
    "one long key": ("limit.max_memory", 110, 0, 4),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_graph_takes_what_its_number_of_tasks_allows(alice, audience, name):
    expected, most, *places = REFUSED[name]
    graph = forged(alice, audience, *WRITTEN[name]())
    graph = with_another_root(graph) if expected == "sealed.inclusion" else graph
    header, frames = packed_smaller(graph, *places)
    views = [memoryview(frame) for frame in frames]
    rule, taken = taken_by(lambda: parse(header, views, LIMITS))
    assert (rule, taken < most * MIB) == (expected, True), taken


def test_what_a_worker_refuses_was_not_copied(sealed):
    node = nodes(sealed({"x": Task("x", run, [1] * 100)}))["x"]
    first, statement, *parts = Sent().frames(replace(node.call, definitions=(bytes(2 * MIB),) * 2))
    large = [memoryview(bytes(32 * MIB)) for _ in parts]
    frames = [first, statement, *large]
    rule, taken = taken_by(lambda: Kept().call(frames, LIMITS))
    assert (rule, taken < MIB) == ("sealed.inclusion", True)


def test_all_graphs_of_one_message_have_the_ceiling_of_one(doors, alice, audience):
    graph = packed_smaller(forged(alice, audience, [(head(), bytes(14 * MIB))]), 1)
    talk = Talk(doors, "alice", "scheduler", POLICY).greet().client_stream()
    got = talk.attack([submission(*graph)] * 6)
    assert len(got) == MOST_STRUCTURE // (14 * MIB) == 4
    assert talk.refused_by_server == ["limit.operation"] * 2


def test_a_client_sends_no_more_graphs_in_one_message(doors, alice, audience):
    graph = packed_smaller(forged(alice, audience, [(head(), bytes(14 * MIB))]), 1)
    said = submission(*graph, expr_ser=Serialized(*graph))
    conversation = Talk(doors, "alice", "scheduler", POLICY).greet().client_stream().asker
    for count, much in ((4, False), (5, True)):
        message = [said] * count
        assert conversation.is_overfull(message, conversation.send(message)) is much


@pytest.mark.parametrize(("size", "long"), [(10_000, False), (20 * MIB, True)])
def test_what_becomes_much_is_read_in_a_thread(doors, alice, audience, size, long):
    graph = packed_smaller(forged(alice, audience, [(head(), bytes(size))]), 1)
    frames = Talk.forged([submission(*graph)])
    talk = Talk(doors, "alice", "scheduler", POLICY)
    comm = SimpleNamespace(link=talk.far)
    assert sum(map(len, frames)) < 1 << 15
    assert SafeserComm._takes_long(comm, SimpleNamespace(frames=frames)) is long


def test_what_is_malformed_becomes_nothing():
    row = Talk.Row({"serializer": "sealed", "sizes": (1 << 40, 0)}, (b"",))
    told, table, *frames = Talk.forged([{"op": "update-graph", "expr_ser": row}])
    assert expanded([told, table, *frames], LIMITS) == 0
    assert expanded([told, b"\xc1" + bytes(table), *frames], LIMITS) == 0
    assert expanded([told], LIMITS) == 0


# -- what is honest -------------------------------------------------------------------------------


def wide(number):
    return {f"field {place}": f"value {number} {place}" * 9 for place in range(60)}


HONEST = {
    "a map of 20,000": lambda: {f"f-{i:032}": Task(f"f-{i:032}", len, i) for i in range(20_000)},
    "a map of 9,000 wide records": lambda: {i: Task(i, len, wide(i)) for i in range(9_000)},
    "a call on 200,000 futures": lambda: {
        "x": Task("x", sum, List(*[TaskRef(f"f-{i:032}") for i in range(200_000)]))
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_graph_is_within_its_ceiling(alice, audience, name):
    tasks = HONEST[name]()
    assert len(parse(*written(tasks, alice, audience), LIMITS).heads) == len(tasks)


def test_what_no_ceiling_allows_is_refused_where_it_is_written(alice, audience):
    needed = List(*[TaskRef("f" * 200 + str(i)) for i in range(100_000)])
    with refusal(PayloadError, "limit.operation"):
        written({"x": Task("x", sum, needed)}, alice, audience)


def test_the_ceiling_grows_with_the_tasks_that_were_signed():
    ceilings = [most_structure(tasks) for tasks in (0, 1, 1000, 12_288, 1 << 24)]
    assert ceilings == sorted(ceilings)
    assert ceilings[0] == 16 * MIB
    assert ceilings[-2:] == [MOST_STRUCTURE] * 2


@example(b"\x91\xa1x", 1)
@example(b"\x91", 1)
@example(b"\x91\xc4\x02x", 1)
@example(b"\x91\xc4\x01xx", 1)
@given(
    st.one_of(st.binary(max_size=9), st.lists(st.binary(max_size=300), max_size=20)),
    st.integers(0, 20),
)
def test_a_list_of_byte_strings_is_read_as_msgpack_does(value, count):
    data = memoryview(value if type(value) is bytes else msgpack.packb(value))
    try:
        found = [bytes(each) for each in byte_strings(data, count, "its length")]
    except PayloadError:
        assert value != [] or count
        assert type(value) is bytes or len(value) != count
    else:
        assert found == msgpack.unpackb(bytes(data))


# -- one spelling of each key ---------------------------------------------------------------------

#: Keys that Python takes for equal.
EQUAL = [
    (1, True),
    (1, 1.0),
    (0, False),
    (0.0, -0.0),
    (("k", 1), ("k", 1.0)),
    (("k", 1), ("k", True)),
    (("k", ("a", 0.0)), ("k", ("a", -0.0))),
    (("k", (1, 2)), ("k", (1, 2.0))),
]


@pytest.mark.parametrize(
    "key",
    [None, [1], {}, np.str_("k"), np.int64(1), math.nan, ("k", None), (math.nan,)],
)
def test_what_is_no_key_is_the_same_as_none(key):
    assert spelling(key) is None
    assert not same_key(key, key)


@pytest.mark.parametrize(("key", "other"), EQUAL)
def test_no_two_spellings_are_one_key(key, other):
    assert key == other
    assert same_key(key, key)
    assert not same_key(key, other)
    assert not same_key(other, key)


def test_a_worker_takes_a_task_as_its_key_and_inputs_are_spelled(doors, sealed):
    stream = Stream(doors)
    node = nodes(sealed({1: Task(1, run, TaskRef(0))}))[1]
    moved = "sealed.moved"
    for key, needed, rules in ((1, 0, []), (True, 0, [moved]), (1, False, [moved] * 2)):
        who_has = {needed: ("safeser://127.0.0.1:1",)}
        stream.hostile(row_of(node), key=key, who_has=who_has, nbytes={needed: 1})
        assert stream.refusals == rules


def test_a_client_gets_the_task_that_it_asked_for_as_it_is_spelled(doors, sealed):
    for asked, rules in ((1, []), (True, ["sealed.moved"])):
        talk = Talk(doors, "alice", "scheduler", POLICY).greet()
        talk.request({"op": "get_runspec", "key": asked, "reply": True})
        node = nodes(sealed({1: Task(1, run)}))[1]
        row = Talk.Row({"serializer": "sealed"}, tuple(Sent().frames(node.call)))
        assert refusals(partial(talk.attack_back, row)) == rules


def test_the_tree_of_a_task_needs_what_its_head_says_as_it_is_spelled():
    def opened(key):
        return open_task("x", [1], (2, "x", False, (1, 0), ((8, key),), ()), [b"f"], lambda _: run)

    assert opened(1).dependencies == {1}
    with pytest.raises(PayloadError, match="dependencies"):
        opened(True)


@pytest.mark.parametrize(("key", "other"), EQUAL)
def test_a_sloppy_reference_is_written_as_the_key_is_spelled(alice, audience, key, other):
    tasks = {key: Task(key, run), "x": Task("x", run, TaskRef(other)), "y": Alias("y", other)}
    graph = parse(*written(tasks, alice, audience), LIMITS)
    assert [repr(each.dependencies) for each in graph.heads[1:]] == [repr((key,))] * 2


@pytest.mark.parametrize("key", [np.int64(1), ("k", np.int64(1)), np.str_("k"), (np.float64(2),)])
def test_numbers_of_numpy_in_keys_are_python_s(reopened, key):
    made = reopened({key: Task(key, run), "x": Task("x", len, [TaskRef(key)] * 70)})
    assert len(made) == 2


# -- one key of each shuffle ----------------------------------------------------------------------


def barrier(key, shuffle="other"):
    spec = ArrayRechunkSpec(id=shuffle, new=((4,),), old=((4,),), disk=False)
    return P2PBarrierTask(key, run, spec=spec)


#: Keys under which the barrier of the shuffle ``other`` may not stand.
KEYS = ["x", barrier_key("own"), ("shuffle-barrier-other",), b"shuffle-barrier-other", "other"]


@pytest.mark.parametrize("key", KEYS)
def test_a_barrier_of_another_shuffle_is_refused(alice, audience, key):
    """Dask acts upon the id in the plan; whose shuffle it is was derived from the key."""
    right = barrier_key("other")
    plan = msgpack.unpackb(msgpack.packb(write_plan(barrier(right).spec, LIMITS)))
    named = list(key) if type(key) is tuple else key
    # Where it is written.
    with refusal(PayloadError, "shuffle.plan"):
        written({key: barrier(key)}, alice, audience)
    written({right: barrier(right)}, alice, audience)
    # Where the scheduler reads it; who may submit code unsealed runs it there anyway.
    header, frames = forged(alice, audience, [(head(named, (), 0, b"", plan), [])])
    with refusal(PayloadError, "shuffle.plan"):
        parse(header, frames, LIMITS)


def test_a_worker_takes_no_barrier_of_another_shuffle(doors, alice, audience, sealed):
    stream = Stream(doors)
    good = nodes(sealed({barrier_key("other"): barrier(barrier_key("other"))}))
    node = good[barrier_key("other")]
    stream.hostile(row_of(node), key=node.key)
    assert not stream.refusals
    moved = forged_call(alice, audience, node, barrier_key("own"))
    stream.hostile(row_of(moved), key=barrier_key("own"))
    assert stream.refusals == ["shuffle.plan"]


ASKED = {
    "shuffle_get": {"id": "own"},
    "shuffle_get_or_create": {"shuffle_id": "own", "key": "x"},
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize(("shuffle", "rules"), [("own", []), ("other", ["reply.form"])])
def test_a_worker_joins_no_shuffle_but_the_one_that_it_asked_for(doors, name, shuffle, rules):
    talk = Talk(doors, "worker", "scheduler", POLICY).greet()
    talk.request({"op": name, **ASKED[name], "worker": "safeser://127.0.0.1:1"})
    plan = ShuffleRunSpec(barrier("x", shuffle).spec, {}, None)
    answer = partial(talk.reply, {"status": "OK", "run_spec": ToPickle(plan)})
    assert refusals(answer) == rules


def forged_call(alice, audience, node, key):
    """Return *node* as its author signs it under another key, the only task of its graph."""
    call = node.call
    fields = msgpack.unpackb(call.leaf.head, strict_map_key=False)
    leaf = Leaf(msgpack.packb([key, *fields[1:]]), call.leaf.tree)
    tree = MerkleTree([leaf_hash(*leaf_parts(GRAPH, *leaf))])
    signed = SignedStatement.parse(statement_of(alice, audience, tree))
    made = replace(call, signed=signed, index=0, path=b"", leaf=leaf)
    return SimpleNamespace(call=made, key=key)

"""One sealed task from a scheduler to a worker: what both keep, and what no liar may say."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import msgpack
import pytest
from dask._task_spec import Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from safeser.dask.sealed import call as calls
from safeser.dask.sealed.call import Kept, Sent
from safeser.dask.sealed.merkle import HASH_SIZE, Inclusion, leaf_hash
from safeser.dask.sealed.node import nodes
from safeser.dask.sealed.writing import leaf_parts
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.gate.values import Limits
from tests.draws import draws
from tests.refusal import refusal

LIMITS = Limits()


def add(a, b):
    return a + b


@pytest.fixture(scope="module")
def graph(sealed):
    """A graph of three tasks, two of which have a definition in common."""
    return sealed(
        {
            "x": Task("x", add, 1, 2),
            ("y", 1): Task(("y", 1), add, TaskRef("x"), [3]),
            "z": Task("z", lambda v: v, TaskRef("x")),
        }
    )


@pytest.fixture(scope="module")
def tasks(graph):
    return {key: node.call for key, node in nodes(graph).items()}


def said(call, **changed):
    """Return what a scheduler says of *call*, by the names of its parts."""
    first, *parts = Sent().frames(call)
    names = ("index", "path", "common", "head", "tree", "places", "count", "cleared")
    whole = dict(zip(names, msgpack.unpackb(first, strict_map_key=False), strict=True))
    return [msgpack.packb([*{**whole, **changed}.values()], use_bin_type=True), *parts]


def test_a_task_arrives_as_it_was_sent_and_shared_parts_travel_once(tasks):
    sent, kept = Sent(), Kept()
    lengths = []
    for call in tasks.values():
        frames = sent.frames(call)
        lengths.append(len(frames))
        found = kept.call(frames, LIMITS)
        for name in ("signed", "index", "path", "leaf", "head", "definitions", "nbytes"):
            assert getattr(found, name) == getattr(call, name)
    assert lengths == [3, 1, 2]


@pytest.fixture(scope="module")
def others(sealed):
    """Another graph of three tasks, whose paths are as long."""
    made = sealed({number: Task(number, add, number, 6) for number in range(3)})
    return [node.call for node in nodes(made).values()]


def test_a_task_that_is_lost_or_refused_harms_no_other_graph(tasks, others):
    sent, kept = Sent(), Kept()
    for call in (tasks["x"], others[0]):
        assert len(call.path) == 2 * HASH_SIZE
        kept.call(sent.frames(call), LIMITS)
    altered = replace(tasks["z"], leaf=tasks["x"].leaf, head=tasks["x"].head)
    with pytest.raises(PolicyDenied):
        kept.call(sent.frames(replace(altered, definitions=tasks["x"].definitions)), LIMITS)
    sent.frames(tasks["x"])  # lost on the way
    for call in (others[1], tasks["x"], others[0], others[1]):
        assert kept.call(sent.frames(call), LIMITS).path == call.path


def test_no_hash_is_in_common_with_the_path_of_another_statement(tasks, others):
    call = tasks["x"]
    kept = Kept()
    kept.call(Sent().frames(others[0]), LIMITS)
    lie = said(call, path=call.path[:HASH_SIZE], common=1, cleared=True)
    with refusal(PayloadError, "sealed.task"):
        kept.call(lie, LIMITS)
    kept.call(said(call, cleared=True), LIMITS)
    assert kept.call(lie, LIMITS).path == call.path  # no lie where the statement is the same


MALFORMED = {
    "a negative index": {"index": -1},
    "an index that is a bool": {"index": False},
    "an index of another task": {"index": 1},
    "an index outside": {"index": 3},
    "no path": {"path": b""},
    "a longer path": {"path": bytes(96)},
    "half a hash": {"path": bytes(63)},
    "another path": {"path": bytes(64)},
    "a negative number of hashes": {"common": -1},
    "a number of hashes that is a bool": {"common": False},
    "text for a head": {"head": "x"},
    "another head": {"head": msgpack.packb(["y", [], 0, b""])},
    "text for a tree": {"tree": "x"},
    "another tree": {"tree": b"\xc0"},
    "no places": {"places": []},
    "a number for places": {"places": 0},
    "a place too few": {"places": [0]},
    "a place too many": {"places": [0, 1, 1]},
    "places exchanged": {"places": [1, 0]},
    "a place that is a bool": {"places": [False, True]},
    "a negative place": {"places": [0, -1]},
    "a place that is not there": {"places": [0, 2]},
    "a negative count": {"count": -1},
    "a count that is a bool": {"count": True},
    "a count over the frames": {"count": 3},
    "cleared by a number": {"cleared": 0},
}


FIRST = [0, b"", 0, b"", b"", [0], 0, False]
#: Frames that are no task at all.
FRAMES = [
    [],
    *([data] for data in (b"", b"\xc0", b"\x98", b"\xdd\xff\xff\xff\xff", b"\x91" * 5000)),
    *([msgpack.packb(each)] for each in ({"index": 0}, list(range(8)), [*FIRST, 0], FIRST)),
    *([msgpack.packb([*FIRST[:5], [-1], 0, False]), bytes(size)] for size in (0, 200)),
]


@pytest.mark.parametrize("wrong", [*MALFORMED, *FRAMES], ids=str)
def test_a_malformed_task_is_one_clear_error(tasks, wrong):
    frames = said(tasks["x"], **MALFORMED[wrong]) if isinstance(wrong, str) else wrong
    with pytest.raises((PayloadError, PolicyDenied)) as caught:
        Kept().call(frames, LIMITS)
    assert caught.value.rule in (
        "sealed.task",
        "sealed.inclusion",
        "sealed.statement",
        "payload.msgpack",
        "limit.max_memory",
    )


def test_no_part_of_a_task_can_be_another(tasks, sealed):
    other = nodes(sealed({"x": Task("x", add, 1, 2), "w": Task("w", add, 5, 6)}))["x"].call
    one, two = tasks["x"], tasks["z"]
    for source in (two, other):
        for name in ("index", "path", "leaf", "head", "signed", "definitions"):
            if getattr(one, name) == getattr(source, name):
                continue
            altered = replace(one, **{name: getattr(source, name)})
            if name == "head":  # what is read of a leaf is the leaf
                altered = replace(altered, leaf=one.leaf._replace(head=source.leaf.head))
            with pytest.raises(SafeserError):
                Kept().call(Sent().frames(altered), LIMITS)
    for leaf in (one.leaf._replace(tree=two.leaf.tree), one.leaf._replace(head=two.leaf.head)):
        with pytest.raises(SafeserError):
            Kept().call(Sent().frames(replace(one, leaf=leaf)), LIMITS)


def test_head_and_tree_cannot_be_divided_elsewhere(tasks):
    call = tasks["x"]
    statement = call.signed.statement
    whole = call.leaf.head + call.leaf.tree
    for at in range(len(whole) + 1):
        leaf = call.leaf._replace(head=whole[:at], tree=whole[at:])
        hashed = leaf_hash(*leaf_parts(statement.graph, *leaf))
        covered = Inclusion(statement.root, statement.size).covers(hashed, call.index, call.path)
        assert covered == (leaf == call.leaf)


@given(at=st.integers(0, 1 << 16), bit=st.integers(0, 7), place=st.integers(0, 2))
def test_a_flipped_bit_is_one_clear_error(tasks, at, bit, place):
    frames = [bytearray(frame) for frame in said(tasks["x"])]
    frames[place][at % len(frames[place])] ^= 1 << bit
    try:
        found = Kept().call(frames, LIMITS)
    except SafeserError:
        return
    # A signature is verified elsewhere, and whether both ends forget has no signature.
    assert found.leaf == tasks["x"].leaf
    assert found.definitions == tasks["x"].definitions
    assert place == 0 or not found.signed.verify()


@given(frames=st.lists(st.binary(max_size=300), max_size=4))
def test_any_frames_are_one_clear_error(frames):
    with pytest.raises(SafeserError):
        Kept().call(frames, LIMITS)


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "size", "fit"), [(1, 400_000, 2), (1000, 0, 4)])
def test_a_worker_keeps_no_more_than_it_says(monkeypatch, count, size, fit):
    """Parts of no bytes are not for nothing: a hostile scheduler has them kept as well."""
    monkeypatch.setattr(calls, "MOST_KEPT", 1 << 20)
    kept = Kept()
    first = msgpack.packb([0, b"", 0, b"", b"", [0], count, False])
    for number in range(10):
        with pytest.raises(PayloadError) as caught:
            kept.call([first, *[bytes(size)] * count], LIMITS)
        assert (caught.value.rule == "sealed.kept") == (number % (fit + 1) == fit)


# -- both ends, whatever happens to messages ------------------------------------------------------


class _Definition:
    """Pickles to so many bytes, and different ones for each number."""

    def __init__(self, number, size):
        self.number, self.data = number, hashlib.shake_128(bytes([number])).digest(size)

    def __call__(self, *_):
        return self.number


class BothEnds(RuleBasedStateMachine):
    """What is committed arrives in order; what is rolled back never leaves."""

    made = None

    def __init__(self):
        super().__init__()
        self.sent, self.kept = Sent(), Kept()
        self.batch = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(calls, "MOST_KEPT", 6_000)
        self.patch.setattr(calls, "_LONGEST_KEPT", 1_500)

    @initialize()
    def begin(self):
        self.marks = []

    @rule(number=st.integers(0, 11))
    def encode(self, number):
        call = self.made[number]
        self.marks.append((len(self.sent.undo), len(self.batch)))
        self.batch.append((call, self.sent.frames(call)))

    @rule(number=st.integers(0, 11))
    def encode_what_is_refused(self, number):
        mark = len(self.sent.undo)
        self.sent.frames(self.made[number])
        self.sent.rollback(mark)

    @rule(place=st.integers(0, 5))
    def take_back(self, place):
        if self.marks:
            mark, length = self.marks[-1 - place % len(self.marks)]
            self.sent.rollback(mark)
            del self.batch[length:]
            self.marks = [each for each in self.marks if each[1] < length]

    @rule()
    def cut_in_two(self):
        whole = [call for call, _ in self.batch]
        self.sent.rollback()
        self.batch, self.marks = [], []
        for half in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
            self.batch = [(call, self.sent.frames(call)) for call in half]
            self.send()

    @rule()
    def send(self):
        self.sent.commit()
        for call, frames in self.batch:
            found = self.kept.call(frames, LIMITS)
            assert (found.leaf, found.definitions) == (call.leaf, call.definitions)
            assert (found.signed, found.path) == (call.signed, call.path)
        self.batch, self.marks = [], []

    @invariant()
    def little_is_kept(self):
        assert self.kept._size <= calls.MOST_KEPT
        assert sum(len(part) + 256 for _, part in self.kept._parts) == self.kept._size
        if not self.batch:
            assert self.sent._size == self.kept._size
            assert list(self.sent._numbers) == [key for key, _ in self.kept._parts]
            assert self.sent._last == self.kept._last

    def teardown(self):
        self.patch.undo()


def test_both_ends_agree_whatever_happens(sealed):
    sizes = dict(enumerate([10, 500, 1_000, 1_400, 1_600, 3_000]))
    one = {i: Task(i, _Definition(i, s)) for i, s in sizes.items()}
    other = {i: Task(i, _Definition(i + 3, s), _Definition(i, 900)) for i, s in sizes.items()}
    BothEnds.made = [node.call for tasks in (one, other) for node in nodes(sealed(tasks)).values()]
    run = BothEnds.TestCase()
    run.settings = draws(60, stateful_step_count=30)
    run.runTest()

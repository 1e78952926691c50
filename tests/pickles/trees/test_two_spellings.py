"""One program, two spellings: what a pickle says and what its tree says."""

from __future__ import annotations

import collections
import enum
import pickle
import types

import numpy as np
import pytest
from hypothesis import given

from safeser import pickles
from safeser.errors import SafeserError
from safeser.pickles import Budget, Profile
from safeser.pickles.judge import judge
from safeser.pickles.reading.machine import read
from safeser.pickles.trees.reading import read_tree
from safeser.pickles.trees.writing import write
from safeser.values import Limits
from tests.draws import draws
from tests.equality import difference
from tests.pickles.trees.alike import described
from tests.samples import seeds
from tests.samples import values as examples
from tests.types import strategies

# pandas speaks of what it will not do in a later version.
pytestmark = pytest.mark.filterwarnings("ignore")

LIMITS = Limits()
ALL = Profile.named(*pickles.DATA_PROFILES)


def tree_of(program):
    return read_tree(write(program), buffers=program.buffers, limits=LIMITS, budget=Budget(LIMITS))


def outcome(program, buffers):
    """Return what became of *program*: its object, or the rule that refused it."""
    parsed = pickles.Parsed(program, LIMITS)
    try:
        return parsed.judged(ALL, buffers=len(buffers)).build(buffers, Budget(LIMITS)), ""
    except SafeserError as error:
        return None, error.rule


def compare(value):
    """Check that both spellings of *value*'s pickle say the same; False if it has no pickle."""
    held = []
    try:
        data = pickle.dumps(value, 5, buffer_callback=held.append)
        program = read(data, buffers=len(held), limits=LIMITS)
    except Exception:  # what a library does not pickle, and what is over limits
        return False
    tree = tree_of(program)
    if not program.spelt:
        assert described(tree) == described(program)
    for name in pickles.DATA_PROFILES:
        profile = Profile.named(name)
        ours, theirs = (
            {(use.name, use.role, use.problem) for use in judge(each, profile)}
            for each in (tree, program)
        )
        assert ours == theirs
    one, again, other = (
        outcome(each, [bytearray(b.raw()) for b in held]) for each in (program, program, tree)
    )
    assert one[1] == other[1]
    # Of memory that NumPy never sets, such as the padding of a fill value, not two are alike.
    assert not difference(one[0], other[0]) or difference(one[0], again[0])
    return True


def looped():
    made = [1]
    made.append(made)
    return made


def looped_tuple():
    inner = []
    made = (inner,)
    inner.append(made)
    return made


class Colour(enum.Enum):
    RED = 1


class Nested:
    class Inner:
        pass


def shared():
    part, text = [1, 2], "a text that stands twice"
    return [part, part, {"a": part}, text, text, (text,), b"bytes, twice", b"bytes, twice"]


@pytest.mark.parametrize(
    "value",
    [
        None, True, 5, 1 << 63, -(1 << 63), (1 << 64) - 1, 1 << 64, -(1 << 63) - 1, 1 << 500,
        -(1 << 500), 0.0, -0.0, float("nan"), "a", "\ud800 lone", b"", bytearray(b"abc"),
        (), (1,), [], {}, set(), {1, 2}, frozenset((1, "a")), [*range(3000)],
        {n: n for n in range(2500)},
        looped(), looped_tuple(), shared(), Colour.RED, Nested.Inner, slice(1, "a"),
        collections.OrderedDict(a=1), collections.deque([1, 2], 5), collections.Counter("aab"),
        types.SimpleNamespace(a=[1]), np.arange(5), np.zeros((2, 3), "?"), np.float32(1.5),
        [np.dtype("i4"), np.dtype("i4")], np.array([1, "a", None], object),
        [np.arange(3)] * 2, ValueError("a"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_each_form_of_a_value(value):
    assert compare(value)


@draws(150)
@given(strategies.values())
def test_any_value(value):
    compare(value)


@pytest.mark.unmeasured
def test_honest_values():
    made = list(examples.collect()[0].values())
    for make in (seeds.plain, seeds.rarer, seeds.arrays, seeds.frames, seeds.tables, seeds.models):
        for value in make():
            made += value if type(value) is tuple else [value]
    assert sum(map(compare, made)) > 300


def test_what_stands_twice_is_written_once():
    text = "a text that is long enough to show"
    one, many = (
        write(read(pickle.dumps([text] * n, 5), buffers=0, limits=LIMITS)) for n in (1, 500)
    )
    assert len(many) < len(one) + 500 * 4
    assert many.count(text.encode()) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"(i__main__\nA\n.",  # an instance as Python 2 wrote it
        b"\x80\x04\x8c\x01m\x8c\x01f\x93)R)R.",  # the result of a call, called
    ],
)
def test_what_reduced_objects_do_not_need_is_not_written(data):
    with pytest.raises(SafeserError) as caught:
        write(read(data, buffers=0, limits=LIMITS))
    assert caught.value.rule == "pickle.tree"


def test_a_persistent_id_is_not_written():
    with pytest.raises(SafeserError) as caught:
        write(read(b"Pname\n.", buffers=0, limits=LIMITS, persistent=True))
    assert caught.value.rule == "pickle.tree"

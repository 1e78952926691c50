"""One program, two spellings: what a pickle says and what its tree says."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given

from safeser import pickles
from safeser.errors import SafeserError
from safeser.gate.values import Limits
from safeser.pickles import Budget, Profile
from safeser.pickles.judge import judge
from safeser.pickles.reading.machine import read
from safeser.pickles.trees.reading import read_tree
from safeser.pickles.trees.writing import write
from tests.draws import draws
from tests.equality import difference
from tests.pickles.forging import refused
from tests.pickles.trees.alike import described
from tests.samples import pickles_honest, seeds
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


@pytest.mark.slow
@draws(150)
@given(strategies.values())
def test_any_value(value):
    compare(value)


@pytest.mark.slow
@pytest.mark.unmeasured
def test_honest_values():
    made = [*examples.collect()[0].values(), *pickles_honest.STDLIB, *pickles_honest.ARRAYS]
    made += pickles_honest.PANDAS
    for make in (seeds.plain, seeds.rarer, seeds.arrays, seeds.frames, seeds.tables, seeds.models):
        for value in make():
            made += value if type(value) is tuple else [value]
    assert sum(map(compare, made)) > 500


def test_what_stands_twice_is_written_once():
    text = "a text that is long enough to show"
    one, many = (
        write(read(pickle.dumps([text] * n, 5), buffers=0, limits=LIMITS)) for n in (1, 500)
    )
    assert len(many) < len(one) + 500 * 4
    assert many.count(text.encode()) == 1


@pytest.mark.parametrize("data", [
    b"(i__main__\nA\n.",  # an instance as Python 2 wrote it
    b"\x80\x04\x8c\x01m\x8c\x01f\x93)R)R.",  # the result of a call, called
    b"Pname\n.",
])  # fmt: skip
def test_what_reduced_objects_do_not_need_is_not_written(data):
    refused("pickle.tree", write, read(data, buffers=0, limits=LIMITS, persistent=True))

"""Any bytes give an object or a SafeserError; what is accepted reads as CPython reads it."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import pickletools
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits
from safeser.pickles import (
    DATA_PROFILES,
    exception_record,
    global_of,
    inspect,
    loads,
    traceback_record,
)
from tests.pickles.forging import family_of
from verification.differential.case import make, outcome

SMALL = Limits(max_bytes=1 << 16, max_memory=2000 << 7, max_array=1 << 16, max_depth=50)
QUICK = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def every_door(data):
    """Hand *data* to everything that parses; only SafeserError may come out."""
    for door in (
        lambda: loads(data, profile=DATA_PROFILES, limits=SMALL, buffers=[b"abcdefgh"]),
        lambda: inspect(data, limits=SMALL).as_dict(),
        lambda: family_of(data, limits=SMALL),
        lambda: global_of(data),
        lambda: exception_record(data, limits=SMALL),
        lambda: traceback_record(data, limits=SMALL),
    ):
        with contextlib.suppress(SafeserError):
            door()


OPCODES = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]
PARTS = [
    b"K\x00", b"\x8c\x05numpy\x8c\x05dtype\x93", b"\x8c\x0bcollections\x8c\x05deque\x93",
    b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93", b"\x8c\x08builtins\x8c\x03set\x93",
    b"\x8c\x08builtins\x8c\x0aValueError\x93", b"\x8c\x04uuid\x8c\x04UUID\x93",
    b"\x8c\x02f8\x89\x88\x87", b"\x8c\x01<", b"h\x00", b"h\x01", b"\x94",
]  # fmt: skip


@QUICK
@given(st.lists(st.sampled_from(OPCODES + PARTS * 4), max_size=40))
def test_any_opcodes(parts):
    every_door(b"\x80\x05" + b"".join(parts) + b".")


def rings(size):
    """Lists that each hold all of them: a factorial of ways through some hundred references."""
    made = [[] for _ in range(size)]
    for each in made:
        each.extend(made)
    return made[0]


def long_way(levels):
    """A chain of 2**levels lists, every edge in the middle of which leads back up.

    No list is far below the root in depth first order, yet printing walks the whole chain.
    """
    chain = [[] for _ in range(1 << levels)]
    for one, other in itertools.pairwise(chain):
        one.append(other)

    def halve(low, high):
        if high - low > 1:
            middle = (low + high) // 2
            first, second = halve(low, middle), halve(middle + 1, high)
            chain[middle][:0] = [each for each in (second, first) if each is not None]
            return chain[middle]
        return chain[low] if high > low else None

    return [halve(0, len(chain)), chain[0]]


@pytest.mark.parametrize("value", [rings(12), rings(17), [rings(9), rings(9)], long_way(10)])
def test_cycles_that_nobody_can_walk_are_refused(value):
    with pytest.raises(PayloadError) as refused:
        loads(pickle.dumps(value))
    assert refused.value.rule in ("pickle.cycles", "pickle.sharing", "pickle.max-depth")


def linked():
    nodes = [{"at": n} for n in range(40)]
    for one, other in itertools.pairwise(nodes):
        one["next"], other["back"] = other, one
    return nodes


def parented(depth):
    node = {"children": []}
    if depth:
        node["children"] = [parented(depth - 1) for _ in range(3)]
        for child in node["children"]:
            child["parent"] = node
    return node


@pytest.mark.parametrize("value", [rings(1), rings(5), linked()[0], parented(6)])
def test_honest_cycles_pass(value):
    assert repr(loads(pickle.dumps(value))) == repr(value)


CASES = 4000


@pytest.mark.slow
@pytest.mark.unmeasured
def test_what_is_accepted_is_read_by_cpython_in_the_same_way():
    results = [outcome(*make(Random(1 << 50 | number))) for number in range(CASES)]
    assert not [result for result in results if result.startswith("disagreement")]
    # Both sides of the comparison were reached, or it compared nothing.
    assert results.count("accepted") > CASES // 4
    assert len(set(results)) > 15

"""A seeded share of the differential run, and what its long runs found."""

from __future__ import annotations

import pickle
from random import Random

import numpy as np
import pytest

from verification.differential.case import make, outcome

CASES = 4000


@pytest.mark.unmeasured
def test_what_is_accepted_is_read_by_cpython_in_the_same_way():
    results = [outcome(*make(Random(1 << 50 | number))) for number in range(CASES)]
    assert not [result for result in results if result.startswith("disagreement")]
    # Both sides of the comparison were reached, or it compared nothing.
    assert results.count("accepted") > CASES // 4
    assert len(set(results)) > 15


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        # C reads nothing added to a string as nothing, Python looks for its append.
        (b"X\1\0\0\0a(e.", "pickle.grow-target"),
        (b"X\1\0\0\0a(u.", "pickle.grow-target"),
        (b"N(e.", "pickle.grow-target"),
        (b"}(e.", "pickle.grow-target"),
        # C raises OverflowError, Python reads infinity.
        (b"F5e324\n.", "pickle.text"),
    ],
)
def test_found_by_the_long_runs(body, rule):
    assert outcome(b"\x80\x04" + body, []) == rule


def test_a_dtype_has_names_and_fields_or_neither(asm):
    # C says that they are inconsistent.
    minus = b"J\xff\xff\xff\xff"
    state = asm.tuple(b"K\3", asm.text("|"), b"N", b"N", b"}", minus, minus, b"K?")
    data = asm.pickle(asm.build(asm.call("numpy:dtype", asm.text("O8"), b"\x89", b"\x88"), state))
    assert outcome(data, []) == "pickle.dtype"


def test_a_masked_array_is_begun_as_numpy_does(asm):
    # False is equal to 0, and C wants an integer.
    masked = np.ma.array([1, 2], mask=[True, False])
    data = pickle.dumps(masked, 3).replace(b"K\x00\x85", b"\x89\x85")
    assert data != pickle.dumps(masked, 3)
    assert outcome(data, []) == "pickle.shape"

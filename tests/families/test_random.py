"""NumPy's sources of random numbers: the same draws on both sides."""

from __future__ import annotations

import pickle
import pickletools

import numpy as np
import pytest

from safeser import pickles
from safeser.errors import PayloadError
from tests.samples.typed import through

KINDS = [np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64]


def test_entropy_does_not_grow_after_its_check():
    """NumPy keeps the list of entropy itself, and draws from all of it for each child."""
    written = pickle.dumps(np.random.SeedSequence([5, 6]), 2)
    names = [(op.name, argument) for op, argument, _ in pickletools.genops(written)]
    memo = names[names.index(("EMPTY_LIST", None)) + 1][1]
    grown = written[:-1] + b"h" + bytes([memo]) + b"(" + b"K\x07" * 300 + b"e0."
    with pytest.raises(PayloadError) as caught:
        pickles.loads(grown, profile=("data", "numpy"))
    assert caught.value.rule == "pickle.late-growth"


@pytest.mark.parametrize("kind", KINDS)
def test_the_draws_go_on(kind):
    generator = np.random.Generator(kind(np.random.SeedSequence([1, 1 << 100], spawn_key=(2,))))
    state = np.random.RandomState(kind(1))
    generator.integers(5, dtype=np.uint32)  # leaves half a word behind
    state.normal()  # leaves a second number behind
    back, again = through(generator), through(state)
    for draw in (lambda g: g.integers(5, size=4, dtype=np.uint32), lambda g: g.random(9)):
        assert draw(generator).tolist() == draw(back).tolist()
    assert back.spawn(1)[0].random() == generator.spawn(1)[0].random()
    assert again.normal(size=5).tolist() == state.normal(size=5).tolist()

"""NumPy's sources of random numbers: the same draws on both sides, and states that never end."""

from __future__ import annotations

import pickle
import pickletools
import subprocess
import sys

import numpy as np
import pytest
from families_attack import FAMILIES, GRANT, mutate_all, sent_as, through

from safeser import families, pickles
from safeser.errors import PayloadError
from tests.pickles.forging import Called
from tests.samples.uses import BROKEN

KINDS = [np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64]


def same_seeds(a, b):
    assert (a is None) == (b is None)
    if a is not None:
        assert type(a) is type(b)
        assert a.state == b.state
        assert type(a.entropy) is type(b.entropy)
        assert a.n_children_spawned == b.n_children_spawned
        assert (a.generate_state(8) == b.generate_state(8)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_draws_go_on(kind):
    source = kind(np.random.SeedSequence([1, 1 << 100], spawn_key=(2,)))
    generator = np.random.Generator(source)
    generator.integers(5, dtype=np.uint32)  # leaves half a word behind
    generator.random(3)
    back = through(generator)
    assert type(back) is np.random.Generator
    assert type(back.bit_generator) is kind
    same_seeds(source.seed_seq, back.bit_generator.seed_seq)
    assert repr(source.state) == repr(back.bit_generator.state)
    for draw in (lambda g: g.integers(5, size=4, dtype=np.uint32), lambda g: g.random(9)):
        assert draw(generator).tolist() == draw(back).tolist()
    assert back.spawn(1)[0].random() == generator.spawn(1)[0].random()
    alone = through(source)
    assert alone.random_raw() == source.random_raw()


@pytest.mark.parametrize("made", [lambda: np.random.RandomState(3), *KINDS])
def test_random_states(made):
    state = made()
    if not isinstance(state, np.random.RandomState):
        state = np.random.RandomState(state)
    state.normal()  # leaves a second number behind
    back = through(state)
    assert type(back) is np.random.RandomState
    assert back.normal(size=5).tolist() == state.normal(size=5).tolist()
    same_seeds(state._bit_generator.seed_seq, back._bit_generator.seed_seq)


@pytest.mark.parametrize(
    "entropy", [0, 5, 1 << 200, [1, 2], (1, 1 << 64), np.uint64((1 << 64) - 1)], ids=repr
)
def test_seeds(entropy):
    seeds = np.random.SeedSequence(entropy, spawn_key=(1, 1 << 40), pool_size=8)
    seeds.spawn(3)
    same_seeds(seeds, through(seeds))


class Own(np.random.SeedSequence):
    pass


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (np.random.PCG64(Own(1)), "Own"),
        (np.random.SeedSequence([1.5] and np.array([1, 2])), "plain integers"),
        (Own(1), "Own"),
    ],
)
def test_what_would_be_altered_is_refused(value, word):
    with pytest.raises(PayloadError, match=word):
        families.serialize(value, FAMILIES)


def forged(source, **changes):
    """Return how *source* travels with other fields in its state."""
    make, arguments, (state, seeds) = source.__reduce__()
    state["state"].update({k: v for k, v in changes.items() if k in state["state"]})
    state.update({k: v for k, v in changes.items() if k not in state["state"]})
    return sent_as("numpy.random:BitGenerator", Called(make, *arguments, state=(state, seeds)))


STILL = np.zeros(624, np.uint32)


@pytest.mark.parametrize(
    "case",
    [
        # C read behind the end of the key.
        forged(np.random.MT19937(1), pos=1 << 40),
        forged(np.random.MT19937(1), pos=-1),
        # A state from which nothing leads on: drawing a bounded number never ended.
        forged(np.random.MT19937(1), key=STILL),
        forged(np.random.PCG64(1), inc=0),
        forged(np.random.PCG64(1), state=1 << 128),
        forged(np.random.MT19937(1), key=STILL[:-1]),
        forged(np.random.MT19937(1), key=STILL.astype(np.uint64)),
        forged(np.random.MT19937(1), key=STILL.tobytes()),
        forged(np.random.MT19937(1), key=[1] * 624),
        forged(np.random.Philox(1), buffer_pos=5),
        forged(np.random.Philox(1), counter=np.zeros(3, np.uint64)),
        forged(np.random.SFC64(1), has_uint32=2),
        forged(np.random.SFC64(1), uinteger=1 << 32),
        forged(np.random.SFC64(1), bit_generator="MT19937"),
        forged(np.random.SFC64(1), more=b"\0" * 8),
    ],
)
def test_states_that_lie(case):
    families.check(*case)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(*case, GRANT)
    assert caught.value.rule.startswith(("families.", "value."))


@pytest.mark.parametrize(
    "state",
    [
        {"has_gauss": 2, "gauss": 0.0},
        {"has_gauss": 1, "gauss": 1},
        {"has_gauss": 0},
        {"has_gauss": 0, "gauss": 0.0, "bit_generator": "PCG64"},
    ],
)
def test_spare_numbers_that_lie(state):
    make, arguments, _ = np.random.RandomState(1).__reduce__()
    case = sent_as("numpy.random:RandomState", Called(make, *arguments, state=state))
    with pytest.raises(PayloadError) as caught:
        families.deserialize(*case, GRANT)
    assert caught.value.rule.startswith(("families.", "value."))


def test_entropy_does_not_grow_after_its_check():
    """NumPy keeps the list of entropy itself, and draws from all of it for each child."""
    written = pickle.dumps(np.random.SeedSequence([5, 6]), 2)
    names = [(op.name, argument) for op, argument, _ in pickletools.genops(written)]
    memo = names[names.index(("EMPTY_LIST", None)) + 1][1]
    grown = written[:-1] + b"h" + bytes([memo]) + b"(" + b"K\x07" * 300 + b"e0."
    with pytest.raises(PayloadError) as caught:
        pickles.loads(grown, profile=("data", "numpy"))
    assert caught.value.rule == "pickle.late-growth"


def use(value):
    draws = [
        lambda: repr(value), lambda: value.random(3), lambda: value.integers(0, 10, 3),
        lambda: value.normal(), lambda: value.random_raw(3), lambda: value.generate_state(3),
        lambda: value.spawn(2), lambda: value.randint(0, 5, 3), lambda: value.shuffle([1, 2, 3]),
    ]  # fmt: skip
    for draw in draws:
        try:
            draw()
        except BROKEN:
            raise
        except Exception:
            pass


@pytest.mark.parametrize(
    "value", [np.random.default_rng(1), np.random.RandomState(1), np.random.SeedSequence(5)]
)
def test_headers_that_lie(value):
    refused, accepted = mutate_all(value, use, every=3)
    assert refused > accepted


def test_nothing_is_imported_for_a_name():
    code = """
import sys, numpy
from safeser import families
assert "numpy.random" not in sys.modules
header = {"serializer": "dask", "type": "numpy.random:Generator", "sub-header": {}}
families.check(header, [])
assert "numpy.random" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)

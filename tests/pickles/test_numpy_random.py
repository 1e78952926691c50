"""Profile numpy: sources of random numbers go on where they were, and read no foreign memory."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from safeser.errors import SafeserError
from safeser.pickles import loads

PROFILE = ("data", "numpy")
KINDS = [
    np.random.MT19937,
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.Philox,
    np.random.SFC64,
]


def begun(kind):
    generator = np.random.Generator(kind(5))
    generator.integers(0, 9, dtype="u4")
    return generator


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_goes_on_where_it_was(kind, protocol):
    source = begun(kind)
    got = loads(pickle.dumps(source, protocol), profile=PROFILE)
    assert type(got) is np.random.Generator
    assert type(got.bit_generator) is kind
    assert got.integers(0, 99, 3000, "u4").tolist() == source.integers(0, 99, 3000, "u4").tolist()
    assert got.standard_normal(99).tolist() == source.standard_normal(99).tolist()
    child, other = got.spawn(1)[0], source.spawn(1)[0]
    assert child.random() == other.random()


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_state_goes_on_where_it_was(kind):
    source = np.random.RandomState(kind(5))
    source.randn(3)
    got = loads(pickle.dumps(source), profile=PROFILE)
    assert got.randn(2000).tolist() == source.randn(2000).tolist()
    legacy = np.random.RandomState(3)
    got = loads(pickle.dumps(legacy), profile=PROFILE)
    assert got.randn(2000).tolist() == legacy.randn(2000).tolist()


def test_seeds_and_their_children():
    parent = np.random.SeedSequence([1, 2**70], pool_size=8)
    for seed in (parent, parent.spawn(2)[1], np.random.SeedSequence()):
        got = loads(pickle.dumps(seed), profile=PROFILE)
        assert got.state == seed.state
        assert got.generate_state(9).tolist() == seed.generate_state(9).tolist()


def test_a_source_that_two_share_stays_one():
    bits = np.random.PCG64(1)
    one, two = loads(
        pickle.dumps([np.random.Generator(bits), np.random.Generator(bits)]), profile=PROFILE
    )
    assert one.bit_generator is two.bit_generator


CTOR = "numpy.random._pickle:__bit_generator_ctor"


def bits(asm, kind, state, seed=None, *, named=None):
    module = {"MT19937": "_mt19937", "Philox": "_philox", "SFC64": "_sfc64"}.get(kind, "_pcg64")
    named = named or asm.name(f"numpy.random.{module}:{kind}")
    whole = asm.tuple(asm.value(state), asm.value(seed))
    return asm.build(asm.call(CTOR, named), whole)


def state(kind, inner=(), **outer):
    """Return the state of a generator of *kind*, with parts of it changed."""
    whole = dict(begun(getattr(np.random, kind)).bit_generator.state)
    return {**whole, "state": {**whole["state"], **dict(inner)}, **outer}


def seed_of(asm, entropy=3, spawned=0, pool=None, size=4, key=()):
    pool = np.random.SeedSequence(3).pool if pool is None else pool
    return asm.build(
        asm.call(
            "numpy.random.bit_generator:__pyx_unpickle_SeedSequence",
            asm.name("numpy.random.bit_generator:SeedSequence"),
            asm.number(65708578),
            b"N",
        ),
        asm.value((entropy, spawned, pool, size, key)),
    )


def random_state(asm, **changed):
    whole = np.random.RandomState(3).get_state(legacy=False)
    return asm.build(
        asm.call("numpy.random._pickle:__randomstate_ctor", bits(asm, "MT19937", state("MT19937"))),
        asm.value({**whole, **changed}),
    )


def short(count, dtype="u8"):
    return np.zeros(count, dtype)


BYPASSES = {
    "a position behind the key": lambda a: bits(a, "MT19937", state("MT19937", {"pos": 625})),
    "a position far behind": lambda a: bits(a, "MT19937", state("MT19937", {"pos": 1 << 31})),
    "a position before the key": lambda a: bits(a, "MT19937", state("MT19937", {"pos": -1})),
    "a short key": lambda a: bits(a, "MT19937", state("MT19937", {"key": short(600, "u4")})),
    "a key of other words": lambda a: bits(a, "MT19937", state("MT19937", {"key": short(624)})),
    "a key that is none": lambda a: bits(a, "MT19937", state("MT19937", {"key": None})),
    "another field": lambda a: bits(a, "MT19937", state("MT19937", {"x": 1})),
    "another field outside": lambda a: bits(a, "PCG64", state("PCG64", x=1)),
    "a state too large": lambda a: bits(a, "PCG64", state("PCG64", {"state": 1 << 128})),
    "a twister that stands still": lambda a: bits(
        a, "MT19937", state("MT19937", {"key": short(624, "u4")})
    ),
    "an increment that stands still": lambda a: bits(a, "PCG64", state("PCG64", {"inc": 0})),
    "an even increment": lambda a: bits(a, "PCG64DXSM", state("PCG64DXSM", {"inc": 2})),
    "a negative increment": lambda a: bits(a, "PCG64", state("PCG64", {"inc": -1})),
    "a state of another kind": lambda a: bits(a, "PCG64DXSM", state("PCG64")),
    "a flag that is none": lambda a: bits(a, "PCG64", state("PCG64", has_uint32=2)),
    "a left-over too large": lambda a: bits(a, "PCG64", state("PCG64", uinteger=1 << 32)),
    "a buffer's position": lambda a: bits(a, "Philox", state("Philox", buffer_pos=5)),
    "a buffer's position before": lambda a: bits(a, "Philox", state("Philox", buffer_pos=-1)),
    "a short buffer": lambda a: bits(a, "Philox", state("Philox", buffer=short(3))),
    "a short counter": lambda a: bits(a, "Philox", state("Philox", {"counter": short(2)})),
    "a short state": lambda a: bits(a, "SFC64", state("SFC64", {"state": short(1)})),
    "a seed that is none": lambda a: bits(a, "PCG64", state("PCG64"), 5),
    "a source that is none": lambda a: bits(a, "PCG64", state("PCG64"), named=a.name("uuid:UUID")),
    "a source by another name": lambda a: bits(
        a, "PCG64", state("PCG64"), named=a.text("BitGenerator")
    ),
    "a source without its state": lambda a: a.call(CTOR, a.text("PCG64")),
    "a source built twice": lambda a: a.build(
        bits(a, "PCG64", state("PCG64")), a.value((state("PCG64"), None))
    ),
    "a generator of nothing": lambda a: a.call("numpy.random._pickle:__generator_ctor", b"N"),
    "a generator's state": lambda a: a.build(
        a.call("numpy.random._pickle:__generator_ctor", bits(a, "PCG64", state("PCG64"))),
        a.dict(),
    ),
    "a spare normal that is none": lambda a: random_state(a, gauss=None),
    "a spare normal's flag": lambda a: random_state(a, has_gauss=2),
    "a random state of another kind": lambda a: random_state(a, bit_generator="PCG64"),
    "a random state without its state": lambda a: a.call(
        "numpy.random._pickle:__randomstate_ctor", bits(a, "MT19937", state("MT19937"))
    ),
    "a random state built twice": lambda a: a.build(random_state(a), a.dict()),
    "another pool": lambda a: seed_of(a, pool=short(4, "u4")),
    "a pool of another size": lambda a: seed_of(a, pool=short(3, "u4")),
    "a pool too large": lambda a: seed_of(a, size=65),
    "a pool too small": lambda a: seed_of(a, size=3, pool=short(3, "u4")),
    "negative entropy": lambda a: seed_of(a, entropy=-3),
    "no entropy": lambda a: seed_of(a, entropy=None),
    "entropy of texts": lambda a: seed_of(a, entropy=("x",)),
    "entropy without end": lambda a: seed_of(a, entropy=1 << 10_000),
    "keys without end": lambda a: seed_of(a, key=(1,) * 300),
    "a key too large": lambda a: seed_of(a, key=(1 << 70,)),
    "children before the first": lambda a: seed_of(a, spawned=-1),
    "a seed of another class": lambda a: a.call(
        "numpy.random.bit_generator:__pyx_unpickle_SeedSequence", b"N", b"K\x01", b"N"
    ),
    "a seed's state beside it": lambda a: a.call(
        "numpy.random.bit_generator:__pyx_unpickle_SeedSequence",
        a.name("numpy.random.bit_generator:SeedSequence"),
        b"K\x01",
        b")",
    ),
    "a seed built twice": lambda a: a.build(seed_of(a), b")"),
}


@pytest.mark.parametrize("recipe", BYPASSES.values(), ids=BYPASSES.keys())
def test_bypass_forged_states_are_refused(asm, recipe):
    with pytest.raises(SafeserError):
        loads(asm.pickle(recipe(asm)), profile=PROFILE)


def test_the_recipes_are_right_but_for_what_they_forge(asm):
    for kind in KINDS:
        name = kind.__name__
        got = loads(asm.pickle(bits(asm, name, state(name))), profile=PROFILE)
        assert got.random_raw() == begun(kind).bit_generator.random_raw()
    assert loads(asm.pickle(random_state(asm)), profile=PROFILE).rand() == (
        np.random.RandomState(3).rand()
    )
    assert loads(asm.pickle(seed_of(asm)), profile=PROFILE).entropy == 3


def test_names_of_numpy_1(asm):
    # It named the kind by a text, and gave the generator the state.
    ctor = asm.name(CTOR)
    whole = asm.value(state("PCG64"))
    generator = asm.build(
        asm.call("numpy.random._pickle:__generator_ctor", asm.text("PCG64"), ctor), whole
    )
    got = loads(asm.pickle(generator), profile=PROFILE)
    assert got.random() == np.random.Generator(begun(np.random.PCG64).bit_generator).random()
    legacy = asm.build(
        asm.call("numpy.random._pickle:__randomstate_ctor", asm.text("MT19937"), ctor),
        asm.value(np.random.RandomState(3).get_state(legacy=False)),
    )
    assert loads(asm.pickle(legacy), profile=PROFILE).rand() == np.random.RandomState(3).rand()
    alone = asm.build(asm.call(CTOR, asm.text("PCG64")), whole)
    assert type(loads(asm.pickle(alone), profile=PROFILE)) is np.random.PCG64
    none = asm.build(
        asm.call("numpy.random._pickle:__generator_ctor", bits(asm, "PCG64", state("PCG64"))), b"N"
    )
    assert type(loads(asm.pickle(none), profile=PROFILE)) is np.random.Generator


def test_bypass_a_state_that_changes_later_is_kept_as_it_was_checked():
    source = begun(np.random.MT19937)
    whole = source.bit_generator.state
    data = pickle.dumps([source, whole["state"]["key"]])
    got, key = loads(data, profile=PROFILE)
    key[:] = 0
    assert got.bit_generator.state["state"]["key"].any()

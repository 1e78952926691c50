"""Keys that are chosen to meet each other, though no two have the same hash."""

from __future__ import annotations

import datetime
import pickle
import sys
from random import Random

import pytest

from safeser.pickles import loads
from safeser.pickles.reading.slots import WALK_FREE, Slots, spread_out
from tests.pickles.forging import refused

BITS = 13
HONEST = [
    list(range(-3000, 3000)),
    list(range(7, 50_000, 7)),
    [number * 4096 for number in range(9000)],
    [1_700_000_000_000_000_000 + number * 60 * 10**9 for number in range(9000)],
    [Random(1).getrandbits(60) + number for number in range(5000)],
]


def long_walks():
    """Return keys of one dict: half lie in a row, and the others walk along all of it."""
    mask = (1 << BITS) - 1
    row, place = [], 0
    for _ in range(mask // 3):
        row.append(place)
        place = (5 * place + 1) & mask
    taken, chance, walking = set(row), Random(1), []
    while len(walking) < mask // 4:
        key = chance.getrandbits(BITS + 5)
        place, perturb = key & mask, key
        while place in taken and perturb:
            perturb >>= 5
            place = (place * 5 + perturb + 1) & mask
        if key > mask and place in taken:
            walking.append(key)
    return [*row, *dict.fromkeys(walking)]


ATTACK = long_walks()


@pytest.mark.unmeasured
@pytest.mark.parametrize("keys", HONEST)
def test_honest_numbers_do_not_walk_far(keys):
    assert spread_out(keys)
    assert loads(pickle.dumps(dict.fromkeys(keys))) == dict.fromkeys(keys)
    assert loads(pickle.dumps(set(keys))) == set(keys)
    some = dict.fromkeys(map(float, keys))
    assert loads(pickle.dumps(some)) == some


@pytest.mark.parametrize("protocol", [0, 5])
@pytest.mark.parametrize("kind", [int, float, lambda key: datetime.timedelta(0, key)])
def test_bypass_of_cpu_keys_that_walk_past_each_other(kind, protocol):
    keys = list(map(kind, ATTACK))
    data = pickle.dumps(dict.fromkeys(keys), protocol)
    if kind in (int, float):
        refused("pickle.collisions", loads, data)
    else:
        # Its hash is mixed of its parts, so these are spread out.
        assert len(loads(data)) == len(set(keys))


def test_bypass_of_cpu_keys_that_walk_only_when_the_table_grows():
    slots = Slots(ATTACK, members=False)
    assert slots.too_far
    slots._grow()
    assert slots.too_far
    assert spread_out(ATTACK[:WALK_FREE])


def test_members_of_a_set_look_at_their_neighbours_first():
    slots = Slots((), members=True)
    assert not any(slots.add(number << 40) for number in range(3000))
    far = Slots((), members=True)
    assert any(far.add(1 << 62) for _ in range(2 * WALK_FREE * 9))


@pytest.mark.slow
@pytest.mark.skipif(sys.implementation.name != "cpython", reason="tables are CPython's")
def test_the_tables_are_as_large_as_cpythons():
    for members, kind in ((False, dict), (True, set)):
        held, slots, sizes = kind(), Slots((), members=members), []
        for number in range(60_000):
            held.__setitem__(number, None) if kind is dict else held.add(number)
            slots.add(number)
            sizes.append((sys.getsizeof(held), len(slots._taken)))
        grown = [at for at in range(1, len(sizes)) if sizes[at][0] != sizes[at - 1][0]]
        ours = [at for at in range(1, len(sizes)) if sizes[at][1] != sizes[at - 1][1]]
        assert [at for at in grown if at > 100] == [at for at in ours if at > 100]

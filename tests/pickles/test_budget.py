"""Each limit of what building takes, at its boundary: one less is refused, by its rule."""

from __future__ import annotations

import pickle

import pytest

from safeser.errors import ConfigError
from safeser.gate.values import Limits
from safeser.pickles import Budget, loads
from safeser.pickles.shims import Site
from tests.pickles.forging import refused
from tests.pickles.reading.test_slots import ATTACK

BIG = 1 << 61  # a hash is a number modulo this, less one
SAME_HASH = [0, *(BIG * n - n for n in range(1, 40))]


#: Limits, bytes that came in, a charge up to its bound, and one that is refused by its rule.
CHARGES = [
    ({"max_memory": 10 << 7}, 0, "spend", (10, 0), (1, 0), "max-memory"),
    ({"max_calls": 5}, 0, "spend", (0, 5), (0, 1), "max-calls"),
    ({"max_memory": 10 << 7}, 0, "charge", (20,), (1,), "max-memory"),
    # Visits and objects grow with the input, up to some for each reference.
    ({"max_memory": 10 << 7}, 3, "charge", (20 + 3 * 20,), (1,), "max-memory"),
    ({"max_memory": 10 << 7}, 100, "charge", (160,), (1,), "max-memory"),
    ({"max_memory": 10 << 7}, 3, "charge_memory", (0, 5 + 3 * 26), (0, 1), "max-memory"),
    ({"max_memory": 10 << 7}, 1000, "charge_memory", (0, 2560), (0, 1), "max-memory"),
    ({}, 0, "charge_memory", (0, 0), (1 << 30, 0), "max-bytes"),
    ({"max_memory": 100 << 7}, 0, "work", (20,), (21,), "max-memory"),  # one call may visit a tenth
    ({"max_array": 100}, 0, "charge_bytes", (100,), (101,), "max-array"),
    # Copies are free up to a mebibyte, and then some times the input.
    ({}, 0, "charge_bytes", (1 << 20,), (1,), "max-bytes"),
    ({"max_copies": 3}, 7, "charge_bytes", ((1 << 20) + 21,), (1,), "max-bytes"),
]


class TestBudget:
    @pytest.mark.parametrize(("limits", "given", "name", "within", "beyond", "rule"), CHARGES)
    def test_at_its_bound(self, limits, given, name, within, beyond, rule):
        budget = Budget(Limits(**limits))
        budget.bring(given)
        names = ("refs", "calls") if name == "spend" else ()
        charge = getattr(budget, name)

        def charged(amounts):
            return charge(**dict(zip(names, amounts, strict=True))) if names else charge(*amounts)

        charged(within)
        error = refused(f"pickle.{rule}", charged, beyond)
        assert rule != "max-array" or "limits.max_array" in error.fix
        assert name != "work" or budget.visits == 180

    def test_opcodes_follow_from_the_references(self):
        assert Budget(Limits(max_memory=10 << 7)).opcodes == 40

    def test_copies_never_pass_the_message(self):
        budget = Budget(Limits(max_bytes=100))
        assert budget.copies == 100
        budget.bring(1000)
        assert budget.copies == 100

    def test_reading_is_charged_also_when_it_fails(self):
        budget = Budget(Limits(max_memory=10 << 7))
        turns = iter([0] * 40)

        def midway():
            with budget.reading(turns):
                next(turns)
                raise KeyError

        with pytest.raises(KeyError):
            midway()
        assert budget.opcodes == 39


def site(**limits):
    return Site(Limits(**limits), given=0)


class TestKeys:
    def test_keys_of_one_hash(self):
        here, held = site(max_collisions=8), {}
        for key in SAME_HASH[:8]:
            here.check_key(held, key)
            held[key] = None
        error = refused("pickle.collisions", here.check_key, held, SAME_HASH[8])
        assert "limits.max_collisions" in error.fix
        held[SAME_HASH[8]] = None  # one that is there already takes nobody's place
        here.check_key(held, SAME_HASH[8])

    @pytest.mark.parametrize("kind", [dict.fromkeys, set, frozenset])
    def test_keys_of_one_hash_in_a_pickle(self, kind):
        data = pickle.dumps(kind(SAME_HASH[:9]))
        assert loads(data) == kind(SAME_HASH[:9])
        refused("pickle.collisions", loads, data, limits=Limits(max_collisions=8))

    def test_colliding_keys_cost_a_visit_for_each_they_meet(self):
        here, held = site(max_collisions=8), {}
        for at, key in enumerate(SAME_HASH[:5]):
            before = here.budget.visits
            here.check_key(held, key)
            held[key] = None
            assert before - here.budget.visits == 1 + at

    def test_keys_that_walk(self):
        data = pickle.dumps(dict.fromkeys(map(float, ATTACK)))
        assert len(loads(data, limits=Limits(max_walk=10_000))) == len(ATTACK)
        assert "limits.max_walk" in refused("pickle.collisions", loads, data).fix

    def test_parts_of_one_key(self):
        here = site(max_key_cost=20)
        here.check_hashable((0,) * 20)
        refused("pickle.key-cost", here.check_hashable, (0,) * 21)
        error = refused("pickle.key-cost", here.check_hashable, ((0,) * 20, (0,)))
        assert "limits.max_key_cost" in error.fix

    def test_what_hashing_is_charged(self):
        here = site()
        for key, cost in (
            (1, 1),
            (1 << 511, 2),
            (1 << 512, 2),
            (1 << 1024, 3),
            ("text", 1),
            (None, 1),
            ((1, (2, 3)), 5),
            (frozenset({1, (2,)}), 4),
        ):
            assert here.check_hashable(key) == cost

    def test_how_deep_a_key_nests(self):
        here, key = site(), 1
        for _ in range(49):
            key = (key,)
        here.check_hashable(key)
        refused("pickle.key-cost", here.check_hashable, (key,))

    @pytest.mark.parametrize("key", [[], {}, set(), bytearray(), object()])
    def test_what_is_no_key(self, key):
        refused("pickle.unhashable", site().check_hashable, key)
        refused("pickle.unhashable", site().check_hashable, (key,))

    def test_what_is_not_finished(self):
        here, key = site(), (1,)
        here.unfinished[id(key[0])] = None
        refused("pickle.unfinished", here.check_hashable, key)

    def test_a_key_that_cannot_be_hashed_after_all(self):
        here = site()
        here.hashable.add(slice)
        refused("pickle.unhashable", here.check_key, {}, slice(1))


def test_sharing_is_a_limit_of_its_own():
    row = [1] * 100
    data = pickle.dumps([row] * 50)  # 5,100 elements once sharing is undone
    loads(data, limits=Limits(max_memory=700 << 7, max_sharing=8))
    error = refused(
        "pickle.sharing", loads, data, limits=Limits(max_memory=700 << 7, max_sharing=7)
    )
    assert "limits.max_sharing" in error.fix


@pytest.mark.parametrize(("name", "least"), [("max_collisions", 8), ("max_walk", 16)])
def test_what_honest_keys_do_by_chance_cannot_be_refused(name, least):
    assert getattr(Limits(**{name: least}), name) == least
    with pytest.raises(ConfigError, match=f"{name} must be an integer of {least} or more"):
        Limits(**{name: least - 1})

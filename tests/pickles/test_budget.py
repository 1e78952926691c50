"""Each limit of what building takes, at its boundary: one less is refused, by its rule."""

from __future__ import annotations

import pickle

import pytest

from safeser.errors import ConfigError, PayloadError
from safeser.pickles import Budget, loads
from safeser.pickles.shims import Site
from safeser.values import Limits
from tests.pickles.reading.test_slots import ATTACK

BIG = 1 << 61  # a hash is a number modulo this, less one
SAME_HASH = [0, *(BIG * n - n for n in range(1, 40))]


def refused(rule, call, *arguments):
    with pytest.raises(PayloadError) as caught:
        call(*arguments)
    assert caught.value.rule == f"pickle.{rule}"
    return caught.value


class TestBudget:
    def test_refs_and_calls(self):
        budget = Budget(Limits(max_refs=10, max_calls=5))
        budget.spend(refs=10, calls=5)
        assert (budget.refs, budget.calls) == (0, 0)
        refused("max-refs", lambda: budget.spend(refs=1, calls=0))
        budget = Budget(Limits(max_calls=5))
        refused("max-calls", lambda: budget.spend(refs=0, calls=6))

    def test_opcodes_and_visits_follow_from_the_references(self):
        budget = Budget(Limits(max_refs=10))
        assert budget.opcodes == 40
        budget.charge(20)
        refused("max-refs", budget.charge, 1)

    def test_visits_grow_with_the_input_up_to_some_for_each_reference(self):
        budget = Budget(Limits(max_refs=10))
        budget.bring(3)
        budget.charge(20 + 3 * 20)
        refused("max-refs", budget.charge, 1)
        budget = Budget(Limits(max_refs=10))
        budget.bring(100)
        budget.charge(160)
        refused("max-refs", budget.charge, 1)

    def test_one_call_may_visit_a_tenth(self):
        budget = Budget(Limits(max_refs=100))
        budget.work(20)
        refused("max-refs", budget.work, 21)
        assert budget.visits == 180

    def test_objects_grow_with_the_input_up_to_some_for_each_reference(self):
        budget = Budget(Limits(max_refs=10))
        budget.bring(3)
        budget.charge_memory(0, 5 + 3 * 26)
        refused("max-refs", budget.charge_memory, 0, 1)
        budget = Budget(Limits(max_refs=10))
        budget.bring(1000)
        budget.charge_memory(0, 2560)
        refused("max-refs", budget.charge_memory, 0, 1)
        refused("max-bytes", budget.charge_memory, 1 << 30, 0)

    def test_one_array(self):
        budget = Budget(Limits(max_array=100))
        budget.charge_bytes(100)
        error = refused("max-array", budget.charge_bytes, 101)
        assert "limits.max_array" in error.fix

    def test_copies_are_free_up_to_a_mebibyte_and_then_some_times_the_input(self):
        budget = Budget(Limits())
        budget.charge_bytes(1 << 20)
        refused("max-bytes", budget.charge_bytes, 1)
        budget = Budget(Limits(max_copies=3))
        budget.bring(7)
        budget.charge_bytes((1 << 20) + 21)
        refused("max-bytes", budget.charge_bytes, 1)

    def test_copies_never_pass_the_message(self):
        budget = Budget(Limits(max_bytes=100))
        assert budget.copies == 100
        budget.bring(1000)
        assert budget.copies == 100

    def test_reading_is_charged_also_when_it_fails(self):
        budget = Budget(Limits(max_refs=10))
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
        error = refused("collisions", here.check_key, held, SAME_HASH[8])
        assert "limits.max_collisions" in error.fix
        held[SAME_HASH[8]] = None  # one that is there already takes nobody's place
        here.check_key(held, SAME_HASH[8])

    @pytest.mark.parametrize("kind", [dict.fromkeys, set, frozenset])
    def test_keys_of_one_hash_in_a_pickle(self, kind):
        data = pickle.dumps(kind(SAME_HASH[:9]))
        assert loads(data) == kind(SAME_HASH[:9])
        with pytest.raises(PayloadError) as caught:
            loads(data, limits=Limits(max_collisions=8))
        assert caught.value.rule == "pickle.collisions"

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
        with pytest.raises(PayloadError) as caught:
            loads(data)
        assert caught.value.rule == "pickle.collisions"
        assert "limits.max_walk" in caught.value.fix

    def test_parts_of_one_key(self):
        here = site(max_key_cost=20)
        here.check_hashable((0,) * 20)
        refused("key-cost", here.check_hashable, (0,) * 21)
        error = refused("key-cost", here.check_hashable, ((0,) * 20, (0,)))
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
        refused("key-cost", here.check_hashable, (key,))

    @pytest.mark.parametrize("key", [[], {}, set(), bytearray(), object()])
    def test_what_is_no_key(self, key):
        refused("unhashable", site().check_hashable, key)
        refused("unhashable", site().check_hashable, (key,))

    def test_what_is_not_finished(self):
        here, key = site(), (1,)
        here.unfinished[id(key[0])] = None
        refused("unfinished", here.check_hashable, key)

    def test_a_key_that_cannot_be_hashed_after_all(self):
        here = site()
        here.hashable.add(slice)
        refused("unhashable", here.check_key, {}, slice(1))


def test_sharing_is_a_limit_of_its_own():
    row = [1] * 100
    data = pickle.dumps([row] * 50)  # 5,100 elements once sharing is undone
    loads(data, limits=Limits(max_refs=700, max_sharing=8))
    with pytest.raises(PayloadError) as caught:
        loads(data, limits=Limits(max_refs=700, max_sharing=7))
    assert caught.value.rule == "pickle.sharing"
    assert "limits.max_sharing" in caught.value.fix


@pytest.mark.parametrize(("name", "least"), [("max_collisions", 8), ("max_walk", 16)])
def test_what_honest_keys_do_by_chance_cannot_be_refused(name, least):
    assert getattr(Limits(**{name: least}), name) == least
    with pytest.raises(ConfigError, match=f"{name} must be an integer of {least} or more"):
        Limits(**{name: least - 1})

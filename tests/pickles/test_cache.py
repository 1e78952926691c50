"""Verdicts are found by everything that they depended on, and by nothing less."""

from __future__ import annotations

import datetime
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from safeser import pickles
from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles.budget import Budget
from safeser.pickles.cache import Programs, Scopes, Verdicts
from safeser.pickles.machine import read
from safeser.pickles.profiles import DATA_PROFILES, Profile
from safeser.values import Limits

pytestmark = pytest.mark.usefixtures("verdicts")

LIMITS = Limits()
VALUE = {"a": [1, 2.5, (None, "x")], "when": datetime.date(2026, 1, 1), 3: bytearray(b"xy")}
DATA = pickle.dumps(VALUE, 5)
LARGE = pickle.dumps([{"id": number, "name": f"n{number}"} for number in range(2000)], 5)


@pytest.mark.parametrize("data", [DATA, LARGE])
def test_the_third_load_reads_nothing(data, reads):
    made = [pickles.loads(data) for _ in range(4)]
    assert len(reads) == 2
    assert all(each == made[0] for each in made)
    assert made[0] == pickle.loads(data)


def test_each_load_makes_a_new_object():
    for _ in range(4):
        made = pickles.loads(DATA)
        assert made == VALUE
        made["a"].append(made)
        made[3][:] = b"changed"


@pytest.mark.parametrize("ask", [pickles.loads, pickles.check])
@pytest.mark.parametrize(
    "other",
    [
        {"profile": ("data", "numpy")},
        {"profile": Profile.named("data").allowing({"a:b": "reference"})},
        {"limits": Limits(max_refs=5000)},
        {"policy": "another"},
    ],
)
def test_a_verdict_holds_in_its_own_scope_alone(ask, other, reads):
    for _ in range(3):
        pickles.loads(DATA)
    before = len(reads)
    ask(DATA, **other)
    assert len(reads) == before + 1


def test_a_tighter_limit_still_refuses_what_was_loaded():
    for _ in range(3):
        pickles.loads(DATA)
    with pytest.raises(PayloadError):
        pickles.loads(DATA, limits=Limits(max_refs=3))


def test_one_byte_is_another_pickle(reads):
    for _ in range(3):
        pickles.loads(DATA)
    changed = DATA.replace(b"x", b"y")
    assert pickles.loads(changed)["a"] == [1, 2.5, (None, "y")]
    for _ in range(3):
        pickles.loads(LARGE)
    assert pickles.loads(LARGE.replace(b"n7", b"m7", 1))[7]["name"] == "m7"


def test_refusals_are_not_remembered(verdicts):
    hostile = b"cos\nsystem\n(Vtrue\ntR."
    for _ in range(5):
        with pytest.raises(PolicyDenied):
            pickles.loads(hostile)
        with pytest.raises(PolicyDenied):
            pickles.check(hostile)
        assert pickles.family_of(hostile) == "cloudpickle"
        with pytest.raises(PayloadError):
            pickles.loads(b"\x80\x05](K\x01")
    assert not len(verdicts)
    assert not len(pickles._PROGRAMS)
    assert not verdicts._seen


def test_what_fails_while_it_is_built_is_not_remembered(verdicts):
    wrong = pickle.dumps(datetime.date(2026, 1, 9), 5).replace(b"\x01\x09", b"\x01\x63")
    for _ in range(4):
        with pytest.raises(PayloadError):
            pickles.loads(wrong)
    assert not len(verdicts)


def test_different_pickles_push_nothing_out(verdicts):
    for _ in range(3):
        pickles.loads(DATA)
    for number in range(9000):
        pickles.loads(b"J%b." % number.to_bytes(4, "little"))
    assert len(verdicts) == 1
    assert len(verdicts._seen) <= 8192


def test_the_cache_is_bounded_in_entries_and_bytes():
    small = Verdicts(entries=3)
    narrow = Verdicts(size=20_000)
    profile = Profile.of("data")
    scope = Scopes().of(profile, LIMITS, "")
    for number in range(50):
        data = pickle.dumps([number] * 100, 5)
        program = read(data, buffers=0, limits=LIMITS)
        builder = pickles.Builder(program, profile, buffers=(), limits=LIMITS)
        builder.build()
        for _ in range(2):
            small.note(data, scope, program, made=builder)
            narrow.note(data, scope, program, made=builder)
        # What is asked for stays.
        first = pickle.dumps([0] * 100, 5)
        assert small.find(first, scope) is not None
    assert len(small) == 3
    assert 3 < len(narrow) < 50
    assert 0 <= narrow._room < 20_000
    narrow.clear()
    assert narrow._room == 20_000
    assert not narrow._layouts


def test_large_bytes_are_not_hashed_for_it(verdicts):
    data = pickle.dumps(b"x" * 100_000, 5)
    for _ in range(3):
        pickles.loads(data)
    assert not len(verdicts)


def test_buffers_of_other_sizes_are_judged_anew(reads):
    sent = []
    data = pickle.dumps(np.arange(4), protocol=5, buffer_callback=sent.append)
    buffers = [bytes(buffer.raw()) for buffer in sent]
    for _ in range(3):
        assert pickles.loads(data, buffers=buffers, profile="numpy").sum() == 6
    assert len(reads) == 2
    with pytest.raises(PayloadError) as refusal:
        pickles.loads(data, buffers=[b"short"], profile="numpy")
    assert refusal.value.rule == "pickle.shape"
    assert pickles.loads(data, buffers=[bytes(32)], profile="numpy").sum() == 0
    before = len(reads)
    wider = b"\x80\x05\x97\x97\x86."
    for _ in range(3):
        pickles.loads(wider, buffers=[b"a", b"b"])
    assert len(reads) == before + 2
    assert [*map(bytes, pickles.loads(wider, buffers=[b"a", b"bc"]))] == [b"a", b"bc"]
    assert len(reads) == before + 3
    with pytest.raises(PayloadError) as refusal:
        pickles.loads(data, profile="numpy")
    assert refusal.value.rule == "pickle.buffers"


def test_a_form_that_fails_is_not_used_again(verdicts, reads):
    for _ in range(3):
        pickles.loads(DATA)
    (verdict,) = verdicts._kept.values()
    verdict.canonical.code = b"broken"
    budget = Budget(LIMITS)
    for _ in range(3):
        assert pickles.loads(DATA, budget=budget) == VALUE
    assert len(reads) == 5
    # Nothing was charged for the attempt.
    once = Budget(LIMITS)
    read(DATA, buffers=0, limits=LIMITS, budget=once)
    assert LIMITS.max_refs - budget.refs == 3 * (LIMITS.max_refs - once.refs)


def test_a_replaced_global_refuses_on_a_hit_too(monkeypatch):
    for _ in range(3):
        pickles.loads(DATA)

    class date:
        pass

    monkeypatch.setattr(datetime, "date", date)
    with pytest.raises(PolicyDenied) as refusal:
        pickles.loads(DATA)
    assert refusal.value.rule == "pickle.integrity"


def test_a_message_s_pickle_is_read_once(reads):
    for data in (LARGE, pickle.dumps([1, 2], 5)):
        assert pickles.family_of(data) == "pickle"
        pickles.check(data, profile=("data", "numpy"))
        pickles.loads(data, profile=("data", "numpy"))
        assert reads.count(data) == 1


def test_a_message_s_pickle_is_then_not_read_at_all(reads):
    for _ in range(4):
        assert pickles.family_of(DATA) == "pickle"
        pickles.check(DATA)
        pickles.loads(DATA)
    assert len(reads) == 2


def test_what_was_read_for_one_profile_is_judged_for_the_other(reads):
    data = pickle.dumps(np.dtype("f8"), 5)
    assert pickles.family_of(data) == "pickle"
    for _ in range(3):
        with pytest.raises(PolicyDenied):
            pickles.check(data, profile="data")
        with pytest.raises(PolicyDenied):
            pickles.loads(data, profile="data")
    assert len(reads) < 7


def test_too_few_buffers_are_refused_after_a_hit():
    data = b"\x80\x05\x97."
    for _ in range(4):
        assert pickles.family_of(data) == "pickle"
        pickles.check(data, buffers=1)
        with pytest.raises(PayloadError):
            pickles.check(data)


def test_a_message_s_budget_is_charged_however_it_is_found():
    scope = {"profile": "data", "limits": Limits(max_refs=100)}
    spent = []
    for _ in range(4):
        budget = Budget(scope["limits"])
        pickles.check(DATA, budget=budget, **scope)
        spent.append(budget.refs)
        pickles.loads(DATA, budget=budget, **scope)
        spent.append(budget.refs)
        with pytest.raises(PayloadError) as refusal:
            pickles.loads(DATA, budget=budget, **scope)
        assert refusal.value.rule == "pickle.max-refs"
    assert spent[:2] * 4 == spent


def test_a_persistent_id_means_what_each_caller_says():
    data = b"\x80\x05\x8c\x01aQ."
    for number in range(4):
        assert pickles.loads(data, persistent_load=lambda _, number=number: number) == number


def test_programs_are_few():
    kept = Programs(refs=50)
    program = read(DATA, buffers=0, limits=LIMITS)
    for number in range(20):
        kept.keep(b"%d" % number, LIMITS, program)
    assert 0 < len(kept) < 10
    kept.keep(LARGE, LIMITS, read(LARGE, buffers=0, limits=LIMITS))
    assert kept.find(LARGE, LIMITS, last=False) is None
    assert kept.find(b"19", Limits(max_depth=9), last=False) is None
    assert kept.find(b"19", LIMITS, last=False) is program
    assert kept.find(b"19", LIMITS, last=True) is program
    assert kept.find(b"19", LIMITS, last=True) is None
    many = Programs()
    for number in range(40):
        many.keep(b"%d" % number, LIMITS, program)
    assert len(many) == 16


def test_bypass_of_memory_programs_of_few_elements_and_many_bytes():
    program = read(DATA, buffers=0, limits=LIMITS)
    kept = Programs(size=800)
    kept.keep(bytes(101), LIMITS, program)
    assert len(kept) == 0
    for number in range(10):
        kept.keep(bytes([number]) * 90, LIMITS, program)
    assert len(kept) == 8


def test_bypass_of_state_what_one_load_changes_no_other_sees():
    attached: dict[str, list[int]] = {"a": []}
    data = pickle.dumps(np.dtype("i4", metadata=attached))
    for number in range(5):
        metadata = pickles.loads(data, profile=("data", "numpy")).metadata
        assert metadata == {"a": []}
        metadata["a"].append(number)


def test_threads_may_share_it(verdicts):
    datas = [pickle.dumps([number, "x" * number], 5) for number in range(40)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(pickles.loads, datas * 20))
    finally:
        sys.setswitchinterval(before)
    assert made == [pickle.loads(data) for data in datas] * 20
    # A thread that finds it taken does without, so how many it holds by then is luck.
    assert len(verdicts) <= 40
    for data in datas * 3:
        pickles.loads(data)
    assert len(verdicts) == 40


def test_every_shipped_profile_may_be_asked_again():
    data = pickle.dumps([ValueError(1), np.float64(1.5)], 5)
    for _ in range(4):
        error, number = pickles.loads(data, profile=DATA_PROFILES)
        assert (error.args, number) == ((1,), 1.5)

"""Ways in which remembering a verdict gave a sender, or a finalizer, more than judging anew."""

from __future__ import annotations

import datetime
import gc
import pickle
import uuid

import numpy as np
import pytest

from safeser import pickles
from safeser.errors import PayloadError
from safeser.pickles.budget import Budget
from safeser.pickles.cache import Scopes, Verdicts
from safeser.pickles.machine import read
from safeser.pickles.profiles import Profile
from safeser.values import Limits

pytestmark = pytest.mark.usefixtures("verdicts")

LIMITS = Limits()
#: Key ``number`` is two to this many references to one empty tuple.
DOUBLINGS = 12


def costly(count: int, *, grow: bytes = b"}", tail: bytes = b"u") -> bytes:
    """Return *count* keys that each take long to hash, in eight bytes each."""
    doubled = b"".join(b"h%ch%c\x86\x94" % (level, level) for level in range(DOUBLINGS))
    value = b"K\x01" if tail == b"u" else b""
    keys = b"".join(b"h%cK%c\x86%b" % (DOUBLINGS, number, value) for number in range(count))
    return b"".join([b"\x80\x05()\x94", doubled, b"1", grow, b"(", keys, tail, b"."])


@pytest.mark.parametrize(
    "data",
    [
        costly(20),
        costly(20, grow=b"\x8f", tail=b"\x90"),
        costly(20, grow=b"", tail=b"\x91"),
        costly(20, grow=b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R"),
    ],
    ids=["dict", "set", "frozenset", "ordered"],
)
def test_bypass_of_time_keys_cost_as_much_each_time_that_they_are_hashed(data):
    """A message of 531 pickles of 2,482 bytes, of which one alone was within its limits: 24 s."""
    spent = []
    for _ in range(4):
        budget = Budget(LIMITS)
        pickles.loads(data, budget=budget)
        spent.append(LIMITS.max_refs * 4 - budget.visits)
    assert spent[0] > 20 << DOUBLINGS
    assert spent == spent[:1] * 4
    budget = Budget(LIMITS)
    for _ in range(LIMITS.max_refs * 4 // spent[0]):
        pickles.loads(data, budget=budget)
    with pytest.raises(PayloadError) as refusal:
        pickles.loads(data, budget=budget)
    assert refusal.value.rule == "pickle.max-refs"


made: list[uuid.UUID] = []


def fresh() -> uuid.UUID:
    made.append(uuid.uuid4())
    return made[-1]


class Asked:
    def __reduce__(self):
        return fresh, ()


class Number(np.float64):
    def __reduce__(self):
        return Number, (float(self),)


class Day(datetime.date):
    pass


def test_an_own_function_is_asked_each_time():
    """What it returned for the second load was what all later ones got."""
    profile = Profile.named("data").allowing(
        {f"{__name__}:fresh": {"role": "callable", "returns": "uuid:UUID"}}
    )
    made.clear()
    data = pickle.dumps([Asked()])
    found = [pickles.loads(data, profile=profile)[0] for _ in range(5)]
    assert found == made
    assert len(set(found)) == 5


@pytest.mark.parametrize("value", [Number(1.5), Day(2026, 1, 2)], ids=["number", "date"])
def test_bypass_of_state_an_instance_that_is_a_number_is_made_each_time(value):
    profile = Profile.named("data", "numpy").allowing(
        {f"{__name__}:{type(value).__name__}": "class"}
    )
    data = pickle.dumps([value])
    for _ in range(5):
        (found,) = pickles.loads(data, profile=profile)
        assert found == value
        assert not vars(found)
        found.mine = True


class Finalized:
    """A cycle; whoever collects it loads a pickle, wherever that is."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        pickles.loads(pickle.dumps({"a": [1, 2, 3]}))


def test_a_finalizer_that_loads_waits_for_nobody():
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number in range(12):
            data = pickle.dumps([{"k": [at]} for at in range(350 + number)])
            for _ in range(3):
                Finalized(), Finalized()
                assert len(pickles.loads(data)) == 350 + number
    finally:
        gc.set_threshold(*before)


def test_who_finds_the_cache_in_use_does_without(verdicts):
    data, other = pickle.dumps(["a", {"b": 1}]), pickle.dumps({(1, 2): None})
    for _ in range(3):
        pickles.loads(data)
    with verdicts._lock, pickles._PROGRAMS._lock:
        for _ in range(3):
            assert pickles.loads(data) == pickle.loads(data)
            assert pickles.family_of(other) == "pickle"
            assert pickles.loads(other) == pickle.loads(other)
    assert len(verdicts) == 1
    assert not len(pickles._PROGRAMS)
    pickles.check(other)
    with pickles._PROGRAMS._lock:
        assert pickles.loads(other) == pickle.loads(other)
    assert len(pickles._PROGRAMS) == 1


def test_bypass_of_memory_places_that_are_left_out_count():
    """The places of a thousand arrays took 128 KB that nobody counted, for each pickle."""
    profile, kept = Profile.named("data", "numpy"), Verdicts(size=1 << 20)
    scope = Scopes().of(profile, LIMITS, "")
    arrays = [bytearray(4096) for _ in range(1000)]
    for number in range(20):
        data = pickle.dumps([datetime.date(2026, 1, 1 + number), *arrays], 5)
        program = read(data, buffers=0, limits=LIMITS)
        for _ in range(2):
            kept.note(data, scope, program)
    assert 1 <= len(kept) <= 8


def test_bypass_of_time_who_sends_a_bad_buffer_spoils_nobody_s_verdict(verdicts):
    """One refused buffer, or one message past its budget, made all later loads slow for good."""
    pd, sent = pytest.importorskip("pandas"), []
    data = pickle.dumps(pd.Categorical(["a", "b", "a"]), 5, buffer_callback=sent.append)
    buffers = [bytes(buffer.raw()) for buffer in sent]
    at = buffers.index(bytes([0, 1, 0]))
    wrong = [*buffers[:at], bytes([0, 2, 0]), *buffers[at + 1 :]]
    spent = Budget(LIMITS)
    spent.visits = 1
    for _ in range(3):
        assert list(pickles.loads(data, buffers=buffers, profile=("numpy", "pandas"))) == [
            "a",
            "b",
            "a",
        ]
    for given, budget in ((wrong, None), (buffers, spent)):
        with pytest.raises(PayloadError):
            pickles.loads(data, buffers=given, profile=("numpy", "pandas"), budget=budget)
    (verdict,) = verdicts._kept.values()
    assert verdict.canonical is not None


def test_what_a_budget_of_other_limits_lets_pass_is_no_verdict(verdicts):
    """A policy's limits may change while a message is on its way, and with it its budget."""
    data, narrow = pickle.dumps(list(range(50))), Limits(max_refs=10)
    for _ in range(3):
        budget = Budget(LIMITS)
        assert pickles.family_of(data, limits=narrow, budget=budget) == "pickle"
        pickles.check(data, limits=narrow, budget=budget)
        assert pickles.loads(data, limits=narrow, budget=budget) == list(range(50))
    for refused in (pickles.family_of, pickles.check, pickles.loads):
        with pytest.raises(PayloadError) as refusal:
            refused(data, limits=narrow)
        assert refusal.value.rule in ("pickle.max-refs", "pickle.opcodes")


def test_bypass_of_memory_buffers_of_no_size_count():
    """A hundred thousand empty buffers took 800 KB that nobody counted, for each of 4,096."""
    profile, kept = Profile.named("data"), Verdicts(size=1 << 20)
    scope = Scopes().of(profile, LIMITS, "")
    for number, count in enumerate([1000] * 40 + [100_000] * 3):
        data = pickle.dumps([number, (None, "x")], 5)
        program = read(data, buffers=count, limits=LIMITS)
        builder = pickles.Builder(program, profile, buffers=[b""] * count, limits=LIMITS)
        builder.build()
        for _ in range(2):
            kept.note(data, scope, program, made=builder, buffers=[b""] * count)
    assert 20 < len(kept) < 30
    assert kept._room >= 0

"""Verdicts on pickles with arrays inside hold for other contents, and for nothing else."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from safeser import pickles
from safeser.errors import PayloadError
from safeser.pickles.cache import Scopes
from safeser.pickles.profiles import Profile
from safeser.values import Limits

pytestmark = pytest.mark.usefixtures("verdicts")

ROWS = 5000
#: How a pickle says the length of an array inside it.
LENGTH = ROWS.to_bytes(8, "little")


def loads(data, **options):
    return pickles.loads(data, profile=("data", "numpy"), **options)


def test_other_contents_are_not_judged_again(reads):
    for number in range(5):
        sent = {"part": np.arange(ROWS) + number, "other": np.arange(ROWS) - number}
        made = loads(pickle.dumps(sent, 5))
        assert all(np.array_equal(made[key], sent[key]) for key in sent)
    assert len(reads) == 2


def test_each_load_has_arrays_of_its_own():
    data = pickle.dumps([np.zeros(ROWS)] * 2, 5)
    for _ in range(4):
        one, other = loads(data)
        assert one is other
        assert one.sum() == 0
        one[:] = 1


def test_one_byte_beside_the_contents_is_another_pickle(reads):
    data = pickle.dumps([np.zeros(ROWS), "a"], 5)
    for _ in range(3):
        loads(data)
    other = data[:-20] + data[-20:].replace(b"\x01a", b"\x01b")
    assert other != data
    assert loads(other)[1] == "b"
    assert len(reads) == 3


def test_attack_contents_that_are_not_sound_are_put_right_on_a_hit():
    data = pickle.dumps(np.ones(ROWS, bool), 5)
    for _ in range(4):
        assert loads(data).all()
    start = data.index(LENGTH) + 8
    for at in (start, start + ROWS - 1):
        hostile = data[:at] + b"\x02" + data[at + 1 :]
        for _ in range(3):
            assert loads(hostile).tobytes() == b"\1" * ROWS
        # What is sound is still loaded, judged anew or not.
        assert loads(data).all()


def test_attack_a_length_is_not_taken_from_another_pickle():
    data = pickle.dumps(np.ones(ROWS, bool), 5)
    for _ in range(4):
        loads(data)
    for length in (ROWS - 1, ROWS + 1):
        hostile = data.replace(LENGTH, length.to_bytes(8, "little"))
        with pytest.raises(PayloadError):
            loads(hostile)


def test_attack_contents_of_one_plain_pickle_are_never_those_of_another():
    for number in range(5):
        sent = [list(range(300)), bytearray([number]) * ROWS]
        for _ in range(3):
            assert loads(pickle.dumps(sent, 5)) == sent


def test_contents_that_become_part_of_a_key_or_of_text_are_judged_each_time():
    for text in ("a" * ROWS, "b" * ROWS, "c" * ROWS):
        sent = {"u": np.array([text]), "n": np.full(ROWS, len(text)), "d": text}
        for _ in range(3):
            made = loads(pickle.dumps(sent, 5))
            assert made["u"][0] == text
            assert made["d"] == text


def test_many_layouts_of_one_length_are_bounded(verdicts):
    profile, limits = Profile.named("data", "numpy"), Limits()
    scope = Scopes().of(profile, limits, "")
    total = 60_000
    for rows in range(ROWS, ROWS + 8):
        filled = total - len(pickle.dumps([np.zeros(rows, "u1"), np.zeros(30_000, "u1")], 5))
        sent = [np.zeros(rows, "u1"), np.zeros(30_000 + filled, "u1")]
        data = pickle.dumps(sent, 5)
        assert len(data) == total
        for _ in range(3):
            pickles.loads(data, profile=profile, limits=limits)
    assert len(verdicts) == 4
    assert verdicts.find(bytes(total), scope) is None
    verdicts.clear()
    assert not verdicts._layouts


def test_scopes_are_few_and_their_addresses_are_kept():
    scopes, profile = Scopes(), Profile.named("data")
    first = scopes.of(profile, Limits(), "")
    assert scopes.of(profile, Limits(), "") is first
    assert scopes.of(profile, Limits(max_depth=9), "") is not first
    assert scopes.of(profile, first.limits, "other") is not first
    for number in range(600):
        # Each is gone when the next is made, often at the same address.
        assert scopes.of(profile, Limits(max_depth=number + 1), "").limits.max_depth == number + 1
    assert len(scopes._by_value) <= 256
    assert len(scopes._by_identity) <= 256

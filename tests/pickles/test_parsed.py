"""A pickle is parsed once, judged by any profile, and built from what was judged."""

from __future__ import annotations

import pickle
import pickletools

import numpy as np
import pytest

from safeser.gate.values import Limits
from safeser.pickles import Budget, Profile, loads, parse
from safeser.pickles.reading.loop import HERE
from safeser.pickles.reading.machine import HANDLERS
from tests.pickles.forging import refused

LIMITS = Limits()
DATA, ARRAYS = Profile.named("data"), Profile.named("data", "numpy")


def test_one_profile_says_nothing_for_another():
    parsed = parse(pickle.dumps(np.dtype("f8"), 5), limits=LIMITS)
    for _ in range(2):
        assert parsed.family(ARRAYS) == "pickle"
        assert parsed.family(DATA) == "cloudpickle"
        refused("pickle.global", parsed.judged, DATA, buffers=0)
        assert parsed.judged(ARRAYS, buffers=0).build([], Budget(LIMITS)) == np.dtype("f8")


def test_each_build_makes_an_object_of_its_own():
    value = {"a": [1, (2, {3})], "b": np.arange(3)}
    judged = parse(pickle.dumps(value, 5), limits=LIMITS).judged(ARRAYS, buffers=0)
    one, two = (judged.build([], Budget(LIMITS)) for _ in range(2))
    one["a"].append(2)
    one["b"][0] = 9
    assert two["a"] == value["a"]
    assert two["b"].tolist() == [0, 1, 2]


def test_attack_too_few_buffers_for_what_was_parsed_without_them():
    parsed = parse(b"\x80\x05\x97\x97\x86.", limits=LIMITS)
    refused("pickle.buffers", lambda: parsed.judged(DATA, buffers=1))
    assert parsed.judged(DATA, buffers=2).build([b"x", b"y"], Budget(LIMITS)) == (b"x", b"y")


@pytest.mark.parametrize("ask", ["family", "judged"])
def test_attack_depth_is_refused_whoever_asks_first(ask):
    parsed = parse(b"(" * 150 + b"t" * 150 + b".", limits=LIMITS)
    asked = {
        "family": lambda: parsed.family(DATA),
        "judged": lambda: parsed.judged(DATA, buffers=0),
    }
    for _ in range(2):
        refused("pickle.max-depth", asked[ask])


def test_another_look_is_charged_what_parsing_was():
    data = pickle.dumps(list(range(300)))
    limits = Limits(max_memory=1000 << 7)
    first, again = Budget(limits), Budget(limits)
    parsed = parse(data, limits=limits, budget=first)
    parsed.charge(again)
    assert (again.refs, again.calls) == (first.refs, first.calls)
    for _ in range(2):
        parsed.charge(again)
    refused("pickle.max-memory", lambda: parsed.charge(again))


def test_a_persistent_id_means_what_each_caller_says():
    data = b"\x80\x05\x8c\x01aQ."
    for number in range(4):
        assert loads(data, persistent_load=lambda _, number=number: number) == number


def test_each_opcode_is_handled_in_one_place():
    for code in range(256):
        assert (code in HERE) + (HANDLERS[code] is not None) <= 1
    known = {ord(opcode.code) for opcode in pickletools.opcodes}
    assert {code for code in range(256) if code in HERE or HANDLERS[code]} == known

"""Every limit at its boundary, of one pickle and of all pickles in a message."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pandas as pd
import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.gate.values import Limits
from safeser.pickles import DATA_PROFILES, Budget, check, loads
from tests.pickles.forging import family_of, refused
from tests.samples import opcodes as op

PROFILE = ("data", "numpy")
SIZED = {b"T": "<I", b"X": "<I", b"B": "<I", b"\x8d": "<Q", b"\x8e": "<Q", b"\x96": "<Q"}
STRINGS = [
    b"\x80\x05" + opcode + struct.pack(SIZED.get(opcode, "<B"), 100) + b"x" * 100 + b"."
    for opcode in (*SIZED, b"U", b"\x8c", b"C")
]
TEXT = pickle.dumps("x" * 100)
# fmt: off
#: Loads with one more than the limit, whose rule refuses it.
BOUNDED = [
    *((data, "max_string", 99) for data in STRINGS),
    (TEXT, "max_bytes", len(TEXT) - 1),
    (b"V" + b"x" * 100 + b"\n.", "max_string", 99), (b"S'" + b"x" * 98 + b"'\n.", "max_string", 99),
    (b"\x8a\x11" + b"\x01" * 17 + b".", "max_int", 16),
    (b"\x8b\x11\0\0\0" + b"\x01" * 17 + b".", "max_int", 16),
    (b"I" + str(1 << 129).encode() + b"\n.", "max_int", 16),
    (b"L" + str(-(1 << 129)).encode() + b"L\n.", "max_int", 16),
    (pickle.dumps([complex(n, 1) for n in range(10)]), "max_calls", 9),
    (b"(" * 50 + b"t" * 50 + b".", "max_depth", 48),
]
# fmt: on


@pytest.mark.parametrize(("data", "name", "most"), BOUNDED)
def test_at_its_boundary(data, name, most):
    loads(data, limits=Limits(**{name: most + 1}), profile=PROFILE)
    rule = f"pickle.{name.replace('_', '-')}"
    error = refused(rule, loads, data, limits=Limits(**{name: most}), profile=PROFILE)
    assert error.fix
    assert name != "max_string" or "limits.max_string" in error.fix


def test_bytes_of_buffers_count_too():
    buffers = []
    data = pickle.dumps(np.arange(100.0), protocol=5, buffer_callback=buffers.append)
    for _ in range(3):  # the third by a remembered verdict
        for more, call in (
            (800, loads),
            (799, lambda *a, **o: refused("pickle.max-bytes", loads, *a, **o)),
        ):
            call(data, buffers=buffers, profile="numpy", limits=Limits(max_bytes=len(data) + more))


NUMBERS, FEW = np.arange(1000, dtype="i8"), Limits(max_array=500)


@pytest.mark.parametrize(("value", "rule"), [
    (NUMBERS, "value.array-size"), (pd.RangeIndex(1 << 40), "value.index"),
    (pd.arrays.SparseArray([0] * 999 + [1]), "value.sparse"),
])  # fmt: skip
def test_one_array(value, rule):
    error = refused(rule, loads, pickle.dumps(value), profile=DATA_PROFILES, limits=FEW)
    assert "limits.max_array" in error.fix
    loads(pickle.dumps(NUMBERS, 4), profile="numpy", limits=Limits(max_array=8000))
    with pytest.raises(PayloadError):
        loads(pickle.dumps(NUMBERS, 4), profile="numpy", limits=Limits(max_array=7999))


def test_each_buffer_is_held_to_the_limit_of_arrays():
    data = pickle.dumps([pickle.PickleBuffer(b"")], 5, buffer_callback=lambda _: None)
    for _ in range(3):
        assert loads(data, buffers=[bytearray(500)], limits=FEW)
        error = refused("pickle.max-array", loads, data, buffers=[bytearray(501)], limits=FEW)
        assert "limits.max_array" in error.fix


def test_copies_may_be_some_times_the_input():
    content = op.raw(b"x" * (1 << 20)) + b"\x940"
    copy = op.call("builtins:bytearray", b"h\x00")
    refused("pickle.max-bytes", loads, op.pickled(content + op.value([copy] * 12)))
    assert len(loads(op.pickled(content + op.value([copy] * 4)))) == 4


# -- ten thousand pickles in one message get what one pickle gets ---------------------------------


#: Three of each fit into one budget of 1,000 elements, and a fourth does not.
THREE = {
    "pickle.max-memory": pickle.dumps([*range(300)]),
    "pickle.opcodes": b"N0" * 600 + b"N.",  # of which no element comes
}


@pytest.mark.parametrize("rule", THREE)
def test_elements_and_opcodes_are_shared(rule):
    limits = Limits(max_memory=1000 << 7)
    budget = Budget(limits)
    for _ in range(3):
        loads(THREE[rule], limits=limits, budget=budget)
    refused(rule, loads, THREE[rule], limits=limits, budget=budget)
    loads(THREE[rule], limits=limits)


def test_judging_has_its_own():
    limits = Limits(max_calls=15)
    data, judged = pickle.dumps([complex(1, n) for n in range(10)]), Budget(limits)
    check(data, limits=limits, budget=judged)
    refused("pickle.max-calls", check, data, limits=limits, budget=judged)
    loads(data, limits=limits, budget=Budget(limits))


@pytest.mark.parametrize("end", [b"", b"0.", b"\xff", b"cos\nsystem\n\xff"])
@pytest.mark.parametrize("reads", [loads, check, family_of])
def test_pickles_that_fail_midway_are_charged_as_far_as_they_were_read(end, reads):
    limits = Limits(max_memory=1000 << 7)
    budget, rules = Budget(limits), []
    for _ in range(5):
        with pytest.raises(PayloadError) as caught:
            reads(b"N0" * 600 + end, limits=limits, budget=budget)
        rules.append(caught.value.rule)
    assert "pickle.opcodes" not in rules[:3]
    assert rules[3:] == ["pickle.opcodes"] * 2
    assert budget.opcodes == 0


def test_free_bytes_are_given_once():
    # Each of them alone is within what any pickle may copy.
    copy = op.call("builtins:bytearray", b"h\x00")
    data = op.pickled(op.raw(b"x" * 60_000) + b"\x940" + op.value([copy] * 15))
    budget = Budget(Limits())
    loads(data, budget=budget)
    refused("pickle.max-bytes", lambda: [loads(data, budget=budget) for _ in range(3)])


# -- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [b"", b"N0", b"]0" * 9])
def test_a_denial_says_the_byte_of_the_use(before):
    with pytest.raises(PolicyDenied) as caught:
        loads(b"\x80\x04" + before + b"cos\nsystem\n.")
    assert caught.value.where == f"byte {2 + len(before)}"

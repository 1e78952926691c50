"""What is told at a glance of a value's shape is never less than what walking all of it tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import PayloadError
from safeser.gate.values import Limits
from safeser.pickles import shape
from safeser.pickles.reading.machine import read

LIMITS = Limits(max_depth=8, max_memory=3000 << 7)

#: Each puts the value that *inner* makes one level deeper, by one way that opcodes have.
DEEPER = {
    "TUPLE1": lambda inner: inner + b"\x85", "TUPLE2": lambda inner: b"N" + inner + b"\x86",
    "TUPLE": lambda inner: b"(" + inner + b"NNNt", "APPEND": lambda inner: b"]" + inner + b"a",
    "APPENDS": lambda inner: b"](N" + inner + b"e", "LIST": lambda inner: b"(" + inner + b"l",
    "SETITEM": lambda inner: b"}K\x00" + inner + b"s",
    "SETITEMS": lambda inner: b"}(K\x00" + inner + b"u",
    "a key": lambda inner: b"}" + inner + b"Ns", "DICT": lambda inner: b"(K\x00" + inner + b"d",
    "ADDITEMS": lambda inner: b"\x8f(" + inner + b"\x90",
    "FROZENSET": lambda inner: b"(" + inner + b"\x91",
    "REDUCE": lambda inner: b"ca\nb\n" + inner + b"\x85R",
    "NEWOBJ": lambda inner: b"ca\nb\n" + inner + b"\x85\x81",
    "NEWOBJ_EX": lambda inner: b"ca\nb\n)}K\x00" + inner + b"s\x92",
    "BUILD": lambda inner: b"ca\nb\n)R" + inner + b"b",
    "filled": lambda inner: b"ca\nb\n)R" + inner + b"a",
    "OBJ": lambda inner: b"(ca\nb\n" + inner + b"o",
    "INST": lambda inner: b"(" + inner + b"ia\nb\n",
    "BINPERSID": lambda inner: inner + b"0ca\nb\nN\x86Q", "DUP": lambda inner: inner + b"2\x86",
    "memo": lambda inner: inner + b"\x94h\x00\x86", "a cycle": lambda inner: b"]" + inner + b"a2a",
    "thrown away": lambda inner: inner + b"0N", "late": lambda inner: b"]](" + inner + b"ea",
}  # fmt: skip


def refusal(data):
    try:
        program = read(data, buffers=0, limits=LIMITS, persistent=True)
        shape.check_shape(program, LIMITS)
    except PayloadError as error:
        return error.rule
    return ""


def refusal_of_a_walk(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape, "_tree", lambda *_: None)
        return refusal(data)


def stacked(ways):
    data = b"N"
    for way in ways:
        made = DEEPER[way](data)
        # One memo entry is all that these use.
        data = made if made.count(b"\x94") <= 1 else data
    return b"\x80\x04" + data + b"."


@pytest.mark.parametrize("way", DEEPER)
def test_every_way_down_is_counted(way):
    told = [refusal(stacked([way] * levels)) for levels in range(1, 14)]
    assert told == [refusal_of_a_walk(stacked([way] * levels)) for levels in range(1, 14)]
    flat = ("memo", "thrown away", "BINPERSID")
    assert ("pickle.max-depth" in told) == (way not in flat)


@given(st.lists(st.sampled_from(sorted(DEEPER)), max_size=12))
def test_ways_down_that_mix_are_counted(ways):
    assert refusal(stacked(ways)) == refusal_of_a_walk(stacked(ways))


def test_long_text_that_is_repeated_is_counted():
    text = b"X" + (1 << 14).to_bytes(4, "little") + b"x" * (1 << 14)
    data = b"\x80\x04(" + text + b"\x94" + b"h\x00" * 2000 + b"t."
    assert refusal(data) == refusal_of_a_walk(data) == "pickle.sharing"
    short = b"\x80\x04(\x8c\x01x\x94" + b"h\x00" * 2000 + b"t."
    assert refusal(short) == refusal_of_a_walk(short) == ""

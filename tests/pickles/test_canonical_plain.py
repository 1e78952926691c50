"""Pickles of plain opcodes are their own canonical form: nothing that C could take otherwise."""

from __future__ import annotations

import pickle
import pickletools
from random import Random

import pytest

from safeser import pickles
from safeser.errors import PayloadError, SafeserError
from safeser.pickles import stock
from safeser.pickles.build import Builder
from safeser.pickles.canonical import as_written
from safeser.pickles.judge import check_shape
from safeser.pickles.loop import HERE
from safeser.pickles.machine import HANDLERS, read
from safeser.pickles.profiles import Profile
from safeser.values import Limits
from tests.differential.case import make
from tests.differential.equality import difference
from tests.pickles.conftest import Asm

LIMITS = Limits()
DATA = Profile.of("data")
T = b"\x80\x05"
PLAIN = frozenset((
    "APPEND", "APPENDS", "ADDITEMS", "BINBYTES", "BINBYTES8", "BINFLOAT", "BINGET", "BININT",
    "BININT1", "BININT2", "BINPUT", "BINUNICODE", "BINUNICODE8", "BYTEARRAY8", "EMPTY_DICT",
    "EMPTY_LIST", "EMPTY_SET", "EMPTY_TUPLE", "FROZENSET", "LONG1", "LONG4", "LONG_BINGET",
    "LONG_BINPUT", "MARK", "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO", "SETITEM",
    "SETITEMS", "SHORT_BINBYTES", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3",
))  # fmt: skip


def written(data):
    program = read(data, buffers=0, limits=LIMITS)
    return program, as_written(program, data)


def names(code):
    return {opcode.name for opcode, _, _ in pickletools.genops(code)}


def test_random_programs():
    compared = 0
    for number in range(1500):
        data, buffers = make(Random(1 << 41 | number))
        try:
            program = read(data, buffers=len(buffers), limits=LIMITS)
            check_shape(program, LIMITS)
        except SafeserError:
            continue
        canonical = as_written(program, data)
        if canonical is None:
            continue
        built = Builder(program, DATA, buffers=buffers, limits=LIMITS).build()
        made = canonical.load((), LIMITS)
        assert not difference(built, made)
        assert not difference(made, built)
        assert names(canonical.code) <= PLAIN
        compared += 1
    assert compared > 50


@pytest.mark.parametrize("size", [1, 70_000, 200_000])
def test_every_frame_is_cut_out(size):
    value = [["x" * 50, number, {"k": (number,)}] for number in range(size // 70 + 1)]
    data = pickle.dumps(value, 4)
    program, canonical = written(data)
    assert canonical is not None
    assert "FRAME" not in names(canonical.code)
    assert len(canonical.code) == len(data) - 9 * len(program.frames)
    assert canonical.load((), LIMITS) == value


@pytest.mark.parametrize("size", [stock._MANY_READS - 1, stock._MANY_READS, 1 << 19])
def test_values_may_end_anywhere_in_what_c_reads_at_a_time(size):
    value = ["x" * size, ["y"] * 6000, bytearray(size), b"z" * size, [*range(300)]]
    data = pickle.dumps(value, 5)
    canonical = written(data)[1]
    assert canonical is not None
    assert canonical.load((), LIMITS) == value


@pytest.mark.parametrize(
    "data",
    [
        # Text that readers might take in two ways.
        T + b"I1\n.",
        T + b"F1.5\n.",
        T + b"S'a'\n.",
        T + b"Va\n.",
        T + b"]p0\n.",
        # What is made and dropped, or made twice.
        T + b"]0N.",
        T + b"(]1N.",
        T + b"]2\x86.",
        T + b"(K\1l.",
        T + b"(d.",
        # Names, calls, buffers.
        T + b"cbuiltins\ncomplex\n.",
        T + Asm.call("builtins:complex", b"K\1", b"K\2") + b".",
        T + b"\x97.",
        # Keys that take more than a glance.
        T + b"}K\1\x85K\1s.",
        T + b"}G" + bytes(8) + b"Ns.",
        T + b"}NNs.",
        T + b"\x8f(\x88\x90.",
        T + b"(K\1N\x91.",
        T + b"}" + Asm.number(1 << 80) + b"Ns.",
    ],
)
def test_what_is_left_to_the_builder(data):
    program = read(data, buffers=1, limits=LIMITS)
    assert as_written(program, data) is None


def test_integers_that_collide_are_refused_before_c_sees_them():
    prime = (1 << 61) - 1
    few = {number * 8: None for number in range(500)}
    assert written(pickle.dumps(few, 5))[1] is not None
    body = b"".join(Asm.number(5 + at) + b"N" for at in range(0, 100 * prime, prime))
    data = T + b"}(" + body + b"u."
    assert written(data)[1] is None
    for _ in range(3):
        with pytest.raises(PayloadError) as refusal:
            pickles.loads(data)
        assert refusal.value.rule == "pickle.collisions"


def test_a_large_string_is_not_copied_for_it():
    assert written(pickle.dumps(["x" * 100_000], 5))[1] is None


def test_each_opcode_is_handled_in_one_place():
    for code in range(256):
        assert (code in HERE) + (HANDLERS[code] is not None) <= 1
    known = {ord(opcode.code) for opcode in pickletools.opcodes}
    assert {code for code in range(256) if code in HERE or HANDLERS[code]} == known

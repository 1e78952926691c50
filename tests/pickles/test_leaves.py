"""Opcodes that push leaves: every one reads back as what was written, by the machine and by C."""

from __future__ import annotations

import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.pickles import loads
from safeser.pickles.leaves import push_leaf, push_memo

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20),
)
EDGES = [
    *(sign * (1 << bits) + by for bits in (0, 8, 16, 31, 2039, 2047) for by in (-1, 0, 1)
      for sign in (1, -1)),
    *(kind * size for kind in ("x", "é", "\ud800", b"\x00") for size in (0, 127, 255, 256)),
]  # fmt: skip


def whole(opcode):
    return b"\x80\x05" + opcode + b"."


@given(LEAVES)
def test_a_leaf_reads_back(leaf):
    for got in (loads(whole(push_leaf(leaf))), pickle.loads(whole(push_leaf(leaf)))):
        assert got == leaf
        assert type(got) is type(leaf)


@pytest.mark.parametrize("leaf", EDGES, ids=range(len(EDGES)))
def test_edges_of_sizes(leaf):
    assert loads(whole(push_leaf(leaf))) == pickle.loads(whole(push_leaf(leaf))) == leaf


class Huge(bytes):
    """Says that it is longer than any machine of the suite could hold."""

    def __len__(self):
        return 1 << 32


def test_more_than_four_gigabytes_take_eight_bytes_of_size():
    from safeser.pickles.leaves import _sized

    opcode = _sized(Huge(b"ab"), b"C", b"B", b"\x8e")
    assert opcode == b"\x8e" + struct.pack("<Q", 1 << 32) + b"ab"


@pytest.mark.parametrize("value", [1j, [], (), bytearray(b"x"), Huge(b"x"), object()])
def test_nothing_else_is_a_leaf(value):
    with pytest.raises(TypeError):
        push_leaf(value)


@given(st.integers(0, (1 << 32) - 1))
def test_memo_entries_are_named_in_the_shortest_way(number):
    opcode = push_memo(number)
    if number < 256:
        assert opcode == b"h" + bytes([number])
    else:
        assert opcode == b"j" + struct.pack("<I", number)

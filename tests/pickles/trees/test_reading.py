"""Trees that no writer makes: each is refused by its rule, before anything is made of it."""

from __future__ import annotations

import contextlib
import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import SafeserError
from safeser.gate.values import Limits
from safeser.pickles import Budget
from safeser.pickles.nodes import Call
from safeser.pickles.trees.operations import Operation as Op
from safeser.pickles.trees.reading import read_tree
from safeser.pickles.trees.writing import write
from tests.draws import draws
from tests.pickles.trees.alike import described

SMALL = Limits(
    max_bytes=1 << 16, max_memory=2000 << 7, max_array=1 << 16, max_string=4096, max_int=64
)


def packed(*tokens):
    return b"".join(map(msgpack.packb, tokens))


def reading(data, *, buffers=0, limits=SMALL, budget=None):
    return read_tree(data, buffers=buffers, limits=limits, budget=budget or Budget(limits))


NEW = (Op.NAME, "a:b", Op.TUPLE, 0, Op.NEW, 0, 1)


def test_a_call_with_all_that_may_follow_it():
    program = reading(
        packed(
            *(Op.NAME, "m:C", Op.TUPLE, 2, 1, "x", Op.DICT, Op.UPDATE, 2, 2, "k", None),
            *(Op.NEW_WITH, 0, 1, 2, Op.EXTEND, 3, 1, 5, Op.UPDATE, 3, 2, "a", [3]),
            *(Op.BUILD, 3, [2], Op.RETURN, [3]),
        )
    )
    call = program.root
    assert isinstance(call, Call)
    assert (call.callee.name, call.args.items, call.new) == ("m:C", [1, "x"], True)
    assert (call.kwargs.items, call.items, call.pairs) == (["k", None], [5], ["a", call])
    assert call.state is call.kwargs
    assert program.calls == 1
    assert not program.unshared


def test_only_what_can_be_written_to_counts_as_shared():
    name, dtype = (Op.NAME, "numpy:dtype"), (Op.TUPLE, 1, "f8", Op.CALL, 0, 1)
    constant = packed(*name, *dtype, Op.TUPLE, 2, [2], [2], Op.RETURN, [3])
    assert reading(constant).unshared
    changing = packed(Op.LIST, Op.TUPLE, 2, [0], [0], Op.RETURN, [1])
    assert not reading(changing).unshared
    called_twice = packed(*name, Op.TUPLE, 0, Op.CALL, 0, 1, Op.CALL, 0, 1, Op.RETURN, [3])
    assert not reading(called_twice).unshared


@pytest.mark.parametrize(("tokens", "rule"), [
    ((), "truncated"), ((Op.RETURN,), "truncated"), ((Op.LIST,), "truncated"),
    ((Op.RETURN, 1, 1), "trailing"), ((Op.RETURN, 1, Op.RETURN, 1), "trailing"), ((21, 1), "tree"),
    ((-1, 1), "tree"), (("NAME", 1), "tree"), ((True, 1), "tree"), ((1.0, 0), "tree"),
    ((None,), "tree"), (([0],), "tree"),
    # references
    ((Op.RETURN, [0]), "tree"), ((Op.RETURN, [-1]), "tree"), ((Op.RETURN, []), "tree"),
    ((Op.RETURN, ["a"]), "tree"), ((Op.RETURN, [True]), "tree"), ((Op.RETURN, [[0]]), "tree"),
    ((Op.LIST, Op.RETURN, [1]), "tree"), ((Op.LIST, Op.EXTEND, 0, 1, [1], Op.RETURN, [0]), "tree"),
    ((Op.LIST, Op.EXTEND, True, 1, 1, Op.RETURN, [0]), "tree"),
    ((Op.LIST, Op.EXTEND, [0], 1, 1, Op.RETURN, [0]), "tree"),
    ((Op.LIST, Op.EXTEND, -1, 1, 1, Op.RETURN, [0]), "tree"),
    # names
    ((Op.NAME, "a", Op.RETURN, 1), "name"), ((Op.NAME, ":", Op.RETURN, 1), "name"),
    ((Op.NAME, "a:b:c", Op.RETURN, 1), "name"), ((Op.NAME, "a\0b:c", Op.RETURN, 1), "name"),
    ((Op.NAME, "a:b c", Op.RETURN, 1), "name"), ((Op.NAME, 5, Op.RETURN, 1), "name"),
    ((Op.NAME, b"a:b", Op.RETURN, 1), "name"),
    ((Op.NAME, "a:b", Op.NAME, "a:b", Op.RETURN, 1), "name"),
    # counts
    ((Op.TUPLE, -1, Op.RETURN, [0]), "tree"), ((Op.TUPLE, True, 1, Op.RETURN, [0]), "tree"),
    ((Op.TUPLE, 1.0, 1, Op.RETURN, [0]), "tree"),
    ((Op.TUPLE, 1 << 40, Op.RETURN, [0]), "truncated"), ((Op.TUPLE, 3, 1, 2), "truncated"),
    ((Op.LIST, Op.EXTEND, 0, 0, Op.RETURN, [0]), "tree"),
    # what grows
    ((Op.DICT, Op.UPDATE, 0, 1, 1, Op.RETURN, [0]), "stack"),
    ((Op.DICT, Op.EXTEND, 0, 1, 1, Op.RETURN, [0]), "tree"),
    ((Op.LIST, Op.UPDATE, 0, 2, 1, 1, Op.RETURN, [0]), "tree"),
    ((Op.LIST, Op.ADD, 0, 1, 1, Op.RETURN, [0]), "tree"),
    ((Op.TUPLE, 0, Op.EXTEND, 0, 1, 1, Op.RETURN, [0]), "tree"),
    ((*NEW, Op.BUILD, 2, 1, Op.EXTEND, 2, 1, 1, Op.RETURN, [2]), "build-order"),
    ((*NEW, Op.BUILD, 2, 1, Op.UPDATE, 2, 2, 1, 1, Op.RETURN, [2]), "build-order"),
    ((*NEW, Op.BUILD, 2, 1, Op.BUILD, 2, 1, Op.RETURN, [2]), "build-twice"),
    # what is called and built
    ((Op.LIST, Op.BUILD, 0, 1, Op.RETURN, [0]), "tree"),
    ((Op.NAME, "a:b", Op.BUILD, 0, 1, Op.RETURN, [0]), "tree"),
    ((*NEW, Op.CALL, 2, 1, Op.RETURN, [3]), "tree"),
    ((Op.LIST, Op.TUPLE, 0, Op.CALL, 0, 1, Op.RETURN, [2]), "tree"),
    ((Op.NAME, "a:b", Op.LIST, Op.CALL, 0, 1, Op.RETURN, [2]), "tree"),
    ((Op.NAME, "a:b", Op.TUPLE, 0, Op.LIST, Op.NEW_WITH, 0, 1, 2, Op.RETURN, [3]), "tree"),
    # buffers
    ((Op.BUFFER, 0, Op.RETURN, [0]), "buffers"), ((Op.BUFFER, -1, Op.RETURN, [0]), "buffers"),
    ((Op.BUFFER, [0], Op.RETURN, [0]), "buffers"),
    ((Op.LIST, Op.READONLY, 0, Op.RETURN, [0]), "tree"), ((Op.APART, 0, Op.RETURN, [0]), "buffers"),
    # leaves that are kept
    ((Op.KEEP, "abc", Op.RETURN, [-1]), "tree"), ((Op.KEEP, 12345, Op.RETURN, [-1]), "tree"),
    ((Op.KEEP, "abcd", Op.RETURN, [-2]), "tree"),
    ((Op.INTEGER, b"\0\0\0\0\0\0\0\0\5", Op.RETURN, [-1]), "tree"),
    ((Op.INTEGER, b"\0\1" + bytes(8), Op.RETURN, [-1]), "tree"),
    ((Op.INTEGER, "text", Op.RETURN, [-1]), "tree"),
    ((Op.INTEGER, b"\1" + bytes(64), Op.RETURN, [-1]), "max-int"),
    ((Op.TEXT, b"abcd", Op.RETURN, [-1]), "tree"), ((Op.TEXT, b"\xff", Op.RETURN, [-1]), "text"),
    ((Op.TEXT, "abcd", Op.RETURN, [-1]), "tree"), ((Op.BYTEARRAY, "abcd", Op.RETURN, [0]), "tree"),
    ((Op.BYTEARRAY, Op.RETURN, [0]), "tree"), ((Op.RETURN, "a" * 5000), "max-string"),
    # what is no scalar
    ((Op.RETURN, {}), "tree"), ((Op.RETURN, [1, 2]), "tree"), ((Op.RETURN, {1: 2}), "tree"),
    ((Op.RETURN, msgpack.ExtType(1, b"")), "tree"),
    ((Op.RETURN, msgpack.ExtType(1, b"abc")), "tree"), ((Op.RETURN, msgpack.Timestamp(1)), "tree"),
])  # fmt: skip
def test_malformed(tokens, rule):
    with pytest.raises(SafeserError) as caught:
        reading(packed(*tokens))
    assert caught.value.rule == f"pickle.{rule}"


@pytest.mark.parametrize("data", [
    bytes((0xCC, Op.RETURN, 1)),  # a number in two bytes
    bytes((Op.RETURN, 0xD0, 1)),
    bytes((Op.RETURN, 0xD9, 1, 97)),  # text with a long header
    bytes((Op.RETURN, 0xCA, 0, 0, 0, 0)),  # a float of 32 bits
    bytes((Op.RETURN, 0xDC, 0, 1, 0)),  # a list with a long header
    bytes((Op.RETURN, 0xA1, 0xFF)),  # no UTF-8
    bytes((Op.RETURN, 0xC1)), bytes((Op.RETURN, 0xA5, 97)),
    bytes((Op.RETURN, 0xC6, 0xFF, 0xFF, 0xFF, 0xFF)), b"\x91" * 5000, b"\x91" * 400 + b"\x00",
    b"\x81" * 500,
])  # fmt: skip
def test_bytes_that_no_packer_writes(data):
    with pytest.raises(SafeserError) as caught:
        reading(data)
    assert caught.value.rule == "pickle.tree"


def test_each_buffer_is_used_once():
    both = packed(
        *(Op.BUFFER, 1, Op.BUFFER, 0, Op.READONLY, 1, Op.TUPLE, 2, [0], [2], Op.RETURN, [3])
    )
    assert reading(both, buffers=2).readonly_buffers == {0}
    for count in (0, 1, 3):
        with pytest.raises(SafeserError) as caught:
            reading(both, buffers=count)
        assert caught.value.rule == "pickle.buffers"
    for twice in (
        packed(Op.BUFFER, 0, Op.READONLY, 0, Op.READONLY, 1, Op.RETURN, [2]),
        packed(Op.BUFFER, 0, Op.BUFFER, 0, Op.RETURN, [1]),
        packed(Op.BUFFER, True, Op.RETURN, [0]),
    ):
        with pytest.raises(SafeserError):
            reading(twice, buffers=1)


# -- bounds --------------------------------------------------------------------------------------


def refused(data, **options):
    with pytest.raises(SafeserError) as caught:
        reading(data, **options)
    return caught.value.rule.partition(".")[2]


def test_elements_are_charged():
    row = packed(Op.LIST, Op.EXTEND, 0, 1990, *[0] * 1990, Op.RETURN, [0])
    budget = Budget(SMALL)
    program = reading(row, budget=budget)
    assert program.refs == 3 + 1990 + 1
    assert budget.refs == SMALL.elements - program.refs
    # One turn more finds the end.
    assert budget.opcodes == SMALL.elements * 4 - 1997
    assert refused(row, budget=budget) == "max-memory"
    many = packed(*[Op.LIST] * 667, Op.RETURN, 0)
    assert refused(many) == "max-memory"
    assert refused(packed(Op.KEEP, "abcd") * 2001 + packed(Op.RETURN, 0)) == "max-memory"


def test_calls_are_charged():
    few = Limits(max_calls=2)
    calls = (Op.NAME, "a:b", Op.TUPLE, 0, *(Op.NEW, 0, 1) * 3, Op.RETURN, 0)
    assert refused(packed(*calls), limits=few) == "max-calls"


def test_tokens_are_charged_before_they_are_taken():
    few = Limits(max_memory=10 << 7)
    tracemalloc.start()
    try:
        assert refused(b"\xff" * 5_000_000, limits=few) == "max-memory"
        # msgpack's copy of the bytes, and no integer for each of them.
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_arguments_are_not_shared_without_end():
    shared = (Op.NAME, "a:b", Op.TUPLE, 900, *[0] * 900, *(Op.NEW, 0, 1) * 200, Op.RETURN, 0)
    assert refused(packed(*shared)) == "arguments"


def test_a_tree_is_no_larger_than_a_message():
    assert refused(bytes(1 << 17)) == "max-bytes"


# -- any bytes -----------------------------------------------------------------------------------

TOKENS = st.one_of(
    st.sampled_from(list(map(int, Op))),
    st.integers(-3, 6),
    st.integers(-3, 6).map(lambda number: [number]),
    st.sampled_from(["a:b", "numpy:dtype", "abcd", b"abcd", None, True, 1.5, 1 << 63]),
)


@draws(600)
@given(st.lists(TOKENS, max_size=30))
def test_any_tokens(tokens):
    with contextlib.suppress(SafeserError):
        program = reading(packed(*tokens, Op.RETURN, 0))
        again = reading(write(program), buffers=program.buffers)
        assert described(again) == described(program)


@pytest.mark.parametrize("end", [b"\xc1", b"\xd9\xff", b""])
def test_tokens_are_charged_of_a_tree_that_is_refused(end):
    """Else each of a message's values has all tokens of the message anew."""
    budget = Budget(SMALL)
    with pytest.raises(SafeserError):
        reading(packed(*[None] * 1000) + end, budget=budget)
    assert budget.opcodes <= SMALL.elements * 4 - 1000

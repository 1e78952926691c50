"""Canonical bytes say what the builder did: values, sharing, order; and they name nothing."""

from __future__ import annotations

import enum
import pickle
import pickletools
import sys
from collections import Counter, OrderedDict, deque
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.pickles.budget import Budget
from safeser.pickles.build import Builder
from safeser.pickles.canonical import finishing, finishing_own, making
from safeser.pickles.emitting import emit
from safeser.pickles.judge import check_shape, judge
from safeser.pickles.machine import read
from safeser.pickles.nodes import children
from safeser.pickles.own import OwnClass
from safeser.pickles.profiles import Profile
from safeser.pickles.shims import Site
from safeser.values import Limits
from tests.differential.case import make
from tests.differential.equality import difference
from tests.pickles.conftest import Asm

LIMITS = Limits()
PROFILE = Profile.of(("data", "numpy", "exceptions"))
#: All that canonical bytes may hold.
ALLOWED = frozenset(
    (
        "PROTO",
        "STOP",
        "MARK",
        "POP",
        "POP_MARK",
        "MEMOIZE",
        "BINGET",
        "LONG_BINGET",
        "NEXT_BUFFER",
        "REDUCE",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "LONG4",
        "BINFLOAT",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "SHORT_BINBYTES",
        "BINBYTES",
        "BYTEARRAY8",
        "EMPTY_LIST",
        "EMPTY_DICT",
        "EMPTY_SET",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "FROZENSET",
        "APPENDS",
        "SETITEMS",
        "ADDITEMS",
    )
)
T = b"\x80\x05"


def built(data, buffers=(), profile=PROFILE):
    """Return a builder that has built *data*, and the object."""
    program = read(data, buffers=len(buffers), limits=LIMITS)
    problems = [use for use in judge(program, profile) if use.problem]
    if problems:
        raise PolicyDenied(problems[0].problem)
    check_shape(program, LIMITS)
    builder = Builder(program, profile, buffers=list(buffers), limits=LIMITS)
    return builder, builder.build()


def rewritten(data, buffers=(), profile=PROFILE):
    """Return the canonical form of *data*, after it was compared with the builder, twice."""
    canonical = emit(built(data, buffers, profile)[0])
    assert canonical is not None
    for _ in range(2):
        ours, theirs = built(data, buffers, profile)[1], canonical.load(buffers, LIMITS)
        assert not difference(ours, theirs)
        assert not difference(theirs, ours)
    assert {opcode.name for opcode, _, _ in pickletools.genops(canonical.code)} <= ALLOWED
    return canonical


@pytest.mark.parametrize("share", range(4))
def test_random_programs(share):
    counted = Counter()
    for number in range(share * 600, share * 600 + 600):
        data, buffers = make(Random(1 << 40 | number))
        try:
            built(data, buffers)
        except SafeserError:
            counted["refused"] += 1
            continue
        rewritten(data, buffers)
        counted["written"] += 1
    assert counted["written"] > 200


@given(st.integers(0, 1 << 32))
def test_more_random_programs(seed):
    data, buffers = make(Random(seed))
    try:
        built(data, buffers)
    except SafeserError:
        return
    rewritten(data, buffers)


SELF_LIST = b"]\x94h\0a"
ODD_SHAPES = {
    "a list in itself": T + SELF_LIST + b".",
    "a list in itself, through a tuple": T + b"]\x94h\0\x85a.",
    "a dict in itself": T + b"}\x94K\1h\0s.",
    "a list made, dropped and used": T + b"]\x940](h\0h\0e.",
    "used before it is filled": T + b"]\x940h\0\x85\x94h\0K\1a0.",
    "filled from the memo": T + b"]\x940]\x940h\0h\1a0h\1h\0\x86.",
    "below what was begun before it": T + b"](]\x940h\0h\0\x85e.",
    "twice by DUP": T + b"]2\x86.",
    "never used": T + b"]0](K\1e.",
    "dropped with a mark": T + b"(]]1K\1.",
    "a call that nobody uses": T + b"]" + Asm.call("fractions:Fraction", b"K\1", b"K\2") + b"0.",
    "a name twice": T + b"\x8c\1a\x94h\0\x86.",
    "nan by the memo": T + b"G\x7f\xf8\0\0\0\0\0\0\x94h\0\x86.",
    "leaf": T + b"N.",
    "long text": T + Asm.text("é" * 300) + b"\x94h\0\x86.",
    "lone surrogate": T + Asm.text("\udc80") + b".",
    "numbers": T + b"(K\xffM\xff\xffJ\xff\xff\xff\xff" + Asm.number(-(2**31)) + Asm.number(2**31)
    + Asm.number(-(1 << 4000)) + b"\x88\x89Nt.",
    "bytes": T + b"(" + Asm.raw(b"") + Asm.raw(b"a" * 255) + Asm.raw(b"b" * 256) + b"t.",
    "many in the memo": T + b"](" + b"]\x942" * 300 + b"e.",
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_SHAPES)
def test_odd_shapes(name):
    rewritten(ODD_SHAPES[name])


def test_what_a_call_is_given_is_as_it_was_then():
    # The list grows after the deque copied it, and before the second one does.
    call = b"cbuiltins\nset\n"
    body = b"]\x940" + call + b"h\0\x85R\x940h\0K\1a0" + call + b"h\0\x85Rh\1h\0\x87."
    assert rewritten(T + body).load((), LIMITS) == ({1}, set(), [1])


VALUES = [
    OrderedDict(a=1, b=[2]),
    deque([1, [2]], 5),
    Counter("abca"),
    ValueError("x", 1),
    np.arange(6.0).reshape(2, 3),
    np.array([None, "a", 1.5], dtype=object),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    np.float32(2.5),
    np.datetime64("2020-01-01"),
    [np.dtype("f8"), np.dtype([("a", "i4")])],
    {1.5: "a", (1, "b"): frozenset((1, 2)), frozenset(): b""},
    [bytearray(b"abc")] * 2,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_values(value, protocol):
    rewritten(pickle.dumps(value, protocol))


def test_buffers_are_those_of_each_load():
    sent = []
    value = [np.arange(4.0), np.arange(3), pickle.PickleBuffer(b"abc")]
    data = pickle.dumps(value, protocol=5, buffer_callback=sent.append)
    buffers = [bytearray(buffer.raw()) for buffer in sent]
    canonical = rewritten(data, buffers)
    others = [bytearray(len(buffer)) for buffer in buffers]
    first, second, third = canonical.load(others, LIMITS)
    assert not first.any()
    assert not second.any()
    assert bytes(third) == b"\0\0\0"
    others[0][7] = 1
    assert first.any()
    # Sizes are looked at each time.
    with pytest.raises(Exception, match="bytes"):
        canonical.load([bytearray(8), *others[1:]], LIMITS)


def test_a_buffer_of_another_sort_is_opened_as_the_builder_does():
    canonical = rewritten(T + b"\x97\x98.", [bytearray(b"abc")])
    made = canonical.load([np.frombuffer(b"abc", "u1")], LIMITS)
    assert type(made) is memoryview
    assert canonical.load([b"abc"], LIMITS) == b"abc"


@pytest.mark.parametrize(
    "data",
    [
        T + b"}\x97K\1s.",
        T + b"}\x97\x85K\1s.",
        T + b"\x8f(\x97\x90.",
        T + b"(\x97\x91.",
        T + Asm.call("collections:OrderedDict") + b"\x97K\1s.",
    ],
)
def test_keys_that_a_buffer_makes_have_no_verdict(data):
    """What they cost to hash, and what they collide with, is another matter each time."""
    builder, _ = built(data, [b"abc"])
    assert emit(builder) is None


def test_what_a_buffer_feeds_is_found_in_one_pass():
    """Lists that hold each other in an unlucky order took a pass for each level."""
    chain = b"".join(b"h%ch%ca0" % (at, at + 1) for at in range(90))
    wide = b"](" + b")" * 20_000 + b"e0"
    data = T + b"]\x940" * 91 + b"h\x5a\x97a0" + chain + wide + b"h\0."
    steps = 0

    def count(frame, event, _):
        nonlocal steps
        steps += event == "call" and frame.f_code is children.__code__

    builder, _ = built(data, [b"abc"])
    sys.setprofile(count)
    try:
        assert emit(builder) is not None
    finally:
        sys.setprofile(None)
    assert steps < 4 * len(builder.program.nodes)


def test_a_name_repeated_by_the_memo_takes_no_room():
    data = T + b"](" + Asm.text("x" * 10_000) + b"\x94" + b"h\0" * 1000 + b"e."
    assert len(rewritten(data).code) < 2 * len(data)


def test_what_would_grow_too_much_is_left():
    """A DUP is one byte; what we write for it may be five."""
    several = T + b"](" + b"]\x942" * 300 + b"]\x94" + b"2" * 20_000 + b"e."
    assert emit(built(several)[0]) is None
    assert emit(built(several.replace(b"22", b""))[0]) is not None


def test_budgets_of_a_message_are_charged():
    canonical = rewritten(pickle.dumps([1, 2, Counter("ab")], 5))
    budget = Budget(LIMITS)
    canonical.load((), LIMITS, budget)
    assert budget.refs < LIMITS.max_refs
    assert budget.calls == LIMITS.max_calls - 1
    with pytest.raises(PayloadError, match="elements"):
        canonical.load((), LIMITS, Budget(Limits(max_refs=1)))
    plain = rewritten(pickle.dumps([1, 2], 5))
    plain.load((), LIMITS, budget := Budget(LIMITS))
    assert budget.refs < LIMITS.max_refs


def test_bytes_that_named_something_would_be_refused():
    canonical = rewritten(pickle.dumps([1], 5))
    canonical._proven = False
    for code in (b"cos\nsystem\n.", b"\x8c\2os\x8c\6system\x93.", b"N\x51.", b"\x82\1."):
        canonical.code = T + code
        with pytest.raises((PayloadError, ValueError)):
            canonical.load((), LIMITS)
        assert not canonical._proven


class Node:
    """A class of an operator's own, built through its fields."""

    def __init__(self, *given, **named):
        self.given = (given, named)


class Slotted:
    __slots__ = ("a", "b")


KEPT = Node()


class Keeper:
    """Hands out one object to everybody."""

    def __new__(cls):
        return KEEPER[0] if KEEPER else super().__new__(cls)


KEEPER = []


class Color(enum.Enum):
    RED = 1


OWN = PROFILE.allowing(
    {
        f"{__name__}:Node": {"role": "class", "kwargs": ["b"]},
        f"{__name__}:Slotted": "class",
        f"{__name__}:Keeper": "class",
        f"{__name__}:Color": "enum",
        f"{__name__}:KEPT": "reference",
    }
)


def nodes():
    first, second = Node(1), Slotted()
    first.next, second.a = second, [first.given, Color.RED, KEPT]
    return [first, second, Slotted()]


@pytest.mark.parametrize("protocol", [2, 5])
def test_classes_of_an_operators_own(protocol):
    canonical = emit(built(pickle.dumps(nodes(), protocol), (), OWN)[0])
    for _ in range(2):
        first, second, third = canonical.load((), LIMITS)
        assert type(first) is Node
        assert first.next is second
        assert first.given == ((1,), {})
        assert second.a == [((1,), {}), Color.RED, second.a[2]]
        assert not hasattr(third, "a")


def test_keyword_arguments():
    data = T + Asm.name(f"{__name__}:Node") + b"K\1\x85}\x8c\1bK\2s\x92."
    canonical = emit(built(data, (), OWN)[0])
    assert type(canonical.load((), LIMITS)) is Node


def test_an_object_that_somebody_else_holds_gets_no_state():
    data = T + Asm.new(f"{__name__}:Keeper") + b"}\x8c\1xK\1sb."
    canonical = emit(built(data, (), OWN)[0])
    KEEPER.append(canonical.load((), LIMITS))
    try:
        with pytest.raises(PayloadError) as refusal:
            canonical.load((), LIMITS)
    finally:
        KEEPER.clear()
    assert refusal.value.rule == "pickle.build-target"


def test_what_replaces_a_listed_global_is_noticed(monkeypatch):
    canonical = emit(built(pickle.dumps(nodes(), 5), (), OWN)[0])
    canonical.load((), LIMITS)
    monkeypatch.setattr(Node, "__setstate__", lambda *_: None, raising=False)
    with pytest.raises(PolicyDenied) as refusal:
        canonical.load((), LIMITS)
    assert refusal.value.rule == "pickle.integrity"


def test_a_result_of_another_type_is_refused():
    wrong = making(lambda _, __: [], "x:y", dict)
    with pytest.raises(PayloadError):
        wrong(None)
    with pytest.raises(PayloadError):
        finishing(lambda _, __, ___: [], "x:y", dict)(None, None, None)
    own = OwnClass(OWN.get(f"{__name__}:Node"), Node)
    with pytest.raises(PayloadError):
        finishing_own(own)(Site(LIMITS, given=1), Node(), {})


def test_a_state_that_holds_what_it_is_for_is_left_to_the_builder():
    begun = T + b"cbuiltins\nValueError\n" + b"K\1\x85R\x94"
    fields = b"}\x8c\x09__notes__]\x8c\1nas"
    assert rewritten(begun + fields + b"b.").load((), LIMITS).__notes__ == ["n"]
    builder, _ = built(begun + b"0]\x94h\0a0h\0" + fields + b"bh\1\x86.")
    assert emit(builder) is None

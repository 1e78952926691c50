"""Instances that older protocols spell by calls: of built-in bases, and with keyword arguments."""

from __future__ import annotations

import pickle

import pytest

from safeser.errors import PolicyDenied, SafeserError
from safeser.pickles import inspect, loads
from tests.pickles.own_classes import (
    NAMES,
    Keyed,
    Number,
    Odd,
    Pair,
    Point,
    Ratio,
    Text,
    Words,
    allowed,
    refused,
)
from tests.samples import opcodes as op

pytestmark = pytest.mark.usefixtures("own")

KEYED = {"role": "class", "kwargs": ["k", "m"]}
OLD = "copyreg:_reconstructor"


class TestBases:
    @pytest.mark.parametrize("protocol", range(6))
    @pytest.mark.parametrize("value", [
        Pair(1, [2]), Point((1, 2)), Number(7), Number(1 << 70), Ratio(1.5), Text("é"), Words("ab"),
    ])  # fmt: skip
    def test_they_are_what_later_protocols_make(self, protocol, value):
        spec = {"role": "class", "grows": "list"} if type(value) is Words else "class"
        profile = allowed(**{type(value).__name__: spec})
        data = pickle.dumps(value, protocol)
        for _ in range(3):  # judged, judged and written, from what was written
            got = loads(data, profile=profile)
            assert got == value
            assert type(got) is type(value)
        assert inspect(data, profile=profile).permitted

    def test_with_fields(self):
        value = Number(7)
        value.unit = ["m"]
        got = loads(pickle.dumps(value, 0), profile=allowed(Number="class"))
        assert vars(got) == {"unit": ["m"]}

    @pytest.mark.parametrize(("name", "base", "content", "rule"), [
        # not the base that it has, though C takes some of these
        ("Number", "float", b"K\x01", "class"), ("Point", "list", b"]", "class"),
        ("Plain", "int", b"K\x01", "class"),
        # content that is not what copyreg writes: a __new__ would convert, count or walk it
        ("Number", "int", b"U\x0212", "arguments"), ("Number", "int", b"\x88", "arguments"),
        ("Point", "tuple", b"]", "arguments"), ("Text", "str", b"K\x01", "arguments"),
        # a named tuple with another number of fields
        ("Pair", "tuple", b"K\x01K\x02K\x03\x87", "arguments"),
        ("Pair", "tuple", b")", "arguments"), ("Pair", "tuple", b"K\x01\x85", "class"),
        ("Odd", "tuple", b"K\x01\x85", "class"), ("Words", "list", b"]", "class"),
    ])  # fmt: skip
    def test_what_copyreg_would_not_write(self, name, base, content, rule):
        parts = op.name(NAMES[name]), op.name(f"builtins:{base}"), content
        refused(op.pickled(op.call(OLD, *parts)), allowed(**{name: "class"}), rule)
        assert Odd  # its __new__ fails the test if it runs

    @pytest.mark.parametrize(("name", "base", "content"), [
        ("uuid:UUID", "builtins:int", b"K\x01"), ("datetime:date", "builtins:str", b"U\x01a"),
        ("collections:Counter", "builtins:list", b"]"),
        # one that is not listed, bases that are none, and a dict's, which is SciPy's alone
        ("safeser_trap:Armed", "builtins:int", b"K\x01"),
        ("safeser_own:Number", "safeser_trap:Armed", b"K\x01"),
        ("safeser_own:Number", "safeser_own:Number", b"K\x01"),
        ("safeser_own:Number", "builtins:bool", b"K\x01"),
        ("safeser_own:Table", "builtins:dict", b"}"),
    ])  # fmt: skip
    def test_bypass_reviewed_classes_are_not_made_past_their_review(
        self, trap, name, base, content
    ):
        data = op.pickled(op.call(OLD, op.name(name), op.name(base), content))
        profile = allowed(Number="class", Table={"role": "class", "grows": "dict"})
        with pytest.raises(PolicyDenied):
            loads(data, profile=profile)


class TestKeywords:
    @pytest.mark.parametrize("protocol", range(2, 6))
    def test_they_are_what_later_protocols_make(self, protocol):
        shared = Keyed(1, [2], k=3, m={"n": None})
        data = pickle.dumps([shared, shared, Keyed(), Keyed(k=[])], protocol)
        assert (b"partial" in data) == (protocol < 4)
        for _ in range(3):
            got = loads(data, profile=allowed(Keyed=KEYED))
            assert [each.made for each in got] == [
                ((1, [2]), {"k": 3, "m": {"n": None}}),
                ((1, [2]), {"k": 3, "m": {"n": None}}),
                ((), {}),
                ((), {"k": []}),
            ]
            assert got[0] is got[1]

    @pytest.mark.parametrize("protocol", [2, 3])
    def test_one_that_only_is_said_to_be_instantiated(self, protocol):
        data = pickle.dumps(Keyed(k=1), protocol)
        said = inspect(data, profile=allowed(Keyed=KEYED)).globals
        assert [(use.name, use.role, use.problem) for use in said] == [
            (NAMES["Keyed"], "instantiated", ""),
            (NAMES["Keyed"], "built", ""),
        ]
        for profile in (allowed(Keyed="class"), allowed(Plain="class")):
            refused(data, profile, "global")


def spelt(*, name="safeser_own:Keyed", then=b")R"):
    """Return the opcodes of ``Keyed(k=1)``, whose parts are in the memo by then."""
    new = op.call("builtins:getattr", op.name(name) + b"\x94", "__new__")
    body = op.name("functools:partial") + new + b"\x94\x85\x94R\x94"
    state = op.value((b"h\x01", b"h\x00\x85\x94", op.value({"k": 1}) + b"\x94", None))
    return body + state + b"\x94b" + then


def test_the_recipe_itself_is_read():
    got = loads(op.pickled(spelt()), profile=allowed(Keyed=KEYED))
    assert got.made == ((), {"k": 1})
    # Twice of one partial is two instances; the dict is read when it is called.
    twice = spelt(then=b")R\x94h\x05" + op.value("m") + b"K\x02s0h\x03)R\x86")
    one, other = loads(op.pickled(twice), profile=allowed(Keyed=KEYED))
    assert (one.made, other.made) == (((), {"k": 1}), ((), {"k": 1, "m": 2}))


@pytest.mark.parametrize("then", [
    b"",  # the partial itself
    b"N\x85R",  # called with an argument
    b")\x81",
    b")R0h\x01",  # __new__, the partial's arguments, the partial, the tuples of its state
    b")R0h\x02", b")R0h\x03", b")R0h\x04", b")R0h\x06", b")Rh\x03\x86", b")Rh\x06\x86",
    b")R}h\x03Ns\x86", b")Rh\x03N\x85R\x86",
    b")Rh\x03NbN\x87",  # state for the partial once more, after it was called
    b"}b)R", b"(Ne)R",
])  # fmt: skip
def test_bypass_what_only_spelt_an_instance_is_not_handed_over_by_it(then):
    with pytest.raises(SafeserError):
        loads(op.pickled(spelt(then=then)), profile=allowed(Keyed=KEYED))


def recipes():
    """Yield what looks like the spelling, and lets something else be called in CPython."""
    cls, trap = op.name("safeser_own:Keyed"), op.name("safeser_trap:fire")
    new = op.call("builtins:getattr", cls, "__new__")
    other = op.call("builtins:getattr", op.name("safeser_own:Plain"), "__new__")
    empty = op.value({})
    given = op.value((cls,))
    for made, state in (
        (trap, op.value((new, given, empty, None))),
        (new, op.value((trap, given, empty, None))),
        (trap, op.value((trap, given, empty, None))),
        (new, op.value((new, given, empty, None))),  # equal names that are two lookups
        (new + b"\x94", op.value((b"h\x00", (trap,), empty, None))),
        (new + b"\x94", op.value((b"h\x00", (), empty, None))),
        (new + b"\x94", op.value((b"h\x00", [cls], empty, None))),
        (new + b"\x94", op.value((b"h\x00", given, None, None))),
        (new + b"\x94", op.value((b"h\x00", given, empty, empty))),
        (new + b"\x94", op.value((b"h\x00", given, empty))),
        (other + b"\x94", op.value((b"h\x00", given, empty, None))),
        (op.value("x") + b"\x94", op.value((b"h\x00", given, empty, None))),
        (new + b"\x94", empty),
    ):
        yield op.build(op.call("functools:partial", made), state) + b")R"
        yield op.build(op.new("functools:partial", made), state) + b")R"
    state = op.value((b"h\x00", given, empty, None))
    yield op.build(op.call("functools:partial", new + b"\x94", None), state) + b")R"
    yield op.build(op.call("functools:partialmethod", new + b"\x94"), state) + b")R"
    yield op.call("functools:partial", trap) + b")R"


@pytest.mark.parametrize("recipe", list(recipes()))
def test_bypass_what_looks_like_the_spelling_is_none(trap, recipe):
    with pytest.raises(SafeserError):
        loads(op.pickled(recipe), profile=allowed(Keyed=KEYED, Plain="class"))

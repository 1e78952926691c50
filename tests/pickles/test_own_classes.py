"""Classes that somebody allows: made, given fields and used as CPython does, or refused."""

from __future__ import annotations

import copyreg
import enum
import pickle
import sys

import pytest

from safeser.errors import ConfigError, SafeserError
from safeser.pickles import inspect, loads
from safeser.pickles.building.own import OwnClass
from tests.pickles.own_classes import (
    KEPT,
    NAMES,
    Bits,
    Colour,
    Failure,
    Frozen,
    Key,
    Keyword,
    Plain,
    Single,
    Slotted,
    SlottedAndFree,
    Table,
    Weak,
    Wide,
    Words,
    allowed,
    build_point,
    refused,
)
from tests.samples import opcodes as op

pytestmark = pytest.mark.usefixtures("own")


def built(name, state):
    return op.build(op.new(NAMES[name]), state)


def failing(state):
    return op.build(op.call(NAMES["Failure"], "no"), state)


def keyword(kwargs, later=b""):
    return op.name(NAMES["Keyword"]) + b")" + kwargs + b"\x92" + later


def key(held):
    return built("Key", {"number": held})


KEYWORD = {"Keyword": {"role": "class", "kwargs": ["colour"]}}
KEY, POINT = {"role": "class", "hashable": True}, {"role": "callable", "returns": NAMES["Plain"]}
HIDING = ("method", "shouting", "Nested", "__class__", "__slots__")
RAISED = ("args", "__class__", "__cause__", "with_traceback")
WEAK = op.new(NAMES["Weak"])
#: A key whose own state holds the dict: CPython hashes it without its number.
UNFINISHED = op.new(NAMES["Key"]) + b"q\x00"
DOUBLE = b"N\x85q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(14))
WALKED = (
    op.value((None,) * 20_000), op.value([None] * 20_000), op.pairs(*range(20_000)),
    b"(" + DOUBLE + b"1h\x0e", b"N" + b"\x85" * 60, op.raw(b"x") + b"\x85" * 55,
)  # fmt: skip
SMALL = op.value((None,) * 4_000) + b"q\x000"
KEPT_KEY = key(b"h\x00")
#: What is allowed, and what of it is refused all the same, by its rule.
REFUSED = [
    ("global", KEYWORD, [
        *(keyword(op.value({part: None})) for part in (op.value("size"), b"K\x01", b"N", b")")),
        keyword(b"}q\x00" + op.value("colour") + b"Ns", b"h\x00" + op.value("size") + b"Ns0"),
    ]),
    ("arguments", KEYWORD, [keyword(b")")]),
    ("state", {"Plain": "class"}, [
        *(built("Plain", {name: None}) for name in HIDING), built("Plain", ({}, None)),
        *(built("Plain", (None, {name: None})) for name in HIDING),
    ]),
    ("global", {"Plain": {"role": "class", "fields": []}}, [built("Plain", {"shouting": 7})]),
    ("state", {"Shadowed": "class"}, [built("Shadowed", {"a": None})]),
    # CPython fails at each of these too.
    ("state", {"Slotted": "class"}, [built("Slotted", state) for state in (
        (None, {"c": None}), ({"a": None}, None), (None, 1), (1, None), (None, None, None), None, 1,
        {}, ({}, {}), (None, None))]),
    ("state", {"Frozen": "class"}, [
        built("Frozen", state) for state in ([1], [None, None, None], {}, (), (1, 2), None)]),
    ("state", {"Failure": "class"}, [
        *(failing({name: None}) for name in RAISED), failing((None, {})), failing(None)]),
    ("state", {"Stateful": "class"}, [built("Stateful", 7)]),
    # What somebody else holds is not built, nor twice in one load.
    *(("build-target", {name: "class"}, [built(name, {"a": None})])
        for name in ("Kept", "Weak", "Single")),
    ("build-target", {"Weak": "class"}, [op.value((WEAK, op.build(WEAK, {"a": None})))]),
    ("build-target", {"Plain": "class"}, [op.build(op.name(NAMES["Plain"]), {"kind": None})]),
    # A class, a module or an enum is no instance.
    *(("class", {name: "class"}, [op.call(NAMES[name], "x")]) for name in ("Meta", "Module",
        "Colour")),
    ("unhashable", {"Key": "class"}, [op.value({op.new(NAMES["Key"])})]),
    ("unfinished", {"Key": KEY}, [
        op.build(UNFINISHED, {"number": op.value({held: 1})}) for held in (b"h\x00", (b"h\x00",))]),
    ("key-cost", {"Key": KEY}, [
        *(op.value({key(held): None}) for held in WALKED),
        *(op.value({(key(held),): None}) for held in WALKED)]),
    # Comparing is charged as well as hashing, of each key again.
    ("max-memory", {"Key": KEY}, [
        SMALL + op.value([b"\x8f(" + KEPT_KEY * 60 + b"\x90"] * 2),
        op.value((None,) * 9_000) + b"q\x000" + op.value([op.value({KEPT_KEY})] * 600)]),
    ("global", {"build_point": POINT}, [op.build(op.call(NAMES["build_point"], 5), {"a": None})]),
    ("class", {"build_other": POINT}, [op.call(NAMES["build_other"], 5)]),
    ("arguments", {"Colour": "enum"}, [
        *(op.call(NAMES["Colour"], part) for part in (3, 9, True, 1.0, [3])),
        *(op.call(NAMES["Colour"], *parts) for parts in ((), (1, 1), ("New", [])))]),
    # No composite is made by code of the class.
    ("arguments", {"Missing": "enum"}, [op.call(NAMES["Missing"], part) for part in (3, 0)]),
    ("class", {"Plain": "enum"}, [op.call(NAMES["Plain"], 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "specs", "body"), [
    (rule, specs, body) for rule, specs, bodies in REFUSED for body in bodies
])  # fmt: skip
def test_refused_by_its_rule(rule, specs, body):
    error = refused(op.pickled(body), allowed(**specs), rule)
    (name,) = specs
    assert rule not in ("state", "arguments") or name == "Keyword" or NAMES[name] in str(error)
    assert Plain.kind == "default"
    assert not any(vars(kept) for kept in [*KEPT, *Weak.seen.values(), Single.only] if kept)


@pytest.mark.parametrize("name", ["Plain", "InitArgs", "Keyword"])
@pytest.mark.parametrize("arguments", [b"", b"K\x01", b"K\x01K\x02"])
@pytest.mark.parametrize("form", ["inst", "obj"])
def test_old_instances_are_made_as_python_makes_them(name, arguments, form):
    text = f"safeser_own\n{name}\n".encode()
    data = b"(" + arguments + b"i" + text if form == "inst" else b"(c" + text + arguments + b"o"
    data += b"}(X\x05\x00\x00\x00extraK\x09ub."
    got, expected = loads(data, profile=allowed(**{name: "class"})), pickle.loads(data)
    assert type(got) is type(expected)
    assert vars(got) == vars(expected)


def test_old_instances_are_of_classes_only():
    callable_ = {"role": "callable", "returns": NAMES["Plain"]}
    made = allowed(build_point=callable_)
    for profile in (made, allowed(build_point="reference"), "data"):
        for data in (b"(K\x01isafeser_own\nbuild_point\n.", b"(csafeser_own\nbuild_point\no."):
            refused(data, profile, "global")
    assert loads(b"csafeser_own\nbuild_point\nK\x01\x85R.", profile=made)


@pytest.mark.parametrize("protocol", [0, 1])
def test_protocol_0_goes_past_new(protocol):
    plain = Plain(3)
    got = loads(pickle.dumps(plain, protocol), profile=allowed(Plain="class"))
    assert vars(got) == vars(plain)
    data = pickle.dumps(Keyword(3), protocol)
    assert "protocol 2" in refused(data, allowed(Keyword="class"), "class").fix


@pytest.mark.parametrize(("name", "role"), [
    ("Plain", "fields"), ("Stateful", "__setstate__"), ("Meta", "role"), ("Colour", "role"),
])  # fmt: skip
def test_what_would_allow_it_is_said(name, role):
    spec = {"role": "class", "fields": ["given"]} if name == "Plain" else "class"
    body = op.call(NAMES[name], "x") if role == "role" else built(name, {"kind": None})
    rule = "class" if role == "role" else "state"
    assert role in refused(op.pickled(body), allowed(**{name: spec}), rule).fix


def test_a_reviewed_class_keeps_to_the_ways_it_was_reviewed_for():
    error = refused(b"(K\x01iuuid\nUUID\n.", "data", "global")
    assert "not to be called" in error.message
    assert type(loads(b"(K\x01ibuiltins\nValueError\n.", profile="exceptions")) is ValueError
    shown = inspect(b"(K\x01ios\nsystem\n.")
    assert [use.name for use in shown.globals] == ["os:system"]
    assert not shown.permitted


def test_listed_keywords_reach_new():
    kwargs = op.value({"colour": "red"})
    data = op.pickled(op.name(NAMES["Keyword"]) + op.value((1,)) + kwargs + b"\x92")
    got = loads(data, profile=allowed(**KEYWORD))
    assert got.made == ((1,), "red", {}) == pickle.loads(data).made


class TestFields:
    def test_defaults_and_cached_values_may_be_held_over(self):
        plain = Plain()
        plain.kind, plain.costly = "special", 8
        got = loads(pickle.dumps(plain), profile=allowed(Plain="class"))
        assert vars(got) == {"given": ((), {}), "kind": "special", "costly": 8}

    def test_listed_ones_go_into_the_dict_past_a_property_of_that_name(self):
        profile = allowed(Plain={"role": "class", "fields": ["given", "shouting"]})
        for fields in ({"given": None}, {"shouting": 7}):
            assert vars(loads(op.pickled(built("Plain", fields)), profile=profile)) == fields

    def test_no_code_of_the_class_runs(self):
        state = op.value(({"a": None}, {"b": None}))
        got = loads(op.pickled(built("Setter", state)), profile=allowed(Setter="class"))
        assert vars(got) == {"a": None, "b": None}

    @pytest.mark.parametrize("kind", [Slotted, SlottedAndFree])
    @pytest.mark.parametrize("protocol", [2, 5])
    def test_slots(self, kind, protocol):
        value = kind()
        value.a, value.b = 1, [2]
        got = loads(pickle.dumps(value, protocol), profile=allowed(**{kind.__name__: "class"}))
        assert (got.a, got.b) == (1, [2])

    @pytest.mark.parametrize(("name", "state"), [("Slotted", (None, {})), ("Plain", {})])
    def test_empty_state_is_no_state(self, name, state):
        assert loads(op.pickled(built(name, state)), profile=allowed(**{name: "class"})) is not None

    def test_a_frozen_dataclass_with_slots(self):
        value = Frozen(1, [2])
        assert loads(pickle.dumps(value), profile=allowed(Frozen="class")) == value
        some = allowed(Frozen={"role": "class", "fields": ["x"]})
        refused(pickle.dumps(value), some, "state")

    def test_exceptions_have_fields_like_others(self, monkeypatch):
        error = Failure("no", 7)
        monkeypatch.delitem(copyreg.dispatch_table, Failure, raising=False)  # tblib's
        got = loads(pickle.dumps(error), profile=allowed(Failure="class"))
        assert (type(got), got.args, got.code) == (Failure, ("no",), 7)

    def test_a_setstate_runs_only_where_it_is_trusted(self):
        trusted = allowed(Stateful={"role": "class", "trust": ["__setstate__"]})
        assert loads(op.pickled(built("Stateful", 7)), profile=trusted).state == 7


@pytest.mark.parametrize("name", ["Kept", "Weak", "Single"])
def test_what_somebody_else_holds_is_made(name):
    made = loads(op.pickled(op.new(NAMES[name])), profile=allowed(**{name: "class"}))
    assert type(made).__name__ == name


def test_a_hashable_class_may_be_a_key():
    value = {Key(3): 1, (Key(4),): 2}
    assert loads(pickle.dumps(value), profile=allowed(Key=KEY)) == value
    colliding = pickle.dumps({Key(n * sys.hash_info.modulus): None for n in range(200)})
    refused(colliding, allowed(Key=KEY), "collisions")


def test_containers_that_may_be_filled():
    value = [Words("ab"), Table(a=1)]
    grows = {
        name: {"role": "class", "grows": kind}
        for name, kind in (("Words", "list"), ("Table", "dict"))
    }
    got = loads(pickle.dumps(value), profile=allowed(**grows))
    assert got == value
    assert [type(each) for each in got] == [Words, Table]
    for each in value:
        refused(pickle.dumps(each), allowed(Words="class", Table="class"), "global")


def test_the_result_of_a_callable_is_what_was_said():
    data = op.pickled(op.call(NAMES["build_point"], 5))
    assert loads(data, profile=allowed(build_point=POINT)).given == ((5,), {})


class TestEnums:
    def test_members_are_keys_if_they_hash_as_enums_do(self, monkeypatch):
        data = pickle.dumps({Colour.RED: 1, (Bits.ONE,): 2})
        profile = allowed(Colour="enum", Bits="enum")
        assert loads(data, profile=profile) == {Colour.RED: 1, (Bits.ONE,): 2}
        monkeypatch.setattr(Colour, "__hash__", lambda self: 1)
        refused(data, allowed(Colour="enum", Bits="enum"), "unhashable")

    def test_members_are_looked_up(self):
        for member in (Colour.RED, Colour.BLUE, Bits.TWO):
            profile = allowed(Colour="enum", Bits="enum")
            assert loads(pickle.dumps(member), profile=profile) is member
        both = loads(op.pickled(op.call(NAMES["Bits"], 3)), profile=allowed(Bits="enum"))
        assert both is Bits.ONE | Bits.TWO

    @pytest.mark.parametrize("boundary", list(enum.FlagBoundary))
    @pytest.mark.parametrize("base", [enum.Flag, enum.IntFlag])
    def test_flags_are_composed_of_their_members_alone(self, own, monkeypatch, boundary, base):
        bits = base("Bits", {"ONE": 1, "TWO": 2, "EIGHT": 8, "ALL": 27}, boundary=boundary.value)
        bits.__module__ = own.__name__
        monkeypatch.setattr(own, "Bits", bits)
        profile = allowed(Bits="enum")
        for value in (bits.ONE, bits.ALL, bits(0), bits.ONE | bits.EIGHT, bits(11)):
            for protocol in range(6):
                assert loads(pickle.dumps(value, protocol), profile=profile) is value
        before = dict(bits._value2member_map_)
        for value in (b"K\x04", b"K\x10", b"K\x13", b"J\xff\xff\xff\xff", b"\x88", "ONE"):
            data = op.pickled(op.call(NAMES["Bits"], value))
            refused(data, profile, "arguments")
        refused(op.pickled(op.call(NAMES["Bits"], b"G@\x08" + bytes(6))), profile, "arguments")
        assert bits._value2member_map_ == before

    def test_bypass_a_class_does_not_grow_by_composites_of_many_bits(self):
        def wide(value):
            return op.pickled(op.call(NAMES["Wide"], value))

        profile = allowed(Wide="enum")
        size = len(Wide._value2member_map_)
        for value in (0x1803, 0x1001):
            refused(wide(value), profile, "arguments")
        assert len(Wide._value2member_map_) == size
        assert loads(wide(Wide.MASK), profile=profile) is Wide.MASK
        # What the process has composed itself takes nothing more.
        made = Wide(0x1805)
        assert loads(wide(0x1805), profile=profile) is made

    def test_no_composite_is_made_by_code_of_its_metaclass(self, own, monkeypatch):
        class Meta(enum.EnumMeta):
            def __call__(cls, *args, **kwargs):
                raise AssertionError("the metaclass ran")

        class Bits(enum.Flag, metaclass=Meta):
            ONE = 1
            TWO = 2

        Bits.__module__, Bits.__qualname__ = own.__name__, "Bits"
        monkeypatch.setattr(own, "Bits", Bits)
        data = op.pickled(op.call(NAMES["Bits"], 3))
        refused(data, allowed(Bits="enum"), "arguments")


def test_what_no_class_is_cannot_be_one():
    entry = allowed(Plain="class").get(NAMES["Plain"])
    for found in (1, "text", build_point, type, Colour):
        with pytest.raises(SafeserError):
            OwnClass(entry, found)


def test_a_role_of_no_kind_is_refused():
    with pytest.raises(ConfigError):
        allowed(Plain={"role": "class", "field": ["x"]})

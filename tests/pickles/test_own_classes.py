"""Classes that somebody allows: made, given fields and used as CPython does, or refused."""

from __future__ import annotations

import copyreg
import enum
import pickle
import sys

import pytest

from safeser.errors import ConfigError, PolicyDenied, SafeserError
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


class TestOldInstances:
    @pytest.mark.parametrize("name", ["Plain", "InitArgs", "Keyword"])
    @pytest.mark.parametrize("arguments", [b"", b"K\x01", b"K\x01K\x02"])
    @pytest.mark.parametrize("form", ["inst", "obj"])
    def test_they_are_made_as_python_makes_them(self, name, arguments, form):
        text = f"safeser_own\n{name}\n".encode()
        data = b"(" + arguments + b"i" + text if form == "inst" else b"(c" + text + arguments + b"o"
        data += b"}(X\x05\x00\x00\x00extraK\x09ub."
        got, expected = loads(data, profile=allowed(**{name: "class"})), pickle.loads(data)
        assert type(got) is type(expected)
        assert vars(got) == vars(expected)

    def test_they_are_for_classes_only(self):
        callable_ = {"role": "callable", "returns": NAMES["Plain"]}
        for profile in (allowed(build_point=callable_), allowed(build_point="reference"), "data"):
            for data in (b"(K\x01isafeser_own\nbuild_point\n.", b"(csafeser_own\nbuild_point\no."):
                refused(data, profile, "global", PolicyDenied)
        assert loads(
            b"csafeser_own\nbuild_point\nK\x01\x85R.", profile=allowed(build_point=callable_)
        )

    @pytest.mark.parametrize("protocol", [0, 1])
    def test_protocol_0_goes_past_new(self, protocol):
        plain = Plain(3)
        got = loads(pickle.dumps(plain, protocol), profile=allowed(Plain="class"))
        assert vars(got) == vars(plain)
        data = pickle.dumps(Keyword(3), protocol)
        assert "protocol 2" in refused(data, allowed(Keyword="class"), "class").fix

    def test_a_reviewed_class_keeps_to_the_ways_it_was_reviewed_for(self):
        error = refused(b"(K\x01iuuid\nUUID\n.", "data", "global", PolicyDenied)
        assert "not to be called" in error.message
        assert type(loads(b"(K\x01ibuiltins\nValueError\n.", profile="exceptions")) is ValueError

    def test_they_are_shown(self):
        shown = inspect(b"(K\x01ios\nsystem\n.")
        assert [use.name for use in shown.globals] == ["os:system"]
        assert not shown.permitted


class TestKeywords:
    def test_listed_ones_reach_new(self):
        kwargs = op.value({"colour": "red"})
        data = op.pickled(op.name(NAMES["Keyword"]) + op.value((1,)) + kwargs + b"\x92")
        got = loads(data, profile=allowed(Keyword={"role": "class", "kwargs": ["colour"]}))
        assert got.made == ((1,), "red", {}) == pickle.loads(data).made

    @pytest.mark.parametrize("key", [b"X\x04\x00\x00\x00size", b"K\x01", b"N", b")"])
    def test_others_do_not(self, key):
        data = op.pickled(op.name(NAMES["Keyword"]) + b")" + op.value({key: None}) + b"\x92")
        profile = allowed(Keyword={"role": "class", "kwargs": ["colour"]})
        refused(data, profile, "global", PolicyDenied)

    def test_nor_any_that_come_later(self):
        kwargs = b"}q\x00" + op.value("colour") + b"Ns"
        later = b"h\x00" + op.value("size") + b"Ns0"
        data = op.pickled(op.name(NAMES["Keyword"]) + b")" + kwargs + b"\x92" + later)
        profile = allowed(Keyword={"role": "class", "kwargs": ["colour"]})
        refused(data, profile, "global", PolicyDenied)

    def test_what_is_no_dict_is_not_pickle(self):
        refused(op.pickled(op.name(NAMES["Keyword"]) + b"))\x92"), "data", "arguments")


class TestFields:
    def test_defaults_and_cached_values_may_be_held_over(self):
        plain = Plain()
        plain.kind, plain.costly = "special", 8
        got = loads(pickle.dumps(plain), profile=allowed(Plain="class"))
        assert vars(got) == {"given": ((), {}), "kind": "special", "costly": 8}

    @pytest.mark.parametrize("name", ["method", "shouting", "Nested", "__class__", "__slots__"])
    def test_methods_and_properties_may_not(self, name):
        for state in (
            op.value({name: None}),
            op.value((None, {name: None})),
        ):
            body = op.build(op.new(NAMES["Plain"]), state)
            error = refused(op.pickled(body), allowed(Plain="class"), "state")
            assert NAMES["Plain"] in str(error)

    def test_only_listed_ones_where_there_is_a_list(self):
        profile = allowed(Plain={"role": "class", "fields": ["given", "shouting"]})
        body = op.build(op.new(NAMES["Plain"]), {"given": None})
        assert loads(op.pickled(body), profile=profile).given is None
        body = op.build(op.new(NAMES["Plain"]), {"kind": None})
        assert "fields" in refused(op.pickled(body), profile, "state").fix
        # One that is listed by hand goes into the dict, past the property of that name.
        body = op.build(op.new(NAMES["Plain"]), {"shouting": 7})
        assert vars(loads(op.pickled(body), profile=profile)) == {"shouting": 7}
        none = allowed(Plain={"role": "class", "fields": []})
        refused(op.pickled(body), none, "global", PolicyDenied)

    def test_no_code_of_the_class_runs(self):
        state = op.value(({"a": None}, {"b": None}))
        got = loads(
            op.pickled(op.build(op.new(NAMES["Setter"]), state)), profile=allowed(Setter="class")
        )
        assert vars(got) == {"a": None, "b": None}
        body = op.build(op.new(NAMES["Shadowed"]), {"a": None})
        refused(op.pickled(body), allowed(Shadowed="class"), "state")

    @pytest.mark.parametrize("kind", [Slotted, SlottedAndFree])
    @pytest.mark.parametrize("protocol", [2, 5])
    def test_slots(self, kind, protocol):
        value = kind()
        value.a, value.b = 1, [2]
        got = loads(pickle.dumps(value, protocol), profile=allowed(**{kind.__name__: "class"}))
        assert (got.a, got.b) == (1, [2])

    def test_a_slot_that_is_none(self):
        for state in (
            op.value((None, {"c": None})),
            op.value(({"a": None}, None)),
            op.value((None, 1)),
            op.value((1, None)),
            op.value((None, None, None)),
            b"N",
            b"K\x01",
        ):
            body = op.build(op.new(NAMES["Slotted"]), state)
            refused(op.pickled(body), allowed(Slotted="class"), "state")

    def test_empty_state_is_no_state(self):
        for name, state in (("Slotted", op.value((None, {}))), ("Plain", b"}")):
            body = op.build(op.new(NAMES[name]), state)
            assert loads(op.pickled(body), profile=allowed(**{name: "class"})) is not None
        # CPython fails at each of these too.
        for name, state in (
            ("Slotted", b"}"),
            ("Slotted", op.value(({}, {}))),
            ("Slotted", op.value((None, None))),
            ("Plain", op.value(({}, None))),
        ):
            body = op.build(op.new(NAMES[name]), state)
            refused(op.pickled(body), allowed(**{name: "class"}), "state")

    def test_a_frozen_dataclass_with_slots(self):
        value = Frozen(1, [2])
        assert loads(pickle.dumps(value), profile=allowed(Frozen="class")) == value
        some = allowed(Frozen={"role": "class", "fields": ["x"]})
        refused(pickle.dumps(value), some, "state")
        for state in (op.value([1]), op.value([None, None, None]), op.value({}), b")"):
            body = op.build(op.new(NAMES["Frozen"]), state)
            refused(op.pickled(body), allowed(Frozen="class"), "state")

    def test_exceptions_have_fields_like_others(self, monkeypatch):
        error = Failure("no", 7)
        monkeypatch.delitem(copyreg.dispatch_table, Failure, raising=False)  # tblib's
        got = loads(pickle.dumps(error), profile=allowed(Failure="class"))
        assert (type(got), got.args, got.code) == (Failure, ("no",), 7)
        named = [op.value(name) for name in ("args", "__class__", "__cause__", "with_traceback")]
        for state in (*(op.value({name: None}) for name in named), op.value((None, {})), b"N"):
            body = op.build(op.call(NAMES["Failure"], "no"), state)
            refused(op.pickled(body), allowed(Failure="class"), "state")

    def test_a_setstate_runs_only_where_it_is_trusted(self):
        data = op.pickled(op.build(op.new(NAMES["Stateful"]), 7))
        assert "__setstate__" in refused(data, allowed(Stateful="class"), "state").fix
        trusted = allowed(Stateful={"role": "class", "trust": ["__setstate__"]})
        assert loads(data, profile=trusted).state == 7


class TestSharedObjects:
    @pytest.mark.parametrize("name", ["Kept", "Weak", "Single"])
    def test_what_somebody_else_holds_is_not_built(self, name):
        profile = allowed(**{name: "class"})
        made = op.new(NAMES[name])
        assert type(loads(op.pickled(made), profile=profile)).__name__ == name
        body = op.build(made, {"a": None})
        refused(op.pickled(body), profile, "build-target")
        assert not any(vars(kept) for kept in [*KEPT, *Weak.seen.values(), Single.only] if kept)

    def test_nor_twice_in_one_load(self):
        made = op.new(NAMES["Weak"])
        body = op.value((made, op.build(made, {"a": None})))
        refused(op.pickled(body), allowed(Weak="class"), "build-target")

    def test_nor_a_class_module_or_enum(self):
        for name in ("Meta", "Module", "Colour"):
            data = op.pickled(op.call(NAMES[name], "x"))
            assert "role" in refused(data, allowed(**{name: "class"}), "class").fix

    def test_building_what_nobody_made_is_refused_by_name(self):
        data = op.pickled(op.build(op.name(NAMES["Plain"]), {"kind": None}))
        refused(data, allowed(Plain="class"), "build-target")
        assert Plain.kind == "default"


class TestContents:
    def test_a_hashable_class_may_be_a_key(self):
        profile = allowed(Key={"role": "class", "hashable": True})
        assert loads(pickle.dumps({Key(3): 1, (Key(4),): 2}), profile=profile) == {
            Key(3): 1,
            (Key(4),): 2,
        }
        refused(pickle.dumps({Key(3)}), allowed(Key="class"), "unhashable")

    @pytest.mark.parametrize("nested", [False, True])
    def test_but_not_before_it_is_finished(self, nested):
        # {Key: 1} where the key's own state holds the dict: CPython hashes it without its number.
        key = op.new(NAMES["Key"]) + b"q\x00"
        held = op.value({(b"h\x00",) if nested else b"h\x00": 1})
        body = op.build(key, {"number": held})
        refused(op.pickled(body), allowed(Key={"role": "class", "hashable": True}), "unfinished")

    def test_what_hashing_may_walk_is_bounded(self):
        profile = allowed(Key={"role": "class", "hashable": True})
        double = b"N\x85q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(14))
        for held in (
            op.value((None,) * 20_000),
            op.value([None] * 20_000),
            op.pairs(*range(20_000)),
            b"(" + double + b"1h\x0e",
            b"N" + b"\x85" * 60,
            op.raw(b"x") + b"\x85" * 55,
        ):
            key = op.build(op.new(NAMES["Key"]), {"number": held})
            refused(op.pickled({key: None}), profile, "key-cost")
            refused(op.pickled({(key,): None}), profile, "key-cost")

    @pytest.mark.unmeasured
    def test_a_large_field_is_charged_for_each_key(self):
        held = op.value((None,) * 9_000) + b"q\x000"
        key = op.build(op.new(NAMES["Key"]), {"number": b"h\x00"})
        data = op.pickled(held + op.value([op.value({key})] * 600))
        refused(data, allowed(Key={"role": "class", "hashable": True}), "max-refs")

    def test_comparing_is_charged_as_well(self):
        held = op.value((None,) * 4_000) + b"q\x000"
        key = op.build(op.new(NAMES["Key"]), {"number": b"h\x00"})
        data = op.pickled(held + op.value([b"\x8f(" + key * 60 + b"\x90"] * 2))
        refused(data, allowed(Key={"role": "class", "hashable": True}), "max-refs")

    def test_colliding_instances_are_bounded(self):
        data = pickle.dumps({Key(n * sys.hash_info.modulus): None for n in range(200)})
        refused(data, allowed(Key={"role": "class", "hashable": True}), "collisions")

    def test_containers_that_may_be_filled(self):
        value = [Words("ab"), Table(a=1)]
        profile = allowed(
            Words={"role": "class", "grows": "list"}, Table={"role": "class", "grows": "dict"}
        )
        got = loads(pickle.dumps(value), profile=profile)
        assert got == value
        assert [type(each) for each in got] == [Words, Table]
        for each in value:
            data = pickle.dumps(each)
            refused(data, allowed(Words="class", Table="class"), "global", PolicyDenied)


class TestCallables:
    def test_the_result_is_what_was_said(self):
        data = op.pickled(op.call(NAMES["build_point"], 5))
        profile = allowed(build_point={"role": "callable", "returns": NAMES["Plain"]})
        assert loads(data, profile=profile).given == ((5,), {})
        other = allowed(build_other={"role": "callable", "returns": NAMES["Plain"]})
        refused(op.pickled(op.call(NAMES["build_other"], 5)), other, "class")

    def test_it_is_not_built(self):
        body = op.build(op.call(NAMES["build_point"], 5), {"a": None})
        profile = allowed(build_point={"role": "callable", "returns": NAMES["Plain"]})
        refused(op.pickled(body), profile, "global", PolicyDenied)


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

    @pytest.mark.parametrize(
        "value", [b"K\x09", b"\x88", b"G?\xf0\x00\x00\x00\x00\x00\x00", b"](K\x03e"]
    )
    def test_nothing_else_is(self, value):
        error = refused(
            op.pickled(op.call(NAMES["Colour"], value)), allowed(Colour="enum"), "arguments"
        )
        assert "Colour" in str(error)

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
        for value in (b"K\x04", b"K\x10", b"K\x13", b"J\xff\xff\xff\xff", b"\x88"):
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

    @pytest.mark.parametrize("value", [b"K\x03", b"K\x00"])
    def test_no_composite_is_made_by_code_of_the_class(self, value):
        refused(op.pickled(op.call(NAMES["Missing"], value)), allowed(Missing="enum"), "arguments")

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

    def test_one_value_it_is(self):
        for arguments in ((), (b"K\x01", b"K\x01"), (op.value("New"), op.value([]))):
            data = op.pickled(op.call(NAMES["Colour"], *arguments))
            refused(data, allowed(Colour="enum"), "arguments")

    def test_of_an_enum(self):
        refused(op.pickled(op.call(NAMES["Plain"], 1)), allowed(Plain="enum"), "class")


def test_what_no_class_is_cannot_be_one():
    entry = allowed(Plain="class").get(NAMES["Plain"])
    for found in (1, "text", build_point, type, Colour):
        with pytest.raises(SafeserError):
            OwnClass(entry, found)


def test_a_role_of_no_kind_is_refused():
    with pytest.raises(ConfigError):
        allowed(Plain={"role": "class", "field": ["x"]})

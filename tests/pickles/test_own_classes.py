"""Classes that somebody allows: made and given fields as CPython does, or refused."""

from __future__ import annotations

import copyreg
import pickle

import pytest

from safeser.errors import PolicyDenied
from safeser.pickles import inspect, loads
from tests.pickles.own_classes import (
    KEPT,
    NAMES,
    Failure,
    Frozen,
    Keyword,
    Plain,
    Single,
    Slotted,
    SlottedAndFree,
    Weak,
    allowed,
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

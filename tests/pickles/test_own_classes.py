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
    def test_listed_ones_reach_new(self, asm):
        kwargs = asm.dict(asm.text("colour"), asm.text("red"))
        data = asm.pickle(asm.name(NAMES["Keyword"]) + asm.tuple(b"K\x01") + kwargs + b"\x92")
        got = loads(data, profile=allowed(Keyword={"role": "class", "kwargs": ["colour"]}))
        assert got.made == ((1,), "red", {}) == pickle.loads(data).made

    @pytest.mark.parametrize("key", [b"X\x04\x00\x00\x00size", b"K\x01", b"N", b")"])
    def test_others_do_not(self, asm, key):
        data = asm.pickle(asm.name(NAMES["Keyword"]) + b")" + asm.dict(key, b"N") + b"\x92")
        profile = allowed(Keyword={"role": "class", "kwargs": ["colour"]})
        refused(data, profile, "global", PolicyDenied)

    def test_nor_any_that_come_later(self, asm):
        kwargs = b"}q\x00" + asm.text("colour") + b"Ns"
        later = b"h\x00" + asm.text("size") + b"Ns0"
        data = asm.pickle(asm.name(NAMES["Keyword"]) + b")" + kwargs + b"\x92" + later)
        profile = allowed(Keyword={"role": "class", "kwargs": ["colour"]})
        refused(data, profile, "global", PolicyDenied)

    def test_what_is_no_dict_is_not_pickle(self, asm):
        refused(asm.pickle(asm.name(NAMES["Keyword"]) + b"))\x92"), "data", "arguments")


class TestFields:
    def test_defaults_and_cached_values_may_be_held_over(self):
        plain = Plain()
        plain.kind, plain.costly = "special", 8
        got = loads(pickle.dumps(plain), profile=allowed(Plain="class"))
        assert vars(got) == {"given": ((), {}), "kind": "special", "costly": 8}

    @pytest.mark.parametrize("name", ["method", "shouting", "Nested", "__class__", "__slots__"])
    def test_methods_and_properties_may_not(self, asm, name):
        for state in (
            asm.dict(asm.text(name), b"N"),
            asm.tuple(b"N", asm.dict(asm.text(name), b"N")),
        ):
            body = asm.build(asm.new(NAMES["Plain"]), state)
            error = refused(asm.pickle(body), allowed(Plain="class"), "state")
            assert NAMES["Plain"] in str(error)

    def test_only_listed_ones_where_there_is_a_list(self, asm):
        profile = allowed(Plain={"role": "class", "fields": ["given", "shouting"]})
        body = asm.build(asm.new(NAMES["Plain"]), asm.dict(asm.text("given"), b"N"))
        assert loads(asm.pickle(body), profile=profile).given is None
        body = asm.build(asm.new(NAMES["Plain"]), asm.dict(asm.text("kind"), b"N"))
        assert "fields" in refused(asm.pickle(body), profile, "state").fix
        # One that is listed by hand goes into the dict, past the property of that name.
        body = asm.build(asm.new(NAMES["Plain"]), asm.dict(asm.text("shouting"), b"K\x07"))
        assert vars(loads(asm.pickle(body), profile=profile)) == {"shouting": 7}
        none = allowed(Plain={"role": "class", "fields": []})
        refused(asm.pickle(body), none, "global", PolicyDenied)

    def test_no_code_of_the_class_runs(self, asm):
        state = asm.tuple(asm.dict(asm.text("a"), b"N"), asm.dict(asm.text("b"), b"N"))
        got = loads(
            asm.pickle(asm.build(asm.new(NAMES["Setter"]), state)), profile=allowed(Setter="class")
        )
        assert vars(got) == {"a": None, "b": None}
        body = asm.build(asm.new(NAMES["Shadowed"]), asm.dict(asm.text("a"), b"N"))
        refused(asm.pickle(body), allowed(Shadowed="class"), "state")

    @pytest.mark.parametrize("kind", [Slotted, SlottedAndFree])
    @pytest.mark.parametrize("protocol", [2, 5])
    def test_slots(self, kind, protocol):
        value = kind()
        value.a, value.b = 1, [2]
        got = loads(pickle.dumps(value, protocol), profile=allowed(**{kind.__name__: "class"}))
        assert (got.a, got.b) == (1, [2])

    def test_a_slot_that_is_none(self, asm):
        for state in (
            asm.tuple(b"N", asm.dict(asm.text("c"), b"N")),
            asm.tuple(asm.dict(asm.text("a"), b"N"), b"N"),
            asm.tuple(b"N", b"K\x01"),
            asm.tuple(b"K\x01", b"N"),
            asm.tuple(b"N", b"N", b"N"),
            b"N",
            b"K\x01",
        ):
            body = asm.build(asm.new(NAMES["Slotted"]), state)
            refused(asm.pickle(body), allowed(Slotted="class"), "state")

    def test_empty_state_is_no_state(self, asm):
        for name, state in (("Slotted", asm.tuple(b"N", b"}")), ("Plain", b"}")):
            body = asm.build(asm.new(NAMES[name]), state)
            assert loads(asm.pickle(body), profile=allowed(**{name: "class"})) is not None
        # CPython fails at each of these too.
        for name, state in (
            ("Slotted", b"}"),
            ("Slotted", asm.tuple(b"}", b"}")),
            ("Slotted", asm.tuple(b"N", b"N")),
            ("Plain", asm.tuple(b"}", b"N")),
        ):
            body = asm.build(asm.new(NAMES[name]), state)
            refused(asm.pickle(body), allowed(**{name: "class"}), "state")

    def test_a_frozen_dataclass_with_slots(self, asm):
        value = Frozen(1, [2])
        assert loads(pickle.dumps(value), profile=allowed(Frozen="class")) == value
        some = allowed(Frozen={"role": "class", "fields": ["x"]})
        refused(pickle.dumps(value), some, "state")
        for state in (asm.list(b"K\x01"), asm.list(b"N", b"N", b"N"), asm.dict(), b")"):
            body = asm.build(asm.new(NAMES["Frozen"]), state)
            refused(asm.pickle(body), allowed(Frozen="class"), "state")

    def test_exceptions_have_fields_like_others(self, asm, monkeypatch):
        error = Failure("no", 7)
        monkeypatch.delitem(copyreg.dispatch_table, Failure, raising=False)  # tblib's
        got = loads(pickle.dumps(error), profile=allowed(Failure="class"))
        assert (type(got), got.args, got.code) == (Failure, ("no",), 7)
        named = [asm.text(name) for name in ("args", "__class__", "__cause__", "with_traceback")]
        for state in (*(asm.dict(name, b"N") for name in named), asm.tuple(b"N", b"}"), b"N"):
            body = asm.build(asm.call(NAMES["Failure"], asm.text("no")), state)
            refused(asm.pickle(body), allowed(Failure="class"), "state")

    def test_a_setstate_runs_only_where_it_is_trusted(self, asm):
        data = asm.pickle(asm.build(asm.new(NAMES["Stateful"]), b"K\x07"))
        assert "__setstate__" in refused(data, allowed(Stateful="class"), "state").fix
        trusted = allowed(Stateful={"role": "class", "trust": ["__setstate__"]})
        assert loads(data, profile=trusted).state == 7


class TestSharedObjects:
    @pytest.mark.parametrize("name", ["Kept", "Weak", "Single"])
    def test_what_somebody_else_holds_is_not_built(self, asm, name):
        profile = allowed(**{name: "class"})
        made = asm.new(NAMES[name])
        assert type(loads(asm.pickle(made), profile=profile)).__name__ == name
        body = asm.build(made, asm.dict(asm.text("a"), b"N"))
        refused(asm.pickle(body), profile, "build-target")
        assert not any(vars(kept) for kept in [*KEPT, *Weak.seen.values(), Single.only] if kept)

    def test_nor_twice_in_one_load(self, asm):
        made = asm.new(NAMES["Weak"])
        body = asm.tuple(made, asm.build(made, asm.dict(asm.text("a"), b"N")))
        refused(asm.pickle(body), allowed(Weak="class"), "build-target")

    def test_nor_a_class_module_or_enum(self, asm):
        for name in ("Meta", "Module", "Colour"):
            data = asm.pickle(asm.call(NAMES[name], asm.text("x")))
            assert "role" in refused(data, allowed(**{name: "class"}), "class").fix

    def test_building_what_nobody_made_is_refused_by_name(self, asm):
        data = asm.pickle(asm.build(asm.name(NAMES["Plain"]), asm.dict(asm.text("kind"), b"N")))
        refused(data, allowed(Plain="class"), "build-target")
        assert Plain.kind == "default"

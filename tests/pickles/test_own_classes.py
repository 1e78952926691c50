"""Classes that somebody allows: made as CPython makes them, and nothing of the process changed."""

from __future__ import annotations

import dataclasses
import enum
import functools
import pickle
import sys
import types
import weakref
from typing import ClassVar

import pytest

from safeser.errors import ConfigError, PayloadError, PolicyDenied, SafeserError
from safeser.pickles import Profile, inspect, loads
from safeser.pickles.own import OwnClass

KEPT: list = []


class Plain:
    kind = "default"

    def __init__(self, *args, **kwargs):
        self.given = args, kwargs

    def method(self):
        return 1

    @property
    def shouting(self):
        raise AssertionError("a property ran")

    @shouting.setter
    def shouting(self, value):
        raise AssertionError("a setter ran")

    @functools.cached_property
    def costly(self):
        return 7

    class Nested:
        pass


class Setter:
    def __setattr__(self, name, value):
        raise AssertionError("__setattr__ ran")

    def __getattr__(self, name):
        raise AttributeError(name)


class Keyword:
    def __new__(cls, *args, colour=None, **kwargs):
        self = super().__new__(cls)
        self.made = args, colour, kwargs
        return self


class InitArgs:
    def __init__(self, *args):
        self.args = args

    def __getinitargs__(self):
        return ()


class Base:
    __slots__ = ("__weakref__", "a")


class Slotted(Base):
    __slots__ = ("b",)


class SlottedAndFree(Base):
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    tags: list


class Stateful:
    def __setstate__(self, state):
        self.__dict__["state"] = state


class Shadowed:
    @property
    def __dict__(self):
        raise AssertionError("a property ran")


class Kept:
    def __new__(cls):
        self = super().__new__(cls)
        KEPT.append(self)
        return self


class Weak:
    seen: ClassVar = weakref.WeakValueDictionary()

    def __new__(cls):
        found = cls.seen.get("only")
        if found is None:
            found = cls.seen["only"] = super().__new__(cls)
        return found


class Single:
    only = None

    def __new__(cls):
        if cls.only is None:
            cls.only = super().__new__(cls)
        return cls.only


class Key:
    def __init__(self, number=0):
        self.number = number

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        return self.number == other.number


class Words(list):
    pass


class Table(dict):
    pass


class Colour(enum.Enum):
    RED = 1
    BLUE = (2, "b")
    LIST = [3]  # noqa: RUF012 - a value that cannot be looked up by its hash

    @classmethod
    def _missing_(cls, value):
        raise AssertionError("_missing_ ran")


class Bits(enum.Flag):
    ONE = 1
    TWO = 2


class Meta(type):
    pass


class Module(types.ModuleType):
    pass


def build_point(x):
    return Plain(x)


def build_other(x):
    return x


OWN = (
    Plain,
    Setter,
    Keyword,
    InitArgs,
    Slotted,
    SlottedAndFree,
    Frozen,
    Stateful,
    Shadowed,
    Kept,
    Weak,
    Single,
    Key,
    Words,
    Table,
    Colour,
    Bits,
    Meta,
    Module,
    build_point,
    build_other,
)
NAMES = {own.__name__: f"safeser_own:{own.__name__}" for own in OWN}


@pytest.fixture(autouse=True)
def own(monkeypatch):
    """These as ``safeser_own:...``, put back as they were: integrity tests change them."""
    module = types.ModuleType("safeser_own")
    for each in OWN:
        monkeypatch.setattr(each, "__module__", "safeser_own")
        monkeypatch.setattr(module, each.__name__, each, raising=False)
    monkeypatch.setitem(sys.modules, "safeser_own", module)
    KEPT.clear()
    Single.only = None
    return module


def allowed(**specs):
    return Profile.named("data").allowing({NAMES[name]: spec for name, spec in specs.items()})


def refused(data, profile, rule, kind=PayloadError):
    with pytest.raises(kind) as caught:
        loads(data, profile=profile)
    assert caught.value.rule == f"pickle.{rule}"
    assert caught.value.where
    return caught.value


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

    @pytest.mark.parametrize("name", ["Slotted", "SlottedAndFree"])
    @pytest.mark.parametrize("protocol", [2, 5])
    def test_slots(self, name, protocol):
        value = globals()[name]()
        value.a, value.b = 1, [2]
        got = loads(pickle.dumps(value, protocol), profile=allowed(**{name: "class"}))
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


class TestContents:
    def test_a_hashable_class_may_be_a_key(self):
        profile = allowed(Key={"role": "class", "hashable": True})
        assert loads(pickle.dumps({Key(3): 1, (Key(4),): 2}), profile=profile) == {
            Key(3): 1,
            (Key(4),): 2,
        }
        refused(pickle.dumps({Key(3)}), allowed(Key="class"), "unhashable")

    @pytest.mark.parametrize("nested", [False, True])
    def test_but_not_before_it_is_finished(self, asm, nested):
        # {Key: 1} where the key's own state holds the dict: CPython hashes it without its number.
        key = asm.new(NAMES["Key"]) + b"q\x00"
        held = asm.dict(asm.tuple(b"h\x00") if nested else b"h\x00", b"K\x01")
        body = asm.build(key, asm.dict(asm.text("number"), held))
        refused(asm.pickle(body), allowed(Key={"role": "class", "hashable": True}), "unfinished")

    def test_what_hashing_may_walk_is_bounded(self, asm):
        profile = allowed(Key={"role": "class", "hashable": True})
        double = b"N\x85q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(14))
        for held in (
            asm.tuple(*[b"N"] * 20_000),
            asm.list(*[b"N"] * 20_000),
            asm.dict(*[asm.number(n) for n in range(20_000)]),
            b"(" + double + b"1h\x0e",
            b"N" + b"\x85" * 60,
            asm.raw(b"x") + b"\x85" * 55,
        ):
            key = asm.build(asm.new(NAMES["Key"]), asm.dict(asm.text("number"), held))
            refused(asm.pickle(asm.dict(key, b"N")), profile, "key-cost")
            refused(asm.pickle(asm.dict(asm.tuple(key), b"N")), profile, "key-cost")

    def test_a_large_field_is_charged_for_each_key(self, asm):
        held = asm.tuple(*[b"N"] * 9_000) + b"q\x000"
        key = asm.build(asm.new(NAMES["Key"]), asm.dict(asm.text("number"), b"h\x00"))
        data = asm.pickle(held + asm.list(*[asm.set(key)] * 600))
        refused(data, allowed(Key={"role": "class", "hashable": True}), "max-refs")

    def test_comparing_is_charged_as_well(self, asm):
        held = asm.tuple(*[b"N"] * 4_000) + b"q\x000"
        key = asm.build(asm.new(NAMES["Key"]), asm.dict(asm.text("number"), b"h\x00"))
        data = asm.pickle(held + asm.list(*[asm.set(*[key] * 60)] * 2))
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
    def test_the_result_is_what_was_said(self, asm):
        data = asm.pickle(asm.call(NAMES["build_point"], b"K\x05"))
        profile = allowed(build_point={"role": "callable", "returns": NAMES["Plain"]})
        assert loads(data, profile=profile).given == ((5,), {})
        other = allowed(build_other={"role": "callable", "returns": NAMES["Plain"]})
        refused(asm.pickle(asm.call(NAMES["build_other"], b"K\x05")), other, "class")

    def test_it_is_not_built(self, asm):
        body = asm.build(asm.call(NAMES["build_point"], b"K\x05"), asm.dict(asm.text("a"), b"N"))
        profile = allowed(build_point={"role": "callable", "returns": NAMES["Plain"]})
        refused(asm.pickle(body), profile, "global", PolicyDenied)


class TestEnums:
    def test_members_are_keys_if_they_hash_as_enums_do(self, monkeypatch):
        data = pickle.dumps({Colour.RED: 1, (Bits.ONE,): 2})
        profile = allowed(Colour="enum", Bits="enum")
        assert loads(data, profile=profile) == {Colour.RED: 1, (Bits.ONE,): 2}
        monkeypatch.setattr(Colour, "__hash__", lambda self: 1)
        refused(data, allowed(Colour="enum", Bits="enum"), "unhashable")

    def test_members_are_looked_up(self, asm):
        for member in (Colour.RED, Colour.BLUE, Bits.TWO):
            profile = allowed(Colour="enum", Bits="enum")
            assert loads(pickle.dumps(member), profile=profile) is member

    @pytest.mark.parametrize(
        "value", [b"K\x09", b"\x88", b"G?\xf0\x00\x00\x00\x00\x00\x00", b"](K\x03e"]
    )
    def test_nothing_else_is(self, asm, value):
        error = refused(
            asm.pickle(asm.call(NAMES["Colour"], value)), allowed(Colour="enum"), "arguments"
        )
        assert "Colour" in str(error)

    @pytest.mark.parametrize("value", [b"K\x03", b"K\x00"])
    def test_no_composite_is_made(self, asm, value):
        refused(asm.pickle(asm.call(NAMES["Bits"], value)), allowed(Bits="enum"), "arguments")

    def test_one_value_it_is(self, asm):
        for arguments in ((), (b"K\x01", b"K\x01"), (asm.text("New"), asm.list())):
            data = asm.pickle(asm.call(NAMES["Colour"], *arguments))
            refused(data, allowed(Colour="enum"), "arguments")

    def test_of_an_enum(self, asm):
        refused(asm.pickle(asm.call(NAMES["Plain"], b"K\x01")), allowed(Plain="enum"), "class")


def test_what_no_class_is_cannot_be_one():
    entry = allowed(Plain="class").get(NAMES["Plain"])
    for found in (1, "text", build_point, type, Colour):
        with pytest.raises(SafeserError):
            OwnClass(entry, found)


def test_a_role_of_no_kind_is_refused():
    with pytest.raises(ConfigError):
        allowed(Plain={"role": "class", "field": ["x"]})

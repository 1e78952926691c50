"""Registered classes: what comes back, what a header cannot make, and what cannot be registered."""

import collections
import dataclasses
import enum
import typing

import numpy as np
import pytest
import registered_classes as own
from families_attack import FAMILIES, GRANT, mutate_all, through
from hypothesis import given
from hypothesis import strategies as st

import safeser
from safeser import families
from safeser.errors import ConfigError, PayloadError, SafeserError, SerializationError
from safeser.families import plain
from safeser.families.registered.classes import register_class
from safeser.values import Limits
from tests.draws import draws

register_class(own.Color)
register_class(own.Level)
register_class(own.Rights)
register_class(own.Loose)
register_class(own.Many)
register_class(own.Point)
register_class(own.Frozen)
register_class(own.Area, assigned=["hits"])
register_class(own.Tidy)
register_class(own.Private)
register_class(own.Pair)
register_class(own.Old)
register_class(own.Tall)
register_class(own.AppError)
register_class(own.Shy)
register_class(own.Loud)
register_class(own.Other)
register_class(own.Two)
register_class(own.Rough)

PREFIX = "registered_classes"


def area(x, hits):
    made = own.Area(x, "y")
    made.hits = hits
    return made


VALUES = [
    own.Point(1),
    own.Point(2.0, own.Point(3, [own.Color.RED])),
    own.Point("x" * 5000, b"y" * 5000),
    own.Point((1, 2), {"deep": own.Pair(1, own.Old(1j, 2))}),
    own.Frozen(name="n", parts=(own.Level.HIGH, {1: own.Rights.READ})),
    area(2, [1, 2j]),
    own.Tidy({"a", 1}, ["a", "b"]),
    own.Private(1),
    own.Pair(1),
    own.Pair(own.Pair(1, 2), ...),
    own.Tall(1, [2]),
    own.Other(1),
    own.Two(1, 2),
    own.Rough([1, [2.0, float("nan")], np.float32(3)]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_records_come_back_equal(value):
    back = through(value)
    assert type(back) is type(value)
    assert back == value or "nan" in repr(value)
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "member",
    [
        *own.Color,
        own.Color.ALSO_RED,
        *own.Level,
        *own.Rights,
        own.Many.F12,
        own.Rights.READ | own.Rights.RUN,
        own.Rights(0),
        own.Loose.A | own.Loose.B,
    ],
)
def test_members_come_back_as_themselves(member):
    assert through(member) is member
    assert through({member: [member]}) == {member: [member]}


def test_records_are_keys_where_they_can_be():
    back = through({own.Frozen(name="a"): 1, own.Pair(1, 2): {own.Private(3)}})
    assert back == {own.Frozen(name="a"): 1, own.Pair(1, 2): {own.Private(3)}}


def test_arrays_and_shared_contexts_inside():
    value = own.Point(1, np.arange(5))
    back = through(value)
    np.testing.assert_array_equal(back.y, value.y)
    with pytest.raises(SafeserError) as caught:
        families.serialize([own.Point(1, lambda: 1)], FAMILIES)
    assert "[0].y" in str(caught.value)


def test_cached_values_are_not_sent():
    value = own.Point(4)
    assert value.doubled == 8
    back = through(value)
    assert "doubled" not in vars(back)
    assert back == value


def with_attribute(value, **attributes):
    vars(value).update(attributes)
    return value


def without_field():
    value = own.Point(1)
    del value.x
    return value


class Kid(own.Point):
    pass


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (with_attribute(own.Point(1), z=1), "not fields"),
        (without_field(), "no value"),
        (tuple.__new__(own.Pair, (1,)), "number of elements"),
        (with_attribute(own.Tall(1, [2]), z=1), "attributes"),
        (Kid(1), "Kid"),
        (own.Loose(8), "composed"),
        (own.Loose(9), "composed"),
        (own.Many.F1 | own.Many.F2, "composed"),
    ],
)
def test_what_would_be_altered_is_refused(value, word):
    with pytest.raises(SafeserError) as caught:
        families.serialize(value, FAMILIES)
    assert caught.value.rule == "families.cannot-serialize"
    assert word in str(caught.value)


def record(name, /, **fields):
    sub_header = {"plain": plain.encode(fields)}
    return {"serializer": "dask", "type": f"{PREFIX}:{name}", "sub-header": sub_header}


@pytest.mark.parametrize(
    ("header", "rule"),
    [
        (record("Point", x=1), "families.fields"),
        (record("Point", x=1, y=2, z=3), "families.fields"),
        (record("Point", x=1, __class__=3), "families.fields"),
        (record("Point", x=1, doubled=3), "families.fields"),
        (record("Pair", left=1, right=2, index=3), "families.fields"),
        (record("Area", x=-1, y=1, size=-1.5, hits=[]), "families.build"),
        (record("Area", x=2, y=1, size=99.0, hits=[]), "families.constructor"),
        (record("Area", x=2, y=1, size=3, hits=[]), "families.constructor"),
        (record("Tidy", tags=[1], names=[]), "families.constructor"),
        (record("Tidy", tags={1.0, 2}, names=["b", "a"]), "families.constructor"),
        (record("Tall", a=1, b=(2,)), "families.constructor"),
        (record("Frozen", name="a"), "families.fields"),
        (record("Unknown", name="a"), "families.type"),
        (record("Other", x=9), "families.constructor"),
        (record("Two", a=5, b=6), "families.constructor"),
        (record("Rough", inner=5), "families.constructor"),
        (record("Rough", inner=6), "families.constructor"),
        (record("Rough", inner=7), "families.constructor"),
    ],
)
def test_constructors_have_the_last_word(header, rule):
    with pytest.raises(SafeserError) as caught:
        families.deserialize(header, [], GRANT)
    assert caught.value.rule == rule
    assert "secret text" not in str(caught.value)


def enum_header(name, **meta):
    return {"serializer": "dask", "type": f"{PREFIX}:{name}", "sub-header": meta}


@pytest.mark.parametrize(
    ("name", "meta"),
    [
        ("Color", {"member": plain.encode(("RED", 2))}),
        ("Color", {"member": plain.encode(("RED",))}),
        ("Color", {"member": plain.encode(("ALSO_RED", 1))}),
        ("Color", {"member": plain.encode(("__class__",))}),
        ("Color", {"member": "RED"}),
        ("Color", {"member": ["RED"]}),
        ("Color", {"flags": 1 << 70}),
        ("Color", {"flags": 7}),
        ("Rights", {"flags": 8}),
        ("Rights", {"flags": -1}),
        ("Rights", {"flags": True}),
        ("Rights", {"flags": 1 << 100}),
        ("Loose", {"flags": 1 << 40}),
        ("Many", {"flags": 6}),  # though it was made above
        ("Rights", {}),
        ("Rights", {"flags": 1, "member": b""}),
    ],
)
def test_a_header_names_members_or_nothing(name, meta):
    known = dict(own.Rights._value2member_map_), dict(own.Loose._value2member_map_)
    with pytest.raises(PayloadError) as caught:
        families.check(enum_header(name, **meta), [])
    assert caught.value.rule in ("families.member", "families.header")
    assert known == (own.Rights._value2member_map_, own.Loose._value2member_map_)


@pytest.mark.parametrize("value", [*VALUES[:6], own.Color.PAIR, own.Rights(5)])
def test_headers_that_lie(value):
    mutate_all(value, repr, every=3)


def test_large_or_typed_fields_are_children_and_exactly_as_many():
    header, frames = families.serialize(own.Point(1j, 2), FAMILIES)
    assert header["sub-header"]["names"] == ["x", "y"]
    for names in (["x"], ["x", "y", "z"], ["x", "x"], ["y", "x", 3], "xy", {"x": 1}, ["x", "z"]):
        forged = {**header, "sub-header": {**header["sub-header"], "names": names}}
        with pytest.raises(PayloadError):
            families.check(forged, frames)
    huge = {"plain": plain.encode({"x": b"\0" * (1 << 21), "y": 1})}
    with pytest.raises(PayloadError, match="short run"):
        families.check({**record("Point"), "sub-header": huge}, [])


def test_small_values_of_all_records_count():
    header, frames = families.serialize([own.Point([0] * 16, n) for n in range(10)], FAMILIES)
    families.check(header, frames, limits=Limits(max_refs=220))
    with pytest.raises(PayloadError) as caught:
        families.check(header, frames, limits=Limits(max_refs=150))
    assert caught.value.rule == "families.refs"


# -- exceptions --------------------------------------------------------------------------------


def test_registered_exceptions_are_raised_as_themselves():
    exc = own.AppError(3, "boom")
    exc.seen = (1, "two")
    exc.unsendable = object()
    back = through(exc)
    assert type(back) is own.AppError
    assert (back.args, back.code, back.seen) == ((3, "boom"), 3, (1, "two"))
    assert not hasattr(back, "unsendable")
    assert str(back) == "3: boom"


def test_exceptions_whose_class_is_in_the_way_are_told():
    exc = own.Shy("s")
    exc.code = 5
    back = through(exc)
    assert (type(back), back.args) == (own.Shy, ("s",))  # what everybody has
    assert type(through(own.Loud())) is families.RemoteError
    assert "\x1b" not in str(through(own.Loud()))


def test_a_registered_exception_hides_nothing_of_its_class():
    data = families.ExceptionData(f"{PREFIX}:AppError", "3: x", (3, "x"), fields={"add_note": 5})
    back = families.errors.wire.from_data(data)
    assert type(back) is families.RemoteError


# -- registration ------------------------------------------------------------------------------


@dataclasses.dataclass
class Needs:
    x: int
    hint: dataclasses.InitVar[int]


@dataclasses.dataclass(init=False)
class OwnInit:
    x: int

    def __init__(self, other):
        self.x = other


@dataclasses.dataclass
class Listy(list):
    x: int = 0


@dataclasses.dataclass
class Heir(own.Slotted):
    x: int = 0


class Plain:
    pass


class Hooked:
    def __setstate__(self, state):
        raise AssertionError("never called")


class Group(ExceptionGroup):
    pass


class Leaving(BaseException):
    pass


@dataclasses.dataclass
class Taken:
    x: int


class Stray(enum.Enum):
    A = 1


@pytest.mark.parametrize(
    ("cls", "options", "word"),
    [
        (own.Color, {}, "registered"),
        (type("Local<x>", (), {}), {}, "name="),
        (Taken, {"name": f"{PREFIX}:Point"}, "registered already"),
        (Taken, {"name": "pandas:DataFrame"}, "registered already"),
        (Taken, {"name": "decimal:Context"}, "standard library"),
        (Taken, {"name": "safeser.x:Y"}, "safeser"),
        (Taken, {"name": "no name"}, "module:qualname"),
        (Taken, {"name": "a:b\n"}, "module:qualname"),
        (Taken, {"assigned": ["x"]}, "assigned"),
        (Taken, {"assigned": ["y"]}, "assigned"),
        (own.Pair, {"name": "m:Pair", "assigned": ["left"]}, "never assigned"),
        (Needs, {}, "exactly its fields"),
        (OwnInit, {}, "exactly its fields"),
        (Listy, {}, "built-in"),
        (Heir, {}, "slots"),
        (own.Abstract, {}, "abstract"),
        (Kid, {}, "none itself"),
        (Plain, {"assigned": ["x"]}, "no fields"),
        (Hooked, {}, "__setstate__"),
        (int, {}, "name="),
        (5, {}, "only classes"),
        (lambda: 1, {}, "only classes"),
        (Group, {}, "group"),
        (Leaving, {}, "leave the process"),
        (own.AppError, {}, "registered already"),
    ],
)
def test_what_cannot_be_registered(cls, options, word):
    with pytest.raises(ConfigError) as caught:
        register_class(cls, **options)
    assert word in str(caught.value)


def test_registration_as_a_decorator_and_under_another_name():
    @register_class(name="somewhere.models:Local")
    @dataclasses.dataclass
    class Local:
        x: int = 0

    assert through(Local(5)) == Local(5)
    header, _ = families.serialize(Local(5), FAMILIES)
    assert header["type"] == "somewhere.models:Local"

    class Shade(enum.Enum):
        DARK = 1

    assert register_class(Shade, name="somewhere.models:Shade") is Shade
    assert through(Shade.DARK) is Shade.DARK


def test_a_named_tuple_that_is_generic():
    class Strange(own.Old, typing.Generic[typing.TypeVar("T")]):
        pass

    register_class(Strange, name="somewhere.models:Strange")
    assert through(Strange(1, 2)) == (1, 2)


@pytest.mark.parametrize("value", [Taken(1), Stray.A, collections.namedtuple("N", "a")(1)])
def test_who_could_register_is_told_how(value):
    with pytest.raises(SafeserError) as caught:
        families.serialize([value], FAMILIES)
    assert "register_class" in caught.value.fix


@draws(40)
@given(
    st.builds(own.Point, st.integers() | st.floats(allow_nan=False) | st.text(), st.none())
    | st.builds(own.Frozen, name=st.text(), parts=st.tuples(st.binary(), st.dates()))
    | st.builds(own.Pair, st.sampled_from(own.Color), st.lists(st.sampled_from(own.Rights)))
    | st.builds(own.Old, st.sets(st.integers()), st.dictionaries(st.text(), st.uuids()))
)
def test_any_record_comes_back(value):
    back = through(value)
    assert type(back) is type(value)
    assert back == value


class OfAnother:
    """A proxy whose class is what it stands for, or cannot be asked for."""

    @property
    def __class__(self):
        if self.kind is None:
            raise RuntimeError("it stands for nothing here")
        return self.kind


@pytest.mark.parametrize("kind", [ValueError, None], ids=str)
@pytest.mark.parametrize("families", [["dask", "msgpack"], ["dask", "msgpack", "pickle"]])
def test_an_object_is_no_error_because_it_says_so(kind, families):
    value = OfAnother()
    value.kind = kind
    with pytest.raises(SerializationError) as caught:
        safeser.serialize([value], families, "raise")
    assert caught.value.rule == "families.cannot-serialize"

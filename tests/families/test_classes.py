"""Registered classes: what comes back as itself, and what cannot be registered."""

import collections
import dataclasses
import enum
import typing

import attrs
import pytest

import safeser
from safeser import families
from safeser.errors import ConfigError, PayloadError, SafeserError, SerializationError
from safeser.families import plain
from safeser.families.registered.classes import register_class
from safeser.gate.values import Limits
from tests.samples import classes as own
from tests.samples import models
from tests.samples.hostile.models import forged
from tests.samples.typed import FAMILIES, GRANT, refused, through, typed, unsent


@pytest.mark.parametrize(
    ("value", "name"),
    [(own.Point(4), "doubled"), (own.Bag(), "slow"), (models.Point(x=2), "area")],
)
def test_cached_values_are_not_sent(value, name):
    kept = getattr(value, name)
    assert name in vars(value)
    back = through(value)
    assert name not in vars(back)
    assert getattr(back, name) == kept


@pytest.mark.parametrize(
    "payload",
    [
        typed(f"{own.__name__}:Area", plain=plain.encode({"x": -1, "y": 1, "size": 0, "hits": []})),
        forged(models.Bounded(low=1, high=2), {"low": 9}),
    ],
)
def test_what_a_constructor_says_is_not_repeated(payload):
    with pytest.raises(SafeserError) as caught:
        families.deserialize(*payload, GRANT)
    assert caught.value.rule == "families.build"
    assert "secret" not in str(caught.value)


def test_small_values_of_all_records_count():
    header, frames = families.serialize([own.Point([0] * 16, n) for n in range(10)], FAMILIES)
    families.check(header, frames, limits=Limits(max_memory=17_664))
    with pytest.raises(PayloadError) as caught:
        families.check(header, frames, limits=Limits(max_memory=17_663))
    assert caught.value.rule == "families.memory"


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


PREFIX = own.__name__


def test_a_registered_exception_hides_nothing_of_its_class():
    data = families.ExceptionData(f"{PREFIX}:AppError", "3: x", (3, "x"), fields={"add_note": 5})
    back = families.errors.wire.from_data(data)
    assert type(back) is families.RemoteError


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


class Kid(own.Point):
    pass


@pytest.mark.parametrize(
    ("cls", "options", "word"),
    [
        (type("Local<x>", (), {}), {}, "name="),
        (Taken, {"name": f"{PREFIX}:Point"}, "registered already"),
        (Taken, {"name": "pandas:DataFrame"}, "registered already"),
        (Taken, {"name": "decimal:Context"}, "standard library"),
        (Taken, {"name": "safeser.x:Y"}, "safeser"),
        (Taken, {"name": "no name"}, "module:qualname"),
        (Taken, {"name": "a:b\n"}, "module:qualname"), (Taken, {"assigned": ["x"]}, "assigned"),
        (Taken, {"assigned": ["y"]}, "assigned"),
        (own.Pair, {"name": "m:Pair", "assigned": ["left"]}, "never assigned"),
        (Needs, {}, "exactly its fields"), (OwnInit, {}, "exactly its fields"),
        (Listy, {}, "built-in"), (Heir, {}, "slots"), (own.Abstract, {}, "abstract"),
        (Kid, {}, "none itself"), (Plain, {"assigned": ["x"]}, "no fields"),
        (Hooked, {}, "__setstate__"), (int, {}, "name="), (5, {}, "only classes"),
        (lambda: 1, {}, "only classes"), (Group, {}, "group"), (Leaving, {}, "leave the process"),
    ],
)  # fmt: skip
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


def test_a_class_of_attrs_is_made_from_its_fields():
    positive = attrs.field(validator=attrs.validators.gt(0))

    @register_class(name="somewhere.models:Mint")
    @attrs.frozen
    class Mint:
        size: int = positive
        _parts: tuple = attrs.field(default=(), converter=tuple)

    assert through([Mint(2, [1])]) == [Mint(2, (1,))]
    forged = typed("somewhere.models:Mint", plain=plain.encode({"size": 0, "_parts": ()}))
    assert refused(*forged) == "families.build"


def test_attributes_that_are_no_fields_are_named():
    loose = own.Point(1)
    vars(loose).update(dict.fromkeys("abcde"))
    assert "not fields of its class: 'a', 'b', 'c' and 2 more" in unsent(loose)


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


def test_no_header_makes_members():
    known = dict(own.Rights._value2member_map_), dict(own.Loose._value2member_map_)
    for name, flags in (("Rights", 8), ("Loose", 1 << 40)):
        assert refused(*typed(f"{PREFIX}:{name}", flags=flags)) == "families.member"
    assert known == (own.Rights._value2member_map_, own.Loose._value2member_map_)

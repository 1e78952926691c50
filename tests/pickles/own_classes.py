"""Classes for tests of what operators allow, and how those tests ask."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import weakref
from typing import ClassVar, NamedTuple

import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import Profile, loads

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


class Failure(ValueError):
    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code


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


class Keyed:
    """An instance with keyword arguments, which protocols 2 and 3 have no opcode for."""

    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls)
        self.made = args, kwargs
        return self

    def __getnewargs_ex__(self):
        return self.made


class Pair(NamedTuple):
    a: object
    b: object = None


class Point(tuple):
    __slots__ = ()


class Odd(tuple):
    __slots__ = ()

    def __new__(cls, *args):
        raise AssertionError("__new__ ran")


class Number(int):
    pass


class Ratio(float):
    pass


class Text(str):
    __slots__ = ()


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


class Wide(enum.IntFlag):
    """Bits from 0 to 12, one more than are composed, and a mask with a bit of no member."""

    vars().update({f"BIT_{at}": 1 << at for at in range(13)})
    MASK = 0x4003


class Missing(enum.Flag):
    ONE = 1
    TWO = 2

    @classmethod
    def _missing_(cls, value):
        raise AssertionError("_missing_ ran")


class Meta(type):
    pass


class Module(types.ModuleType):
    pass


def build_point(x):
    return Plain(x)


def build_other(x):
    return x


OWN = (
    Plain, Setter, Keyword, InitArgs, Slotted, SlottedAndFree, Frozen, Stateful, Shadowed, Kept,
    Failure, Weak, Single, Key, Keyed, Pair, Point, Odd, Number, Ratio, Text, Words, Table, Colour,
    Bits, Wide, Missing, Meta, Module, build_point, build_other,
)  # fmt: skip
NAMES = {own.__name__: f"safeser_own:{own.__name__}" for own in OWN}


def allowed(**specs):
    return Profile.named("data").allowing({NAMES[name]: spec for name, spec in specs.items()})


def refused(data, profile, rule):
    with pytest.raises(PolicyDenied if rule == "global" else PayloadError) as caught:
        loads(data, profile=profile)
    assert caught.value.rule == f"pickle.{rule}"
    assert caught.value.where
    return caught.value

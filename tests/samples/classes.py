"""Registered classes that samples are made of: they must be importable by their names."""

import abc
import collections
import dataclasses
import enum
import functools
import typing

from safeser.families.registered.classes import register_class
from safeser.families.registered.generic import register_generic


class Color(enum.Enum):
    RED = 1
    GREEN = "g"
    ALSO_RED = 1
    PAIR = (1, 2.5)
    ODD = frozenset({"a", "b"})


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Loose(enum.IntFlag, boundary=enum.KEEP):
    A = 1
    B = 2


Many = enum.Flag("Many", [f"F{n}" for n in range(13)], module=__name__)


@dataclasses.dataclass
class Point:
    x: int
    y: object = None

    @functools.cached_property
    def doubled(self):
        return self.x * 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Frozen:
    name: str
    parts: tuple = ()


@dataclasses.dataclass
class Area(Point):
    size: float = dataclasses.field(init=False)
    hits: list = dataclasses.field(init=False, default_factory=list)

    def __post_init__(self):
        if self.x < 0:
            raise ValueError("secret text")
        self.size = self.x * 1.5


@dataclasses.dataclass
class Tidy:
    tags: set
    names: list
    extra: dataclasses.InitVar[int] = 5

    def __post_init__(self, extra):
        self.tags = set(self.tags)
        self.names = sorted(self.names)


@dataclasses.dataclass(frozen=True)
class Private:
    _a: int
    __b: int = 2


class Pair(typing.NamedTuple):
    left: object
    right: object = 5


Old = collections.namedtuple("Old", "a b")


class Tall(Old):
    def __new__(cls, a, b):
        return super().__new__(cls, a, list(b))


class AppError(Exception):
    def __init__(self, code, text="x"):
        super().__init__(code, text)
        self.code = code

    def __str__(self):
        return f"{self.code}: {self.args[1]}"


class Bag:
    kind = "bag"

    def __init__(self, **attributes):
        self.__dict__.update(attributes)
        self.__secret = 1

    def method(self):
        return 1

    @property
    def owned(self):
        return 2

    @owned.setter
    def owned(self, value):
        raise AssertionError("a setter ran")

    @functools.cached_property
    def slow(self):
        return 3

    def __getattr__(self, name):
        raise AttributeError(name)


class Slotted:
    __slots__ = ("__hidden", "a", "never")

    def __init__(self, a):
        self.a = a
        self.__hidden = a


class Mixed(Slotted):
    def __init__(self, a, b):
        super().__init__(a)
        self.b = b


class Shy(Exception):
    def __reduce__(self):
        raise RuntimeError("no state")


class Loud(Exception):
    def __str__(self):
        return "\x1b[2J"


@dataclasses.dataclass
class Other:
    x: int = 0

    def __new__(cls, x=0):
        return object.__new__(cls) if x < 5 else Pair(1, 2)


@dataclasses.dataclass
class Abstract(abc.ABC):
    x: int = 0

    @abc.abstractmethod
    def go(self): ...


class Two(Old):
    def __new__(cls, *parts):
        return tuple.__new__(cls, parts if parts[0] != 5 else (1,))


@dataclasses.dataclass
class Rough:
    inner: object

    def __post_init__(self):
        if self.inner == 5:
            self.inner = lambda: 5
        elif type(self.inner) is list:
            self.inner = list(self.inner)
        elif self.inner == 6:
            self.inner = 6.0
        elif self.inner == 7:
            self.inner = int


class Narrow:
    def __init__(self):
        self.a, self._b = 1, 2


@dataclasses.dataclass
class Altering:
    items: list
    named: dict

    def __post_init__(self):
        self.items = [float(item) if item == 1 else item for item in self.items]
        self.named = {key.strip(): value for key, value in self.named.items()}


class Positive:
    """Validates and keeps the value in the instance, so that it needs no ``__get__``."""

    def __set_name__(self, owner, name):
        self.name = name

    def __set__(self, instance, value):
        if value <= 0:
            raise ValueError(value)
        vars(instance)[self.name] = value


class Account:
    balance = Positive()
    owner = "nobody"


for _cls in (Color, Level, Rights, Loose, Many, Point, Frozen, Tidy, Private, Pair, Old, Tall):
    register_class(_cls)
for _cls in (AppError, Shy, Loud, Other, Two, Rough, Altering):
    register_class(_cls)
register_class(Area, assigned=["hits"])
for _cls in (Bag, Slotted, Mixed, Account):
    register_generic(_cls)
register_generic(Narrow, name="somewhere:Narrow", attributes=("a", "_b"))

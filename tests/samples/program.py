"""A program's own classes: those that arrive without being registered, and those that cannot."""

import dataclasses
import enum
import types

import attrs


def never(*args, **options):
    raise AssertionError("code of an own class ran")


#: What an own class may have, since nothing calls it.
_METHODS = (
    *("init", "eq", "ne", "lt", "hash", "bool", "len", "iter", "next", "contains", "getitem"),
    *("call", "str", "repr", "format", "index", "int", "float", "array", "copy", "dir", "bytes"),
)
LOUD = {f"__{name}__": never for name in _METHODS} | {
    "__module__": __name__, "size": property(never, never, never), "default": 3,
    "__init_subclass__": classmethod(never), "__class_getitem__": never, "method": never,
}  # fmt: skip

Loud = type("Loud", (), LOUD)


def loud():
    made = object.__new__(Loud)
    vars(made).update(default=4, other=[1])
    return made


@dataclasses.dataclass
class Point:
    x: int
    y: object = None
    post: dataclasses.InitVar[int] = 0

    def __post_init__(self, post):
        self.x = self.x if post == 0 else never()


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int


@attrs.frozen
class Sealed:
    x: int
    _y: int = attrs.field(default=1, validator=lambda *given: None)


class Base:
    kind = "base"


class Slotted(Base):
    __slots__ = ("__hidden", "a", "never")

    def __init__(self):
        self.a = self.__hidden = 1


class Outer:
    class Inner:
        pass


class Color(enum.Enum):
    RED = 1
    ALSO = 1

    @classmethod
    def _missing_(cls, value):
        never()


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class ValueError(Exception):  # it shadows a standard name
    code = 1


class QuotaError(ValueError):
    def __init__(self, used, most):
        super().__init__(f"{used} of {most}")
        self.used, self.code = used, 2


class Told(KeyError):
    def __str__(self):
        return f"told {self.args[0]} {self.why}"


class FileGone(OSError):
    pass


class Lacking(AttributeError):
    pass


# --- what cannot arrive ---------------------------------------------------------------------------


def _with(name, found=never, bases=(), **more):
    return type(name, bases, {"__module__": __name__, **more, name: found})


HOOKED = {
    hook: type(f"Has{hook}", (), {"__module__": __name__, hook: never})
    for hook in (
        *("__new__", "__setstate__", "__reduce__", "__reduce_ex__", "__getattr__", "__del__"),
        *("__getattribute__", "__setattr__", "__delattr__", "__getstate__", "__getnewargs__"),
        *("__class__", "__getnewargs_ex__"),
    )
}
globals().update({cls.__name__: cls for cls in HOOKED.values()})


class Meta(type):
    __call__ = never


class WithMeta(metaclass=Meta):
    pass


class OfInstalled(types.SimpleNamespace):
    pass


class OfBuiltin(dict):
    pass


class OfHooked(HOOKED["__setstate__"]):
    pass


class Stale(type("Base", (), {"__module__": __name__})):
    """Its base has the name of another class by now, as one has whose cell ran again."""


class OwnDict:
    __dict__ = property(never)


class Lying:
    __module__ = "numpy"


Alias = Point


def local():
    class Local:
        pass

    return Local


class BadNotes(Exception):
    __notes__ = property(never)


class BadArgs(Exception):
    args = property(never)


class BadNew(Exception):
    __new__ = never


class BadGroup(ExceptionGroup):
    pass


class Leaving(KeyboardInterrupt):
    pass


class SlottedError(Exception):
    __slots__ = ("a",)

"""A program's own classes: those that arrive without being registered, and those that cannot."""

import dataclasses
import enum
import functools
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
    "proxy": type("Proxy", (), {"__class__": property(never)})(),
    **dict.fromkeys(("_typ", "dtype", "shape", "__array_interface__"), property(never)),
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


def made(name, *bases, **members):
    """Define a class of this module that needs no statement of its own."""
    globals()[name] = type(name, bases, {"__module__": __name__, **members})
    return globals()[name]


Base = made("Base", kind="base")
Outer = made(
    "Outer", Inner=type("Inner", (), {"__module__": __name__, "__qualname__": "Outer.Inner"})
)
Lacking, FileGone = made("Lacking", AttributeError), made("FileGone", OSError)


class Slotted(Base):
    __slots__ = ("__hidden", "a", "never")

    def __init__(self):
        self.a = self.__hidden = 1


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
    __hash__ = __eq__ = never

    def __init__(self, used, most):
        super().__init__(f"{used} of {most}")
        self.used, self.code = used, 2


class Told(KeyError):
    told = functools.cached_property(never)

    def __str__(self):
        return f"told {self.args[0]} {self.why}"


# --- what cannot arrive ---------------------------------------------------------------------------

HOOKS = (
    *("__new__", "__setstate__", "__reduce__", "__reduce_ex__", "__getattr__", "__del__"),
    *("__getattribute__", "__setattr__", "__delattr__", "__getstate__", "__getnewargs__"),
    *("__class__", "__getnewargs_ex__", "__sizeof__"),
)
HOOKED = {hook: made(f"Has{hook}", **{hook: never}) for hook in HOOKS}
#: By its name the base is another class by now, as where a cell ran again.
made("Stale", type("Base", (), {"__module__": __name__}))
made("OfInstalled", types.SimpleNamespace)
made("OfBuiltin", dict)
made("OfHooked", HOOKED["__setstate__"])
made("OwnDict", __dict__=property(never))
made("Lying", __module__="numpy")
made("BadNotes", Exception, __notes__=property(never))
made("BadArgs", Exception, args=property(never))
made("BadNew", Exception, __new__=never)
made("BadGroup", ExceptionGroup)
made("Leaving", KeyboardInterrupt)
made("SlottedError", Exception, __slots__=("a",))
Alias = Point


class WithMeta(metaclass=type("Meta", (type,), {"__call__": never})):
    pass


def local():
    class Local:
        pass

    return Local

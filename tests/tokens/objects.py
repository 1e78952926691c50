"""Objects whose tokens two processes must agree on; run as a script, so that they are __main__'s.

Prints one line of JSON: for each name the token, that of the object's second making, and those of
its copies by deepcopy, pickle and cloudpickle, or null where there is no such copy.
"""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import enum
import functools
import json
import logging
import pickle
import random
import re
import sys
import types
import typing
import weakref

import cloudpickle
import library_objects
import numpy as np
import pandas as pd

import safeser

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"]
MAKERS = {}


def make(function):
    MAKERS[function.__name__] = function
    return function


def with_set_constant(x):
    return x in {"alpha", "beta", "gamma", "delta", "epsilon"}


def uses_globals(x):
    return [helper(each) for each in WORDS] + [np.sum(x), math_like.pi]


def helper(x):
    return x * SCALE


SCALE = 2.5
math_like = types.SimpleNamespace(pi=3.14)


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


@functools.lru_cache(maxsize=7)
def cached(x):
    return x in {"a", "b", "c"}


def generator(n):
    yield from ({"a", "b", "c", str(n)})


for each in (with_set_constant, uses_globals, even, cached, generator):
    MAKERS[f"function {each.__name__}"] = lambda each=each: each


@make
def closure():
    words = frozenset(WORDS)
    return lambda x: x in words


@make
def defaults():
    def function(x, y=frozenset(WORDS), *, z=("a", {"b", "c"})):
        return x, y, z

    return function


MAKERS["lambda"] = lambda: lambda x: x + 1
MAKERS["partial"] = lambda: functools.partial(helper, x=set(WORDS))
MAKERS["builtins"] = lambda: [len, print, sorted, np.sum, np.add, str.upper, dict.fromkeys]
MAKERS["bound builtins"] = lambda: [[1, 2].append, "a".upper, {"k": 1}.get, (1).__add__]
MAKERS["functions of libraries"] = lambda: [json.dumps, pd.concat, np.linalg.norm, re.compile]


class Plain:
    tags = frozenset(WORDS)

    def __init__(self, x):
        self.x = x
        self.names = set(WORDS)

    def known(self, name):
        return name in {"a", "b", "c", "d"}

    @classmethod
    def of(cls, x):
        return cls(x)

    @staticmethod
    def fixed():
        return {"m", "n", "o"}

    @property
    def double(self):
        return self.x * 2

    part = functools.partialmethod(known, "a")


class Child(Plain):
    def known(self, name):
        return super().known(name)


class Slots:
    __slots__ = ("_secret", "a", "b")

    def __init__(self):
        self.a, self.b, self._secret = set(WORDS), {"x": {"y", "z"}}, 1


class Abstract(abc.ABC):
    @abc.abstractmethod
    def first(self): ...

    second = third = first


@dataclasses.dataclass
class Data:
    x: int
    names: set[str] = dataclasses.field(default_factory=lambda: set(WORDS))


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int = 1
    names: frozenset[str] = frozenset(WORDS)


class Colour(enum.Enum):
    RED = "r"
    GREEN = frozenset({"g", "h", "i"})


class Reduced:
    def __init__(self, x):
        self.x = x

    def __reduce__(self):
        return Reduced, (self.x,)


class Stateful:
    def __getstate__(self):
        return {"names": set(WORDS)}


class OwnToken:
    def __dask_tokenize__(self):
        return "own", {"a", "b", "c"}


class Names(set):
    pass


class Word(str):
    __slots__ = ()


Point = collections.namedtuple("Point", "x y")
Generic = typing.TypeVar("Generic", bound=Plain)


class Node:
    def __init__(self):
        self.next = self.previous = None


for each in (Plain, Child, Slots, Abstract, Data, Frozen, Colour, Reduced, Point, Names):
    MAKERS[f"class {each.__name__}"] = lambda each=each: each
MAKERS |= {
    "instance": lambda: Plain(1),
    "instance of a child": lambda: Child({"a", "b"}),
    "method": lambda: Plain(1).known,
    "class method": lambda: Plain.of,
    "function of a class": lambda: Plain.known,
    "slots instance": Slots,
    "dataclass instance": lambda: Data(1),
    "frozen dataclass instance": Frozen,
    "enum member": lambda: Colour.GREEN,
    "namedtuple": lambda: Point(1, {"a", "b", "c"}),
    "own __reduce__": lambda: Reduced({"a", "b"}),
    "own __getstate__": Stateful,
    "own __dask_tokenize__": OwnToken,
    "subclass of set": lambda: Names(WORDS),
    "subclass of str": lambda: Word("a"),
    "type variable": lambda: Generic,
    "generic alias": lambda: [list[int], typing.Optional[int], int | str],  # noqa: UP045
}


@make
def local_class():
    words = set(WORDS)

    class Local(Plain):
        kinds = frozenset({"k", "l", "m"})

        def of_closure(self):
            return words

        def known(self, name):
            return super().known(name) and __class__ is not None

    return Local


MAKERS["local_instance"] = lambda: local_class()(3)
MAKERS["local_method"] = lambda: local_class()(3).of_closure


@make
def local_enum():
    class Shade(enum.Flag):
        LIGHT = 1
        DARK = 2

        def both(self):
            return Shade.LIGHT | Shade.DARK

    return [Shade, Shade.DARK, Shade.LIGHT | Shade.DARK]


@make
def cycle_of_instances():
    first, second = Node(), Node()
    first.next, second.previous = second, first
    first.names = {"a", "b", "c"}
    return [second, first]


MAKERS |= {
    "set of text": lambda: set(WORDS),
    "frozenset of text": lambda: frozenset(WORDS),
    "nested sets": lambda: {frozenset({"a", "b", "c"}), frozenset({"d", "e"}), ("f", "g")},
    "mixed set": lambda: {1, "a", b"b", 2.5, None, (1, "x"), frozenset(WORDS)},
    "dict of objects": lambda: {Point(1, 2): {"a"}, frozenset(WORDS): [Word("b")], 3: None},
    "dict views": lambda: [dict.fromkeys(WORDS).keys(), {"a": 1}.items(), {"a": 1}.values()],
    "default dict": lambda: collections.defaultdict(list, {"a": ["x"], "b": []}),
    "deque": lambda: collections.deque([1, {"a", "b"}], maxlen=5),
    "weak set": lambda: weakref.WeakSet([Plain, Child, Slots]),
    "plain values": lambda: [None, True, 1, 1 << 80, 1.5, -0.0, 1j, "a", "ü\ud800", b"a", ...],
    "memoryview": lambda: memoryview(b"abc"),
    "namespace": lambda: types.SimpleNamespace(a={"x", "y"}),
    "mapping proxy": lambda: types.MappingProxyType({"a": {"x", "y"}}),
    "random state": lambda: [random.Random(3), np.random.default_rng(3)],
    "logger": lambda: logging.getLogger("safeser.tokens"),
    "exceptions": lambda: [ValueError("a", {"b", "c"}), KeyError("x")],
    "code object": lambda: with_set_constant.__code__,
    "modules": lambda: [np, json, sys, np.linalg],
}  # fmt: skip


MAKERS |= library_objects.MAKERS


def token(value):
    try:
        return safeser.tokenize(value, ensure_deterministic=True)
    except safeser.TokenizationError as error:
        return f"{error}"


def copies(value):
    found = {}
    for name, copied in {
        "deepcopy": lambda: copy.deepcopy(value),
        "pickle": lambda: pickle.loads(pickle.dumps(value)),
        "cloudpickle": lambda: cloudpickle.loads(cloudpickle.dumps(value)),
    }.items():
        try:
            made = copied()
        except Exception:
            found[name] = None
        else:
            # cloudpickle makes bytes of a memoryview.
            found[name] = token(made) if type(made) is type(value) else None
    return found


def pickled(value):
    """Return a pickle for another process to read, with all definitions of this one."""
    try:
        return cloudpickle.dumps(value).hex()
    except Exception:
        return None


def main():
    found = {}
    for name in sys.argv[2:] or MAKERS:
        value = MAKERS[name]()
        found[name] = {
            "token": token(value),
            "again": token(value),
            "remade": token(MAKERS[name]()),
            **copies(value),
        }
        if sys.argv[1:2] == ["write"]:
            found[name]["pickle of it"] = pickled(value)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

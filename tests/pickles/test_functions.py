"""Profile functions: references that compute, callables made of them, and no way further."""

from __future__ import annotations

import collections
import functools
import math
import operator
import pickle

import numpy as np
import pytest

from safeser.errors import ConfigError, SafeserError
from safeser.pickles import DATA_PROFILES, Profile, loads

PROFILE = ("data", "numpy", "functions")

VALUES = [
    len,
    math.sqrt,
    operator.add,
    np.sin,
    np.mean,
    np.float64,
    np.dtypes.Float64DType,
    str,
    str.upper,
    collections.OrderedDict,
    list[int],
    dict[str, list[int]],
    type(None),
    type(...),
    operator.itemgetter(1, "a"),
    operator.attrgetter("a.b", "c"),
    operator.methodcaller("split", ","),
    functools.partial(round, ndigits=2),
    functools.partial(int, base=2),
    functools.partial(functools.partial(max, 1), 2),
    functools.partial(operator.itemgetter(1)),
    {"a": [np.add]},
]


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_callable_comes_back_as_pickle_gives_it(value, protocol):
    data = pickle.dumps(value, protocol)
    got = loads(data, profile=PROFILE)
    assert type(got) is type(value)
    assert repr(got) == repr(pickle.loads(data)) or got == value
    if value in (np.float64, np.dtypes.Float64DType):
        assert loads(data, profile="numpy") is value
    else:
        with pytest.raises(SafeserError):
            loads(data, profile=("data", "numpy", "exceptions"))


def test_methods_of_built_in_values():
    assert loads(pickle.dumps("abc".upper), profile=PROFILE)() == "ABC"
    assert loads(pickle.dumps([1, 1].count), profile=PROFILE)(1) == 2


def test_every_reference_is_there_and_computes():
    profile = Profile.named("functions")
    for entry in profile.entries.values():
        found = profile.live(entry).found
        assert callable(found)
    reach = "getattr setattr delattr eval exec open input print vars globals locals __import__"
    assert not {f"builtins:{name}" for name in f"{reach} type map filter memoryview".split()} & {
        entry.name for entry in profile.entries.values() if entry.referable
    }
    files = ("tofile", "load", "save", "fromfile", "memmap", "ndarray", "dtype", "frompyfunc")
    assert not {f"numpy:{name}" for name in files} & set(profile.entries)


def partial(asm, function, *args):
    made = asm.call("functools:partial", function) + b"q\x00"
    state = asm.tuple(function, asm.tuple(*args), b"}", b"N")
    return asm.build(made, state)


BYPASSES = {
    "partial of bytes as pointers": lambda a: partial(
        a, a.name("numpy:ndarray"), a.tuple(b"K\x01"), a.text("O"), a.raw(bytes(8))
    ),
    "partial of a class statement": lambda a: partial(
        a, a.name("builtins:type"), a.text("X"), b")", b"}"
    ),
    "partial of a scalar over bytes": lambda a: partial(
        a, a.name("numpy:void"), a.raw(bytes(8)), a.text("O")
    ),
    "partial of what is not listed": lambda a: partial(a, a.name("os:system"), a.text("true")),
    "partial of a value": lambda a: partial(a, b"N"),
    "partial of two functions": lambda a: a.build(
        a.call("functools:partial", a.name("builtins:len")),
        a.tuple(a.name("builtins:abs"), b")", b"}", b"N"),
    ),
    "partial of a lambda's name": lambda a: partial(a, a.name("functools:<lambda>")),
    "partial with attributes": lambda a: a.build(
        a.call("functools:partial", a.name("builtins:len")),
        a.tuple(a.name("builtins:len"), b")", b"}", a.dict(a.text("__wrapped__"), b"N")),
    ),
    # CPython would keep the number where the object has its dict.
    "partial with a number for attributes": lambda a: a.build(
        a.call("functools:partial", a.name("builtins:len")),
        a.tuple(a.name("builtins:len"), b")", b"}", b"K\x00"),
    ),
    "partial with keywords that are none": lambda a: a.build(
        a.call("functools:partial", a.name("builtins:len")),
        a.tuple(a.name("builtins:len"), b")", a.dict(b"K\x01", b"N"), b"N"),
    ),
    "partial is called": lambda a: a.call(
        a.call("functools:partial", a.name("builtins:len")), a.text("x")
    ),
    "attributes of the machinery": lambda a: a.call("operator:attrgetter", a.text("__class__")),
    "attributes that lead there": lambda a: a.call("operator:attrgetter", a.text("a._b")),
    "a frame": lambda a: a.call("operator:attrgetter", a.text("gi_frame.f_globals")),
    "an attribute without a name": lambda a: a.call("operator:attrgetter", a.text("a..b")),
    "an attribute by number": lambda a: a.call("operator:attrgetter", b"K\x01"),
    "a long attribute": lambda a: a.call("operator:attrgetter", a.text("a" * 300)),
    "a method that evaluates": lambda a: a.call(
        "operator:methodcaller", a.text("eval"), a.text("x")
    ),
    "a method that writes": lambda a: a.call(
        "operator:methodcaller", a.text("tofile"), a.text("x")
    ),
    "a method that moves files": lambda a: a.call(
        "operator:methodcaller", a.text("replace"), a.text("x")
    ),
    "a method of the machinery": lambda a: a.call(
        "operator:methodcaller", a.text("__reduce_ex__"), b"K\x02"
    ),
    "a method that is none": lambda a: a.call("operator:methodcaller", b"K\x01"),
    "methodcaller itself": lambda a: a.name("operator:methodcaller"),
    "attrgetter itself": lambda a: a.name("operator:attrgetter"),
    "partial itself": lambda a: a.name("functools:partial"),
    "an attribute of an instance": lambda a: a.call(
        "builtins:getattr", a.text("abc"), a.text("__class__")
    ),
    "a method that shows the machinery": lambda a: a.call(
        "builtins:getattr", a.text("{0.__class__}"), a.text("format")
    ),
    "a method of an object": lambda a: a.call(
        "builtins:getattr", a.call("types:SimpleNamespace"), a.text("copy")
    ),
    "an alias of no class": lambda a: a.call("types:GenericAlias", b"N", b")"),
    "an alias with values": lambda a: a.call(
        "types:GenericAlias", a.name("builtins:list"), a.tuple(a.text("x"))
    ),
    "a class of a value": lambda a: a.call("builtins:type", b"K\x01"),
    "eval": lambda a: a.name("builtins:eval"),
    "open": lambda a: a.name("builtins:open"),
    "getattr": lambda a: a.name("builtins:getattr"),
}


@pytest.mark.parametrize("recipe", BYPASSES.values(), ids=BYPASSES.keys())
def test_bypass_no_callable_leads_further(asm, recipe):
    with pytest.raises((SafeserError, ConfigError)):
        loads(asm.pickle(recipe(asm)), profile=DATA_PROFILES)


def test_the_recipes_are_right_but_for_what_they_forge(asm):
    got = loads(asm.pickle(partial(asm, asm.name("builtins:max"), b"K\x05")), profile=PROFILE)
    assert got(3) == 5

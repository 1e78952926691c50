"""register_generic: what a header can make of a registered class, and what it cannot."""

import abc
import statistics
import types

import numpy as np
import pytest
import registered_classes as own
from families_attack import FAMILIES, GRANT, mutate_all, through

from safeser import families
from safeser.errors import ConfigError, PolicyDenied, SafeserError
from safeser.families import plain
from safeser.families.registered.generic import register_generic
from safeser.values import Grant

register_generic(own.Bag)
register_generic(own.Slotted)
register_generic(own.Mixed)


class Narrow:
    pass


register_generic(Narrow, name="somewhere:Narrow", attributes=("a", "_b"))


def held(x):
    slots = {
        name: getattr(x, name)
        for name in ("a", "_Slotted__hidden")
        if isinstance(x, own.Slotted) and hasattr(x, name)
    }
    return {**slots, **getattr(x, "__dict__", {})}


VALUES = [
    own.Bag(),
    own.Bag(a=1, b="x" * 5000, c=[1, [2]], _private=None, kind="other"),
    own.Bag(z=own.Bag(y=own.Slotted(3)), a=own.Mixed(1, 2j), größe=1),
    own.Slotted(()),
    own.Mixed({1: 2}, "b"),
]


@pytest.mark.parametrize("value", VALUES)
def test_attributes_come_back(value):
    def equal(one, other):
        if isinstance(one, own.Bag | own.Slotted):
            mine, others = held(one), held(other)
            assert type(one) is type(other)
            assert list(mine) == list(others)
            assert all(equal(mine[name], others[name]) for name in mine)
            return True
        return type(one) is type(other) and one == other

    assert equal(through(value), value)


def test_arrays_inside_are_not_copied():
    value = own.Bag(w=np.arange(1000.0), shape=(2, 500))
    header, frames = families.serialize(value, FAMILIES)
    assert np.shares_memory(np.frombuffer(frames[0]), value.w)
    assert plain.decode(header["sub-header"]["plain"])["shape"] == (2, 500)
    np.testing.assert_array_equal(through(value).w, value.w)


def test_cached_values_are_not_sent():
    value = own.Bag()
    assert value.slow == 3
    assert "slow" not in vars(through(value))


def bag(**attributes):
    made = own.Bag()
    vars(made).update(attributes)
    return made


def doubled():
    made = own.Mixed(1, 2)
    vars(made)["a"] = 5
    return made


class Kid(own.Bag):
    pass


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (Kid(), "Kid"),
        (bag(method=1), "hides a method"),
        (bag(**{"a b": 1}), "not allowed"),
        (bag(**{"__dunder__": 1}), "not allowed"),
        (bag(**{"class": 1}), "not allowed"),
        (doubled(), "both in a slot"),
        (bag(f=lambda: 1), "function"),
        (bag(k=own.Bag), "type"),
    ],
)
def test_what_would_be_altered_is_refused(value, word):
    with pytest.raises(SafeserError) as caught:
        families.serialize(value, FAMILIES)
    assert caught.value.rule == "families.cannot-serialize"
    assert word in str(caught.value)


def header(cls, attributes):
    return {
        "serializer": "dask",
        "type": cls if ":" in cls else f"registered_classes:{cls}",
        "sub-header": {"plain": plain.encode(attributes)},
    }


ATTACKS = [
    "__class__",
    "__dict__",
    "__slots__",
    "__init__",
    "__getattr__",
    "__weakref__",
    "__reduce_ex__",
    "__",
    "__x",
    "",
    " ",
    "a b",
    "a.b",
    "a\0",
    "method",
    "owned",  # a property with a setter
    "slow",
    "class",
    "None",
    "1a",
    "ﬁeld",  # source code that says so means "field"
    "x²",
    "\ud800",
]


@pytest.mark.parametrize("name", ATTACKS)
def test_names_that_are_no_plain_attributes_are_refused(name):
    for cls in ("Bag", "Slotted", "Mixed"):
        if cls != "Bag" and name in ("method", "owned", "slow"):
            continue
        with pytest.raises(SafeserError) as caught:
            families.check(header(cls, {"a": 1, name: 1}), [])
        assert caught.value.rule == "families.attribute"
        assert name not in ATTACKS[:7] or name not in caught.value.message


@pytest.mark.parametrize("name", [*ATTACKS[:14], "1a", "x²", "\ud800"])
def test_a_namespace_has_plain_names(name):
    with pytest.raises(SafeserError) as caught:
        families.check(header("types:SimpleNamespace", {"a": 1, name: 1}), [])
    assert caught.value.rule == "value.attribute"


@pytest.mark.parametrize(
    ("cls", "attributes"),
    [
        ("Slotted", {"b": 1}),
        ("Slotted", {"__hidden": 1}),
        ("somewhere:Narrow", {"c": 1}),
        ("somewhere:Narrow", {"a": 1, "b": 1}),
    ],
)
def test_names_beyond_the_slots_or_the_list_are_refused(cls, attributes):
    with pytest.raises(SafeserError) as caught:
        families.check(header(cls, attributes), [])
    assert caught.value.rule == "families.attribute"


def test_what_is_listed_is_all_that_comes():
    value = Narrow()
    value.a, value._b = 1, 2
    assert vars(through(value)) == {"a": 1, "_b": 2}
    value.c = 3
    with pytest.raises(SafeserError):
        through(value)


def test_many_attributes_cost_what_they_weigh():
    many = {f"a{n}": n for n in range(10_000)}
    assert vars(families.deserialize(header("Bag", many), [], GRANT)) == many
    body = plain.encode({"a": b"x" * (2 << 20)})
    with pytest.raises(SafeserError):
        families.check({**header("Bag", {}), "sub-header": {"plain": body}}, [])
    claims = {"plain": plain.encode({}), "names": ["a"] * 1000}
    with pytest.raises(SafeserError):
        families.check({**header("Bag", {}), "sub-header": claims}, [])


@pytest.mark.parametrize("value", VALUES[:2] + VALUES[3:])
def test_headers_that_lie(value):
    mutate_all(value, held, every=2)


def test_nested_values_are_held_to_the_outer_grant():
    with_pickle = ("dask", "msgpack", "pickle")
    value = own.Bag(p=types.MappingProxyType({}), s=statistics.NormalDist(1, 2))
    with pytest.raises(SafeserError):
        families.serialize(value, FAMILIES)
    value = own.Bag(s=statistics.NormalDist(1, 2))
    header_, frames = families.serialize(value, with_pickle)
    assert header_["serializer"] == "dask"
    back = families.deserialize(header_, frames, Grant("wide", with_pickle))
    assert back.s == value.s
    with pytest.raises(PolicyDenied):
        families.deserialize(header_, frames, GRANT)


def test_cycles_are_refused_with_their_path():
    value = own.Bag()
    value.child = own.Bag(parent=value)
    with pytest.raises(SafeserError) as caught:
        families.serialize([1, value], FAMILIES)
    assert caught.value.where.startswith("[1].child.parent")


def test_an_object_that_is_held_twice_comes_twice():
    inner = own.Bag(a=1)
    back = through(own.Bag(one=inner, two=inner))
    assert vars(back.one) == vars(back.two)
    assert back.one is not back.two


class OwnNew:
    def __new__(cls):
        raise AssertionError("ran")


class OwnSet:
    def __setattr__(self, name, value):
        raise AssertionError("ran")


class OwnGet:
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)


class OwnState:
    def __setstate__(self, state):
        raise AssertionError("ran")


class OwnReduce:
    def __reduce__(self):
        return OwnReduce, ()


class Closing:
    def __del__(self):
        pass


class Listy(list):
    pass


class Pretending:
    @property
    def __class__(self):
        return int


class OwnDict:
    @property
    def __dict__(self):
        return {}


class Abstract(abc.ABC):
    @abc.abstractmethod
    def go(self): ...


class Heir(OwnSet):
    pass


@pytest.mark.parametrize(
    ("cls", "word"),
    [
        (OwnNew, "__new__"),
        (OwnSet, "__setattr__"),
        (OwnGet, "__getattribute__"),
        (OwnState, "__setstate__"),
        (OwnReduce, "__reduce__"),
        (Heir, "__setattr__"),
        (Closing, "__del__"),
        (Listy, "built-in"),
        (ValueError, "built-in"),
        (Pretending, "__class__"),
        (OwnDict, "__dict__"),
        (Abstract, "abstract"),
        (own.Frozen, "__setattr__"),
        (own.Bag, "registered already"),
        (dict, "built-in"),
        (object, "name="),
        (7, "only classes"),
        (type("Local<x>", (), {}), "name="),
    ],
)
def test_classes_that_are_more_than_their_attributes_are_refused(cls, word):
    with pytest.raises(ConfigError) as caught:
        register_generic(cls)
    assert word in str(caught.value)


def test_other_families_are_not_registered_for():
    with pytest.raises(ConfigError, match="family dask only"):
        register_generic(OwnNew, "pickle")


def test_metaclasses_and_class_attributes_never_run():
    class Meta(type):
        def __call__(cls, *args, **kwargs):
            raise AssertionError("ran")

    class Made(metaclass=Meta):
        default = 1

        def __init_subclass__(cls):
            raise AssertionError("ran")

    register_generic(Made, name="somewhere:Made")
    value = object.__new__(Made)
    value.default = 2
    assert vars(through(value)) == {"default": 2}

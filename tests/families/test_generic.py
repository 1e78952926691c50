"""register_generic: what is not sent, shared or run, and which classes are refused."""

import abc
import statistics
import types

import numpy
import pytest

from safeser import families
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SafeserError
from safeser.families.registered.generic import register_generic
from safeser.families.registry import registry
from safeser.gate.values import Grant
from tests.refusal import refusal
from tests.samples import classes as own
from tests.samples.hostile.registered import attributes
from tests.samples.typed import FAMILIES, GRANT, through


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
        (OwnNew, "__new__"), (OwnSet, "__setattr__"), (OwnGet, "__getattribute__"),
        (OwnState, "__setstate__"), (OwnReduce, "__reduce__"), (Heir, "__setattr__"),
        (Closing, "__del__"), (Listy, "built-in"), (ValueError, "built-in"),
        (Pretending, "__class__"), (OwnDict, "__dict__"), (Abstract, "abstract"),
        (dict, "built-in"),
        (object, "name="), (7, "only classes"), (type("Local<x>", (), {}), "name="),
    ],
)  # fmt: skip
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


def test_what_is_listed_is_all_that_comes():
    value = own.Narrow()
    value.c = 3
    with pytest.raises(SafeserError):
        through(value)


def test_many_attributes_cost_what_they_weigh():
    many = {f"a{n}": n for n in range(10_000)}
    header, frames = attributes("Bag", many)
    assert vars(families.deserialize(header, frames, GRANT)) == many


def test_base_estimator_registers_the_estimators_that_derive_from_it(monkeypatch):
    """Scikit-learn's own have a way of their own, whose parts are checked."""
    base = pytest.importorskip("sklearn.base").BaseEstimator
    monkeypatch.setattr(registry, "_bases", {})
    for each in ("ready", "_below"):
        monkeypatch.setattr(registry, each, getattr(registry, each).copy())
    names = {"__module__": __name__, "__qualname__": "Mine"}
    mine, hooked = type("Mine", (base,), names), {"__getstate__": dict}
    made = type("Hooked", (base,), {"__module__": __name__, "__qualname__": "Hooked", **hooked})
    assert register_generic(base) is base is register_generic(base)
    value = mine()
    value.mean_ = numpy.arange(3.0)
    header, frames = families.serialize(value, FAMILIES)
    del registry._below[header["type"]]  # as in another process
    back = families.deserialize(header, frames, GRANT)
    assert type(back) is mine
    assert back.mean_.tolist() == [0, 1, 2]
    again = type("Mine", (base,), names)  # its cell ran once more
    assert type(families.deserialize(header, frames, GRANT)) is again is type(through(again()))
    with pytest.raises(SafeserError):
        through(made())
    for name in ("sklearn.svm._classes:SVC", "sklearn.base:BaseEstimator", f"{__name__}:Hooked"):
        with refusal(PayloadError, "families.type"):
            families.deserialize({**header, "type": name}, frames, GRANT)

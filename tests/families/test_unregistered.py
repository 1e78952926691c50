"""Instances of classes that the writing process did not register, as Dask workers write results."""

import dataclasses
import enum
from typing import NamedTuple

import pytest
from pydantic import BaseModel

import safeser
from safeser import families
from safeser.allowed import Allowed
from safeser.errors import PayloadError, SerializationError
from safeser.families.registry import Registry, registry
from safeser.gate.values import Grant

NO_PICKLE = ("dask", "msgpack")


@dataclasses.dataclass
class Point:
    x: int
    y: list


class Pair(NamedTuple):
    left: int
    right: str


class Color(enum.Enum):
    RED = 1


class Plain:
    def __init__(self, value):
        self.value = value


class Model(BaseModel):
    size: int


class Reduced:
    def __reduce__(self):
        raise AssertionError("never called")


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """Take back what a test registers."""
    monkeypatch.setattr(registry, "ready", dict(registry.ready))
    monkeypatch.setattr(registry, "_by_class", dict(registry._by_class))
    monkeypatch.setattr(registry, "_remade", set(registry._remade))


def reader(*families, allow=()):
    return Grant("results", families, profiles=("data",) if allow else (), allow=allow)


def written(x):
    return families.serialize(x, NO_PICKLE, reads=reader(*NO_PICKLE))


def read(header, frames):
    return safeser.deserialize(header, frames)


@pytest.mark.parametrize(
    "value",
    [Point(1, [2.5]), Pair(1, "a"), Color.RED, Model(size=3), [Point(1, []), {"a": Pair(2, "b")}]],
    ids=["dataclass", "named tuple", "enum", "model", "inside collections"],
)
def test_the_reader_alone_registers(value):
    header, frames = written(value)
    with pytest.raises(PayloadError, match=r"no type tests\.families\.test_unregistered:"):
        read(header, frames)
    for cls in (Point, Pair, Color, Model):
        families.register_class(cls)
    assert read(header, frames) == value


def test_one_line_registers_a_plain_class():
    header, frames = written(Plain([1, 2]))
    families.register_class(Plain)
    found = read(header, frames)
    assert type(found) is Plain
    assert found.value == [1, 2]


def test_the_refusal_says_the_line_to_run():
    with pytest.raises(PayloadError) as caught:
        read(*written(Point(1, [])))
    line, _, elsewhere = caught.value.fix.partition(": ")[2].partition(". On Dask's workers ")
    assert 'pickle: {allow: {"tests.families.test_unregistered:Point": class}}' in elsewhere
    assert line == (
        "from tests.families.test_unregistered import Point; safeser.register_class(Point)"
    )
    exec("import safeser; " + line, {})
    assert read(*written(Point(1, []))) == Point(1, [])


def test_a_class_of_a_notebook_needs_no_import():
    cell = dataclasses.make_dataclass("Cell", ["x"])
    cell.__module__ = "__main__"
    header, frames = written(cell(1))
    with pytest.raises(PayloadError) as caught:
        read(header, frames)
    assert caught.value.fix.endswith(": safeser.register_class(Cell)")
    families.register_class(cell)
    assert read(header, frames) == cell(1)


def test_a_cell_that_runs_again_registers_the_new_class():
    for _ in range(2):

        @families.register_class
        @dataclasses.dataclass
        class Cell:
            x: int

        assert read(*written(Cell(1))) == Cell(1)


@pytest.mark.parametrize("value", [Reduced(), object(), print, Registry(), 1j.conjugate])
def test_what_cannot_be_registered_is_refused_by_the_writer(value):
    with pytest.raises(SerializationError):
        written(value)


def test_the_writer_registers_nothing_and_is_asked_for_it():
    before = registry.names()
    written(Point(1, []))
    assert registry.names() == before
    with pytest.raises(SerializationError, match="cannot serialize"):
        families.serialize(Point(1, []), NO_PICKLE)


def test_where_the_policy_allows_the_class_it_goes_as_a_pickle():
    allow = (Allowed(f"{__name__}:Point", "class"),)
    ways = (*NO_PICKLE, "pickle")
    header, _ = families.serialize(Point(1, []), ways, reads=reader(*ways, allow=allow))
    assert header["serializer"] == "pickle"
    allow = (Allowed(f"{__name__}:Plain", "class"),)
    header, _ = families.serialize(Point(1, []), ways, reads=reader(*ways, allow=allow))
    assert header["type"] == f"{__name__}:Point"


def test_a_reader_of_code_need_not_register_what_the_writer_did():
    families.register_class(Point)
    ways = (*NO_PICKLE, "pickle", "cloudpickle")
    header, _ = families.serialize(Point(1, []), ways, reads=reader(*ways))
    assert header["serializer"] in ("pickle", "cloudpickle")
    header, _ = families.serialize(Point(1, []), ways)
    assert header["serializer"] == "dask"

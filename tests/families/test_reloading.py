"""Registered classes whose module runs again, as ``importlib.reload`` and Dask's uploads do it."""

from __future__ import annotations

import importlib
import sys

import pytest

from safeser.errors import ConfigError, PayloadError
from safeser.families import registry, serialize
from safeser.families.registered.classes import register_class
from safeser.families.registry import Typed
from tests.samples.typed import through

SOURCE = """
import enum
from dataclasses import dataclass
from safeser import register_class, register_generic

@register_class
@dataclass
class Point:
    x: int

@register_class
class Color(enum.Enum):
    RED = 1

@register_class
class Failed(Exception):
    pass

@register_generic
class Bag:
    def __eq__(self, other):
        return type(other) is type(self) and vars(other) == vars(self)
    __hash__ = None

def values():
    bag = Bag()
    bag.held = [Point(1)]
    return [Point(1), Color.RED, bag]
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reloading")
    (folder / "reloaded_classes.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("reloaded_classes")
    finally:
        sys.path.remove(str(folder))


def test_the_new_class_takes_the_old_ones_place(module):
    old = module.values()
    for _ in range(2):
        importlib.reload(module)
        for value in module.values():
            assert through(value) == value
        failure = through(module.Failed("no"))
        assert type(failure) is module.Failed
    for value in old:
        with pytest.raises(PayloadError):
            serialize(value, ["dask"])


def test_registering_again_changes_nothing(module):
    for cls in (module.Point, module.Color, module.Failed):
        assert register_class(register_class(cls)) is cls
    assert [through(value) for value in module.values()] == module.values()
    assert type(through(module.Failed("no"))) is module.Failed


def test_nothing_else_does(module):
    with pytest.raises(ConfigError, match="registered already"):
        register_class(module.Point, name="reloaded_classes:Other")
    stranger = type("Other", (module.Failed,), {"__module__": "reloaded_classes"})
    with pytest.raises(ConfigError, match="registered already"):
        register_class(stranger, name="reloaded_classes:Failed")
    builtin = registry.named("decimal:Decimal")
    forged = type("Decimal", (), {"__module__": "decimal"})
    with pytest.raises(ConfigError, match="registered already"):
        registry.register(
            Typed("decimal:Decimal", (forged,), builtin.encode, builtin.check, decode=print)
        )

"""The type of a result: the class itself where its sender's code runs anyway, else a name alone."""

from __future__ import annotations

import os
import pickle
import sys
import types
from fractions import Fraction

import pytest
from distributed.protocol import to_serialize

from safeser.dask.contents import substitutes
from tests.dask.contents.test_whole_failures import CODE


def shown(talk, who, name, **options):
    t = talk(who, "scheduler", CODE, **options).client_stream()
    [got] = t.attack_back([{"op": "key-in-memory", "key": "x", "type": name}])
    return pickle.loads(got["type"])


@pytest.mark.parametrize(("name", "cls"), [("int", int), ("fractions.Fraction", Fraction)])
def test_who_takes_code_gets_the_class_and_others_one_of_that_name(talk, name, cls):
    assert shown(talk, "client", name) is cls
    for made in (
        shown(talk, "reader", name),
        shown(talk, "client", name, deserializers=["dask", "msgpack"]),
    ):
        assert made is not cls
        assert (made.__bases__, made.__name__) == ((object,), cls.__name__)


@pytest.mark.parametrize(
    "name",
    [
        "os.system",  # is no class
        "os.error",  # a class by another name
        "antigravity.x",  # would have to be imported
        "safeser.no.such",
        ".int",
        "sys.modules",
        "",
    ],
)
def test_nothing_else_is_found_by_a_name(talk, name):
    assert substitutes.known_type(name) is None
    assert shown(talk, "client", name).__bases__ == (object,)
    assert "antigravity" not in sys.modules


def test_what_could_not_be_sent_is_a_type_error_as_in_dask(talk):
    t = talk("reader", "scheduler", CODE)
    t.request({"op": "gather", "keys": ["x"], "reply": True})
    with pytest.raises(TypeError, match="could not send this value"):
        t.reply({"status": "OK", "data": {"x": to_serialize(os.getpid)}})


@pytest.mark.parametrize("holder", [None, 5, types.SimpleNamespace(Odd=int), "lazy"])
def test_what_stands_for_no_module_costs_no_stream(talk, monkeypatch, holder):
    if holder == "lazy":  # whose own function is not asked
        holder = types.ModuleType("lazy")
        holder.__getattr__ = lambda name: pytest.fail(name)
    monkeypatch.setitem(sys.modules, "of_glass", holder)
    assert shown(talk, "client", "of_glass.Odd").__name__ == "Odd"

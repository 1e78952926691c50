"""What an error or a warning says of two definitions of one key."""

from __future__ import annotations

import functools

import pytest
from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef

from safeser.dask.equality.difference import find_difference


def add(x, y=0):
    return x + y


def mul(x, y=0):
    return x * y


def captured(n):
    def inner(x):
        return x + n

    return inner


class Loud:
    def __repr__(self):
        raise AssertionError("shown")


def call(function, *args, **named):
    return Task("k", function, *args, **named)


CASES = [
    (call(add, 1), call(mul, 1), "function: mul instead of add"),
    (call(add, 1, {"a": [1]}), call(add, 1, {"a": [5]}), "argument 2['a'][0]: 5 instead of 1"),
    (call(add, 1, y=2), call(add, 1, y=3), "argument y: 3 instead of 2"),
    (call(add, 1), call(add, 1, 2), "number of positional arguments: 2 instead of 1"),
    (
        call(add, x=1, y=2),
        call(add, y=2, x=1),
        "names or order of keyword arguments: ['y', 'x'] instead of ['x', 'y']",
    ),
    (
        call(add, {"a": 1, "b": 2}),
        call(add, {"b": 2, "a": 1}),
        "argument 1, order of keys: ['b', 'a'] instead of ['a', 'b']",
    ),
    (call(add, {"a": 1}), call(add, {"b": 1}), "argument 1, keys: ['b'] instead of ['a']"),
    (call(add, 1), call(add, TaskRef("y")), "argument 1, dependency 'y' instead of a value"),
    (
        call(add, Dict({"a": TaskRef("x")})),
        call(add, Dict({"a": TaskRef("y")})),
        "argument 1['a'], dependency 'y' instead of 'x'",
    ),
    (Alias("k", "x"), Alias("k", "y"), "dependency 'y' instead of 'x'"),
    (DataNode("k", 1), DataNode("k", 2), "value: 2 instead of 1"),
    (DataNode("k", 1), call(add, 1), "a call instead of data"),
    (Alias("k", "x"), call(add, 1), "a call instead of another key's result"),
    (None, call(add, 1), "the key stood for data, or for a task whose inputs are lost"),
    (
        call(captured(1), 1),
        call(captured(2), 1),
        "function: captured variable n of captured.<locals>.inner, 2 instead of 1",
    ),
    (
        call(functools.partial(add, 1), 1),
        call(functools.partial(add, 2), 1),
        "function: args of the partial[0]: 2 instead of 1",
    ),
    (call(add, add), call(add, mul), "argument 1: mul instead of add"),
    (call(add, List(1)), call(add, List(2)), "argument 1[0]: 2 instead of 1"),
    (call(add, [Loud()]), call(add, [3]), "argument 1[0]: 3 instead of <"),
]


@pytest.mark.parametrize(("first", "second", "text"), CASES)
def test_a_difference_shows_values_to_whoever_submitted_both(first, second, text):
    difference = find_difference(first, second)
    assert difference.text(values=True).startswith(text)
    assert difference.text(values=False) == difference.place
    if ": " in text:
        assert "instead" not in difference.place


def test_a_text_is_short_and_printable():
    first, second = 1, 2
    for _ in range(200):
        first, second = [first], [second]
    text = find_difference(call(add, first), call(add, second)).text(values=True)
    assert text.startswith("argument 1[0][0]")
    assert len(text) < 400
    key = "k" * 500
    text = find_difference(
        call(add, {"a" * 500: {"b": "x\x1b[2J" * 500}}), call(add, {"a" * 500: {"b": "y" * 5000}})
    ).text(values=True)
    assert len(text) < 400
    assert text.isprintable()
    assert len(find_difference(Alias("k", key), Alias("k", "o" * 500)).place) < 200

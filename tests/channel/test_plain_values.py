"""A few plain values that were serialized before are not serialized again, and nothing else."""

from __future__ import annotations

import enum
from contextlib import suppress

import numpy as np
import pytest

from safeser import families, trace_serialization
from safeser.channel import sending
from safeser.errors import SerializationError
from safeser.values import Kind

POLICY = """
safeser: 1
name: shop
revision: 1
principals: {ann: {}, bea: {}}
contexts:
  - name: all
    sender: [ann, bea]
    recipient: [ann, bea]
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
"""


class Words(str):
    """Equal to text, and of another type."""


class Number(enum.IntEnum):
    ONE = 1


@pytest.fixture
def link(doors):
    first, _ = doors.links("ann", "bea", POLICY)
    return first


@pytest.fixture
def calls(monkeypatch):
    """Count what is serialized anew."""
    monkeypatch.setattr(sending, "_plain", {})
    made = []
    stock = families.serialize
    monkeypatch.setattr(
        sending.serialization, "serialize", lambda *a, **k: made.append(a[0]) or stock(*a, **k)
    )
    return made


def serialized(link, value):
    return link.serialize(value, link.allowed(link.outbound(Kind.DATA)))


PLAIN = [
    {"collections": [{"type": "Future"}]},
    {},
    [],
    (),
    {"a": (1, [None, True])},
    ["ä", -1, 1 << 60],
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_it_is_serialized_once_in_the_same_bytes(link, calls, value):
    first, second, third = (serialized(link, value) for _ in range(3))
    assert first == second == third
    assert len(calls) == 1
    second[0]["more"] = 1
    second[1].append(b"")
    assert serialized(link, value) == first


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1.5},
        {"a": b"bytes"},
        {"a": np.arange(3)},
        [Words("a")],
        [Number.ONE],
        {"a": "x" * 100},
        list(range(100)),
        [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]],
        1,
        "a",
        np.arange(3),
    ],
    ids=lambda value: str(value)[:20],
)
def test_other_values_are_serialized_each_time(link, calls, value):
    for _ in range(2):
        with suppress(SerializationError):
            serialized(link, value)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [([1], [True]), ([1], (1,)), ({"a": 1}, {"a": True}), (["1"], [1]), ([[]], [()])],
)
def test_equal_values_of_other_types_are_others(link, calls, first, second):
    serialized(link, first)
    again = serialized(link, second)
    sending._plain.clear()
    assert serialized(link, second) == again
    assert len(calls) == 3


def test_a_value_that_changed_is_another(link, calls):
    value = {"a": [1]}
    first = serialized(link, value)
    value["a"].append(2)
    assert serialized(link, value) != first
    assert len(calls) == 2


def test_what_is_kept_is_bounded(link, calls, monkeypatch):
    monkeypatch.setattr(sending, "_MOST_PLAIN", 3)
    for number in range(10):
        serialized(link, [number])
    assert len(sending._plain) <= 3


def test_a_trace_sees_each(link, calls):
    with trace_serialization() as trace:
        for _ in range(2):
            serialized(link, {"a": 1})
    assert len(calls) == 2
    assert len(trace.records) == 2

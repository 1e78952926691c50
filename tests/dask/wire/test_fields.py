"""Payloads are found in one walk, each with its place and with what the table says of it."""

from __future__ import annotations

import pytest

from safeser.dask.wire import fields
from safeser.dask.wire.fields import find, pickled, plan, select
from safeser.dask.wire.reader import Reference

NO_PATHS = plan([])


def refs(count):
    return [Reference(number, False) for number in range(count)]


def test_without_paths_no_payload_has_a_role():
    one, two = refs(2)
    slots = find({"data": {"k": one, "l": (two, "x")}}, NO_PATHS)
    assert [(slot.where, slot.reference) for slot in slots] == [("data.k", one), ("data.l[0]", two)]
    assert {slot.role for slot in slots} == {fields.Role()}


A, B, C, D, E = refs(5)
ROWS = {"tcp://a": {"traceback": A}, ("a", 1): {"traceback": B}, "c": C}

#: A message, the paths that its operation has, and the roles of its payloads in order.
ROLES = [
    (
        {"data": {"k": {"m": A}, B: (C, {D})}, "else": E},
        [("data", fields.DECLARED)],
        [fields.DECLARED, fields.DECLARED, fields.DECLARED, fields.DECLARED, fields.Role()],
    ),
    (
        {"a": A, "b": {"c": B}},
        [("a", fields.WHOLE), ("b", fields.WHOLE)],
        [fields.WHOLE, fields.Role()],
    ),
    (
        {"a": A, "b": (B,)},
        [("a", fields.WRAPPED | fields.DECLARED), ("b", fields.WRAPPED | fields.DECLARED)],
        [fields.WRAPPED | fields.DECLARED, fields.DECLARED],
    ),
    (
        ({"data": A, "more": B}, {"data": {"x": C}}),
        [("[].data", fields.DECLARED)],
        [fields.DECLARED, fields.Role(), fields.DECLARED],
    ),
    (ROWS, [("*.traceback", fields.WHOLE)], [fields.WHOLE, fields.WHOLE, fields.Role()]),
    # Two paths to one value say both.
    (
        {"a": {"x": A, "y": B}, "b": {"x": C}},
        [("a.x", fields.FAILURE), ("*.x", fields.WHOLE), ("a", fields.DECLARED)],
        [fields.FAILURE | fields.WHOLE | fields.DECLARED, fields.DECLARED, fields.WHOLE],
    ),
    (A, [("", fields.DECLARED), ("traceback", fields.WHOLE)], [fields.DECLARED]),
    # A path that does not fit says nothing.
    ({"[]": A}, [("[]", fields.DECLARED)], [fields.Role()]),
    ({"a": {A}}, [("a[]", fields.DECLARED)], [fields.Role()]),
    ({A: 1}, [("*", fields.DECLARED)], [fields.Role()]),
    ({"a": (A,)}, [("a.*", fields.DECLARED)], [fields.Role()]),
    ({"a": {"b": A}}, [("b", fields.DECLARED)], [fields.Role()]),
    ({"a": {"b": A}}, [("a[].b", fields.DECLARED)], [fields.Role()]),
    ({"data": {("data", A): 1}}, [("data.data", fields.DECLARED)], [fields.Role()]),
]


@pytest.mark.parametrize(("message", "paths", "roles"), ROLES)
def test_a_payload_has_the_roles_that_its_paths_say(message, paths, roles):
    found = {slot.reference.index: slot.role for slot in find(message, plan(paths))}
    assert found == dict(enumerate(roles))


# --- places ---------------------------------------------------------------------------------------


class Counted(tuple):
    """A key that says how much of it was written out."""

    def __repr__(self):
        raise AssertionError("written out whole")


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("k", "k"),
        (("x" * 100,), f"('{'x' * 62}"),
        ((1, 2, 3, 4, 5), "(1, 2, 3, 4, ...)"),
        (("x", Counted((1,))), "('x', ...)"),
        ("a\x1bb", "ab"),
    ],
)
def test_a_place_names_as_much_of_a_key_as_is_read(key, shown):
    [slot] = find({key: Reference(0, False)}, NO_PATHS)
    assert slot.where == shown


def test_a_place_names_the_ends_of_a_long_path():
    value = Reference(0, False)
    for level in range(90):
        value = {f"{level}-" * 40: (value,)}
    [slot] = find(value, NO_PATHS)
    assert len(slot.where) < 600
    assert slot.where.startswith("89-89-")
    assert slot.where.endswith("[0]")
    assert "...." in slot.where


# -- places of what is found, no longer than those read --------------------------------------------


def test_places_of_short_paths_are_whole():
    assert list(pickled({"a": [b"x", (b"", b"y")]}, "args")) == [
        ("args.a[0]", b"x"),
        ("args.a[1][1]", b"y"),
    ]
    assert list(select({"m": ({"k": 1}, {"k": 2})}, "m[].k")) == [("m[0].k", 1), ("m[1].k", 2)]
    assert list(select({"m\n": {"k": 1}}, "*.k")) == [("m.k", 1)]


def test_places_far_down_take_no_memory_of_their_own():
    message = [b"x"] * 1000
    for _ in range(90):
        message = {"k" * 64: message}
    places = [where for where, _ in pickled(message, "args")]
    assert len(places) == 1000
    assert len({id(where) for where in places}) == 1
    assert len(places[0]) < 400
    [first, *_] = [where for where, _ in pickled([[message]], "k" * 250)]
    assert first.startswith("k" * 250 + "[0][0]")

"""Payloads are found in one walk, each with its place and with what the table says of it."""

from __future__ import annotations

import pytest

from safeser.dask.wire.reader import Reference
from safeser.dask.wire.slots import DECLARED, FAILURE, WHOLE, WRAPPED, Role, find, plan

NO_PATHS = plan([])


def refs(count):
    return [Reference(number, False) for number in range(count)]


def roles(value, *paths):
    """Return the role of each payload in *value*, by its number."""
    return {slot.reference.index: slot.role for slot in find(value, plan(paths))}


def test_without_paths_no_payload_has_a_role():
    one, two = refs(2)
    slots = find({"data": {"k": one, "l": (two, "x")}}, NO_PATHS)
    assert [(slot.where, slot.reference) for slot in slots] == [("data.k", one), ("data.l[0]", two)]
    assert {slot.role for slot in slots} == {Role()}


def test_what_is_inside_the_value_of_a_field_is_declared_with_it():
    one, two, three, four, five = refs(5)
    message = {"data": {"k": {"m": one}, two: (three, {four})}, "else": five}
    found = roles(message, ("data", DECLARED))
    assert found == {**dict.fromkeys(range(4), DECLARED), 4: Role()}


def test_whole_and_wrapped_are_the_value_itself_and_nothing_in_it():
    one, two = refs(2)
    assert roles({"a": one, "b": {"c": two}}, ("a", WHOLE), ("b", WHOLE)) == {0: WHOLE, 1: Role()}
    found = roles({"a": one, "b": (two,)}, *((name, WRAPPED | DECLARED) for name in "ab"))
    assert found == {0: WRAPPED | DECLARED, 1: DECLARED}


def test_each_element_and_each_value():
    one, two, three = refs(3)
    message = ({"data": one, "more": two}, {"data": {"x": three}})
    assert roles(message, ("[].data", DECLARED)) == {0: DECLARED, 1: Role(), 2: DECLARED}
    workers = {"tcp://a": {"traceback": one}, ("a", 1): {"traceback": two}, "c": three}
    assert roles(workers, ("*.traceback", WHOLE)) == {0: WHOLE, 1: WHOLE, 2: Role()}


def test_two_paths_to_one_value_say_both():
    one, two, three = refs(3)
    message = {"a": {"x": one, "y": two}, "b": {"x": three}}
    found = roles(message, ("a.x", FAILURE), ("*.x", WHOLE), ("a", DECLARED))
    assert found == {0: FAILURE | WHOLE | DECLARED, 1: DECLARED, 2: WHOLE}
    assert roles(one, ("", DECLARED), ("traceback", WHOLE)) == {0: DECLARED}


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"[]": Reference(0, False)}, "[]"),
        ({"a": {Reference(0, False)}}, "a[]"),
        ({Reference(0, False): 1}, "*"),
        ({"a": (Reference(0, False),)}, "a.*"),
        ({"a": {"b": Reference(0, False)}}, "b"),
        ({"a": {"b": Reference(0, False)}}, "a[].b"),
        ({"data": {("data", Reference(0, False)): 1}}, "data.data"),
    ],
)
def test_a_path_that_does_not_fit_says_nothing(message, path):
    assert roles(message, (path, DECLARED)) == {0: Role()}


# --- places ---------------------------------------------------------------------------------------


class Counted(tuple):
    """A key that says how much of it was written out."""

    def __repr__(self):
        raise AssertionError("written out whole")


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("k", "k"),
        (("x", 0), "('x', 0)"),
        (("x" * 100,), f"('{'x' * 62}"),
        (b"x" * 100, f"b'{'x' * 62}"),
        ((1, 2, 3, 4, 5), "(1, 2, 3, 4, ...)"),
        (("x", Counted((1,))), "('x', ...)"),
        (Counted((1,)), "(1)"),
        (1.5, "1.5"),
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

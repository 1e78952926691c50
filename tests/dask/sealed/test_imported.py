"""Canonical digests of functions that workers import: made once for the code that they have."""

from __future__ import annotations

import functools
import gc
import sys
import types

import cloudpickle
import pytest

from safeser.dask.sealed import definitions
from safeser.dask.sealed.definitions import canonical_digest

SOURCE = """
FACTOR = 2
HELD = []

def scale(x):
    return x * FACTOR

def even(n):
    return n == 0 or odd(n - 1)

def odd(n):
    return n != 0 and even(n - 1)

def with_held(x):
    return HELD, x
"""


@pytest.fixture
def module(monkeypatch):
    """A module of the user's own, as workers import it."""
    made = types.ModuleType("safeser_own_module")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(SOURCE, vars(made))
    return made


def reloaded(module, _):
    exec(SOURCE.replace("x * FACTOR", "x + FACTOR"), vars(module))  # as importlib.reload does
    return module.scale


def another_module(module, monkeypatch):
    other = types.ModuleType(module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, other)
    exec(SOURCE.replace("FACTOR = 2", "FACTOR = 3"), vars(other))
    return other.scale


def code_replaced(module, _):
    module.scale.__code__ = (lambda x: x).__code__
    return module.scale


def not_held(module, _):
    scale, module.scale, module.FACTOR = module.scale, None, 3
    return scale


@pytest.mark.parametrize("change", [reloaded, another_module, code_replaced, not_held])
def test_another_one_of_its_name_is_described_anew(module, monkeypatch, change):
    first = canonical_digest(module.scale)
    assert canonical_digest(change(module, monkeypatch)) != first


def test_one_that_is_sent_by_value_is_described_each_time(module):
    cloudpickle.register_pickle_by_value(module)
    try:
        first = canonical_digest(module.scale)
        module.FACTOR = 3
        assert canonical_digest(module.scale) != first
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_it_is_the_same_whatever_refers_to_it_and_whichever_comes_first(module):
    module.HELD.append(functools.partial(module.with_held, 1))
    from_inside = canonical_digest(module.HELD[0])
    definitions._functions.clear()
    assert canonical_digest(functools.partial(module.with_held, 1)) == from_inside
    pair = [canonical_digest(module.even), canonical_digest(module.odd)]
    definitions._functions.clear()
    assert [canonical_digest(module.odd), canonical_digest(module.even)] == pair[::-1]
    assert len(set(pair)) == 2


def test_what_is_known_ends_with_the_function(module):
    gc.collect()
    definitions._functions.clear()
    canonical_digest(module.scale)
    assert len(definitions._functions) == 1
    del module.scale
    gc.collect()
    assert not definitions._functions


def test_two_that_have_no_canonical_form_are_not_taken_for_one(module):
    """Each refers to more levels than are looked at: neither has a digest, twice asked or once."""
    nested: list = []
    for _ in range(25_000):
        nested = [nested]
    module.HELD = nested
    try:
        exec("def other(x):\n    return HELD, x, 2\n", vars(module))
        for _ in range(2):
            assert canonical_digest(module.with_held) == definitions.NO_DIGEST
            assert canonical_digest(functools.partial(module.other, 1)) == definitions.NO_DIGEST
        assert canonical_digest(module.scale) != definitions.NO_DIGEST
    finally:
        while nested:  # one by one: the interpreter would recurse
            nested = nested.pop()

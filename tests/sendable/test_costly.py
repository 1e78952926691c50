"""Advice about what makes submissions slow is given once for each kind, with the fix."""

from __future__ import annotations

import threading
import warnings

import pytest

from safeser.sendable import costly
from safeser.sendable.costly import SerializationAdvice, advise


def said_of(*objects, size=2_000_000, large=True):
    """Return the advice that these objects have, in order."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for each in objects:
            advise(each, size, large=large)
    assert all(each.category is SerializationAdvice for each in said)
    assert all(each.filename == __file__ for each in said)
    return [str(each.message) for each in said]


def test_a_thread_without_code_of_the_user_s_is_told_as_well(recwarn):
    thread = threading.Thread(target=advise, args=(Model(), 2_000_000), kwargs={"large": True})
    thread.start()
    thread.join()
    assert [each.category for each in recwarn] == [SerializationAdvice]


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(costly, "_given", set())


class Model:
    def method(self):
        return 1


def closing_over(table, small):
    def function():
        return table, small

    return function


def of_main(name="Local"):
    return type(name, (), {"__module__": "__main__"})


def test_a_large_object_without_a_tokenizer():
    [text] = said_of(Model(), Model(), size=12_345_678)
    assert text.startswith(f"An argument of class {__name__}.Model is pickled for its key")
    assert "12.3 MB" in text
    assert "__dask_tokenize__" in text


def test_a_large_object_in_a_closure_is_named():
    function = closing_over("x" * 2_000_000, 1)
    [text] = said_of(function, function)
    assert "closure variable 'table'" in text
    assert "client.scatter" in text


def test_a_class_of_the_script():
    assert len(said_of(of_main("One")(), Model(), closing_over("x" * 10, 1))) == 3
    costly._given.clear()
    [text] = said_of(of_main()(), of_main("Other"), size=100, large=False)
    assert text.startswith("Class __main__.Local ")
    assert "in a module" in text


@pytest.mark.parametrize("x", [Model(), Model, closing_over(1, 2), Model().method])
def test_what_is_small_is_not_worth_a_word(x):
    assert said_of(x, size=999, large=False) == []


def test_what_cannot_be_pickled_is_not_the_largest():
    class Unwritable:
        def __reduce__(self):
            raise TypeError

    [text] = said_of(closing_over(Unwritable(), "y" * 100))
    assert "'small'" in text


def test_names_are_printable_and_short():
    [text] = said_of(of_main("X\x1b" + "y" * 400)())
    assert text.isprintable()
    assert len(text) < 500

"""One pickle of an argument for one submission: Dask's tokens, and the bytes that are signed."""

from __future__ import annotations

import functools
import pathlib
import pickle
import sys
import threading
import types

import cloudpickle
import dask
import numpy as np
import pytest
from dask.tokenize import TokenizationError, _normalize_pickle, tokenize

from safeser.dask.clients import call_pickles
from safeser.dask.clients.call_pickles import OneCall, normalize_pickle, pickled_in_call
from safeser.dask.sealed.definitions import Definitions
from safeser.trace.tracing import trace_serialization

#: Dask's own function: a test process may have the replacement already.
STOCK = getattr(_normalize_pickle, "__wrapped__", _normalize_pickle)


class Counted:
    pickles = unpickles = 0

    def __init__(self, value=1):
        self.value = value

    def __reduce__(self):
        Counted.pickles += 1
        return rebuilt, (self.value,)


def rebuilt(value):
    Counted.unpickles += 1
    return Counted(value)


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    monkeypatch.setattr(Counted, "pickles", 0)
    monkeypatch.setattr(Counted, "unpickles", 0)
    monkeypatch.setattr(
        dask.tokenize, "_normalize_pickle", functools.partial(normalize_pickle, STOCK)
    )


@pytest.mark.filterwarnings("ignore:Class:UserWarning")
def test_a_copy_has_the_key_of_its_object(main_module):
    """What cloudpickle loads becomes the class that is here, of other strings and defaults."""

    def key(each):
        with OneCall():
            return tokenize(each)

    rich = main_module.Rich
    of_errors = [
        lambda: ExceptionGroup("of words", [ValueError("a"), ExceptionGroup("b", [OSError()])])
    ]
    of_errors += [
        lambda: ValueError("of words"),
        lambda: types.SimpleNamespace(a=KeyError("of words")),
    ]
    for make in (rich, lambda: rich("of words"), main_module.function, *of_errors):
        made = make()
        first = key(made)
        copy = pickle.loads(cloudpickle.dumps(made))
        assert [key(each) for each in (made, copy, make())] == [first] * 3, make


@pytest.fixture
def main_module(monkeypatch):
    """A module as __main__ is: what it defines is pickled by value."""
    module = types.ModuleType("__main__")
    exec(_MAIN, vars(module))
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


_MAIN = """
class Rich:
    "A class of some words."
    def __init__(self, words="of words", pair=("a b", 1)):
        self.words, self.pair = words, pair
    def total(self):
        return "of words", self.pair

def function():
    return ValueError("of words", Rich("x y"))
"""


def counts():
    return Counted.pickles, Counted.unpickles


def test_in_one_call_an_object_is_pickled_once_and_that_is_what_is_signed():
    made = Counted()
    with OneCall():
        first = tokenize(made)
        assert tokenize([made], {"a": made}) != first
        assert tokenize(made) == first
        written = pickled_in_call(made)
        definitions = Definitions(pickled_in_call)
        definitions.name([definitions.add(made)])
    assert list(definitions.by_digest.values()) == [written]
    assert counts() == (1, 0)
    Definitions(pickled_in_call).add(made)  # what has no pickle gets one
    assert counts() == (2, 0)


def module_function(x):
    return x


@pytest.mark.parametrize(
    "value",
    [
        Counted(3),
        module_function,
        lambda x: x,
        functools.partial(module_function, pathlib.Path("/a")),
        np.dtype("i4"),
        Counted,
        [Counted(1), {"a": Counted(2)}],
    ],
    ids=["object", "function", "lambda", "partial", "dtype", "class", "nested"],
)
def test_tokens_are_dask_s(value, monkeypatch):
    with OneCall():
        ours = tokenize(value)
    monkeypatch.setattr(dask.tokenize, "_normalize_pickle", STOCK)
    assert ours == tokenize(value)


def test_buffers_count_and_a_pickle_with_buffers_is_not_kept():
    class Holding:
        def __init__(self, array):
            self.array = array

        def __reduce__(self):
            return list, ([self.array],)

    with OneCall():
        one, two = Holding(np.zeros(5000)), Holding(np.ones(5000))
        assert tokenize(one) != tokenize(two)
        assert pickled_in_call(one) is None


def test_another_call_pickles_anew():
    made = Counted()
    tokens = []
    for value in (1, 2):
        made.value = value
        with OneCall():
            tokens.append(tokenize(made))
    assert tokens[0] != tokens[1]
    assert counts() == (2, 0)
    assert pickled_in_call(made) is None


def test_calls_within_a_call_share_and_an_error_ends_them():
    made = Counted()
    seen = []

    def failing():
        with OneCall():
            with OneCall():
                tokenize(made)
            seen.append(pickled_in_call(made))
            raise ValueError

    with pytest.raises(ValueError):
        failing()
    assert [type(each) for each in seen] == [bytes]
    assert pickled_in_call(made) is None


def test_outside_of_a_call_dask_s_own_function_decides():
    tokenize(Counted())
    assert counts() == (2, 2)


@pytest.mark.parametrize("by", ["argument", "setting"])
def test_where_tokens_have_to_be_deterministic_dask_s_own_function_decides(by):
    made = Counted()
    strict = {"tokenize.ensure-deterministic": True} if by == "setting" else {}
    asked = {"ensure_deterministic": True if by == "argument" else None}
    with OneCall(), dask.config.set(strict):
        tokens = {tokenize(made, **asked) for _ in range(3)}
        with pytest.raises(TokenizationError):
            tokenize(threading.Lock(), **asked)
    assert len(tokens) == 1
    assert counts() == (6, 6)


class Restless:
    """Has another pickle each time."""

    made = 0

    def __reduce__(self):
        Restless.made += 1
        return list, ([Restless.made],)


def test_a_token_that_no_second_pickle_has_is_no_deterministic_one():
    made = Restless()
    with OneCall():
        loose = tokenize(made)
        assert tokenize(made) == loose
        with pytest.raises(TokenizationError):
            tokenize(made, ensure_deterministic=True)


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(call_pickles, "_MOST_OF_ONE", 1000)
    monkeypatch.setattr(call_pickles, "_MOST_BYTES", 1500)
    kept = []
    with OneCall():
        made = [Counted(b"x" * size) for size in (2000, 800, 800)]
        tokens = [tokenize(each) for each in made]
        kept = [pickled_in_call(each) is not None for each in made]
        assert [tokenize(each) for each in made] == tokens
    assert kept == [False, True, False]
    assert counts() == (3, 0)


def test_a_trace_has_one_record_of_each_pickle_for_a_key():
    made = Counted()
    with trace_serialization() as trace, OneCall():
        tokenize(made)
        tokenize(made)
        Definitions(pickled_in_call).add(made)
    record, sent = trace.records
    assert (sent.action, sent.size) == ("serialize", record.size)
    assert (record.action, record.family) == ("hash", "cloudpickle")
    assert record.type == f"{__name__}.Counted"
    assert record.size > 50

"""Where no token can be kept: an error that names the place, or a random token."""

from __future__ import annotations

import functools
import io
import itertools
import threading
import types
import weakref

import numpy as np
import pytest

from safeser import SafeserError, TokenizationError, tokenize


class Holder:
    def __init__(self, value):
        self.value = value


def answering(method, answer):
    """Return what makes objects whose *method* answers so, or raises the error that it is."""

    def answered(self):
        made = answer(self) if callable(answer) else answer
        if isinstance(made, Exception):
            raise made
        return made

    return type("Answering", (), {method: answered})


LOCK = threading.Lock()


def uses_lock():
    return LOCK


def generator():
    yield 1


REFUSED = {
    "object": object,
    "lock": threading.Lock,
    "generator": generator,
    "file": lambda: open(__file__),  # noqa: SIM115
    "buffered": lambda: io.BufferedReader(io.FileIO(__file__)),
    "thread": threading.Thread,
    "weak reference": lambda: weakref.ref(Holder),
    "frame": lambda: __import__("sys")._getframe(),
    "local": threading.local,
    "iterator of a set": lambda: iter({1, 2}),
    "broken": answering("__reduce__", KeyError("secret-3141")),
    "wrong": answering("__reduce__", 5),
    "wrong arguments": answering("__reduce__", (int, [1])),
    "wrong name": answering("__reduce__", "len"),
    "address": answering("__dask_tokenize__", repr),
    "address inside": answering("__dask_tokenize__", lambda self: ("address", id(self))),
    "broken token": answering("__dask_tokenize__", ValueError("no")),
    "own ufunc": lambda: np.frompyfunc(len, 1, 1),
    "released": lambda: released(),
    "code": lambda: uses_lock.__code__.replace(co_consts=(bytearray(b"x"),)),
    "function of code": lambda: types.FunctionType(uses_lock.__code__.replace(co_consts=([],)), {}),
}


def released():
    view = memoryview(b"a")
    view.release()
    return view


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("around", [lambda x: x, lambda x: {"a": [1, (x,)]}, Holder])
def test_what_has_no_canonical_form(name, around):
    refused = REFUSED[name]()
    value = around(refused)
    with pytest.raises(TokenizationError) as caught:
        tokenize(value, ensure_deterministic=True)
    assert caught.value.rule == "token.nondeterministic"
    assert isinstance(caught.value, SafeserError)
    assert caught.value.where.startswith("the object")
    assert caught.value.fix
    assert "secret-3141" not in str(caught.value)
    first, second = tokenize(value), tokenize(value)
    assert len(first) == len(second) == 64
    assert first != second
    if isinstance(refused, io.IOBase):
        refused.close()


def test_the_error_names_the_way_to_what_is_in_the_way():
    lock, deep = threading.Lock(), threading.Lock()
    for _ in range(100):
        deep = [deep]

    def inside():
        return lock

    for value, word in (
        ({"a": [1, Holder((lock, 2))]}, f"key 'a' → item 1 → state of {__name__}.Holder"),
        (inside, "closure variable 'lock'"),
        (functools.partial(len, lock), "args of functools.partial → item 0"),
        ({(lock,)}, "a member → item 0"),
        ({lock: 1}, "the key of entry 0"),
        (deep, "item 0 → ... → item 0"),
    ):
        with pytest.raises(TokenizationError) as caught:
            tokenize(value, ensure_deterministic=True)
        assert word in caught.value.where
        assert caught.value.where.count("item 0") <= 8
    assert "_thread.lock" in caught.value.message
    assert "__dask_tokenize__" in caught.value.fix


def test_what_an_importable_module_holds_is_not_sent_and_counts_by_its_type():
    assert tokenize(uses_lock, ensure_deterministic=True) == tokenize(uses_lock)
    assert tokenize(Shared, ensure_deterministic=True) == tokenize(Shared)
    assert tokenize(Shared(), ensure_deterministic=True)


class Shared:
    lock = threading.Lock()

    def use(self):
        return LOCK, self.lock


@pytest.mark.parametrize("around", [lambda x: x, lambda x: [{1: x}], functools.partial(Holder)])
@pytest.mark.parametrize("method", ["__getstate__", "__reduce__", "__dask_tokenize__"])
def test_what_has_another_state_each_time_has_no_token(around, method):
    numbers = itertools.count()
    states = {"__reduce__": lambda _: (complex, (next(numbers), 1))}
    value = around(answering(method, states.get(method, lambda _: {"n": next(numbers)}))())
    with pytest.raises(TokenizationError) as caught:
        tokenize(value, ensure_deterministic=True)
    assert caught.value.rule == "token.nondeterministic"
    assert tokenize(value) != tokenize(value)


def test_memory_errors_pass():
    with pytest.raises(MemoryError):
        tokenize(answering("__reduce__", MemoryError())())
    assert tokenize(answering("__reduce__", (int, ("5",)))(), ensure_deterministic=True)

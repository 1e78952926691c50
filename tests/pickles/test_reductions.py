"""What reducers returned of one pickle: it is the same pickle, and no reducer is called again."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import functools
import operator
import pathlib
import pickle
import typing
import uuid

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from safeser.dask.sealed.definitions import NO_DIGEST, Definitions
from safeser.pickles import stock
from safeser.pickles.stock import Reductions, dumps


class Counted:
    """Counts how often its reducer is called."""

    calls = 0

    def __reduce__(self):
        Counted.calls += 1
        return Counted, ()


class Words(list):
    """A list with attributes, whose items pickle takes from an iterator."""


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    monkeypatch.setattr(Counted, "calls", 0)


def words(*items):
    made = Words(items)
    made.language = "en"
    return made


VALUES = {
    "plain": [1, "a", {"b": (2.5, None)}, {3, 4}, frozenset({5})],
    "path": pathlib.PurePosixPath("/data/in/part-1.csv"),
    "partial": functools.partial(operator.add, pathlib.PurePosixPath("/a"), k=1),
    "named": [len, pathlib.PurePosixPath, operator.add, dict.fromkeys, "a".upper],
    "list with attributes": [words("a", "b"), words()],
    "dictionaries": [collections.OrderedDict(b=1, a=2), collections.defaultdict(list, {"x": [1]})],
    "numbers": [decimal.Decimal("1.5"), uuid.UUID(int=7), datetime.date(2026, 1, 1), 3j],
    "containers": [collections.deque([1, 2], 3), collections.Counter("aab"), array.array("i", [1])],
    "arrays": [np.arange(6).reshape(2, 3), np.float32(1.5), pd.DataFrame({"a": [1, 2]})],
    "shared": (lambda one: [one, one, {"k": one}])(pathlib.PurePosixPath("/a")),
}


@pytest.mark.parametrize("name", VALUES)
def test_it_is_the_same_pickle(name):
    value = VALUES[name]
    assert dumps(value, code=True, reductions=Reductions()) == pickle.dumps(value, 5)


@pytest.mark.parametrize(
    "value", [lambda x: x + 1, [words("a"), lambda: 3], functools.partial(lambda x: x, words("b"))]
)
def test_it_is_the_same_pickle_with_code_by_value(value):
    written = dumps(value, code=True, reductions=Reductions())
    assert len(written) == len(cloudpickle.dumps(value, 5))
    assert type(pickle.loads(written)) is type(value)


def test_what_a_reducer_returned_is_known_with_lists_in_place_of_iterators():
    made, path, reductions = words("a", "b"), pathlib.PurePosixPath("/a"), Reductions()
    dumps([made, path, ValueError()], code=True, reductions=reductions)
    _, _, state, items, *_ = reductions.get(made)
    assert (state, items) == ({"language": "en"}, ["a", "b"])
    assert reductions.get(path) == path.__reduce_ex__(5)
    assert reductions.get(words("a", "b")) is None
    assert all(not isinstance(obj, BaseException) for obj, _ in reductions.kept.values())


def test_no_more_than_a_number_of_objects_is_kept(monkeypatch):
    monkeypatch.setattr(stock, "_MOST_KEPT", 3)
    reductions, value = Reductions(), [pathlib.PurePosixPath(f"/{at}") for at in range(9)]
    assert dumps(value, code=True, reductions=reductions) == pickle.dumps(value, 5)
    assert len(reductions.kept) == 3


def test_a_definition_and_its_canonical_digest_call_each_reducer_once():
    definitions = Definitions()
    definitions.name([definitions.add([Counted(), {"a": Counted()}])])
    [word] = definitions.canonical()
    assert word != NO_DIGEST
    assert Counted.calls == 2


def test_the_canonical_digest_is_the_same_whether_reductions_are_known(monkeypatch):
    def written(value):
        definitions = Definitions()
        definitions.name([definitions.add(value)])
        return definitions.canonical()

    values = [VALUES[name] for name in VALUES if name != "shared"]
    known = [written(value) for value in values]
    monkeypatch.setattr(Reductions, "get", lambda self, obj: None)
    assert [written(value) for value in values] == known


@functools.lru_cache(maxsize=7, typed=True)
def cached(n):
    return n if n < 2 else cached(n - 1) + cached(n - 2)


cached.mark = [1]


@pytest.mark.parametrize("made", [cached, typing.NewType("Number", int)], ids=["cache", "type"])
@pytest.mark.parametrize("reductions", [None, Reductions()], ids=["plain", "recorded"])
def test_what_is_a_name_in_main_is_written_by_content(monkeypatch, made, reductions):
    """Workers have another ``__main__``; a function that calls itself calls its cache there too."""
    monkeypatch.setattr(made, "__module__", "__main__")
    function = getattr(made, "__wrapped__", None)
    if function is not None:
        monkeypatch.setattr(function, "__module__", "__main__")
    back = pickle.loads(dumps(made, code=True, reductions=reductions))
    assert back is not made
    if function is None:
        assert (back.__supertype__, back.__module__) == (int, "__main__")
        return
    assert (back(20), back.cache_parameters()) == (6765, {"maxsize": 7, "typed": True})
    assert back.__wrapped__.__globals__["cached"] is back
    assert (back.mark, back.__name__, made.cache_info().currsize) == ([1], "cached", 0)
    assert pickle.loads(dumps(len_of, code=True)) is len_of


len_of = functools.lru_cache(len)
len_of.__module__, len_of.__qualname__ = __name__, "len_of"

"""Each part that keeps an object from being pickled is found, however deep, and by its path."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import functools
import itertools
import mmap
import multiprocessing
import queue
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import types
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import dask
import dask.array
import numpy as np
import pandas as pd
import pytest

from safeser.sendable.culprits import culprits, culprits_among
from safeser.sendable.parts import parts

LOCK = threading.Lock()


def paths(x):
    return [" -> ".join(each.path) for each in culprits(x)]


def holder(value):
    def inner(x):
        return value, x

    return inner


@dataclasses.dataclass
class Record:
    name: str
    held: object = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    held: object = None


class Named(NamedTuple):
    name: str
    held: object = None


class Service:
    def __init__(self, held):
        self.held = held

    def method(self):
        return self.held


class Reduced:
    def __reduce__(self):
        return Record, ("x", LOCK)


def local_class(held):
    class Local(Record):
        shared = held

        @property
        def value(self):
            return held

    return Local


def with_defaults(a, b=LOCK, *, c=LOCK):
    return a, b, c


def annotated(x):
    return x


annotated.__annotations__["x"] = LOCK


def uses_global(x):
    return LOCK, x


for each in (with_defaults, annotated, uses_global):
    each.__module__ = "__main__"  # so that it is written by value


@pytest.mark.parametrize(("value", "expected"), [
    (LOCK, [""]), ([1, (2, {"k": LOCK})], ["[1] -> [1] -> ['k']"]), ({LOCK: 1}, ["key a lock"]),
    ({LOCK}, ["an element"]), (holder(LOCK), ["closure variable 'value'"]),
    (holder(holder(LOCK)), ["closure variable 'value' -> closure variable 'value'"]),
    (functools.partial(print, 1, LOCK, end=LOCK), ["argument 1"]),
    (functools.partial(print, end=LOCK), ["argument 'end'"]),
    (functools.partial(holder(LOCK), 1), ["its function -> closure variable 'value'"]),
    (Record("x", LOCK), ["attribute 'held'"]),
    (Service(LOCK).method, ["its instance -> attribute 'held'"]),
    (local_class(LOCK), ["class attribute 'shared'"]),
    (local_class(LOCK)("x"), ["its class -> class attribute 'shared'"]),
    (staticmethod(holder(LOCK)), ["its function -> closure variable 'value'"]),
    (uses_global, ["global 'LOCK'"]), (annotated, ["annotation of 'x'"]),
    (with_defaults, ["default of parameter 'b'"]), (Reduced(), ["constructor argument 1"]),
    (Frozen("x", LOCK), ["attribute 'held'"]), (Named("x", LOCK), ["attribute 'held'"]),
    (types.MappingProxyType({"k": LOCK}), ["['k']"]), ({"k": LOCK}.values(), ["[0]"]),
    (holder(LOCK).__closure__[0], ["its content"]),
    (np.array([[1, LOCK]], dtype=object), ["[0, 1]"]),
    (pd.DataFrame({"n": [1, 2], "held": [None, LOCK]}), ["column 'held' -> [1]"]),
    (pd.Series([1, LOCK], dtype=object), ["[1]"]),
])  # fmt: skip
def test_the_path_to_a_culprit(value, expected):
    assert paths(value) == expected


LOOP = (each for each in range(3))


def cycle(held):
    value = [LOCK]
    value.append(held(value))
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # Each once, wherever else it is.
        (
            {"a": LOCK, "b": [LOCK, LOOP], "c": Record("x", LOOP), "d": threading.RLock()},
            ["['a']", "['b'] -> [1]", "['d']"],
        ),
        ([LOCK, Record("x", LOCK)], ["[0]"]),
        (cycle(lambda value: value), ["[0]"]),
        (cycle(lambda value: Record("x", value)), ["[0]"]),
    ],
)
def test_each_culprit_is_found_once(value, expected):
    assert paths(value) == expected
    assert [each.path for each in culprits_among([("one", LOCK), ("two", [LOCK, 1])])] == [("one",)]


class Collection:
    """What has a graph that says nothing, or none at all."""

    def __init__(self, graph):
        self.graph, self.meta = graph, LOCK

    def __dask_graph__(self):
        return self.graph()


def test_the_path_leads_into_the_tasks_of_a_collection_that_something_holds():
    node = dask.delayed(print, name="print-1")(LOCK, dask_key_name="print-2")
    for held, before in (
        ([node], "[0]"),
        (Record("a", node), "attribute 'held'"),
        (holder(node), "closure variable 'value'"),
        ({"graph": node.__dask_graph__()}, "['graph']"),
    ):
        (found,) = culprits(held)
        assert found.path[0] == before
        assert found.path[1].startswith("task 'print-2'")
        assert found.name == "_thread:lock"
    made = dask.array.map_blocks(functools.partial(print, file=LOCK), np.arange(4), dtype=int)
    (found,) = culprits([Record("a", made)])
    assert any(step.startswith("task (") for step in found.path)
    for graph in (lambda: {"x": 1}, lambda: 1 / 0):  # then it is an object as all others
        (found,) = culprits([Collection(graph)])
        assert found.path[-1] == "attribute 'meta'"


@pytest.mark.parametrize(
    "value", [1, "text", [1, {2: (3,)}], print, Record("x"), holder(1), Service(1).method, Service]
)
def test_what_can_be_sent_has_none(value):
    assert culprits(value) == ()


def test_depth_ends_no_search():
    deep = LOCK
    for _ in range(300):
        deep = Record("x", deep)
    (found,) = culprits(deep)
    assert found.path == ("attribute 'held'",) * 300
    assert len(str(found)) < 400
    assert "288 more steps" in str(found)


class Refuses:
    def __reduce__(self):
        raise ValueError("no,\nnever \x1b[2J" + "x" * 900)


def test_what_an_objects_own_code_raises_is_shown_in_one_short_line():
    (found,) = culprits([Refuses()])
    assert found.path == ("[0]",)
    assert found.reason.startswith("pickling it raises ValueError: no, never ?[2Jxxx")
    assert len(found.reason) < 300
    assert "\n" not in str(found)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: (each for each in ()), "Pass a list of what it yields"),
        (lambda: tempfile.TemporaryFile("wb"), "Pass its path"),  # noqa: SIM115 - closed below
        (lambda: socket.socket(), "Connect inside"),
        (lambda: ThreadPoolExecutor(1), "Make it inside"),
        (lambda: threading.Thread(), "Make it inside"),
        (lambda: Future(), "Wait for it"),
        (lambda: contextvars.ContextVar("x"), "Pass the variable's value"),
        (lambda: contextvars.copy_context(), "Pass the variable's value"),
        (lambda: weakref.ref(Record("x")), "Pass the object itself"),
        (lambda: sys._getframe(), "traceback.format_exception"),
        (lambda: sqlite3.connect(":memory:"), "Connect inside"),
        (lambda: threading.Event(), "distributed.Event is shared"),
        (lambda: threading.Semaphore(), "distributed.Semaphore is shared"),
        (lambda: threading.Condition(), "distributed.Lock is shared"),
        (lambda: queue.Queue(), "distributed.Queue is shared"),
        (lambda: multiprocessing.Lock(), "distributed.Lock is shared"),
        (lambda: multiprocessing.Process(), "Start it inside"),
        (lambda: threading.local(), "Pass what is needed of it"),
        (lambda: mmap.mmap(-1, 1), "map it inside"),
    ],
)
def test_what_to_do_about_what_belongs_to_this_process(make, words):
    made = make()
    try:
        (found,) = culprits([made])
    finally:
        for name in ("close", "cancel"):
            getattr(made, name, lambda: None)()
    assert found.path == ("[0]",)
    assert words in found.fix


def test_coroutines_and_tasks():
    async def main():
        async def work():
            return 1

        coroutine = work()
        task = asyncio.ensure_future(asyncio.sleep(0))
        one, other = culprits(coroutine), culprits([task])
        await coroutine
        await task
        return one, other

    (coroutine,), (task,) = asyncio.run(main())
    assert coroutine.fix == "Pass the coroutine function, or await it and pass its result."
    assert coroutine.defined.startswith("test_culprits.py, line ")
    assert task.fix == "Wait for it, and pass its result."


CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
cells = (
    "import threading\\nsession = threading.Lock()",
    "def job(x):\\n    return session, x",
    "f = (i for i in ())",
)
for cell in cells:
    shell.run_cell(cell, store_history=True)
from safeser.sendable.culprits import culprits
for name in ("job", "f"):
    print(*culprits(shell.user_ns[name]), sep="\\n")
from safeser.sendable.advice import defined
print(defined(shell.user_ns["job"]))
"""


def test_a_notebooks_cell_is_named():
    ended = subprocess.run(
        [sys.executable, "-c", CELLS], capture_output=True, text=True, timeout=60, check=True
    )
    job, f, place = ended.stdout.splitlines()[-3:]
    assert job.startswith("global 'session' -> _thread:lock: a lock belongs to this process.")
    assert f.startswith("builtins:generator (notebook cell 3, line 1): a generator")
    assert place == "notebook cell 2, line 1"


class Odd(np.ndarray):
    """An array whose own attribute raises."""

    @property
    def dtype(self):
        raise ValueError("no dtype")


class Unlisted(tuple):
    _fields = 5


class Endless(dict):
    """A mapping whose items do not end, and are no part of what pickle asks for."""

    def items(self):
        return ((at, at) for at in itertools.count())


class OfAnother:
    """A proxy for an error that is not there, or cannot be asked for."""

    def __init__(self, kind):
        self.kind, self.held = kind, LOCK

    @property
    def __class__(self):
        if self.kind is None:
            raise RuntimeError("it stands for nothing here")
        return self.kind


@pytest.mark.parametrize(("make", "expected"), [
    (lambda: np.array([1, LOCK], dtype=object).view(Odd), [""]),
    (lambda: {"k": OfAnother(ValueError)}, ["['k'] -> attribute 'held'"]),
    (lambda: {"k": OfAnother(None)}, ["['k'] -> attribute 'held'"]),
    (lambda: {10**5000: LOCK}, ["[a int]"]),
    (lambda: types.MappingProxyType(Endless(a=LOCK)), [""]),
    (lambda: Unlisted((1, LOCK)), ["constructor argument 1 -> [1]"]),
    (lambda: types.MethodType(functools.partial(print, LOCK), 1), ["its function -> argument 0"]),
])  # fmt: skip
def test_what_raises_where_its_parts_are_asked_for_is_to_blame_itself(make, expected):
    assert paths(make()) == expected


def test_the_first_elements_of_an_array_are_there_however_long_it_is():
    endless = np.broadcast_to(np.array([LOCK], dtype=object), (3, 10**12))
    words = [word for word, _ in itertools.islice(parts(endless), 2)]
    assert words == ["[0, 0]", "[0, 1]"]
    array = np.arange(6).reshape(1, 2, 3).astype(object)
    assert dict(parts(array)) == {f"[0, {j}, {k}]": 3 * j + k for j in (0, 1) for k in (0, 1, 2)}


def test_a_frame_is_asked_for_the_dtypes_of_its_columns_once(monkeypatch):
    asked, stock = [], pd.DataFrame.dtypes
    monkeypatch.setattr(
        pd.DataFrame, "dtypes", property(lambda x: asked.append(1) or stock.fget(x))
    )
    frame = pd.DataFrame([[1, "a"] * 5])
    words = [word for word, _ in parts(frame) if word.startswith("column")]
    assert words
    assert len(asked) == 1


def test_what_is_too_deep_to_write_is_said():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    (found,) = culprits([1, deep])
    assert (found.path, found.reason) == ((), "it is nested too deep to be pickled.")

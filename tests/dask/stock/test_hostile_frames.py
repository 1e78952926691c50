"""Answers of a hostile cluster in the form of typed frames: refused before they cost memory."""

from __future__ import annotations

import builtins
import io
import os
import sys
import threading
import tracemalloc

import msgpack
import numpy as np
import pandas as pd
import pytest

from safeser.dask.clients.stock_frames import rebuild_value, write_value
from safeser.errors import PayloadError
from safeser.families import plain
from safeser.gate.values import Limits
from tests.dask.stock.frames import LIMITS
from tests.refusal import refusal


def answer(header, *frames):
    packed = np.frombuffer(msgpack.packb(header), "u1")
    return [packed, *(np.ascontiguousarray(frame).reshape(-1).view("u1") for frame in frames)]


def typed(kind, /, **meta):
    return {"serializer": "dask", "type": kind, "sub-header": meta}


def rows(count):
    return ["range", None, 0, count, 1]


def series(values, index=None, name=None):
    about = {"index": index or rows(1), "attrs": False, "unique": False}
    return typed("pandas:Series", **about, name=name, values=values)


def table(index, columns, blocks):
    about = {"index": index, "attrs": False, "unique": False}
    return typed("pandas:DataFrame", **about, columns=columns, blocks=blocks)


def index(*described):
    names = {"range": "pandas:RangeIndex", "multi": "pandas:MultiIndex"}
    return typed(names.get(described[0], "pandas:Index"), index=list(described))


def levels(*described, codes=1):
    return index("multi", [None] * codes, None, list(described), [["<i4", 1]] * codes)


def holding(header, *inner):
    return {**header, "sub-headers": [each for each, _ in inner], "frame-lengths": [1] * len(inner)}


def packed(value):
    return {"serializer": "msgpack"}, np.frombuffer(plain.encode(value), "u1")


NUMBERS = ["numbers", "<i8", 1]
ONE = np.zeros(1, "i8")
FLOOD = [n * ((1 << 61) - 1) for n in range(1, 3000)]
LISTED = {"serializer": "collection", "type": "list"}
#: What the client's own check refuses, and of each bound of :mod:`safeser.types` one answer that
#: breaks it: tests/samples/hostile has all of them, by the same reader.
HOSTILE = {
    "an array as two columns": (
        answer(table(rows(1), rows(2), [[NUMBERS, 0, 1, 1], [NUMBERS, 1, 1, 1]]), ONE),
        "families.frame-count",
    ),
    "a range of rows": (answer(table(rows(1 << 60), rows(0), [])), "value.index"),
    "codes beyond levels": (answer(levels(rows(1)), np.ones(1, "i4")), "families.codes"),
    "keys that collide": (
        answer(holding(LISTED, packed(dict.fromkeys(FLOOD))), packed(dict.fromkeys(FLOOD))[1]),
        "families.hash-flood",
    ),
    "a header of lists": (
        [np.frombuffer(b"\x91" * 150 + b"\x90", "u1")],
        "families.depth",
    ),
    "a count that is a lie": (
        answer(packed(0)[0], np.frombuffer(b"\xdd\xff\xff\xff\xff", "u1")),
        "families.count",
    ),
    "more behind the header": ([np.frombuffer(b"\x80\x80", "u1")], "families.trailing"),
    "a pickle": (answer({"serializer": "pickle", "writeable": []}, ONE), "stock.type"),
    "an error": (answer({"serializer": "error"}, ONE), "stock.type"),
    "a path": (answer(typed("pathlib:PosixPath", value=b"\xa1/")), "stock.type"),
    "a class of nobody": (answer(typed("os:system")), "stock.type"),
    "a type that is compressed": (
        answer({**series(NUMBERS), "compression": ["zlib"]}, ONE),
        "families.header",
    ),
    "nothing": ([], "stock.apart"),
    "no list": ("a text", "stock.apart"),
    "a tuple": (tuple(answer(series(NUMBERS), ONE)), "stock.apart"),
    "a header that is no array": ([{"serializer": "msgpack"}], "stock.apart"),
    "a header of numbers": ([np.array([1, 2])], "stock.apart"),
    "a header that is a list": ([np.frombuffer(b"\x90", "u1")], "stock.apart"),
    "a frame of one byte": (
        [
            *answer(series(["numbers", "|u1", 1], rows(1 << 20))),
            np.broadcast_to(ONE[:1].view("u1")[:1], (1 << 20,)),
        ],
        "stock.apart",
    ),
    "a frame of objects": ([*answer(series(NUMBERS)), np.array([b"x"], object)], "stock.apart"),
    "a frame of a subclass": (
        [*answer(series(NUMBERS)), np.zeros((1, 8), "u1").view(np.matrix)],
        "stock.apart",
    ),
    **{
        f"a zone called {name}": (
            answer(index("DatetimeIndex", None, None, ["dates", "<M8[ns]", 1, zone]), ONE),
            rule,
        )
        for name, zone, rule in (
            ("a path", ["../../../etc/passwd"], "value.time-zone"),
            ("a file of dateutil's", ["dateutil//etc/passwd"], "value.time-zone"),
            ("a file of pytz's", ["pytz", "../../etc/passwd"], "families.time-zone"),
        )
    },
}


@pytest.fixture
def opened(monkeypatch):
    """Return the files that this thread opens meanwhile; others may watch files of their own."""
    files, here = [], threading.get_ident()

    def noting(found):
        def noted(path, *args, **options):
            if threading.get_ident() == here:
                files.append(path)
            return found(path, *args, **options)

        return noted

    for module, name in ((builtins, "open"), (io, "open"), (io, "open_code"), (os, "open")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    return files


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_answer_is_refused_before_it_costs_more_than_its_bytes(case, opened):
    arrays, rule = HOSTILE[case]
    size = sum(getattr(array, "nbytes", 0) for array in arrays)
    with pytest.raises(PayloadError):  # what is loaded once is loaded
        rebuild_value(arrays, LIMITS)
    opened.clear()
    loaded = set(sys.modules)
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError) as caught:
            rebuild_value(arrays, LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.rule == rule
    assert peak < 8 * size + (8 << 20)  # what a header describes is objects of Python's
    assert set(sys.modules) == loaded
    assert opened == []


def test_the_bounds_are_those_of_the_policy():
    few = Limits(max_array=1000)
    with refusal(PayloadError, "value.index") as caught:
        rebuild_value(write_value()(pd.RangeIndex(999), b""), few)
    assert "max_array" in caught.value.fix

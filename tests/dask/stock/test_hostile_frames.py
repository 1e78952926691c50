"""Answers of a hostile cluster in the form of typed frames: refused before they cost memory."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
import threading
import tracemalloc

import msgpack
import numpy as np
import pandas as pd
import pytest

from safeser.dask.clients.stock_frames import frame_writer, rebuild_value
from safeser.errors import PayloadError, SafeserError
from safeser.families import plain
from safeser.values import Limits
from tests.dask.stock.frames import FRAMES, LIMITS, same


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
WALKED = pd.date_range("1700", periods=70_000, freq="B").to_numpy()
MEMORY = {"__array_interface__": {"data": (1 << 20, False), "shape": (4,), "typestr": "|u1"}}

HOSTILE = {
    "an array as two columns": (
        answer(table(rows(1), rows(2), [[NUMBERS, 0, 1, 1], [NUMBERS, 1, 1, 1]]), ONE),
        "families.frame-count",
    ),
    "an array that nothing describes": (answer(index(*rows(1)), ONE), "families.frame-count"),
    "a range beyond 64 bits": (answer(index(*rows(1 << 63))), "value.index"),
    "a range of rows": (answer(table(rows(1 << 60), rows(0), [])), "value.index"),
    "a range as a level": (answer(levels(rows(1 << 60)), ONE.view("i4")[:1]), "value.index"),
    "ranges as levels": (
        answer(levels(*[rows(1 << 26)] * 4, codes=4), *[np.zeros(1, "i4")] * 4),
        "value.index",
    ),
    "a range as categories": (
        answer(series(["categories", rows(1 << 60), False, "|i1", 1]), np.zeros(1, "i1")),
        "value.index",
    ),
    "2000 levels": (
        answer(levels(*[rows(1)] * 2000, codes=2000), *[np.zeros(1, "i4")] * 2000),
        "value.index",
    ),
    "levels in a level": (
        answer(levels(["multi", [None], None, [rows(1)], [["<i4", 1]]]), *[np.zeros(1, "i4")] * 2),
        "families.child-type",
    ),
    "codes beyond levels": (answer(levels(rows(1)), np.ones(1, "i4")), "families.codes"),
    "codes beyond categories": (
        answer(series(["categories", rows(2), False, "|i1", 1]), np.array([7], "i1")),
        "families.codes",
    ),
    "columns that share a place": (
        answer(table(rows(1), rows(2), [[NUMBERS, 0, 1, 1]] * 2), ONE, ONE),
        "families.shape",
    ),
    "too few rows": (answer(series(NUMBERS, rows(9)), ONE), "families.shape"),
    "two dimensions": (answer(series(NUMBERS, rows(2)), np.zeros((2, 2), "i8")), "families.shape"),
    "a mask that is too short": (
        answer(series(["masked", "<i8", 1, 1]), ONE, np.zeros(2, "?")),
        "families.shape",
    ),
    "text as numbers": (answer(series(["numbers", "<U1", 1]), np.array(["a"])), "families.dtype"),
    "objects as numbers": (answer(series(["numbers", "|O", 1]), ONE), "families.dtype"),
    "objects as an array": (
        answer(typed("numpy:ndarray", shape=[1], order="C", writeable=True, dtype="|O8"), ONE),
        "families.dtype",
    ),
    "moments of a unit": (answer(series(["numbers", "<M8[25s]", 1]), ONE), "families.dtype"),
    "periods of anything": (
        answer(
            index(
                "PeriodIndex", None, None, ["periods", *NUMBERS[1:], ["Day", 1 << 30, False, []]]
            ),
            ONE,
        ),
        "value.period",
    ),
    "a freq that is a text": (
        answer(index("DatetimeIndex", None, "D", ["numbers", "<M8[ns]", 1]), ONE),
        "families.header",
    ),
    "a freq of a class": (
        answer(index("DatetimeIndex", None, ["os", 1, False, []], ["numbers", "<M8[ns]", 1]), ONE),
        "families.freq",
    ),
    "a freq to walk": (
        answer(
            index(
                "DatetimeIndex",
                None,
                ["QuarterEnd", 1, False, [3]],
                ["numbers", f"<M8[{np.datetime_data(WALKED.dtype)[0]}]", 1],
            ),
            WALKED,
        ),
        "value.freq",
    ),
    "a freq that does not fit": (
        answer(
            index("DatetimeIndex", None, ["Hour", 1, False, []], ["numbers", "<M8[ns]", 1]),
            np.arange(3),
        ),
        "families.build",
    ),
    "an interval closed elsewhere": (
        answer(series(["intervals", "top", NUMBERS, NUMBERS, None, None]), ONE, ONE),
        "families.header",
    ),
    "intervals of text": (
        answer(series(["intervals", "left", *[["text", "string", False, ["a"]]] * 2, None, None])),
        "families.child-type",
    ),
    "texts that overlap": (
        answer(
            series(["text", "string", False, [[2, False]]], rows(2)),
            np.array([0, 9, 2], "i4"),
            np.zeros(2, "u1"),
        ),
        "families.offsets",
    ),
    "texts that wrap around": (
        answer(
            series(["text", "large_string", False, [[2, False]]], rows(2)),
            np.array([0, (1 << 63) - 1, 0], "i8"),
            b"",
        ),
        "families.offsets",
    ),
    "text that is none": (
        answer(
            series(["text", "string", False, [[1, False]]]),
            np.array([0, 1], "i4"),
            np.array([255], "u1"),
        ),
        "families.offsets",
    ),
    "a label that is an address": (
        answer(
            holding(index("Index", None, None, ["objects", 1, None]), packed([*MEMORY])),
            packed([*MEMORY])[1],
        ),
        "value.label",
    ),
    "labels that collide": (
        answer(
            holding(index("Index", None, None, ["objects", 1, None]), packed(FLOOD)),
            packed(FLOOD)[1],
        ),
        "families.hash-flood",
    ),
    "keys that collide": (
        answer(holding(LISTED, packed(dict.fromkeys(FLOOD))), packed(dict.fromkeys(FLOOD))[1]),
        "families.hash-flood",
    ),
    "a name that is a list": (
        answer(holding(series(NUMBERS, name=[]), packed([1])), ONE, packed([1])[1]),
        "families.build",
    ),
    "lists inside lists": (
        answer(packed(0)[0], np.frombuffer(b"\x91" * 150 + b"\x90", "u1")),
        "families.depth",
    ),
    "a header of lists": (
        [np.frombuffer(b"\x91" * 150 + b"\x90", "u1")],
        "families.depth",
    ),
    "an integer of a megabyte": (
        answer(
            packed(0)[0], np.frombuffer(b"\xc9\x00\x10\x00\x00\x04" + b"\x7f" * (1 << 20), "u1")
        ),
        "families.integer",
    ),
    "a count that is a lie": (
        answer(packed(0)[0], np.frombuffer(b"\xdd\xff\xff\xff\xff", "u1")),
        "families.count",
    ),
    "a key twice": (
        answer(packed(0)[0], np.frombuffer(b"\x82\xa1a\x01\xa1a\x02", "u1")),
        "families.duplicate-key",
    ),
    "more behind the header": ([np.frombuffer(b"\x80\x80", "u1")], "families.trailing"),
    "a pickle": (answer({"serializer": "pickle", "writeable": []}, ONE), "stock.type"),
    "an error": (answer({"serializer": "error"}, ONE), "stock.type"),
    "a path": (answer(typed("pathlib:PosixPath", value=b"\xa1/")), "stock.type"),
    "a class of sklearn": (answer(typed("sklearn:estimator")), "stock.type"),
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
            ("this machine's", ["tzlocal()"], "value.time-zone"),
            ("a file of pytz's", ["pytz", "../../etc/passwd"], "families.time-zone"),
            ("nothing", None, "families.time-zone"),
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


def test_flags_are_read_as_flags():
    found = rebuild_value(
        answer(series(["masked", "<i8", 1, 1], rows(3)), np.arange(3), np.array([0, 2, 255], "u1")),
        LIMITS,
    )
    assert found.isna().sum() == 2


@pytest.mark.slow
def test_every_byte_of_an_answer_is_a_value_or_a_refusal():
    arrays = [array.copy() for array in frame_writer()(FRAMES["levels"])]
    for array in arrays:
        for at in range(len(array)):
            kept = array[at]
            for other in (0, 255, kept ^ 1, kept ^ 128):
                array[at] = other
                with contextlib.suppress(SafeserError):
                    repr(rebuild_value(arrays, LIMITS))
            array[at] = kept
    same(rebuild_value(arrays, LIMITS), FRAMES["levels"])


ODD = (
    None,
    True,
    -1,
    1 << 62,
    (1 << 64) - 1,
    float("nan"),
    "",
    "x",
    b"\xc0",
    [],
    [[]],
    {},
    {"a": 1},
)


def replaced(value):
    """Yield copies of *value*, each with something else in the place of one part of it."""
    yield from ODD
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {other: held for other, held in value.items() if other != key}
            yield from ({**value, key: made} for made in replaced(inner))
    if isinstance(value, list):
        yield [*value, *value[-1:]]
        for at, inner in enumerate(value):
            yield [*value[:at], *value[at + 1 :]]
            yield from ([*value[:at], made, *value[at + 1 :]] for made in replaced(inner))


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", FRAMES)
def test_whatever_a_header_says_is_a_value_or_a_refusal(name):
    head, *frames = frame_writer()(FRAMES[name])
    for header in replaced(msgpack.unpackb(bytes(head))):
        with contextlib.suppress(SafeserError):
            found = rebuild_value(answer(header, *frames), LIMITS)
            assert len(repr(found)) < 20_000


def test_the_bounds_are_those_of_the_policy():
    few = Limits(max_array=1000)
    with pytest.raises(PayloadError) as caught:
        rebuild_value(frame_writer()(pd.RangeIndex(999)), few)
    assert caught.value.rule == "value.index"
    assert "max_array" in caught.value.fix

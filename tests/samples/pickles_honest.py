"""Honest values that pickles alone carry, or of which samples of typed values have no like.

The one rule: a row is a value, and its repr is its name. ``tests.samples.values`` has the others.
"""

from __future__ import annotations

import argparse
import collections
import configparser
import dataclasses
import datetime as dt
import decimal
import functools
import http
import inspect
import io
import itertools
import json
import logging
import math
import operator
import os
import random
import re
import signal
import socket
import statistics
import string
import subprocess
import time
import tomllib
import types
import urllib.error
import urllib.parse
import uuid
import zoneinfo
from collections import ChainMap, UserDict, UserString
from email import message

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.typing import no_default
from dateutil import relativedelta as relative
from dateutil import tz

from tests.equality import difference

RECORDS = np.rec.array([(1, "a")], dtype=[("i", "i4"), ("s", "U3")])
SOURCES = [np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox]
SOURCES += [np.random.SFC64]
offsets, SPARSE = pd.offsets, pd.arrays.SparseArray
DAYS, SPANS = pd.date_range("2026", periods=3), pd.timedelta_range("1h", periods=3)
BERLIN = pd.date_range("2026", periods=3, tz="Europe/Berlin")
KINDS = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]
NAMED = [getattr(offsets, name) for name in offsets.__all__ if name not in ("BaseOffset", "Tick")]


def raised(function, *args):
    try:
        function(*args)
    except Exception as error:  # whatever a library raises
        return error.with_traceback(None)
    raise AssertionError


def with_fields():
    error = ValueError("text")
    error.code, error.more = 5, {"a": [1]}
    error.add_note("note")
    return error


def looped():
    made = [1]
    made.append(made)
    return made


def looped_tuple():
    inner = []
    made = (inner,)
    inner.append(made)
    return made


def looped_dict():
    shared = [1]
    made = {"twice": [shared, shared]}
    made["self"] = made
    return made


def looped_holder():
    made = types.SimpleNamespace()
    made.me = made
    return made


def shared():
    part, text = [1, 2], "a text that stands twice"
    return [part, part, {"a": part}, text, text, (text,), b"bytes, twice", b"bytes, twice"]


def held_by_others():
    inner = {1: 2}
    return [UserDict(), inner, ChainMap(inner, inner)]


def log_record():
    record = logging.LogRecord("a", 20, "path/file.py", 3, "m %s %d", ("x", 1), None)
    record.request = "extra"
    return record


def mail(kind=message.Message, *parts):
    made = kind()
    made["Subject"] = "one"
    if parts:
        made["Content-Type"] = "multipart/mixed; boundary=xyz"
        for part in parts:
            made.attach(part)
    else:
        made.set_payload("text")
    return made


def at(stream, place):
    stream.seek(place)
    return stream


def begun(iterator):
    next(iterator)
    return iterator


def drawn(kind):
    generator = np.random.Generator(kind(5))
    generator.integers(0, 9, dtype="u4")
    return generator


def gaussian():
    source = random.Random(3)
    source.gauss(0, 1)
    return source


def with_attributes():
    frame = pd.DataFrame({"i": [1, 2], "f": [1.5, np.nan], "z": BERLIN[:2], "j": [3, 4]})
    frame = frame.set_flags(allows_duplicate_labels=False)
    frame.attrs = {"u": [1, {"a": None}], "t": pd.Timestamp("2026")}
    return frame


def used(dtype):
    """Return *dtype*, which remembers what was asked of it."""
    return dtype if dtype.kind and dtype.index_class is pd.Index else None


# fmt: off
STDLIB = [
    bytearray(), bytearray(b"abc"), uuid.UUID(int=7), dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    decimal.Decimal("1.5"), collections.deque(range(1500)), collections.Counter("abca"),
    None, True, False, 0, -1, 255, 256, 65535, -65536, 2**31, -2**31 - 1, 2**100, -2**2000,
    1 << 63, -(1 << 63), (1 << 64) - 1, -(1 << 63) - 1, 0.0, -0.0, -1.5e300, math.inf, math.nan,
    "", "text", "é\n\\\u2028\U0001f600", ["\ud800 lone"], "x" * 300, b"", b"\x00\xff", b"y" * 300,
    (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1, [2, [3]]], [*range(3000)], {},
    {"a": 1, 2: {"b": None}}, {n: n for n in range(2500)}, set(), {1, 2},
    frozenset({"a", (1, b"b")}), looped(), looped_tuple(), looped_dict(),
    looped_holder(), shared(), held_by_others(),
    dict.fromkeys([7.0, (7, (7,))]), slice(0.5, dt.UTC, ("a", 1)), UserString("text"),
    argparse.Namespace(a=1), statistics.NormalDist(1, 2.5), time.localtime(0),
    os.stat_result(range(10), {"st_atime_ns": 5, "st_mtime": 1.5}), os.terminal_size((80, 25)),
    urllib.parse.urlparse("http://user@host/path;x?y#z"), urllib.parse.urlsplit(b"http://host"),
    urllib.parse.urldefrag("a#b"), decimal.Decimal("-1.50").as_tuple(),
    decimal.Decimal("nan").as_tuple(), http.HTTPStatus.OK, signal.SIGINT, socket.AF_INET,
    no_default, uuid.SafeUUID.unsafe, re.I | re.M, inspect.Parameter.VAR_KEYWORD,
    dict.fromkeys((zoneinfo.ZoneInfo("Europe/Paris"), signal.SIGINT), 1),
    zoneinfo.ZoneInfo.no_cache("UTC"), string.Template("$a b"), log_record(), mail(),
    message.EmailMessage(), mail(message.Message, mail()), at(io.BytesIO(b"abc"), 1),
    *(at(io.StringIO("a\nb\r\nc", newline), 2) for newline in (None, "", "\n", "\r", "\r\n")),
    *map(begun, map(iter, ([1, 2, 3], (1, 2, 3), "abc", b"abc", range(3), bytearray(b"abc")))),
    iter({1: 2}), itertools.count(3, 2), itertools.repeat("a", 2), gaussian(),
    decimal.Context(prec=5, rounding=decimal.ROUND_UP, Emin=-9, traps=[decimal.Inexact]),
    with_fields(), raised(json.loads, "{"), raised(re.compile, "("), raised(tomllib.loads, "x"),
    raised(decimal.Decimal, "x"), raised(np.linalg.inv, np.zeros((2, 2))),
    raised(np.zeros(3).sum, 5),
    raised(np.empty, (10**9, 10**6)), subprocess.CalledProcessError(1, ["a"], b"out", b"err"),
    subprocess.TimeoutExpired("a", 3), urllib.error.URLError("reason"),
    configparser.NoOptionError("option", "section"), dataclasses.FrozenInstanceError("x"),
    np.exceptions.ComplexWarning("x"), OSError(2, "text", "a", None, "b"),
    ImportError("no", name="x", path="y"), StopIteration(5), ZeroDivisionError(),
    ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2)])]),
    raised(compile, "(", "<file>", "exec"), raised(b"\xff".decode), raised("\ud800".encode),
    raised(lambda: None.x), raised(lambda: not_there),  # noqa: F821 - the point of it
    len, math.sqrt, operator.add, np.sin, np.mean, np.float64, np.dtypes.Float64DType, str,
    str.upper, "abc".upper, [1, 1].count, collections.OrderedDict, list[int], dict[str, list[int]],
    type(None), type(...), operator.itemgetter(1, "a"), operator.attrgetter("a.b", "c"),
    operator.methodcaller("split", ","), functools.partial(round, ndigits=2),
    functools.partial(functools.partial(max, 1), 2), functools.partial(operator.itemgetter(1)),
    {"a": [np.add]},
]
ARRAYS = [
    np.arange(6).reshape(2, 3), np.float32(1.5),
    np.array(["2026-01-01", "NaT"], "M8[ns]"), np.array([3], "m8"), np.array([3], "M8[25s]"),
    np.zeros(2, {"names": ["a"], "formats": ["i4"], "titles": ["t"]}),
    np.array([1, "two", None, [3]], object), np.array([[1, 2], [3, 4]], object).T,
    [np.dtype("i4"), np.dtype("i4")], [np.arange(3)] * 2, {np.int64(1): 2},
    np.ma.array([[1.5, 2], [3, 4]], mask=[[0, 1], [1, 0]], fill_value=-1, order="F"),
    np.arange(3).view(np.memmap), RECORDS[0], RECORDS.dtype,
    np.dtype([("a", np.dtype("i4", metadata={"x": "y"}))], metadata={"q": 1}),
    np.zeros(2, np.dtype("f4", metadata={"z": 1})), np.poly1d([1.5, 2], variable="t"),
    np.longdouble("1e4000"), np.array([1, 0, np.inf, np.nan, -1e-4940], "g"),
    np.array([1 + 2j], "G").astype(">G"), *map(drawn, SOURCES),
    np.array([([True, False],), ([False, True],)], [("f", "?", (2,))]),
    np.random.SeedSequence([1, 2**70], pool_size=8).spawn(2)[1],
    [np.random.Generator(bits) for bits in [np.random.PCG64(1)] * 2],
]
ARROW = [
    pa.array([1, None]), pa.array([decimal.Decimal("1.25"), None]), pa.nulls(3),
    pa.array([[1, 2], None, []]), pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    pa.array(list("aba")).dictionary_encode(), pa.chunked_array([["a"], ["b"]]),
]
PANDAS = [
    pd.DataFrame({"a": [1, 2], "s": ["x", None]}, index=pd.Index(["r", "s"], name="n")),
    pd.DataFrame({"o": pd.Series([1, "a", None, [2]], dtype=object)}), pd.DataFrame(),
    pd.DataFrame([[1, 2]], columns=["same", "same"]), pd.DataFrame(columns=["a", "b"]),
    pd.DataFrame(index=range(5)), pd.get_dummies(pd.Series(["a", "b"]), sparse=True),
    pd.DataFrame({"a": [1, 1, 2], "b": [1, 2, 3]}).groupby("a").agg(["sum", "mean"]),
    pd.DataFrame(np.arange(20).reshape(5, 4)).iloc[::2, ::-1],
    *(pd.DataFrame({"a": each, "b": each[::-1]})._consolidate() for each in [DAYS, BERLIN, SPANS]),
    with_attributes()[["z", "j", "f", "i"]], with_attributes().copy()._consolidate(),
    pd.DataFrame(np.zeros((0, 100_000), "i1")),
    pd.Series([pd.Series([1]), np.arange(3), [1, [2]], {"a": 1}, (1,), b"x"], dtype=object),
    pd.RangeIndex(2, 9, 3, name=("a", 1)), pd.Index([1.5, np.nan], dtype="f4"), pd.Index([1 + 2j]),
    pd.Index([1, "a", None, (1, 2), pd.NA, pd.NaT], dtype=object),
    pd.date_range("2026", periods=3, freq="ME", unit="ns"),
    pd.date_range("2026", periods=3, freq=offsets.CustomBusinessDay(holidays=["2026-01-05"])),
    pd.DatetimeIndex(["2026", "2025", None]), pd.TimedeltaIndex(["1D", None]),
    pd.period_range("2026", periods=3, freq="Q-NOV", name="q"),
    pd.PeriodIndex(["2026-01", None], freq="15min"),
    pd.IntervalIndex.from_tuples([(0.5, 1.5), np.nan], closed="both", name="n"),
    pd.interval_range(pd.Timestamp("2026", tz="UTC"), periods=3),
    pd.CategoricalIndex(["a", "b", "a", None]),
    pd.CategoricalIndex([1, 2], categories=[2, 1, 3], ordered=True, name="c"),
    pd.MultiIndex.from_arrays([DAYS, [1.5, np.nan, 0], list("uvw")]),
    pd.MultiIndex.from_tuples([(1, 2), (1, 3)]).sortlevel()[0],
    pd.MultiIndex.from_product([pd.interval_range(0, 2), pd.array([1, 2], dtype="Int64")])[:1],
    pd.MultiIndex.from_product([[1], [2]], names=["a", "b"]).names,
    pd.Index([1, None], dtype="Int64"), pd.Index([1, None], dtype="int64[pyarrow]"),
    *(pd.array([1, None, 3], dtype=name) for name in [*KINDS, "Float32", "Float64"]),
    *map(pd.arrays.ArrowExtensionArray, ARROW), pd.Categorical(range(300)),
    pd.array([pd.Interval(0.0, 1.0), None]), pd.arrays.IntervalArray.from_breaks(BERLIN),
    pd.array(pd.period_range("2026", periods=2, freq="Y")), SPARSE([5, 5, 1], fill_value=5),
    SPARSE(np.array(["a", "b"], object), fill_value="a"),
    SPARSE(np.array(["2026", "NaT"], "M8[ns]")), pd.array(["a", None], dtype="str"),
    pd.arrays.NumpyExtensionArray(np.array([1, "a"], object)),
    pd.array(pd.timedelta_range("1D", periods=2)), pd.Timestamp("2026").as_unit("s"),
    pd.Timestamp("2026", tz=zoneinfo.ZoneInfo("UTC")), pd.Timestamp("2026", tz=tz.UTC),
    pd.Timedelta("1D").as_unit("s"), *(pd.Period("2026-01-01", of) for of in ("W-TUE", "3D")),
    pd.Interval(np.int64(1), np.int64(4), "neither"),
    {pd.Timestamp("2026"), pd.Timedelta(1), pd.Period("2026"), pd.Interval(0, 1), pd.NaT},
    {pd.Timestamp("2026", tz="UTC"): 1, offsets.Day(2): 2, offsets.MonthEnd(): 3},
    relative.relativedelta(months=3, weekday=relative.FR(-1)), relative.MO,
    *(kind() for kind in NAMED), *(kind(3) for kind in NAMED if kind is not offsets.FY5253Quarter),
    offsets.DateOffset(weekday=relative.MO(2)), offsets.DateOffset(weekday=0),
    offsets.DateOffset(nanoseconds=5), offsets.DateOffset(day=1, month=2, year=2026),
    offsets.CustomBusinessHour(2, False, "Mon Tue", ["2026-01-01"], None, ["08:00", "10:00"],
        ["09:00", "11:00"]),
    used(pd.Int64Dtype()), used(pd.ArrowDtype(pa.string())),
]
#: An empty array's strides reach nothing, and some remember what was asked of them.
REMEMBERING = [
    pd.MultiIndex.from_arrays([[], []]), pd.Index([]), pd.Categorical([]), SPARSE([]),
    pd.array([], dtype="Int8"), np.array([], object), used(pd.BooleanDtype()),
    pd.MultiIndex.from_product([DAYS[:2], pd.interval_range(0, 2)]),
    pd.Series(1, index=DAYS).index.array,
]
# fmt: on


def other_text(one, other):
    return type(one) is not type(other) or repr(one) != repr(other)


#: How the values of each table are compared.
TABLES = {"STDLIB": difference, "ARRAYS": difference, "PANDAS": difference}
TABLES |= {"REMEMBERING": other_text}

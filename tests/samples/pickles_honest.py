"""Honest values of the standard library, NumPy and pandas: each is read as CPython reads it.

The one rule: a row is a value, and its repr is its name.
"""

from __future__ import annotations

import argparse
import array
import collections
import configparser
import dataclasses
import datetime
import decimal
import fractions
import functools
import http
import inspect
import io
import ipaddress
import itertools
import json
import logging
import math
import operator
import os
import pathlib
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
from collections import ChainMap, OrderedDict, UserDict, UserList, UserString
from email import message

import numpy as np
import pandas as pd
import pyarrow as pa
from dateutil import relativedelta as relative
from dateutil import tz

from tests.equality import difference

ZONE = datetime.timezone(datetime.timedelta(hours=-3), "name")
MOMENT = datetime.datetime(2026, 11, 21, 9, 30, 1, 999_999, ZONE, fold=1)
PARIS = zoneinfo.ZoneInfo("Europe/Paris")
NESTED = np.dtype([("a", "<i4"), ("b", [("c", ">f8"), ("d", "U3")], (2,))])
RECORDS = np.rec.array([(1, "a")], dtype=[("i", "i4"), ("s", "U3")])
ALIGNED, PAIRS = np.dtype([("a", "i1"), ("b", "f8")], align=True), [("a", "i4"), ("b", "f4")]
MATRIX = np.array([[1, 2], [3, 4]]).view(np.matrix)
SERIES = ("Polynomial", "Chebyshev", "Legendre", "Laguerre", "Hermite", "HermiteE")
SOURCES = [np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox]
SOURCES += [np.random.SFC64]
offsets, SPARSE = pd.offsets, pd.arrays.SparseArray
DAYS = pd.date_range("2026", periods=3)
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
    None, True, False, 0, -1, 255, 256, 65535, -65536, 2**31, -2**31 - 1, 2**100, -2**2000,
    0.0, -1.5e300, math.inf, "", "text", "é\n\\\u2028\U0001f600", "\ud800", "x" * 300, b"",
    b"\x00\xff", b"y" * 300, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1, [2, [3]]], {},
    {"a": 1, 2: {"b": None}}, set(), {1, 2}, frozenset({"a", (1, b"b")}), bytearray(b"abc"),
    complex(1, -2), ..., NotImplemented, range(1, 10, 2), slice(1, None, 2), slice("a", "b"),
    slice(0.5, MOMENT, ("a", 1)), collections.OrderedDict(a=1, b=[2]), collections.Counter("abca"),
    collections.deque([1, 2], 5), collections.deque([3]), collections.defaultdict(list, {"a": [1]}),
    collections.defaultdict(int, {"a": 1}), collections.defaultdict(None, {1: 2}), MOMENT,
    MOMENT.replace(tzinfo=None, fold=0), MOMENT.timetz(), MOMENT.time(), MOMENT.date(),
    datetime.timedelta(-1, 2, 3), datetime.UTC, ZONE, decimal.Decimal("-1.50E+10"),
    decimal.Decimal("Infinity"), decimal.Decimal("-0"), fractions.Fraction(-3, 7),
    uuid.UUID(int=2**127 + 1), uuid.UUID(int=7, is_safe=uuid.SafeUUID.safe),
    pathlib.PurePosixPath("/a/b"), pathlib.PureWindowsPath("c:/a"), pathlib.PosixPath("a/b"),
    ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"),
    ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_interface("10.0.0.1/8"),
    array.array("d", [1.5, 2.5]), array.array("B"),
    {MOMENT: 1, decimal.Decimal(2): 2, (uuid.UUID(int=7), pathlib.PurePosixPath("x")): 3},
    {1, 2.5, None, "a", b"b", (1, frozenset({2}))},
    ChainMap({1: 2}, OrderedDict(a=1), UserDict(b=2), ChainMap({3: 4})), UserDict(a=[1]),
    UserList([1, {2}]), UserString("text"), types.SimpleNamespace(a=1, b=[2]),
    argparse.Namespace(a=1), statistics.NormalDist(1, 2.5), time.gmtime(0),
    time.struct_time(range(9)), os.stat_result(range(10)), os.terminal_size((80, 25)),
    urllib.parse.urlparse("http://user@host/path;x?y#z"), urllib.parse.urlsplit(b"http://host"),
    urllib.parse.urldefrag("a#b"), decimal.Decimal("-1.50").as_tuple(),
    decimal.Decimal("nan").as_tuple(), re.compile(r"(?P<a>\w+)\s*[a-z]", re.IGNORECASE),
    re.compile(b"[^ab]+"), PARIS, datetime.datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1),
    datetime.time(1, tzinfo=PARIS), http.HTTPStatus.OK, signal.SIGINT, socket.AF_INET,
    uuid.SafeUUID.unsafe, re.IGNORECASE, inspect.Parameter.VAR_KEYWORD, with_fields(),
    raised(json.loads, "{"), raised(re.compile, "("), raised(tomllib.loads, "x"),
    raised(decimal.Decimal, "x"), raised(lambda: decimal.Decimal(1) / 0),
    raised(np.linalg.inv, np.zeros((2, 2))), raised(np.zeros(3).sum, 5),
    raised(np.empty, (10**9, 10**6)), subprocess.CalledProcessError(1, ["a"], b"out", b"err"),
    subprocess.TimeoutExpired("a", 3), urllib.error.URLError("reason"),
    configparser.NoOptionError("option", "section"), dataclasses.FrozenInstanceError("x"),
    np.exceptions.ComplexWarning("x"), OSError(2, "text", "a", None, "b"),
    ImportError("no", name="x", path="y"), StopIteration(5),
    ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2)])]),
    raised(compile, "(", "<file>", "exec"), raised(b"\xff".decode), raised("\ud800".encode),
    raised(lambda: None.x), raised(lambda: not_there),  # noqa: F821 - the point of it
    ValueError("text", 1), KeyError("k"),
    ZeroDivisionError(), FileNotFoundError(2, "no such file", "name"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"),
    ExceptionGroup("several", [ValueError(1), KeyError(2)]), len, math.sqrt, operator.add, np.sin,
    np.mean, np.float64, np.dtypes.Float64DType, str, str.upper, collections.OrderedDict, list[int],
    dict[str, list[int]], type(None), type(...), operator.itemgetter(1, "a"),
    operator.attrgetter("a.b", "c"), operator.methodcaller("split", ","),
    functools.partial(round, ndigits=2), functools.partial(int, base=2),
    functools.partial(functools.partial(max, 1), 2), functools.partial(operator.itemgetter(1)),
    {"a": [np.add]}, 5, 1 << 63, -(1 << 63), (1 << 64) - 1, 1 << 64, -(1 << 63) - 1, 1 << 500,
    -(1 << 500), -0.0, float("nan"), "a", "\ud800 lone", frozenset((1, "a")), [*range(3000)],
    {n: n for n in range(2500)}, looped(), looped_tuple(), shared(),
    slice(1, "a"),
    types.SimpleNamespace(a=[1]), np.arange(5), np.zeros((2, 3), "?"), np.float32(1.5),
    [np.dtype("i4"), np.dtype("i4")], np.array([1, "a", None], object), [np.arange(3)] * 2,
    ValueError("a"),
    looped_dict(), looped_holder(), held_by_others(), string.Template("$a b"), log_record(), mail(),
    message.EmailMessage(), mail(message.Message, mail()), at(io.BytesIO(b"abc"), 1),
    *(at(io.StringIO("a\nb\r\nc", newline), 2) for newline in (None, "", "\n", "\r", "\r\n")),
    *map(begun, map(iter, ([1, 2, 3], (1, 2, 3), "abc", b"abc", range(3), bytearray(b"abc")))),
    iter({1: 2}), itertools.count(3, 2), itertools.repeat("a", 2), gaussian(), re.I | re.M,
    decimal.Context(prec=5, rounding=decimal.ROUND_UP, Emin=-9, traps=[decimal.Inexact]),
    zoneinfo.ZoneInfo.no_cache("UTC"), time.localtime(0), "abc".upper, [1, 1].count,
    os.stat_result(range(10), {"st_atime_ns": 5, "st_mtime": 1.5}), array.array("u", "a\U0001f600"),
    decimal.Decimal("sNaN12"), {np.int64(1): 2}, dict.fromkeys((PARIS, signal.SIGINT), 1),
    dict.fromkeys([7.0, (7, (7,))]),
]
ARRAYS = [
    np.arange(6).reshape(2, 3), np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2),
    np.arange(24.0, dtype=">f4").reshape(2, 3, 4).T, np.array(5.0), np.zeros((0, 3)),
    np.array([True, False]), np.array([1 + 2j]), np.array([1.5], "f2"), np.array([1.5], "g"),
    np.array(["a", "bcd", "\U0001f600"]), np.array([b"a", b"bcd"]),
    np.array(["2026-01-01", "NaT"], "M8[ns]"), np.array([1, 2], "m8[D]"), np.array([3], "m8"),
    np.array([3], "M8[25s]"), np.array([("x", 1)], [("s", "S3"), ("n", "i8")]), np.zeros(2, NESTED),
    np.zeros(2, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    np.zeros(2, {"names": ["a"], "formats": ["i4"], "titles": ["t"]}), np.zeros(3, "V5"),
    np.array([1, "two", None, [3]], object), np.array([[1, 2], [3, 4]], object).T,
    np.arange(10)[::2], np.broadcast_to(np.float64(2), (2, 2)),
    np.float64(1.5), np.int8(-1), np.bool_(True), np.complex64(1j), np.longdouble(2),
    np.str_("abc"), np.str_(""), np.bytes_(b"x"), np.datetime64("2026-01-01", "ns"),
    np.timedelta64(5, "D"), np.zeros(1, [("a", "i4")])[0], np.ma.array([1, 2, 3], mask=[0, 1, 0]),
    np.ma.array([[1.5, 2], [3, 4]], mask=[[0, 1], [1, 0]], fill_value=-1, order="F"),
    np.ma.array(["a", "b"], mask=True), np.ma.array([1, 2]), MATRIX, MATRIX.T, RECORDS, RECORDS[0],
    RECORDS.dtype, np.zeros(2, ALIGNED).view(np.recarray), np.zeros(2, "i4").view(np.recarray),
    np.array(["ab", "c"]).view(np.char.chararray), np.array([b"ab", b"c"]).view(np.char.chararray),
    np.arange(3).view(np.memmap), np.dtype("i4", metadata={"a": 1}),
    np.dtype("M8[s]", metadata={"a": [1]}),
    np.dtype([("a", np.dtype("i4", metadata={"x": "y"}))], metadata={"q": 1}),
    np.zeros(2, np.dtype("f4", metadata={"z": 1})), np.poly1d([1, 2, 3]),
    np.poly1d([1.5, 2], variable="t"),
    *[getattr(np.polynomial, kind)([1, 2, 3], [0, 4], symbol="z") for kind in SERIES],
    np.ma.array([(1, 2), (3, 4)], dtype=PAIRS, mask=[(0, 1), (1, 0)]),
    np.ma.array([1, "a"], dtype=object, mask=[0, 1]),
    np.ma.array([1.0, 2], mask=[0, 1], fill_value=7),
    np.ma.array(["2026-01-01"], dtype="M8[D]", mask=[1]), np.longdouble("1e4000"),
    np.array([1, 0, np.inf, np.nan, -1e-4940], "g"), np.array([1 + 2j], "G").astype(">G"),
    np.array([True, False, True]),
    np.array([(True, 1), (False, 2), (True, 3)], [("f", "?"), ("n", "i1")]),
    np.array([([True, False],), ([False, True],)], [("f", "?", (2,))]),
    np.array([(True, 1)], [("f", "?"), ("n", "i1")])[0], np.ma.array([1, 2, 3], mask=[1, 0, 1]),
    np.ma.masked, *map(drawn, SOURCES),
    np.random.SeedSequence([1, 2**70], pool_size=8).spawn(2)[1],
    [np.random.Generator(bits) for bits in [np.random.PCG64(1)] * 2],
]
ARROW = [
    pa.array([1, None]), pa.array([decimal.Decimal("1.25"), None]), pa.nulls(3),
    pa.array([datetime.date(2026, 1, 1)]), pa.array([[1, 2], None, []]), pa.array(["a", None]),
    pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}]), pa.array(list("aba")).dictionary_encode(),
    pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), pa.chunked_array([["a"], ["b"]]),
]
PANDAS = [
    pd.DataFrame({"a": [1, 2], "s": ["x", None], "f": [1.5, np.nan], "b": [True, False]}),
    pd.DataFrame({"a": [1, 2], 3: [4, 5]}, index=pd.Index(["r", "s"], name="n")),
    pd.DataFrame({"t": pd.date_range("2026", periods=3), "d": pd.to_timedelta([1, 2, 3], "s")}),
    pd.DataFrame({"o": pd.Series([1, "a", None, [2]], dtype=object)}),
    pd.DataFrame(np.arange(12.0).reshape(3, 4)), pd.DataFrame(), pd.DataFrame({"a": []}),
    pd.DataFrame([[1, 2]], columns=["same", "same"]),
    pd.DataFrame({"a": range(200)}, index=pd.Index([1] * 200, dtype=object)),
    pd.Series([1.5, 2], name="q"), pd.Series(["a", "é", None]), pd.Series([1, 2], index=[5, 6]),
    pd.Series(pd.date_range("2026", periods=2)), pd.Timestamp("2026-01-02 03:04:05.6"),
    pd.Timestamp("2026", tz=datetime.timezone(datetime.timedelta(hours=2))), pd.NaT, pd.NA,
    pd.RangeIndex(3, 9, 2, name="r"), pd.Index([1, 2]), pd.StringDtype("pyarrow"),
    pd.RangeIndex(2, 9, 3, name=("a", 1)), pd.Index([3, 1, 2]), pd.Index([1, 2], dtype="i1"),
    pd.Index([1.5, np.nan], dtype="f4"), pd.Index([True, False]), pd.Index([1 + 2j]),
    pd.Index(["a", "b", None]), pd.Index([1, "a", None, (1, 2), pd.NA, pd.NaT], dtype=object),
    pd.date_range("2026", periods=4, freq="h", name="x"), pd.bdate_range("2026", periods=4),
    pd.date_range("2026", periods=3, freq="ME", unit="ns"),
    pd.date_range("2026", periods=3, freq=offsets.CustomBusinessDay(holidays=["2026-01-05"])),
    BERLIN, pd.date_range("2026", periods=3, tz="UTC"), pd.DatetimeIndex(["2026", "2025", None]),
    pd.timedelta_range("1h", periods=3), pd.TimedeltaIndex(["1D", None]),
    pd.period_range("2026", periods=3, freq="M"),
    pd.period_range("2026", periods=3, freq="Q-NOV", name="q"),
    pd.PeriodIndex(["2026-01", None], freq="15min"), pd.interval_range(0, 3),
    pd.IntervalIndex.from_tuples([(0.5, 1.5), np.nan], closed="both", name="n"),
    pd.interval_range(pd.Timestamp("2026", tz="UTC"), periods=3),
    pd.CategoricalIndex(["a", "b", "a", None]),
    pd.CategoricalIndex([1, 2], categories=[2, 1, 3], ordered=True, name="c"),
    pd.MultiIndex.from_product([[1, 2], ["a", None]], names=["x", None]),
    pd.MultiIndex.from_arrays([DAYS, [1.5, np.nan, 0], list("uvw")]),
    pd.MultiIndex.from_tuples([(1, 2), (1, 3)]).sortlevel()[0],
    pd.MultiIndex.from_product([[1, 2], ["a", "b"]])[:1],
    pd.MultiIndex.from_product([pd.interval_range(0, 2), ["a"]]),
    pd.Index([1, None], dtype="Int64"), pd.Index([1, None], dtype="int64[pyarrow]"),
    *(pd.array([1, None, 3], dtype=name) for name in [*KINDS, "Float32", "Float64"]),
    *map(pd.arrays.ArrowExtensionArray, ARROW),
    pd.array([True, None], dtype="boolean"), pd.Categorical(["a", "b", None]),
    pd.Categorical([3, 1], categories=[1, 2, 3], ordered=True),
    pd.cut([1, 2, 3], 2), pd.Categorical(range(300)),
    pd.arrays.IntervalArray.from_breaks([0, 1, 2]), pd.array([pd.Interval(0.0, 1.0), None]),
    pd.arrays.IntervalArray.from_breaks(BERLIN),
    pd.array(pd.period_range("2026", periods=2, freq="Y")), SPARSE([0, 0, 1.5]),
    SPARSE([5, 5, 1], fill_value=5), SPARSE([True, False]),
    SPARSE([0, 1, 2, 0, 3], kind="block", fill_value=0),
    SPARSE(np.array(["a", "b"], object), fill_value="a"),
    SPARSE(np.array(["2026", "NaT"], "M8[ns]")), pd.array(["a", None], dtype="str"),
    pd.array(["a", None], dtype=pd.StringDtype("pyarrow")),
    pd.array(["a", None], dtype=pd.StringDtype("python")),
    pd.arrays.NumpyExtensionArray(np.arange(3)),
    pd.arrays.NumpyExtensionArray(np.array([1, "a"], object)), pd.array(DAYS), pd.array(BERLIN),
    pd.array(pd.timedelta_range("1D", periods=2)),
    pd.MultiIndex.from_product([[1, 2], ["a", None]]),
    pd.MultiIndex.from_product([[True, False], pd.array([1, 2], dtype="Int64")]),
    pd.PeriodIndex(["2026", "2027", "2028", "2029"], freq="Y"),
    pd.Index([1, 2, 3, None], dtype="Int64"), pd.Index([1 + 1j, 2, 3, 4]),
    pd.Index([datetime.date(2026, 1, 1), "a", 1, None], dtype=object),
    pd.CategoricalIndex([1, 2, 3, 4]), pd.DataFrame({"a": DAYS, "b": DAYS})._consolidate(),
    pd.DataFrame({"a": BERLIN, "b": BERLIN})._consolidate(),
    pd.DataFrame({"a": DAYS - DAYS[0], "b": DAYS - DAYS[1]})._consolidate(),
    pd.DataFrame(np.arange(20).reshape(5, 4)).iloc[::2, ::-1],
    pd.DataFrame(np.arange(6.0).reshape(2, 3)).T, pd.DataFrame(columns=["a", "b"]),
    pd.DataFrame(index=range(5)), pd.get_dummies(pd.Series(["a", "b"]), sparse=True),
    pd.DataFrame({"a": [1, 1, 2], "b": [1, 2, 3]}).groupby("a").agg(["sum", "mean"]),
    pd.Timestamp("2026-01-01 01:02:03.123456789"), pd.Timestamp("2026").as_unit("s"),
    pd.Timestamp("2026", tz="Europe/Paris"), pd.Timestamp("2026", tz=zoneinfo.ZoneInfo("UTC")),
    pd.Timestamp("2026-01-01T00:00+02:00"), pd.Timestamp("2026", tz=tz.UTC), pd.Timedelta(5, "ns"),
    pd.Timedelta("1D").as_unit("s"), pd.Period("2026-01", "M"), pd.Period("2026-01-01", "W-TUE"),
    pd.Period("2026-01-01", "3D"), pd.Interval(0, 1, "both"), pd.Interval(0.5, 1),
    pd.Interval(np.int64(1), np.int64(4), "neither"),
    pd.Interval(pd.Timestamp("2026"), pd.Timestamp("2027"), "left"),
    pd.Interval(pd.Timedelta("1D"), pd.Timedelta("2D")),
    pd.MultiIndex.from_product([[1], [2]], names=["a", "b"]).names,
    {pd.Timestamp("2026"), pd.Timedelta(1), pd.Period("2026"), pd.Interval(0, 1), pd.NaT},
    {pd.Timestamp("2026", tz="UTC"): 1, offsets.Day(2): 2, offsets.MonthEnd(): 3},
    relative.relativedelta(months=3, weekday=relative.FR(-1)), relative.MO,
    *(kind() for kind in NAMED), *(kind(3) for kind in NAMED if kind is not offsets.FY5253Quarter),
    offsets.DateOffset(n=2, years=1, hour=3, normalize=True),
    offsets.DateOffset(weekday=relative.MO(2)), offsets.DateOffset(weekday=0),
    offsets.DateOffset(nanoseconds=5), offsets.DateOffset(day=1, month=2, year=2026),
    offsets.CustomBusinessHour(2, False, "Mon Tue", ["2026-01-01"], None, ["08:00", "10:00"],
        ["09:00", "11:00"]),
    offsets.BDay(offset=datetime.timedelta(hours=1)), offsets.Nano(1234567890123),
    offsets.Week(weekday=3), offsets.FY5253(startingMonth=8, weekday=4, variation="last"),
    with_attributes(), with_attributes()[["z", "j", "f", "i"]], with_attributes()["z"],
    with_attributes().copy()._consolidate(), pd.DataFrame(np.zeros((0, 100_000), "i1")),
    used(pd.Int64Dtype()), used(pd.ArrowDtype(pa.string())),

    pd.Series([pd.Series([1]), np.arange(3), [1, [2]], {"a": 1}, (1,), b"x"], dtype=object),
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

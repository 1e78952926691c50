"""Values of the standard library, and failures."""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import fractions
import functools
import http
import inspect
import io
import ipaddress
import operator
import pathlib
import plistlib
import random
import re
import signal
import socket
import statistics
import time
import types
import uuid
import zoneinfo
from typing import Any

import numpy as np


def examples() -> dict[str, object]:
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    group = ExceptionGroup("g", [KeyError("k"), ValueError(1)])
    group.__cause__ = SyntaxError("bad", ("f.py", 1, 2, "x", 1, 3))
    group.__context__ = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")
    group.add_note("note")
    return {
        "complex": 1 - 2j,
        "not-implemented": NotImplemented,
        "bytes": b"x" * 5000,
        "bytearray": bytearray(b"xyz"),
        "range": range(1, 10, 2),
        "datetime": dt.datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=berlin),
        "time": dt.time(1, 2, 3, 4, tzinfo=dt.timezone(dt.timedelta(hours=1), "odd")),
        "timedelta": dt.timedelta(1, 2, 3),
        "timezone": dt.timezone(dt.timedelta(hours=-5), "odd"),
        "zone": berlin,
        "decimal": decimal.Decimal("sNaN12"),
        "fraction": fractions.Fraction(-1, 7),
        "uuid": uuid.UUID(int=5),
        "path": pathlib.PureWindowsPath("c:\\x"),
        "posix": pathlib.PurePosixPath("a", "b"),
        "here": pathlib.Path("a"),
        "address": ipaddress.ip_interface("fe80::1%eth0/64"),
        "address-6": ipaddress.ip_address("fe80::1"),
        "address-4": ipaddress.ip_address("192.0.2.1"),
        "network-6": ipaddress.ip_network("2001:db8::/32"),
        "network-4": ipaddress.ip_network("192.0.2.0/24"),
        "interface-4": ipaddress.ip_interface("192.0.2.1/24"),
        "memoryview": memoryview(bytearray(12)).cast("h", [2, 3]),
        "array": array.array("d", [1.5, -2]),
        "text": array.array("u", "ab"),
        "deque": collections.deque([1, dt.date(2020, 1, 1)], 5),
        "ordered": collections.OrderedDict({(1,): 2j, "b": [None]}),
        "counter": collections.Counter("aab"),
        "factory": collections.defaultdict(list, {1: {2j}}),
        "chain": collections.ChainMap({"a": 1}, collections.OrderedDict(b=...)),
        "space": types.SimpleNamespace(a=1, b="x" * 2000, c=slice(1, 2j)),
        "days": [dt.date(2020, 1, day) for day in range(1, 20)],
        "moments": tuple(dt.datetime(2020, 1, day, tzinfo=berlin) for day in range(1, 9)),
        "prices": {str(price): decimal.Decimal(price) for price in range(5)},
        "mixed": {uuid.UUID(int=1): frozenset({2j}), 1 << 70: (b"x", "\ud800")},
        "pattern": re.compile("a(?i:b)[c-d]+"),
        "random": random.Random(5),
        "moment": time.gmtime(5),
        "user": collections.UserDict({1: collections.UserList([2j])}),
        "group": group,
        "os": FileNotFoundError(2, "no", "a", None, "b"),
        "keys": {"a": 1, "b": 2j}.keys(),
        "contents": {"a": 1, "b": 2j}.values(),
        "items": {"a": [2j]}.items(),
        "proxy": types.MappingProxyType({"a": 1}),
        "bytes-io": _at(io.BytesIO(b"abc"), 2),
        "string-io": _at(io.StringIO("a\r\nb", newline=""), 1),
        "status": http.HTTPStatus.OK,
        "method": http.HTTPMethod.GET,
        "signal": signal.SIGINT,
        "handler": signal.SIG_DFL,
        "family": socket.AF_INET,
        "socket": socket.SOCK_STREAM,
        "safe": uuid.SafeUUID.safe,
        "flags": re.IGNORECASE | re.MULTILINE,
        "parameter": inspect.Parameter.KEYWORD_ONLY,
        "property-list": plistlib.FMT_XML,
        "type": int,
        "types": [float, dict, np.float32],
        "function": len,
        "median": statistics.median,
        "ufunc": np.sin,
        "reduction": np.median,
        "partial": functools.partial(np.add, np.arange(3), dtype=float),
        "getter": operator.itemgetter(1, "a"),
        "generic": dict[str, list[int]],
        "union": int | None,
    }


def _at(stream: Any, position: int) -> Any:
    stream.seek(position)
    return stream


NAN = float("nan")
VALUES = [
    io.BytesIO(), io.StringIO(),
    _at(io.StringIO("x" * 9), 9), {}.values(), {1: np.ones(2)}.values(),
    {http.HTTPStatus.OK: [http.HTTPStatus.NOT_FOUND]},
    functools.partial(functools.partial(operator.add, 1), 2), functools.partial(int, base=2),
    tuple[int, ...],
    int | list[str] | None,
    complex("nan"), range(10, -(1 << 70), -3), slice(1, None, 2), slice("a", dt.date(2020, 1, 1)),
    dt.time(1, 2, 3, 4, fold=1, tzinfo=dt.UTC), dt.datetime.max, dt.timedelta.min, dt.UTC,
    dt.timezone(dt.timedelta(hours=-3, microseconds=5), "odd"), zoneinfo.ZoneInfo("UTC"),
    *map(decimal.Decimal, ("1.20", "-0", "NaN12", "sNaN", "-Infinity", "1E+10000", "0E-65536")),
    fractions.Fraction(-(1 << 90), 7), uuid.UUID(int=1 << 100),
    uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe), pathlib.PurePosixPath("/a/../b"),
    pathlib.Path("."), bytearray(), collections.deque(), collections.defaultdict(None, {}),
    array.array("d", [float("nan")]), array.array("b"), array.array("Q", range(100)),
    array.array("u", "a\U0001f600\ud800"), ipaddress.ip_interface("::1/128"), ...,
    types.SimpleNamespace(), types.SimpleNamespace(**{"class": 1}),
    collections.ChainMap(collections.ChainMap({}), collections.Counter(a=-1)),
    collections.ChainMap(collections.UserDict(a=1)), slice([1], slice(2), np.arange(3)),
    collections.Counter({"a": "not a number", "b": 1.5}),
    collections.OrderedDict(a=slice(...), b=NotImplemented), collections.UserList([1, ...]),
    re.compile("a", re.MULTILINE), re.compile(b"(?x) a  # b"), time.struct_time(range(9)),
    [(), {}, {"a": bytearray(b"x")}], {NAN: 1}, [{"a": {NAN}}], {NAN: 1, float("nan"): 2},
    {"a": np.ones(2), NAN: 1}, [np.ones(2), {NAN: np.ones(2)}], [2j, frozenset([NAN])],
    {np.float64("nan"): 1}, {np.float64("nan")}, {NAN: 2j, **dict.fromkeys(range(20), 2j)},
    dict.fromkeys([*range(20), NAN], 1), collections.OrderedDict({NAN: 1}),
    collections.ChainMap({NAN: np.ones(2)}), {(NAN, 1): [NAN], 0.5: {0.25, -1.5}},
]  # fmt: skip
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
ODD = dt.timezone(dt.timedelta(hours=1), "odd")
COLUMNS = [
    [1j, complex("nan"), -0j, complex("inf")], [dt.date(2020, 1, day) for day in range(1, 9)],
    [dt.datetime(2020, 10, 25, 2, 30, fold=n % 2) for n in range(5)],
    [dt.datetime(2020, 10, 25, 2, 30, fold=n % 2, tzinfo=BERLIN) for n in range(5)],
    tuple(dt.time(n, 1, 2, 3, tzinfo=ODD, fold=1) for n in range(5)),
    [dt.timedelta(-n, n, n) for n in range(5)],
    [decimal.Decimal(text) for text in ("1.20", "sNaN", "-0", "1E+5", "Infinity")],
    [fractions.Fraction(n, 7) for n in range(20)], [uuid.UUID(int=n) for n in range(5)],
    tuple(pathlib.PurePosixPath(f"/a/{n}") for n in range(5)),
    [ipaddress.ip_address(n) for n in range(5)],
    [ipaddress.ip_address(f"fe80::{n}%eth0") for n in range(5)],
    {n: decimal.Decimal(n) for n in range(6)}, {dt.date(2020, 1, n): [n] for n in range(1, 9)},
    {dt.datetime(2020, 1, n, tzinfo=BERLIN): [2j] for n in range(1, 9)},
    {dt.date(2020, 1, n): uuid.UUID(int=n) for n in range(1, 9)},
    {dt.datetime(2020, 1, n, tzinfo=dt.UTC): 1j * n for n in range(1, 9)},
    collections.deque([dt.date(2020, 1, n) for n in range(1, 9)], 20),
    collections.OrderedDict((n, 1j) for n in range(9)),
]  # fmt: skip
MIXED = [
    [1j, 1j, 1j, None], [1j, 1j, 1j, 1.0],
    [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * 3,
    [dt.datetime(2020, 1, 1), dt.date(2020, 1, 1)] * 3, [1j] * 3, {1j} | {1j + n for n in range(9)},
]  # fmt: skip


def others() -> list[object]:
    """Return more honest values."""
    views = [
        memoryview(bytearray(b"abcdefgh")).cast("I"),
        memoryview(b"abcdefgh").cast("h", [2, 2]),
        memoryview(b"\x00\x01").cast("?"),
        memoryview(b""),
        memoryview(b"a").cast("B", []),
    ]
    return [*VALUES, *COLUMNS, *MIXED, *views, *map(_drawn, (0, 1, 624, 5000))]


def _drawn(count: int) -> random.Random:
    """Return a generator that keeps a second number of two."""
    made = random.Random(5)
    for _ in range(count):
        made.random()
    made.gauss(0, 1)
    return made

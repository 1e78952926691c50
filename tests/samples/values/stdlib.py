"""Values of the standard library, and failures."""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import fractions
import ipaddress
import pathlib
import random
import re
import time
import types
import uuid
import zoneinfo
from collections.abc import Callable, Iterator


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
    }


def uses(value: object) -> Iterator[Callable[[], object]]:
    if isinstance(value, BaseException):
        yield lambda: (str(value), value.__cause__, value.__context__)
    if isinstance(value, collections.ChainMap | collections.Counter):
        yield lambda: dict(value)
    if isinstance(value, random.Random):
        yield lambda: (value.random(), value.gauss(0, 1), value.getrandbits(99))
    if isinstance(value, re.Pattern):
        yield lambda: value.match("ab" if isinstance(value.pattern, str) else b"ab")
    if isinstance(value, time.struct_time):
        yield lambda: (time.strftime("%c", value), time.mktime(value))
    if isinstance(value, array.array):
        yield lambda: (value.tolist(), value.byteswap())
    if isinstance(value, dt.datetime | dt.time):
        yield lambda: (value.utcoffset(), value.tzname(), value.isoformat())

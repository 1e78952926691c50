"""The standard library's values that no honest sender writes, and those that no sender sends."""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import functools
import http
import io
import ipaddress
import operator
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import types
import zoneinfo

import numpy as np

from safeser.families import plain
from tests.pickles.forging import Called, New
from tests.samples.typed import (
    encoded,
    hostile,
    lying,
    payload,
    ruled,
    sent,
    sent_as,
    swapped,
    typed,
)


class Kid(collections.OrderedDict):
    pass


def with_attribute():
    ordered = collections.OrderedDict()
    ordered.extra = 1
    return ordered


def chained(maps, **attributes):
    made = collections.ChainMap()
    made.maps = maps
    vars(made).update(attributes)
    return made


def holding(made, data):
    made.data = data
    return made


def no_text():
    made = array.array("u", "a")
    made.frombytes(b"\xff" * made.itemsize)
    return made


UTC = b"TZif" + bytes(16) + b"".join(n.to_bytes(4, "big") for n in (0, 0, 0, 0, 1, 4))
UTC += bytes(6) + b"UTC\0"


class OddZone(dt.tzinfo):
    pass


UNSENT = [
    (Kid(), "Kid"), (with_attribute(), "attributes"),
    (collections.defaultdict(lambda: 1), "factory"), (decimal.Decimal("1E+10000000"), "exponent"),
    (decimal.Decimal("NaN" + "1" * 20_000), "digits"),
    (pathlib.PurePosixPath("/a" * 20_000), "longer"), (memoryview(np.zeros(2, ">i4")), "format"),
    (memoryview(np.zeros((0, 2), "u1")), "empty"),
    (zoneinfo.ZoneInfo.from_file(io.BytesIO(UTC)), "time zones"),
    (dt.time(1, tzinfo=OddZone()), "OddZone"),
    (ipaddress.ip_address("fe80::1%" + "e" * 80), "scope"),
    (types.SimpleNamespace(**{"a b": 1}), "not plain"),
    (types.SimpleNamespace(**{"__class_getitem__": 1}), "not plain"),
    (types.SimpleNamespace(_repr_html_=functools.partial(str, "<script>")), "not plain"),
    (chained([types.SimpleNamespace()]), "ChainMap holds"), (chained([{}], extra=1), "attributes"),
    (no_text(), "no characters"), (holding(collections.UserDict(), []), "holds no"),
    (holding(collections.UserList(), {}), "holds no"),
    (holding(collections.Counter(), 1), "attributes"), (holding(random.Random(5), 1), "attributes"),
]  # fmt: skip


def described(name, value):
    """Return the payload of a type that is described by one plain value."""
    return typed(name, value=plain.encode(value))


DESCRIBED = {
    "families.value": [
        ("builtins:complex", (1, 2)), ("builtins:range", (0, 5, True)),
        ("datetime:date", (0, 1, 1)), ("datetime:datetime", (2020, 1, 1, 0, 0, 0, 0, 2, None)),
        ("datetime:time", (1, 2, 3, 4, 0, (9, 0, 0, None))),
        ("datetime:time", (1, 2, 3, 4, 0, (0, 0, 0, b"x"))),
        ("datetime:time", (1, 2, 3, 4, 0, (0.0, 0, 0, None))),
        ("datetime:time", (1, 2, 3, 4, 0, [0])), ("datetime:timedelta", (10**10, 0, 0)),
        ("datetime:timedelta", (0, -1, 0)), ("datetime:timezone", None), ("decimal:Decimal", 1),
        ("fractions:Fraction", (2, 4)), ("fractions:Fraction", (1, -3)),
        ("uuid:UUID", (b"short", None)), ("uuid:UUID", (bytes(16), 9)),
        ("pathlib:PosixPath", "a//b"), ("pathlib:PosixPath", 5), ("ipaddress:IPv4Address", 1),
        ("ipaddress:IPv4Address", "1.2.3"), ("ipaddress:IPv4Address", "1.2.3.04"),
        ("ipaddress:IPv6Address", "0:0::1"), ("ipaddress:IPv4Network", "10.0.0.1/8"),
        ("ipaddress:IPv4Network", "10.0.0.0"), ("ipaddress:IPv4Interface", "10.0.0.1/33"),
    ],
    "value.range": [("builtins:range", (0, 5, 0))],
    "value.time-zone": [
        ("datetime:datetime", (2020, 1, 1, 0, 0, 0, 0, 0, ("../../etc/passwd",))),
        ("datetime:datetime", (2020, 1, 1, 0, 0, 0, 0, 0, ("/etc/passwd",))),
        ("datetime:datetime", (2020, 1, 1, 0, 0, 0, 0, 0, (5,))),
    ],
    "value.decimal": [
        ("decimal:Decimal", "1E+1000000000000"), ("decimal:Decimal", " 1"),
        ("decimal:Decimal", "\u0661"), ("decimal:Decimal", "1_0"),
        ("decimal:Decimal", "0E-99999999999"), ("decimal:Decimal", "1" * 70_000),
    ],
    "value.fraction": [("fractions:Fraction", (1, 0)), ("fractions:Fraction", (1 << 100_000, 3))],
    "value.path": [("pathlib:PurePosixPath", "/a" * 20_000)],
    "value.address": [("ipaddress:IPv6Address", "::1%" + "x" * 100)],
}  # fmt: skip


STATE = random.Random(5).getstate()
MAKE = random.Random(5).__reduce__()[0]


def random_of(*state):
    return Called(MAKE, state=state)


def time_of(*parts):
    return Called(time.struct_time, *parts)


CALLED = {
    "value.pattern": [
        ("re:Pattern", Called(re._compile, "a" * 5000, 32)),
        ("re:Pattern", Called(re._compile, "(?i)[\0-\U0010ffff]" * 9, 34)),
        ("re:Pattern", Called(re._compile, "a", 1 << 20)),
    ],
    "families.arguments": [
        ("re:Pattern", Called(re._compile, "(", 32)), ("re:Pattern", Called(re._compile, "a")),
        ("re:Pattern", Called(re._compile, 5, 32)), ("time:struct_time", time_of((1,) * 8)),
        ("time:struct_time", time_of((1.5,) * 9)), ("random:Random", random_of(*STATE[1])),
        ("http:HTTPStatus", Called(http.HTTPStatus, 999)), ("types:alias", list["int"]),
        ("_io:stream", New(io.StringIO, ("a", "x", 0, None))),
    ],
    "families.class": [
        ("re:Pattern", "a"), ("re:Pattern", time_of((1,) * 9)), ("builtins:reference", 5),
        ("http:HTTPStatus", signal.SIGINT), ("types:alias", int),
    ],
    "families.global": [
        ("operator:itemgetter", operator.attrgetter("unlink")),
        ("functools:partial", functools.partial(operator.attrgetter("unlink"), pathlib.Path("x"))),
        ("functools:partial", functools.partial(operator.methodcaller("lower"), "x")),
        ("functools:partial", functools.partial("x".join, [])),
        ("builtins:reference", os.system), ("builtins:reference", subprocess.Popen),
        ("builtins:reference", np.load), ("builtins:reference", np.ndarray.tofile),
        ("functools:partial", functools.partial(os.system, "id")),
        ("functools:partial", functools.partial(int, base=os.getcwd)),
        ("types:alias", list[subprocess.Popen]),
    ],
    "value.number": [
        ("time:struct_time", time_of((1 << 40,) * 9)),
        ("random:Random", random_of(3, (*STATE[1][:-1], 700), None)),
        ("_io:stream", New(io.BytesIO, (b"abc", 1 << 40, None))),
    ],
    "value.text": [("time:struct_time", time_of((1,) * 9, {"tm_zone": "x" * 9999}))],
    "families.state": [
        ("random:Random", random_of(3, STATE[1][:-1], None)),
        ("random:Random", random_of(2, STATE[1], None)),
    ],
    "value.random-state": [("random:Random", random_of(3, (0,) * 625, None))],
}  # fmt: skip


GOOD = {"code": "d", "itemsize": 8, "order": sys.byteorder}
ARRAYS = {
    "families.header": [
        ({"code": "O"},), ({"code": ["d"]},), ({"code": "dd"},), ({"order": "middle"},),
    ],
    "families.platform": [({"itemsize": 4},), ({"itemsize": 8.0},)],
    "families.shape": [({}, bytes(9))],
    "families.build": [({"code": "u", "itemsize": 4}, b"\xff")],
}  # fmt: skip

VIEW = {"format": "h", "shape": [2, 2], "writeable": True}
VIEWS = {
    "families.header": [{"format": "P"}, {"format": ["h"]}, {"writeable": 1}],
    "families.shape": [
        *({"shape": 4}, {"shape": [1] * 33}, {"shape": [-2, -2]}, {"shape": [True, 4]}),
        *({"shape": [2, 0]}, {"shape": [1 << 62, 1 << 62]}, {"shape": [3]}, {"format": "b"}),
    ],
}


def column(name, flat, *, kind="list", **meta):
    header = {"serializer": "dask", "type": f"builtins:{kind}", "sub-header": {"of": name, **meta}}
    return header, [plain.encode(flat)]


NONE = plain.encode(None)
COLUMNS = [
    (*column("builtins:range", [1, 2, 3]), "families.type"),
    (*column("os:system", ["true"]), "families.type"),
    (*column(["datetime:date"], [1, 1, 1]), "families.type"),
    (*column("datetime:date", [1, 1, 1], x=1), "families.header"),
    (*column("datetime:date", [1, 1]), "families.count"),
    (*column("datetime:date", [1, 1, 1, 1]), "families.count"),
    (*column("datetime:date", (1, 1, 1)), "families.count"),
    (*column("datetime:date", [0, 1, 1]), "families.value"),
    (*column("datetime:date", [1, True, 1]), "families.value"),
    (*column("datetime:datetime", [2020, 1, 1] + [0] * 5), "families.header"),
    (*column("datetime:datetime", [2020, 1, 1] + [0] * 5, zone=5), "families.header"),
    (*column("datetime:datetime", [2020, 1, 1] + [0] * 5, zone=b"\xc1"), "families.msgpack"),
    (
        *column("datetime:datetime", [2020, 1, 1] + [0] * 5, zone=plain.encode(("/etc",))),
        "value.time-zone",
    ),
    (*column("datetime:time", [25, 0, 0, 0, 0], zone=NONE), "families.value"),
    (*column("decimal:Decimal", ["1E+10000000"]), "value.decimal"),
    (*column("decimal:Decimal", [1]), "families.value"),
    (*column("fractions:Fraction", [2, 4]), "families.value"),
    (*column("pathlib:PurePosixPath", ["a//b"]), "families.value"),
    (*column("builtins:complex", [1.0, 2]), "families.value"),
]


def changed_array(changes, frame=bytes(8)):
    return typed("array:array", frames=[frame], **{**GOOD, **changes})


def changed_view(changes):
    return typed("builtins:memoryview", frames=[bytes(8)], **{**VIEW, **changes})


SHORT = sent(re.compile("a"))[0]["sub-header"]["tree"]
LONG = sent(random.Random(5))[1]
EMPTY = {"of": "datetime:datetime", "zone": plain.encode([None] * 1000)}
NOWHERE = {"of": "datetime:datetime", "zone": plain.encode(("Europe/Nowhere",))}
OTHER = "WindowsPath" if type(pathlib.Path()) is pathlib.PosixPath else "PosixPath"
LIST, DICT = encoded([1]), encoded({1: 2})
MISPLACED = {
    "families.frame-count": [typed("re:Pattern")],
    "families.buffers": [typed("re:Pattern", frames=[b"a"], tree=SHORT)],
    "families.truncated": [typed("re:Pattern", tree=b"")],
    "families.tree": [
        typed("random:Random", frames=[LONG[0][:-1]]), typed("re:Pattern", tree=b"\xc1"),
    ],
    "families.header": [
        typed("re:Pattern", frames=[SHORT]), typed("re:Pattern", tree=SHORT, more=1),
        typed("random:Random", frames=[*LONG, b"a"]),
        *(typed("re:Pattern", tree=tree) for tree in ("text", None, [], bytes(1025))),
        typed("builtins:ellipsis", value=1),
    ],
    "families.value": [typed("builtins:list", frames=[plain.encode([])], **EMPTY)],
    "value.time-zone": [typed("builtins:list", frames=[plain.encode([])], **NOWHERE)],
    "families.platform": [typed(f"pathlib:{OTHER}", value=plain.encode("c:\\x"))],
    "value.deque": [lying(collections.deque([1, 2]), "maxlen", to=1)],
    "families.content": [swapped(memoryview(b"\0\1").cast("?"), 0, b"\0\2")],
    "families.child-type": [
        typed("collections:deque", DICT, maxlen=None),
        typed("collections:OrderedDict", LIST, attributes=[]), typed("collections:Counter", LIST),
        typed("collections:defaultdict", LIST, factory=""), typed("collections:UserDict", LIST),
        typed("collections:UserList", DICT), typed("builtins:dict_items", LIST),
    ],
    "value.chain-map": [typed("collections:ChainMap", LIST)],
}  # fmt: skip

HOSTILE = [
    *hostile(described, DESCRIBED), *hostile(sent_as, CALLED), *hostile(changed_array, ARRAYS),
    *hostile(changed_view, VIEWS), *ruled(payload, COLUMNS), *hostile(payload, MISPLACED),
]  # fmt: skip

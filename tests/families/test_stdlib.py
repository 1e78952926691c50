"""Standard library values: exact round trips, and headers that lie."""

import array
import collections
import copy
import datetime as dt
import decimal
import fractions
import io
import ipaddress
import pathlib
import re
import statistics
import sys
import time
import types
import uuid
import zoneinfo

import numpy as np
import pytest
from families_attack import FAMILIES, GRANT, mutate_all, through
from hypothesis import given
from hypothesis import strategies as st

from safeser import families
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.families import plain
from safeser.types import stdlib
from safeser.values import Grant

VALUES = [
    1 - 2j,
    complex("nan"),
    range(5),
    range(10, -(1 << 70), -3),
    slice(1, None, 2),
    slice("a", dt.date(2020, 1, 1)),
    dt.date(2020, 2, 29),
    dt.time(1, 2, 3, 4, fold=1, tzinfo=dt.UTC),
    dt.datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
    dt.datetime.max,
    dt.timedelta.min,
    dt.UTC,
    dt.timezone(dt.timedelta(hours=-3, microseconds=5), "odd"),
    zoneinfo.ZoneInfo("UTC"),
    *map(decimal.Decimal, ("1.20", "-0", "NaN12", "sNaN", "-Infinity", "1E+10000", "0E-65536")),
    fractions.Fraction(-(1 << 90), 7),
    uuid.uuid4(),
    uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe),
    pathlib.PurePosixPath("/a/../b"),
    pathlib.PureWindowsPath("c:\\x"),
    pathlib.Path("."),
    b"x" * 5000,
    bytearray(b"abc"),
    bytearray(),
    collections.deque([1, (2,)], 5),
    collections.deque(),
    collections.OrderedDict([((1,), 2), ("b", dt.date(1, 1, 1))]),
    collections.Counter("abca"),
    collections.defaultdict(list, {1: [2j]}),
    collections.defaultdict(None, {}),
    array.array("d", [1.5, float("nan")]),
    array.array("b"),
    array.array("Q", range(100)),
    array.array("u", "a\U0001f600\ud800"),
    ipaddress.ip_address("10.0.0.1"),
    ipaddress.ip_address("fe80::1%eth0"),
    ipaddress.ip_network("10.0.0.0/8"),
    ipaddress.ip_network("fe80::/64"),
    ipaddress.ip_interface("10.1.2.3/8"),
    ipaddress.ip_interface("::1/128"),
    ...,
    NotImplemented,
    types.SimpleNamespace(),
    types.SimpleNamespace(b=1, a=[dt.date(1, 1, 1)], c="x" * 5000),
    collections.ChainMap({"a": 1}, collections.OrderedDict(b=2j)),
    collections.ChainMap(collections.ChainMap({}), collections.Counter(a=-1)),
    collections.ChainMap(collections.UserDict(a=1)),
    slice([1], slice(2), np.arange(3)),
    types.SimpleNamespace(**{"class": 1}),
    collections.Counter({"a": "not a number", "b": 1.5}),
    collections.OrderedDict(a=slice(...), b=NotImplemented),
    collections.UserDict({1: [2j]}),
    collections.UserList([1, ...]),
    re.compile("a(?i:b)[c-d]+", re.MULTILINE),
    re.compile(b"(?x) a  # b"),
    time.gmtime(5),
    time.struct_time(range(9)),
    {dt.date(2020, 1, 1): {uuid.UUID(int=1), 5}, 1: (frozenset({2j}), [None])},
    [(), {}, {"a": bytearray(b"x")}],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_round_trip(value):
    back = through(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    if isinstance(value, uuid.UUID):
        assert back.is_safe is value.is_safe


@given(
    st.datetimes(timezones=st.none() | st.timezone_keys(allow_prefix=False).map(zoneinfo.ZoneInfo))
    | st.times()
    | st.dates()
    | st.timedeltas()
    | st.decimals()
    | st.fractions()
    | st.uuids()
    | st.complex_numbers()
)
def test_round_trip_of_any(value):
    back = through(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    ("view", "flat"),
    [
        (memoryview(b"abcd"), b"abcd"),
        (memoryview(bytearray(b"abcdefgh")).cast("I"), b"abcdefgh"),
        (memoryview(b"abcdefgh").cast("h", [2, 2]), b"abcdefgh"),
        (memoryview(b"abcdefgh")[::2], b"aceg"),
        (memoryview(b"\x00\x01").cast("?"), b"\x00\x01"),
        (memoryview(b""), b""),
        (memoryview(b"a").cast("B", []), b"a"),
    ],
)
def test_memoryviews(view, flat):
    back = through(view)
    assert (back.format, back.shape, back.readonly) == (view.format, view.shape, view.readonly)
    assert back.tobytes() == flat


def test_buffers_are_not_copied():
    big = b"x" * 100_000
    header, frames = families.serialize(big, FAMILIES)
    assert frames[0] is big
    assert families.deserialize(header, frames, GRANT) is big
    assert families.deserialize(header, [memoryview(big + b"y")[:-1]], GRANT) == big
    header, frames = families.serialize(memoryview(big), FAMILIES)
    assert families.deserialize(header, frames, GRANT).obj is big


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


def no_text():
    made = array.array("u", "a")
    made.frombytes(b"\xff" * made.itemsize)
    return made


UTC = b"TZif" + bytes(16) + b"".join(n.to_bytes(4, "big") for n in (0, 0, 0, 0, 1, 4))
UTC += bytes(6) + b"UTC\0"


class OddZone(dt.tzinfo):
    pass


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (Kid(), "Kid"),
        (with_attribute(), "attributes"),
        (collections.defaultdict(lambda: 1), "factory"),
        (decimal.Decimal("1E+10000000"), "exponent"),
        (decimal.Decimal("1E+999999"), "exponent"),
        (decimal.Decimal("1" * 20_000), "digits"),
        (decimal.Decimal("NaN" + "1" * 20_000), "digits"),
        (pathlib.PurePosixPath("/a" * 20_000), "longer"),
        (pathlib.PurePosixPath("/a" * 3_000), "parts"),
        (pathlib.PurePosixPath("a\0b"), "NUL"),
        (range(1 << 2000), "bits"),
        (fractions.Fraction(1, 1 << 70_000), "8 KiB"),
        (memoryview(np.zeros(2, ">i4")), "format"),
        (memoryview(np.zeros((0, 2), "u1")), "empty"),
        (zoneinfo.ZoneInfo.from_file(io.BytesIO(UTC)), "time zones"),
        (dt.time(1, tzinfo=OddZone()), "OddZone"),
        (dt.timezone(dt.timedelta(1 / 24), "n" * 257), "name"),
        (ipaddress.ip_address("fe80::1%" + "e" * 80), "scope"),
        (types.SimpleNamespace(**{"a b": 1}), "not plain"),
        (types.SimpleNamespace(**{"__class_getitem__": 1}), "not plain"),
        (chained([types.SimpleNamespace()]), "ChainMap holds"),
        (chained([{}], extra=1), "attributes"),
        (no_text(), "no characters"),
    ],
)
def test_what_would_be_altered_is_refused(value, word):
    with pytest.raises(PayloadError) as caught:
        families.serialize([value], FAMILIES)
    assert caught.value.rule == "families.cannot-serialize"
    assert word in str(caught.value)


def use(value):
    repr(value)
    copy.copy(value)
    if isinstance(value, (list, tuple, set, dict, collections.deque)):
        list(value)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_headers_that_lie(value):
    mutate_all(value, use)


def described(name, value):
    return {"serializer": "dask", "type": name, "sub-header": {"value": plain.encode(value)}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("builtins:complex", (1, 2)),
        ("builtins:range", (0, 5, 0)),
        ("builtins:range", (0, 5, True)),
        ("datetime:date", (0, 1, 1)),
        ("datetime:datetime", (2020, 1, 1, 0, 0, 0, 0, 2, None)),
        ("datetime:datetime", (2020, 1, 1, 0, 0, 0, 0, 0, ("../../etc/passwd",))),
        ("datetime:datetime", (2020, 1, 1, 0, 0, 0, 0, 0, ("/etc/passwd",))),
        ("datetime:datetime", (2020, 1, 1, 0, 0, 0, 0, 0, (5,))),
        ("datetime:time", (1, 2, 3, 4, 0, (9, 0, 0, None))),
        ("datetime:time", (1, 2, 3, 4, 0, (0, 0, 0, b"x"))),
        ("datetime:time", (1, 2, 3, 4, 0, (0.0, 0, 0, None))),
        ("datetime:time", (1, 2, 3, 4, 0, [0])),
        ("datetime:timedelta", (10**10, 0, 0)),
        ("datetime:timedelta", (0, -1, 0)),
        ("datetime:timezone", None),
        ("decimal:Decimal", "1E+1000000000000"),
        ("decimal:Decimal", " 1"),
        ("decimal:Decimal", "\u0661"),
        ("decimal:Decimal", "1_0"),
        ("decimal:Decimal", 1),
        ("decimal:Decimal", "0E-99999999999"),
        ("fractions:Fraction", (2, 4)),
        ("fractions:Fraction", (1, 0)),
        ("fractions:Fraction", (1, -3)),
        ("fractions:Fraction", (1 << 100_000, 3)),
        ("uuid:UUID", (b"short", None)),
        ("uuid:UUID", (bytes(16), 9)),
        ("pathlib:PosixPath", "a//b"),
        ("pathlib:PurePosixPath", "/a" * 20_000),
        ("decimal:Decimal", "1" * 70_000),
        ("pathlib:PosixPath", 5),
        ("ipaddress:IPv4Address", 1),
        ("ipaddress:IPv4Address", "1.2.3"),
        ("ipaddress:IPv4Address", "1.2.3.04"),
        ("ipaddress:IPv6Address", "0:0::1"),
        ("ipaddress:IPv6Address", "::1%" + "x" * 100),
        ("ipaddress:IPv4Network", "10.0.0.1/8"),
        ("ipaddress:IPv4Network", "10.0.0.0"),
        ("ipaddress:IPv4Interface", "10.0.0.1/33"),
    ],
)
def test_descriptions_that_lie(name, value):
    with pytest.raises(PayloadError) as caught:
        families.check(described(name, value), [])
    assert caught.value.rule.startswith(("families.value", "value."))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("datetime:datetime", (2020, 1, 1, 0, 0, 0, 0, 0)),
        ("datetime:time", (1, 2, 3, 4, 0)),
        ("zoneinfo:ZoneInfo", None),
    ],
)
def test_a_zone_is_looked_up_only_when_it_is_loaded(name, value, monkeypatch):
    looked = []
    monkeypatch.setattr(stdlib, "_zone_keys", lambda: looked.append(1) or frozenset({"UTC"}))
    made = {}
    for key in ("UTC", "Mars/Olympus"):
        made[key] = described(name, (key,) if value is None else (*value, (key,)))
        families.check(made[key], [])
    assert not looked
    families.deserialize(made["UTC"], [], GRANT)
    assert looked
    with pytest.raises(PayloadError) as caught:
        families.deserialize(made["Mars/Olympus"], [], GRANT)
    assert caught.value.rule == "value.time-zone"


def test_counts_that_lie():
    header, frames = families.serialize(collections.deque([1, 2]), FAMILIES)
    header["sub-header"]["maxlen"] = 1  # would drop an element
    with pytest.raises(PayloadError, match="drops some of it"):
        families.deserialize(header, frames, GRANT)
    header, frames = families.serialize(memoryview(b"\0\1").cast("?"), FAMILIES)
    with pytest.raises(PayloadError) as caught:
        families.check(header, [b"\0\2"])
    assert caught.value.rule == "families.content"


def typed(name, **meta):
    return {"serializer": "dask", "type": name, "sub-header": meta}


GOOD = {"code": "d", "itemsize": 8, "order": sys.byteorder}


@pytest.mark.parametrize(
    ("meta", "frame", "rule"),
    [
        ({**GOOD, "code": "O"}, bytes(8), "families.header"),
        ({**GOOD, "code": ["d"]}, bytes(8), "families.header"),
        ({**GOOD, "code": "dd"}, bytes(8), "families.header"),
        ({**GOOD, "order": "middle"}, bytes(8), "families.header"),
        ({**GOOD, "itemsize": 4}, bytes(8), "families.platform"),
        ({**GOOD, "itemsize": 8.0}, bytes(8), "families.platform"),
        (GOOD, bytes(9), "families.shape"),
        ({**GOOD, "code": "u", "itemsize": 4}, b"\xff", "families.build"),
    ],
)
def test_arrays_that_lie(meta, frame, rule):
    with pytest.raises(PayloadError) as caught:
        families.deserialize(typed("array:array", **meta), [frame], GRANT)
    assert caught.value.rule == rule


def test_arrays_of_another_byte_order():
    sent = array.array("H", [1, 2])
    sent.byteswap()
    other = "big" if sys.byteorder == "little" else "little"
    header = typed("array:array", code="H", itemsize=2, order=other)
    assert families.deserialize(header, [sent.tobytes()], GRANT) == array.array("H", [1, 2])
    if array.array("u").itemsize != 4:
        return
    header = typed("array:array", code="w", itemsize=4, order="little")
    if sys.version_info >= (3, 13):
        assert families.deserialize(header, [b"ab"], GRANT).tounicode() == "ab"
    else:
        with pytest.raises(PayloadError, match="no such type code"):
            families.check(header, [b"ab"])


def test_paths_of_another_system_are_refused_clearly():
    other = "WindowsPath" if type(pathlib.Path()) is pathlib.PosixPath else "PosixPath"
    header = typed(f"pathlib:{other}", value=plain.encode("c:\\x"))
    with pytest.raises(PayloadError, match="send its pure kind") as caught:
        families.check(header, [])
    assert caught.value.rule == "families.platform"


def test_containers_hold_what_they_say():
    plain_list, plain_dict = (
        ({"serializer": "msgpack"}, plain.encode(value)) for value in ([1], {1: 2})
    )
    for name, meta, (header, frame) in (
        ("collections:deque", {"maxlen": None}, plain_dict),
        ("collections:OrderedDict", {}, plain_list),
        ("collections:Counter", {}, plain_list),
        ("collections:defaultdict", {"factory": ""}, plain_list),
        ("collections:ChainMap", {}, plain_list),
    ):
        forged = {**typed(name, **meta), "sub-headers": [header], "frame-lengths": [1]}
        with pytest.raises(PayloadError):
            families.deserialize(forged, [frame], GRANT)
    with pytest.raises(PayloadError):
        families.check(typed("builtins:ellipsis", value=1), [])


def test_containers_of_what_only_a_pickle_carries():
    wide = Grant("wide", (*FAMILIES, "pickle"))
    inner = statistics.NormalDist(1, 2)
    for value in (
        collections.OrderedDict(a=inner),
        collections.deque([inner], 3),
        collections.defaultdict(list, {1: inner}),
        collections.Counter(a=inner),
        types.SimpleNamespace(a=inner),
        collections.ChainMap({"a": inner}),
    ):
        header, frames = families.serialize(value, wide.families)
        assert header["serializer"] == "dask"
        back = families.deserialize(header, frames, wide)
        assert (type(back), back) == (type(value), value)
        with pytest.raises(PolicyDenied):
            families.deserialize(header, frames, GRANT)
    header, frames = families.serialize(collections.deque([inner]), wide.families)
    other = families.serialize(inner, wide.families)[1]
    with pytest.raises(PayloadError) as caught:  # a pickle of no list
        families.deserialize(header, other, wide)
    assert caught.value.rule == "families.build"


VIEW = {"format": "h", "shape": [2, 2], "writeable": True}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"format": "P"}, "families.header"),
        ({"format": ["h"]}, "families.header"),
        ({"writeable": 1}, "families.header"),
        ({"shape": 4}, "families.shape"),
        ({"shape": [1] * 33}, "families.shape"),
        ({"shape": [-2, -2]}, "families.shape"),
        ({"shape": [True, 4]}, "families.shape"),
        ({"shape": [2, 0]}, "families.shape"),
        ({"shape": [1 << 62, 1 << 62]}, "families.shape"),
        ({"shape": [3]}, "families.shape"),
        ({"format": "b"}, "families.shape"),
    ],
)
def test_views_that_lie(changes, rule):
    header = typed("builtins:memoryview", **{**VIEW, **changes})
    with pytest.raises(PayloadError) as caught:
        families.check(header, [bytes(8)])
    assert caught.value.rule == rule


def test_a_view_that_may_be_written_to_changes_nobody_elses_bytes():
    frame = bytes(8)
    back = families.deserialize(typed("builtins:memoryview", **VIEW), [frame], GRANT)
    back[0, 0] = 5
    assert frame == bytes(8)
    frame = bytearray(8)
    read_only = typed("builtins:memoryview", **{**VIEW, "writeable": False})
    assert families.deserialize(read_only, [frame], GRANT).readonly


def test_ordinary_containers_keep_no_attributes():
    counted = collections.Counter()
    counted.extra = 1
    with pytest.raises(SafeserError, match="attributes"):
        families.serialize(counted, FAMILIES)

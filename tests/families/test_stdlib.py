"""Standard library values: exact round trips, and headers that lie."""

import collections
import copy
import datetime as dt
import decimal
import fractions
import io
import pathlib
import uuid
import zoneinfo

import numpy as np
import pytest
from families_attack import FAMILIES, GRANT, mutate_all, through
from hypothesis import given
from hypothesis import strategies as st

from safeser import families
from safeser.errors import PayloadError
from safeser.families import plain, zones

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
    *map(decimal.Decimal, ("1.20", "-0", "NaN12", "sNaN", "-Infinity", "1E+1000", "0E-999999")),
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
        (fractions.Fraction(1, 1 << 70_000), "8 KiB"),
        (memoryview(np.zeros(2, ">i4")), "format"),
        (memoryview(np.zeros((0, 2), "u1")), "empty"),
        (zoneinfo.ZoneInfo.from_file(io.BytesIO(UTC)), "time zones"),
        (dt.time(1, tzinfo=OddZone()), "OddZone"),
        (dt.timezone(dt.timedelta(1 / 24), "n" * 101), "name"),
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
        ("pathlib:PosixPath", 5),
    ],
)
def test_descriptions_that_lie(name, value):
    with pytest.raises(PayloadError) as caught:
        families.check(described(name, value), [])
    assert caught.value.rule in ("families.value", "families.time-zone")


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
    monkeypatch.setattr(zones, "_keys", lambda: looked.append(1) or frozenset({"UTC"}))
    made = {}
    for key in ("UTC", "Mars/Olympus"):
        made[key] = described(name, (key,) if value is None else (*value, (key,)))
        families.check(made[key], [])
    assert not looked
    families.deserialize(made["UTC"], [], GRANT)
    assert looked
    with pytest.raises(PayloadError) as caught:
        families.deserialize(made["Mars/Olympus"], [], GRANT)
    assert caught.value.rule == "families.time-zone"


def test_counts_that_lie():
    header, frames = families.serialize(collections.deque([1, 2]), FAMILIES)
    header["sub-header"]["maxlen"] = 1  # would drop an element
    with pytest.raises(PayloadError, match="cannot be built"):
        families.deserialize(header, frames, GRANT)
    header, frames = families.serialize(memoryview(b"\0\1").cast("?"), FAMILIES)
    with pytest.raises(PayloadError) as caught:
        families.check(header, [b"\0\2"])
    assert caught.value.rule == "families.content"
